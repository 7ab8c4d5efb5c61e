"""The four-dimensional integral against the raw scores, samples, identities and wrong actions."""

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss

from mcattn import linear_exact, theory
from mcattn.errors import ModelError
from mcattn.model import CopyModel

UNEQUAL = (0.5, 0.3, 0.2)
REFERENCE = CopyModel(L=32, V=4, attention="linear", kappa=1, g_s=1, g_w=0.1)
PAIR = CopyModel(L=2, V=3, attention="linear", kappa=1, g_s=1, g_w=0.5)
RARE = CopyModel(L=2, V=2, attention="linear", kappa=0.7, g_s=2, g_w=0.2, tokens=(0.85, 0.15))
# P, chi and how far the weight reaches along each axis, from scattered tau to two sharp values.
STATES = [
    pytest.param(PAIR, 3.0, 5.0, 3.3, id="uniform-below"),
    pytest.param(PAIR, 6.0, 4.0, 3.6, id="uniform-above"),
    pytest.param(RARE, 2.0, 4.0, 4.8, id="unequal-below"),
    pytest.param(RARE, 5.0, 2.0, 6.5, id="unequal-above"),
]


# --- a second action, from the definition, and its integral over raw scores -----------------


def token_means(model):
    """Means over one random sequence of x^b x^b'^T and y^a x^b^T, shape (2, a, b, i, j)."""
    p = np.full(model.V, 1 / model.V) if model.tokens is None else np.array(model.tokens)
    same, apart = np.diag(p), np.outer(p, p)
    T = np.array([[same if a == b else apart for b in range(model.L)] for a in range(model.L)])
    U = np.array(
        [
            [same if b == (a - 1) % model.L else apart for b in range(model.L)]
            for a in range(model.L)
        ]
    )
    return T, U


def raw_action(S, model, P, chi, log_det_sign=1.0):
    """F and the test loss, shape (n,), of the scores S, shape (n, a, b): theory.md, first part."""
    T, U = token_means(model)
    G = np.einsum("nab,nac,bcij->nij", S, S, T, optimize=True) / model.L
    C = np.einsum("nab,abij->nij", S, U) / model.L
    ridge = model.kappa / (model.g_w * P)
    M = G + ridge * np.eye(model.V)
    W = C @ np.linalg.inv(M)
    fit = (W * C).sum(axis=(1, 2))
    energy = (S * S).sum(axis=(1, 2)) / (2 * model.g_s) + P / (2 * model.kappa) * (1 - fit)
    log_det = np.linalg.slogdet(M / ridge)[1]
    loss = 1 - 2 * fit + ((W @ G) * W).sum(axis=(1, 2))
    return chi * energy + log_det_sign * model.V / 2 * log_det, loss


def observables(S):
    """m, q, tau, r, |S|^2, shape (5, n), of linear attention, written out for any L."""
    L = S.shape[1]
    t = S.sum(axis=2)
    m = sum(S[:, a, (a - 1) % L] for a in range(L)) / L
    s2 = (S * S).sum(axis=(1, 2))
    return np.array([m, s2 / L, t.sum(axis=1) / L, (t * t).sum(axis=1) / L, s2])


def means(S, loss, weight):
    """The fields of Averages that are averages, from weighted scores with tau > 0."""
    m, q, tau, r, s2 = observables(S)
    L = S.shape[1]
    beta = (L * m - tau) / (L - 1)
    columns = {"m2": m * m, "tau2": tau**2, "tau4": tau**4, "abs_tau": tau, "signed_m": m}
    columns |= {"signed_alpha": tau - beta, "signed_beta": beta, "q": q, "r": r, "s2": s2}
    return {name: float(weight @ x) for name, x in (columns | {"loss": loss}).items()}


def raw_averages(model, P, chi, reach, n=18, log_det_sign=1.0):
    """Averages over the four raw scores of L = 2, on axes turned by 45 degrees.

    The first axis is tau and the second the difference of the row sums. Both run over positive
    values: A -> -A turns the first, relabelling the two positions turns the second.
    """
    (y, v), (x, w) = leggauss(n), leggauss(9 * n // 5)
    half, half_w = reach * (y + 1) / 2, reach * v / 2
    axes = (half, half, reach * x, reach * x)
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 4)
    turn = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]) / 2
    S = (points @ turn).reshape(-1, 2, 2)
    F, loss = raw_action(S, model, P, chi, log_det_sign)
    density = np.exp(F.min() - F)
    outermost = np.abs(points).max(axis=1) >= reach * x[-1]
    assert density[outermost].max() < 1e-8
    weight = density * np.einsum("i,j,k,l->ijkl", half_w, half_w, reach * w, reach * w).ravel()
    total = weight.sum()
    return means(S, loss, weight / total) | {"ln_z": math.log(4 * total) - float(F.min())}


