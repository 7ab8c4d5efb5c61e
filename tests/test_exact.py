"""The oracle against plain quadrature, prior samples, closed forms and wrong actions."""

from __future__ import annotations

import itertools
import math

import exact
import numpy as np
import pytest

from mcattn.model import CopyModel

CASES = [pytest.param(*case[1:], id=case[0]) for case in exact.small_cases()]
THREE = (0.6, 0.3, 0.1)


def naive_sums(A: np.ndarray, S: np.ndarray) -> dict[str, np.ndarray]:
    """The observables of the patterns A and scores S, shape (n, a, b), written out."""
    L = A.shape[-1]
    t = A.sum(axis=2)
    m = sum(A[:, a, (a - 1) % L] for a in range(L)) / L
    tau = t.sum(axis=1) / L
    columns = {"m": m, "q": (A**2).sum(axis=(1, 2)) / L, "tau": tau, "r": (t**2).sum(axis=1) / L}
    return columns | {"s2": (S**2).sum(axis=(1, 2)), "m2": m**2, "tau2": tau**2}


def plain_quadrature(
    model: CopyModel, P: float, chi: float, center: float, strength: float, n: int, width: float
) -> exact.Averages:
    """Midpoint rule over the four raw scores of an L = 2 system, each within +-width."""
    x = width * (2 * np.arange(n) + 1 - n) / n
    S = np.stack(np.meshgrid(x, x, x, x, indexing="ij"), axis=-1).reshape(-1, 2, 2)
    columns = naive_sums(exact.attention(S, model), S)
    ln_w = -exact.action(S, model, P, chi) - strength / 2 * (columns["m"] - center) ** 2
    w = np.exp(ln_w - ln_w.max())
    out = {name: float((w * c).sum() / w.sum()) for name, c in columns.items()}
    out["ln_z"] = float(ln_w.max()) + math.log(w.sum()) + 4 * math.log(2 * width / n)
    return out | {"var_m": out["m2"] - out["m"] ** 2}


@pytest.mark.parametrize(("model", "P", "chi"), CASES)
def test_successive_resolutions_agree(model: CopyModel, P: float, chi: float):
    averages = exact.averages(model, P, chi)
    assert averages["error"] < 1e-6
    # Schwarz: mean squares exceed squared means, by the variance where there is one.
    assert averages["q"] > averages["m2"]
    assert averages["r"] + 1e-9 > averages["tau2"] > averages["abs_tau"] ** 2 - 1e-9


def test_the_small_cases_span_the_physics():
    cases = exact.small_cases()
    values = [exact.averages(*case[1:]) for case in cases]
    models = [case[1] for case in cases]
    assert len({case[0] for case in cases}) == len(cases)
    kinds = {(model.attention, model.L, model.tokens is None) for model in models}
    assert kinds == set(itertools.product(("softmax", "linear"), (2, 3), (True, False)))
    assert {model.V for model in models} == {2, 3, 4}
    overlaps = [v["m"] for v, model in zip(values, models, strict=True) if model.L == 3]
    assert any(0.4 < m < 0.6 for m in overlaps)
    assert any(m > 0.7 for m in overlaps)
    # Gaussian tau has <|tau|>/rms = 0.798; 1 would be two separate peaks.
    shapes = [v["abs_tau"] / math.sqrt(v["tau2"]) for v in values]
    assert any(0.93 < shape < 0.98 for shape in shapes)


@pytest.mark.parametrize(
    ("model", "P", "chi", "center", "strength"),
    [
        (CopyModel(2, 2, "linear", 1.0, 1.0, 1.0), 3.0, 3.0, 0.0, 0.0),
        (CopyModel(2, 3, "linear", 1.2, 1.0, 0.8, THREE), 3.0, 3.0, 0.4, 6.0),
        (CopyModel(2, 2, "softmax", 1.0, 1.0, 1.0), 6.0, 3.0, 0.0, 0.0),
        (CopyModel(2, 3, "softmax", 1.2, 1.0, 0.8, THREE), 8.0, 4.0, 0.5, 20.0),
    ],
)
def test_the_reductions_equal_a_plain_quadrature(
    model: CopyModel, P: float, chi: float, center: float, strength: float
):
    """Four raw scores, no symmetry used; |tau| is left out, its kink spoils the plain rule."""
    plain = plain_quadrature(model, P, chi, center, strength, n=26, width=4.0)
    reduced = exact.averages(model, P, chi, center, strength)
    for name, value in plain.items():
        assert reduced[name] == pytest.approx(value, abs=1e-7), name


