"""The softmax landscape against the reference table, dense scans with V x V matrices, and laws."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from landscapes import LINEAR, UNEQUAL, independent_softmax, models, quick, scale

from mcattn import action, landscape, theory
from mcattn.errors import ModelError
from mcattn.model import CopyModel

INF = math.inf
STANDARD = CopyModel()
# theory.md, "Reference values": L, V, chi, then the six numbers as printed there.
TABLE = """
16 16 inf 279.67 306.716 414.76 0.0722 0.6296 2.061
16 16 30  284.55 311.262 416.76 0.0725 0.6253 2.006
16 16 10  294.53 320.513 420.84 0.0733 0.6164 1.895
32 16 inf 489.63 579.270 1141.7 0.0331 0.6444 11.53
64 16 inf 856.34 1094.34 3216.0 0.0160 0.6184 41.90
16 32 inf 375.49 412.628 572.38 0.0714 0.6594 2.355
16 8  inf 215.21 235.153 307.34 0.0733 0.5878 1.696
"""
ROWS = [row.split() for row in TABLE.strip().splitlines()]
COLUMNS = ("P_lo", "P_star", "P_hi", "m_minus", "m_plus", "barrier")


# --- the sums of symmetric patterns ---------------------------------------------------------


@pytest.mark.parametrize("gap", [-3.0, 0.0, 1e-9, 0.4, 6.0])
def test_softmax_sums_are_those_of_a_pattern(gap):
    S = np.full((6, 6), -gap / 6)
    S[np.arange(6), np.arange(6) - 1] += gap
    X = action.order_parameters(S, "softmax")
    # Rounding of sums of 36 terms.
    np.testing.assert_allclose(landscape.softmax_sums(gap, 6), X, atol=1e-14)


def test_softmax_sums_at_the_ends_of_the_range():
    assert landscape.softmax_sums(1e4, 5).tolist() == [1, 1, 1, 1, 4e8]
    m, q, *_, s2 = landscape.softmax_sums(230.0, 10**100)
    # exp(-230) carries 230 times the rounding of its argument.
    assert m == pytest.approx(1 / (1 + 1e100 * math.exp(-230)), rel=1e-12)
    assert q == pytest.approx(m**2, rel=1e-12)
    assert s2 == pytest.approx(1e100 * 230**2)


@pytest.mark.parametrize("gap", [-2.0, 1e-3, 0.7, 5.0])
def test_softmax_slopes(gap):
    h = 1e-5  # truncation h^2 = 1e-10, rounding 1e-16/h = 1e-11
    ahead, behind = (landscape.softmax_sums(gap + x, 9) for x in (h, -h))
    slopes = landscape.softmax_slopes(gap, 9)
    np.testing.assert_allclose(slopes, (ahead - behind) / (2 * h), rtol=1e-7, atol=1e-9)


# --- the jump of softmax --------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:3]))
def test_reference_table(row):
    found = theory.boundary(CopyModel(L=int(row[0]), V=int(row[1])), float(row[2]))
    for name, text in zip(COLUMNS, row[3:], strict=True):
        last_digit = 10.0 ** -len(text.partition(".")[2])
        # Half a unit of the last printed digit, and a little for values near a rounding edge.
        assert abs(getattr(found, name) - float(text)) < 0.501 * last_digit, name


def test_wrong_sign_of_the_log_determinant_is_seen():
    # 1/chi multiplies the log-determinant only, so a negative chi turns its sign.
    wrong, _ = theory._first_jump(landscape.state_curve(STANDARD, -10.0))
    right = theory.boundary(STANDARD, 10.0)
    for name in COLUMNS:
        assert abs(getattr(wrong, name) / getattr(right, name) - 1) > 1e-3, name


@pytest.mark.parametrize("chi", [INF, 5.0])
@pytest.mark.parametrize(
    "model", [STANDARD, CopyModel(L=24, V=4, tokens=UNEQUAL)], ids=["uniform", "unequal"]
)
def test_coexistence_on_a_dense_scan(model, chi):
    """At P* an independent F, on a grid of gaps, has two equal minima and the stated barrier."""
    jump = theory.boundary(model, chi)
    gap = np.linspace(0, 8, 8001)
    F = independent_softmax(model, jump.P_star, chi, gap)
    inner = F[1:-1]
    low = np.flatnonzero((inner < F[:-2]) & (inner < F[2:])) + 1
    top = np.flatnonzero((inner > F[:-2]) & (inner > F[2:])) + 1
    assert len(low) == 2
    assert len(top) == 1
    # Grid of 1e-3: a minimum is met to F'' h^2/8 ~ 1e-5, where F itself is ~ 100.
    assert F[low[0]] == pytest.approx(F[low[1]], abs=5e-5)
    assert F[top[0]] - F[low].min() == pytest.approx(jump.barrier, abs=5e-5)
    np.testing.assert_allclose(gap[low], (jump.gap_minus, jump.gap_plus), atol=1e-3)
    # Off coexistence by a thousandth the same check must fail.
    F = independent_softmax(model, 1.001 * jump.P_star, chi, gap)
    assert abs(F[low[0]] - F[low[1]]) > 1e-3


@pytest.mark.parametrize(
    "model", [STANDARD, CopyModel(L=300), CopyModel(L=24, V=4, tokens=UNEQUAL)]
)
def test_number_of_minima_changes_at_the_spinodals(model):
    jump = theory.boundary(model, 20.0)
    counts = {1 - 1e-6: (1, 2), 1 + 1e-6: (2, 1)}
    for factor, (at_lo, at_hi) in counts.items():
        assert len(theory.minima(model, factor * jump.P_lo, 20.0)) == at_lo
        assert len(theory.minima(model, factor * jump.P_hi, 20.0)) == at_hi
    lowest, other = theory.minima(model, jump.P_star, 20.0)
    # Equal depth: F ~ P/2 carries rounding 1e-16 times the number of terms.
    assert lowest.F_per_chi == pytest.approx(other.F_per_chi, rel=1e-10)


def test_where_the_pair_of_minima_is_lost():
    assert theory.boundary(CopyModel(L=8), 3.0) is None
    assert theory.boundary(CopyModel(L=6)) is None
    assert theory.boundary(LINEAR) is None
    # Still two minima, but the barrier of chi * 0.016 is far below the fluctuations.
    shallow = theory.boundary(CopyModel(L=8), 10.0)
    assert shallow.P_star == pytest.approx(165.232, abs=1e-3)
    assert 10 * shallow.barrier == pytest.approx(0.1587, abs=1e-3)
    gap = np.linspace(0, 3, 3001)
    F = independent_softmax(CopyModel(L=8), shallow.P_star, 10.0, gap)
    assert np.count_nonzero((F[1:-1] < F[:-2]) & (F[1:-1] < F[2:])) == 2


def test_unequal_tokens_can_be_learnt_in_two_jumps():
    """Two frequent tokens first, a thousand rare ones later."""
    model = CopyModel(L=1024, V=1002, g_w=0.3, tokens=(0.4, 0.4, *(0.2 / 1000,) * 1000))
    first = theory.boundary(model)
    assert first.m_plus < 0.1
    assert len(theory.minima(model, 51300.0)) == 3
    middle, full = sorted(m.m for m in theory.minima(model, 51300.0))[1:]
    assert (middle, full) == (pytest.approx(0.176, abs=0.01), pytest.approx(0.297, abs=0.01))
    X = theory.branches(model, INF, [51000.0, 51600.0]).lowest
    assert X[1, 0] - X[0, 0] > 0.1
    X = landscape.softmax_sums([first.gap_minus, first.gap_plus], 1024)
    uniform, copy = action.per_chi(X, model, first.P_star, INF)
    assert uniform == pytest.approx(copy, rel=1e-10)  # rounding of F ~ P/2 at L = 1024


@quick
@given(models("softmax"), scale(0.5, 1e4), scale(0.01, 12))
def test_equation_of_state_is_single_valued(model, chi, gap):
    """The force at a fixed gap changes sign once in P, and there the solver says it does."""
    P = float(theory.equation_of_state(model, chi, gap)[0])
    across = landscape.force(gap, model, P * np.geomspace(1e-6, 1e6, 400), chi)
    changes = np.flatnonzero(np.diff(np.sign(across)))
    assert len(changes) == 1
    assert across[0] > 0 > across[-1]
    nearby = P * np.array([1 - 1e-9, 1 + 1e-9])  # the solver's tolerance is 1e-12 in ln P
    before, after = landscape.force(gap, model, nearby, chi)
    assert before > 0 > after


@quick
@given(models("softmax"), scale(1, 1e4), scale(1, 1e4))
def test_softmax_minima_are_minima(model, chi, P):
    found = theory.minima(model, P, chi)
    assert [m.F_per_chi for m in found] == sorted(m.F_per_chi for m in found)
    for one in found:
        F = independent_softmax(model, P, chi, one.gap + np.array([-1e-3, 0, 1e-3]))
        assert one.F_per_chi == pytest.approx(F[1], rel=1e-11)  # rounding of P/2 and of the trace
        assert F[1] < F[0] + 1e-12 * abs(F[1])
        assert F[1] < F[2] + 1e-12 * abs(F[1])
        assert action.alpha_beta(one.X, model.L) == (one.alpha, one.beta)
    gap = np.linspace(-2, 20, 2201)
    F = independent_softmax(model, P, chi, gap)
    assert found[0].F_per_chi <= F.min() * (1 + 1e-12)
    inner = F[1:-1]
    # Dips deeper than rounding, on a grid of 0.01, are all found.
    dips = np.minimum(F[:-2], F[2:]) - inner > 1e-11 * inner
    for s in gap[1:-1][dips]:
        assert min(abs(s - one.gap) for one in found) < 0.011


def test_branches_follow_the_minima():
    jump = theory.boundary(STANDARD)
    P = np.array([250.0, 285.0, 300.0, 310.0, 400.0, 450.0])
    found = theory.branches(STANDARD, INF, P)
    for i, p in enumerate(P):
        minima = {round(m.m, 9) for m in theory.minima(STANDARD, p)}
        drawn = {round(x[i, 0], 9) for x in (found.uniform, found.copy) if not np.isnan(x[i, 0])}
        assert minima == drawn
        best = found.copy if p > jump.P_star else found.uniform
        np.testing.assert_array_equal(found.lowest[i], best[i])
    assert np.isnan(found.unstable[[0, -1]]).all()
    middle = found.unstable[1:-1, 0]
    assert np.all((found.uniform[1:-1, 0] < middle) & (middle < found.copy[1:-1, 0]))
    assert np.all(np.diff(middle) < 0)  # P falls with the gap where F is highest


def test_branches_are_continuous_and_close_at_the_spinodals():
    jump = theory.boundary(STANDARD, 30.0)
    P = jump.P_lo + (jump.P_hi - jump.P_lo) * np.linspace(1e-8, 1 - 1e-8, 300)
    found = theory.branches(STANDARD, 30.0, P)
    for X in (found.uniform, found.copy, found.unstable):
        F = action.per_chi(X, STANDARD, P, 30.0)
        # F is smooth along a branch: its slope falls steadily (F is concave in P along minima).
        assert np.all(np.abs(np.diff(F, 2)) < 2e-3)
    # Two branches meet like sqrt(1 - P/P_hi): 1e-4 at 1e-8 from the end.
    assert abs(found.uniform[-1, 0] - found.unstable[-1, 0]) < 1e-4
    assert abs(found.copy[0, 0] - found.unstable[0, 0]) < 1e-3
    lowest = action.per_chi(found.lowest, STANDARD, P, 30.0)
    assert np.all(np.diff(lowest, 2) < 1e-9)  # the smallest of concave functions is concave


def test_without_a_jump_the_only_minimum_is_one_branch():
    found = theory.branches(CopyModel(L=6), INF, np.linspace(50, 150, 20))
    assert np.isnan(found.copy).all()
    assert np.isnan(found.unstable).all()
    np.testing.assert_array_equal(found.uniform, found.lowest)
    assert np.all(np.diff(found.lowest[:, 0]) > 0)


# --- large L --------------------------------------------------------------------------------


def test_asymptotic_laws():
    """P*/law falls to 1 along L; the next order is there long before."""
    sizes = [10**n for n in (3, 6, 12, 30, 100)]
    exact = [theory.boundary(CopyModel(L=L)).P_star for L in sizes]
    laws = [[theory.asymptotic_P(CopyModel(L=L), order) for L in sizes] for order in (0, 1)]
    ratios = np.array(exact) / laws
    leading, next_order = np.abs(ratios - 1)
    assert np.all(np.diff(leading) < 0)
    assert np.all(ratios[0] > 1)
    assert leading[-1] < 0.06
    # Order 1 leaves out less than m of the copy minimum: 0.32 at L = 10^3, 1e-5 at 10^12.
    assert np.all(next_order < [0.32, 0.012, 1e-5, 1e-11, 1e-11])
    assert np.all(next_order < leading / 10)
    for V, tokens, gain in ((16, None, 15 / 16), (4, UNEQUAL, 1 - sum(p * p for p in UNEQUAL))):
        law = 16 / 3 * math.log(16) ** 2 / 4 / gain
        assert theory.asymptotic_P(CopyModel(V=V, tokens=tokens)) == pytest.approx(law)


# --- the summary, errors, cost --------------------------------------------------------------


def test_report():
    softmax, linear = theory.report(STANDARD, 30.0), theory.report(LINEAR, 100.0)
    assert softmax.keys() == linear.keys()
    assert json.loads(json.dumps(softmax)) == softmax
    assert all(value is None or type(value) is float for value in softmax.values())
    assert softmax["P_star"] == theory.boundary(STANDARD, 30.0).P_star
    assert softmax["P_c"] is None
    minus, plus = sorted(theory.minima(STANDARD, softmax["P_star"], 30.0), key=lambda one: one.m)
    assert softmax["loss_minus"] == pytest.approx(minus.loss, rel=1e-9)
    assert softmax["loss_plus"] == pytest.approx(plus.loss, rel=1e-9)
    assert {name for name, value in linear.items() if value is not None} == {"P_c"}
    none = theory.report(CopyModel(L=6))
    assert {name for name, value in none.items() if value is not None} == {"asymptotic_P"}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: theory.critical_P(STANDARD), "theory.boundary"),
        (lambda: theory.asymptotic_P(LINEAR), "critical_P"),
        (lambda: theory.asymptotic_P(STANDARD, 2), "order is 2"),
        (lambda: theory.asymptotic_P(CopyModel(L=4, g_w=100.0), 1), "too small"),
        (lambda: theory.asymptotic_P(CopyModel(V=4, tokens=UNEQUAL), 1), "uniform tokens"),
        (lambda: theory.equation_of_state(LINEAR, INF, [1.0]), "no score gap"),
        (lambda: theory.equation_of_state(STANDARD, INF, [1.0, 0.0]), "> 0"),
        (lambda: theory.equation_of_state(STANDARD, INF, [60.0]), "too large"),
        (lambda: theory.equation_of_state(STANDARD, -1.0, [1.0]), "chi is -1"),
        (lambda: theory.minima(STANDARD, 0.0), "P is 0"),
        (lambda: theory.minima(STANDARD, 1e30), "rounding"),
        (lambda: theory.boundary(STANDARD, 0.0), "chi is 0"),
        (lambda: theory.branches(STANDARD, INF, [[1.0]]), "list of finite numbers"),
        (lambda: theory.branches(LINEAR, INF, [1.0, -2.0]), "list of finite numbers"),
    ],
)
def test_refusals(call, words):
    with pytest.raises(ModelError, match=words):
        call()


def test_large_P_is_refused_only_where_it_must_be():
    assert theory.minima(STANDARD, 1e12)[0].m > 0.999


def test_the_curve_of_states_is_monotone_between_its_ends():
    curve = landscape.state_curve(STANDARD, 10.0)
    for i in range(curve.segments):
        steps = np.diff(curve.P[curve.ends[i] : curve.ends[i + 1] + 1])
        assert np.all(steps * (-1) ** i > 0)


def test_import_leaves_heavy_parts_of_scipy_out():
    code = (
        "import mcattn.theory, sys; print({'scipy.stats', 'scipy.interpolate'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