@pytest.mark.parametrize(("model", "P", "chi", "reach"), STATES)
def test_every_average_against_the_raw_scores(model, P, chi, reach):
    found = linear_exact.averages(model, P, chi)
    brute = raw_averages(model, P, chi, reach)
    assert found.error < 1e-8
    for name, value in brute.items():
        # The grid's own error: 2e-7 by its change from 18 to 24 nodes, tails 1e-8.
        assert getattr(found, name) == pytest.approx(value, rel=1e-6), name
    assert found.var_abs_tau == pytest.approx(found.tau2 - found.abs_tau**2, rel=1e-12)


def test_wrong_sign_of_the_log_determinant_is_seen():
    right, wrong = (raw_averages(PAIR, 3.0, 5.0, 4.5, 14, s) for s in (1, -1))
    assert all(abs(wrong[name] / right[name] - 1) > 1e-3 for name in right)


def test_wrong_dimension_of_the_rest_is_seen(monkeypatch):
    """One direction too many in the last radius: the mistake a miscount would make."""
    right = linear_exact.averages(PAIR, 3.0, 5.0)
    init = linear_exact._Integral.__init__

    def miscounted(self, *state):
        init(self, *state)
        self.rest += 1

    monkeypatch.setattr(linear_exact._Integral, "__init__", miscounted)
    wrong = linear_exact.averages(PAIR, 3.0, 5.0)
    for name in ("q", "tau2", "m2", "loss"):
        assert abs(getattr(wrong, name) / getattr(right, name) - 1) > 1e-3, name


@pytest.mark.parametrize(
    ("model", "P", "chi"),
    [
        (CopyModel(5, 3, "linear", g_s=1, g_w=0.3), 4.0, 10.0),
        (CopyModel(4, 3, "linear", g_s=1, g_w=0.3, tokens=(0.6, 0.3, 0.1)), 3.0, 10.0),
    ],
    ids=["uniform", "unequal"],
)
def test_against_weighted_samples_of_the_prior(model, P, chi):
    """More scores than a grid can hold: prior samples weighted by the rest of exp(-F)."""
    n = 40_000
    rng = np.random.default_rng(7)
    S = rng.normal(scale=math.sqrt(model.g_s / chi), size=(n, model.L, model.L))
    S *= np.where(S.sum(axis=(1, 2)) < 0, -1, 1)[:, None, None]
    F, loss = raw_action(S, model, P, chi)
    F -= chi * (S * S).sum(axis=(1, 2)) / (2 * model.g_s)
    w = np.exp(F.min() - F)
    share = w / w.sum()
    assert 1 / (share @ share) > 0.1 * n  # enough effective samples for the error below
    found = linear_exact.averages(model, P, chi)
    center = means(S, loss, share)
    for name, value in center.items():
        batches = [means(*part, p / p.sum())[name] for *part, p in _split(S, loss, w)]
        error = np.std(batches, ddof=1) / math.sqrt(len(batches))
        assert abs(getattr(found, name) - value) < 4.5 * error, name  # 22 looks at fixed seeds
    volume = model.L**2 / 2 * math.log(2 * math.pi * model.g_s / chi)
    error = w.std() / w.mean() / math.sqrt(n)
    assert abs(found.ln_z - volume + F.min() - math.log(w.mean())) < 4.5 * error


def _split(*arrays):
    return zip(*(np.array_split(x, 30) for x in arrays), strict=True)


# --- identities at any L --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("L", "tokens", "ratio", "chi"),
    [
        (2, None, 1.5, 10.0),
        (3, UNEQUAL, 0.5, 30.0),
        (7, UNEQUAL, 3.0, 100.0),
        (64, UNEQUAL, 1.1, 300.0),
    ],
)
def test_ln_z_gives_the_mean_square_of_the_scores(L, tokens, ratio, chi):
    """d ln Z / d(1/g_s) = -chi <|S|^2>/2, from below the onset to far above it."""
    model = CopyModel(L, 3, "linear", g_s=1, g_w=0.2, tokens=tokens)
    P = ratio * theory.critical_P(model)
    here = linear_exact.averages(model, P, chi)
    h = 1e-3  # in 1/g_s: truncation ~ h^2 = 1e-6 of the slope
    ahead, behind = (
        linear_exact.averages(replace(model, g_s=1 / (1 + x)), P, chi).ln_z for x in (h, -h)
    )
    slope = (ahead - behind) / (2 * h)
    assert slope == pytest.approx(-chi * here.s2 / 2, rel=2e-5)
    assert here.error < 1e-8
    assert here.tau4 >= here.tau2**2
    assert here.tau2 >= here.abs_tau**2
    assert here.r >= here.tau2
    assert here.q >= here.m2
    assert here.signed_alpha + here.signed_beta == pytest.approx(here.abs_tau)