@pytest.mark.parametrize(
    ("model", "P", "chi"),
    [
        (CopyModel(3, 3, "softmax", 1.0, 2.0, 0.5), 8.0, 4.0),
        (CopyModel(3, 3, "softmax", 1.0, 2.0, 0.5, THREE), 8.0, 2.0),
        (CopyModel(3, 2, "linear", 1.0, 1.0, 1.0), 2.0, 4.0),
        (CopyModel(3, 3, "linear", 1.0, 2.0, 0.5, THREE), 2.0, 2.0),
    ],
)
def test_three_positions_agree_with_weighted_prior_samples(model: CopyModel, P: float, chi: float):
    """No quadrature and no reduction: |z| < 4.5 would be crossed once in 3000 runs of this file.

    The bound catches a wrong power of a radius or sine, and a miscounted order of the rows.
    """
    rng = np.random.default_rng(2606)
    variance, L, n = model.g_s / chi, model.L, 100_000
    S = math.sqrt(variance) * rng.standard_normal((n, L, L))
    columns = naive_sums(exact.attention(S, model), S)
    w = np.exp(-exact.action(S, model, P, chi) + columns["s2"] / (2 * variance))
    averages = exact.averages(model, P, chi)
    ln_z = math.log(w.mean()) + L * L / 2 * math.log(2 * math.pi * variance)
    assert abs(averages["ln_z"] - ln_z) < 4.5 * w.std() / w.mean() / math.sqrt(n)
    for name, values in (columns | {"abs_tau": np.abs(columns["tau"])}).items():
        residual = w * (values - averages[name])
        assert abs(residual.sum()) < 4.5 * math.sqrt((residual**2).sum()) + 1e-9 * n, name
    wrong = exact.averages(model, P, chi, data_factor=-1.0)
    residual = w * (columns["m2"] - wrong["m2"])
    assert abs(residual.sum()) > 8 * math.sqrt((residual**2).sum())


@pytest.mark.parametrize("L", [2, 3])
def test_linear_prior_in_closed_form(L: int):
    model, chi = CopyModel(L, 4, "linear", 0.8, 1.7, 0.4), 2.5
    variance, P = model.g_s / chi, 1e-10
    averages = exact.averages(model, P, chi)
    expected = {
        "m": 0.0,
        "tau": 0.0,
        "m2": variance / L,
        "q": L * variance,
        "tau2": variance,
        "r": L * variance,
        "abs_tau": math.sqrt(2 * variance / math.pi),
        "s2": L * L * variance,
        "ln_z": L * L / 2 * math.log(2 * math.pi * variance),
    }
    for name, value in expected.items():
        assert averages[name] == pytest.approx(value, abs=1e-7), name


@pytest.mark.parametrize(("L", "chi"), [(2, 1.0), (2, 10.0), (3, 1.5), (3, 20.0)])
def test_softmax_prior_by_one_dimensional_integrals(L: int, chi: float):
    """1/Z^2 = integral of t exp(-t Z) makes <A^2> a product of one-score averages at every t."""
    model, P = CopyModel(L, 3, "softmax", 1.0, 2.0, 0.5), 1e-10
    averages = exact.averages(model, P, chi)
    z, weight = np.polynomial.hermite_e.hermegauss(120)
    e, weight = np.exp(math.sqrt(model.g_s / chi) * z), weight / weight.sum()
    u, step = np.linspace(-40, 25, 1301, retstep=True)
    damped = np.exp(-np.exp(u)[:, None] * e) * weight
    square = (np.exp(2 * u) * (damped @ e**2) * damped.sum(axis=1) ** (L - 1)).sum() * step
    assert averages["m"] == pytest.approx(1 / L, abs=1e-7)
    assert averages["q"] == pytest.approx(L * square, abs=1e-6)
    assert averages["var_m"] == pytest.approx((square - 1 / L**2) / L, abs=1e-6)
    assert averages["s2"] == pytest.approx(L * L * model.g_s / chi, abs=1e-6)
    assert averages["ln_z"] == pytest.approx(
        L * L / 2 * math.log(2 * math.pi * model.g_s / chi), abs=1e-6
    )


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_ln_z_generates_the_averages(attention: str):
    """d ln Z / d g_s and d ln Z / d strength give <s2> and the mean bias."""
    chi, P, h = 4.0, 7.0, 1e-3

    def ln_z(g_s: float, strength: float) -> float:
        model = CopyModel(2, 4, attention, 1.0, g_s, 0.6, (0.4, 0.3, 0.2, 0.1))
        return exact.averages(model, P, chi, 0.7, strength)["ln_z"]

    model = CopyModel(2, 4, attention, 1.0, 2.0, 0.6, (0.4, 0.3, 0.2, 0.1))
    a = exact.averages(model, P, chi, 0.7, 5.0)
    slope = (ln_z(2.0 + h, 5.0) - ln_z(2.0 - h, 5.0)) / (2 * h)
    assert 2 * 2.0**2 / chi * slope == pytest.approx(a["s2"], rel=1e-5)
    slope = (ln_z(2.0, 5.0 + h) - ln_z(2.0, 5.0 - h)) / (2 * h)
    assert -2 * slope == pytest.approx(a["var_m"] + (a["m"] - 0.7) ** 2, rel=1e-5)


def test_a_bias_breaks_the_sign_symmetry_and_pins_the_overlap():
    model = CopyModel(2, 3, "linear", 1.0, 1.5, 0.7)
    free, up, down = (exact.averages(model, 6.0, 4.0, c, k) for c, k in ((0, 0), (1, 9), (-1, 9)))
    assert free["m"] == pytest.approx(0, abs=1e-12)
    assert up["m"] == pytest.approx(-down["m"], rel=1e-7)
    assert up["m"] > 0.5
    assert up["tau"] > 0.5
    pinned = exact.averages(model, 6.0, 4.0, 0.6, 100)
    assert pinned["m"] == pytest.approx(0.6, abs=0.03)
    assert pinned["var_m"] == pytest.approx(1 / 100, rel=0.1)


@pytest.mark.parametrize(
    "name",
    ["softmax2-mixed", "softmax3-mixed", "softmax3-tokens", "linear2-onset", "linear3-above"],
)
def test_wrong_actions_are_told_apart(name: str):
    """Without the log-determinant, with 1 for V/2, or with the data's sign flipped."""
    model, P, chi = next(case[1:] for case in exact.small_cases() if case[0] == name)
    right = exact.averages(model, P, chi)
    one_for_half_v = [2 / model.V] if model.V > 2 else []
    wrong = [exact.averages(model, P, chi, count_factor=x) for x in (0.0, *one_for_half_v)]
    wrong.append(exact.averages(model, P, chi, data_factor=-1.0))
    for other in wrong:
        assert abs(other["q"] - right["q"]) > max(1e-3, 1000 * right["error"])
        assert abs(other["m2"] - right["m2"]) > max(1e-3, 1000 * right["error"])


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_the_quadratic_form_is_the_plain_action(attention: str):
    model = CopyModel(3, 4, attention, 0.7, 1.3, 0.4, (0.4, 0.3, 0.2, 0.1))
    S = np.random.default_rng(5).normal(size=(50, 3, 3))
    x = naive_sums(exact.attention(S, model), S)
    f0, mm, mt, tt = exact.Problem(model, 9.0, 3.0).terms(x["q"], x["r"])
    F = 3.0 * x["s2"] / (2 * model.g_s) + f0
    F = F + mm * x["m2"] + mt * x["m"] * x["tau"] + tt * x["tau2"]
    np.testing.assert_allclose(F, exact.action(S, model, 9.0, 3.0), rtol=1e-12)


def test_a_cached_answer_cannot_be_spoilt_and_large_systems_are_refused():
    model = CopyModel(2, 2, "softmax", 1.0, 1.0, 1.0)
    first = exact.averages(model, 1.0, 1.0)
    first["m"] = 99.0
    assert exact.averages(model, 1.0, 1.0)["m"] < 1
    with pytest.raises(ValueError, match="L is 4"):
        exact.averages(CopyModel(4, 2), 1.0, 1.0)