def test_the_prior_alone():
    """At vanishing P the scores are Gaussian with variance g_s/chi."""
    chi = 50.0
    found = linear_exact.averages(REFERENCE, 1e-6, chi)
    # What P adds is of order P V/kappa ~ 1e-5.
    assert found.s2 == pytest.approx(32**2 / chi, rel=1e-4)
    assert found.tau2 == pytest.approx(1 / chi, rel=1e-4)
    assert found.r == pytest.approx(32 / chi, rel=1e-4)
    assert found.m2 == pytest.approx(1 / (32 * chi), rel=1e-4)
    assert found.abs_tau == pytest.approx(math.sqrt(2 / (math.pi * chi)), rel=1e-4)
    assert found.ln_z == pytest.approx(32**2 / 2 * math.log(2 * math.pi / chi), rel=1e-6)


@pytest.mark.parametrize("P", [25.0, 60.0])
def test_large_chi_leads_to_the_landscape(P):
    """Distances to the landscape fall like 1/chi."""
    X = theory.branches(REFERENCE, math.inf, [P]).lowest[0]
    near, far = (linear_exact.averages(REFERENCE, P, chi) for chi in (1e5, 1e4))
    for name, value in (("signed_m", X[0]), ("abs_tau", X[2]), ("q", X[1]), ("s2", X[4])):
        gaps = [getattr(one, name) - value for one in (near, far)]
        assert abs(gaps[0]) < 2e-2 * abs(value), name
        # The next order, 1/chi^2, is a few per cent of the first at these chi.
        assert gaps[1] / gaps[0] == pytest.approx(10, rel=0.1), name


def test_the_onset_lies_above_critical_P():
    """critical_P leaves out the fluctuations: tau is still Gaussian there, and not much later."""
    chi = 1000.0
    bound = theory.critical_P(REFERENCE, chi)
    later = bound + REFERENCE.kappa * REFERENCE.V * REFERENCE.L / chi
    at = linear_exact.curve(REFERENCE, chi, [0.8 * bound, bound, later, 1.2 * bound])
    kurtosis = at.tau4 / at.tau2**2
    assert np.all(np.diff(kurtosis) < 0)
    assert kurtosis[0] > 2.95  # 3 for a Gaussian, 1 for two sharp values
    assert kurtosis[1] > 2.2 > kurtosis[2]
    assert kurtosis[3] < 1.02


# --- the numbers' own errors ----------------------------------------------------------------


@pytest.mark.parametrize(("P", "chi"), [(14.0, 100.0), (60.0, 1000.0), (12.63, 1e6)])
def test_stated_error_covers_the_true_one(P, chi):
    coarse = linear_exact.averages(REFERENCE, P, chi, rtol=1e-2)
    fine = linear_exact.averages(REFERENCE, P, chi)
    assert fine.error < 1e-8
    differences = linear_exact._difference(
        *({k: v for k, v in asdict(one).items() if k != "error"} for one in (coarse, fine))
    )
    assert differences < coarse.error


def test_a_wider_box_changes_nothing(monkeypatch):
    narrow = linear_exact.averages(REFERENCE, 12.7, 1000.0)
    monkeypatch.setattr(linear_exact, "DROP", 60.0)
    wide = linear_exact.averages(REFERENCE, 12.7, 1000.0)
    for name, value in asdict(narrow).items():
        if name not in ("error", "ln_z"):
            # Both integrals carry their quadrature error of 1e-8; the tails are e^-40.
            assert getattr(wide, name) == pytest.approx(value, rel=1e-7), name


def test_curve_is_averages_in_a_row():
    P = [10.0, 20.0]
    curve = linear_exact.curve(REFERENCE, 100.0, P, rtol=1e-4)
    rows = [linear_exact.averages(REFERENCE, p, 100.0, rtol=1e-4) for p in P]
    for name, column in asdict(curve).items():
        assert column.tolist() == [getattr(row, name) for row in rows]


@pytest.mark.parametrize(
    ("model", "P", "chi", "words"),
    [
        (CopyModel(), 10.0, 10.0, "linear attention"),
        (REFERENCE, 0.0, 10.0, "P is 0"),
        (REFERENCE, 10.0, math.inf, "chi is inf"),
    ],
)
def test_refusals(model, P, chi, words):
    with pytest.raises(ModelError, match=words):
        linear_exact.averages(model, P, chi)
