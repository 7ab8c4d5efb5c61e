"""Exchanges of states: the decision and its counts."""

import subprocess
import sys
from pathlib import Path

import exact
import numpy as np
import pytest
import tiny

from mcattn import action, exchange
from mcattn.analysis import series
from mcattn.exchange import Exchanger
from mcattn.jobfile import Tempering
from mcattn.ladder import Ladder
from mcattn.model import CopyModel
from mcattn.ranks import Serial
from mcattn.records import Exchanged
from mcattn.replicas import couplings
from mcattn.sampler import Sampler

MODEL = CopyModel(4, 3, "softmax", 1.0, 2.0, 0.5)
UNEQUAL = CopyModel(4, 3, "softmax", 1.0, 2.0, 0.5, (0.6, 0.3, 0.1))
LINEAR = CopyModel(4, 3, "linear", 1.0, 1.0, 0.5)
LINEAR_UNEQUAL = CopyModel(4, 3, "linear", 1.0, 1.0, 0.5, (0.6, 0.3, 0.1))


def ladder_of(shape, ladders=1, pairing="even-odd", every=1, spread=1.0):
    """A ladder that moves P, chi and the bias together."""
    count = int(np.prod(shape))
    along = np.linspace(0, spread, count)
    return Ladder(
        P=10 + 15 * along,
        chi=3 + 2 * along,
        bias_center=0.4 + 0.2 * along,
        bias_strength=10 * along,
        shape=shape,
        ladders=ladders,
        exchange_every=every,
        pairing=pairing,
        tune_rounds=0,
    )


def begun(ladder, model=MODEL, seed=5):
    """An exchanger, an untouched map and the couplings of the ladder's states."""
    controls = ladder.controls(ladder.start())
    table = couplings(model, **controls, step=np.ones(ladder.states))
    state = Exchanged.nothing(ladder.replicas(), ladder.states, ladder)
    return Exchanger(ladder, model, seed), state, table


def random_sums(model, count, seed=0):
    rng = np.random.default_rng(seed)
    S = rng.standard_normal((count, model.L, model.L))
    S[:, np.arange(model.L), np.arange(model.L) - 1] += 3 * rng.random((count, 1))
    return action.order_parameters(S, model.attention)


def total_action(X, model, ladder, k):
    """Action and bias of the sums X, shape (..., 5), in state k."""
    c = {name: value[k] for name, value in ladder.controls(ladder.start()).items()}
    bias = c["bias_strength"] * (X[..., 0] - c["bias_center"]) ** 2 / 2
    return action.population(X, model, c["P"], c["chi"]) + bias


@pytest.mark.parametrize("model", [MODEL, UNEQUAL, LINEAR, LINEAR_UNEQUAL])
def test_the_acceptance_is_that_of_the_total_action(model):
    """Every chance that the kernel gives, against mcattn.action with the bias put on by hand."""
    ladder = ladder_of((6,), ladders=3)
    exchanger, now, table = begun(ladder, model)
    X = random_sums(model, 18)
    for group in ladder.groups * 4:
        before, chances = now.state.reshape(3, 6).copy(), now.chance.copy()
        exchanger.exchange(X, table, now)
        for i in range(3):
            for low, high in group.T:
                a, b = (6 * i + int(np.flatnonzero(before[i] == k)[0]) for k in (low, high))
                now_F = total_action(X[a], model, ladder, low) + total_action(
                    X[b], model, ladder, high
                )
                then_F = total_action(X[b], model, ladder, low) + total_action(
                    X[a], model, ladder, high
                )
                p = np.flatnonzero((ladder.pairs == [[low], [high]]).all(axis=0))[0]
                chance = now.chance[i, p] - chances[i, p]
                assert chance == pytest.approx(min(1, np.exp(now_F - then_F)), rel=1e-9)
    assert (now.attempted > 0).all()


@pytest.mark.parametrize("pairing", ["even-odd", "random"])
@pytest.mark.parametrize("shape", [(2,), (7,), (3, 4)])
def test_states_stay_a_permutation(shape, pairing):
    """In each of 10^4 rounds with other patterns, every state of a ladder has one replica."""
    ladder = ladder_of(shape, ladders=3, pairing=pairing)
    exchanger, now, table = begun(ladder)
    pool = random_sums(MODEL, 5000)
    rng = np.random.default_rng(1)
    everyone = np.arange(ladder.states)
    moved = 0
    for _ in range(10_000):
        before = now.state.copy()
        X = pool[rng.integers(len(pool), size=len(before))]
        exchanger.exchange(X, table, now)
        assert (np.sort(now.state.reshape(3, -1), axis=1) == everyone).all()
        moved += (now.state != before).any()
    assert moved > 5000
    assert now.done == 10_000
    assert 0 < now.accepted.sum() < now.attempted.sum()


@pytest.mark.long
def test_states_stay_a_permutation_for_long():
    ladder = ladder_of((9,), ladders=2)
    exchanger, now, table = begun(ladder)
    X = random_sums(MODEL, 18)
    for _ in range(100_000):
        exchanger.exchange(X, table, now)
        assert (np.sort(now.state.reshape(2, 9), axis=1) == np.arange(9)).all()


@pytest.mark.parametrize("rounds", [300, pytest.param(100_000, marks=pytest.mark.long)])
def test_four_ranks_agree_on_a_permutation_in_every_round(rounds):
    script = Path(__file__).with_name("exchange_ranks.py")
    words = [str(tiny.MPIEXEC), "-n", "4", sys.executable, str(script), str(rounds)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{rounds} rounds on 4 ranks" in done.stdout
    assert int(done.stdout.split()[5]) > rounds  # replicas did move


def test_groups_cover_every_pair_of_neighbours_once():
    assert [group.tolist() for group in ladder_of((5,)).groups] == [
        [[0, 2], [1, 3]],
        [[1, 3], [2, 4]],
    ]
    grid = ladder_of((3, 4))
    assert len(grid.groups) == 4
    for group in grid.groups:
        assert len(np.unique(group)) == group.size
    pairs = {tuple(pair) for pair in grid.pairs.T.tolist()}
    sites = [(i, j) for i in range(3) for j in range(4)]
    right = {(4 * i + j, 4 * i + j + 1) for i, j in sites if j < 3}
    down = {(4 * i + j, 4 * i + j + 4) for i, j in sites if i < 2}
    assert pairs == right | down
    assert grid.pairs.shape[1] == len(pairs)


def test_even_odd_pairing_takes_turns_and_random_pairing_does_not():
    for pairing, turns in (("even-odd", True), ("random", False)):
        ladder = ladder_of((4,), pairing=pairing)
        exchanger, now, table = begun(ladder)
        for _ in range(64):
            exchanger.exchange(random_sums(MODEL, 4), table, now)
        counts = now.attempted[0].tolist()
        assert (counts == [32, 32, 32]) == turns, pairing
        assert min(counts) > 10


def test_the_numbers_belong_to_seed_ladder_and_exchange():
    """A run that begins at exchange 300 takes the decisions of one that came there by itself."""
    ladder, X = ladder_of((6,), ladders=2), random_sums(MODEL, 12)
    exchanger, whole, table = begun(ladder)
    for number in range(600):
        if number == 300:
            middle = whole.state.copy()
        exchanger.exchange(X, table, whole)
    fresh, late, _ = begun(ladder)
    late.state[:], late.done = middle, 300
    for _ in range(300):
        fresh.exchange(X, table, late)
    assert (late.state == whole.state).all()
    single, alone, _ = begun(ladder_of((6,)))
    for _ in range(600):
        single.exchange(X[:6], table, alone)
    assert (alone.state == whole.state[:6]).all()
    other, elsewhere, _ = begun(ladder, seed=6)
    for _ in range(600):
        other.exchange(X, table, elsewhere)
    assert (elsewhere.accepted != whole.accepted).any()


@pytest.mark.parametrize("pairing", ["even-odd", "random"])
def test_decisions_by_given_numbers_are_those_of_the_kernel(pairing):
    """`partners` and `decide` with the population action take the decisions of `exchange`."""
    ladder = ladder_of((3, 4), ladders=2, pairing=pairing)
    exchanger, one, table = begun(ladder)
    other, controls = begun(ladder)[1], ladder.controls(ladder.start())
    P, chi, center, strength = (controls[n] for n in ("P", "chi", "bias_center", "bias_strength"))
    moved = 0
    for round_ in range(40):
        X = random_sums(MODEL, 24, round_)

        def weight(k, X=X):
            bias = strength[k] / 2 * (X[:, 0] - center[k]) ** 2
            return -action.population(X, MODEL, P[k], chi[k]) - bias

        change = weight(exchanger.partners(other)) - weight(other.state)
        ours = exchanger.decide(change, other)
        assert ours == exchanger.exchange(X, table, one)
        np.testing.assert_array_equal(one.state, other.state)
        moved += ours
    assert moved > 0
    for name in ("attempted", "accepted", "chance"):
        np.testing.assert_allclose(vars(one)[name], vars(other)[name], rtol=1e-9)
    assert one.done == other.done == 40


def test_two_states_swap_as_often_as_they_should():
    """Frozen patterns: the pair swaps with chance e^R one way and 1 the other; |z| < 4."""
    ladder = ladder_of((2,), ladders=400, spread=0.15)
    exchanger, now, table = begun(ladder)
    X = np.tile(random_sums(MODEL, 2, seed=3), (400, 1))
    F = [[total_action(X[r], MODEL, ladder, k) for k in (0, 1)] for r in (0, 1)]
    ratio = F[0][0] + F[1][1] - F[1][0] - F[0][1]
    for _ in range(500):
        exchanger.exchange(X, table, now)
    chance = np.exp(-abs(ratio))
    assert 0.05 < chance < 0.95
    # The better order is left with this chance and re-entered at once: its share is 1/(1 + chance).
    share = 1 / (1 + chance)
    better = (now.state[::2] == 0) if ratio < 0 else (now.state[::2] == 1)
    # Each ladder ends in an independent draw.
    z = (better.mean() - share) / np.sqrt(share * (1 - share) / 400)
    assert abs(z) < 4
    expected = share * chance + (1 - share)
    rate = now.accepted.sum() / now.attempted.sum()
    assert rate == pytest.approx(expected, abs=4 * np.sqrt(1 / (400 * 500)))
    assert now.chance.sum() / now.attempted.sum() == pytest.approx(expected, abs=0.01)


def test_equal_states_are_occupied_equally():
    """All swaps are accepted: each replica goes up and down in 2 K exchanges."""
    ladder = ladder_of((5,), ladders=2, spread=0.0)
    exchanger, now, table = begun(ladder)
    X = random_sums(MODEL, 10)
    visits = np.zeros((10, 5), dtype=int)
    for _ in range(100):
        visits[np.arange(10), now.state] += 1
        exchanger.exchange(X, table, now)
    assert (visits == 20).all()
    assert (now.accepted == now.attempted).all()


# ---------------------------------------------------------------- sampling

TWO = CopyModel(2, 2, "softmax", 1.0, 2.0, 1.0)


def tempered(model, seed=1, sweeps=6000, ladders=16, **settings):
    """X and state of every row, shape (t, r, ...), of a tempering run in this process."""
    job = Tempering(
        kind="tempering", exchange_every=2, every=2, ladders=ladders, sweeps=sweeps,
        thermalize=400, **settings,
    )  # fmt: skip
    plan = job.plan()
    sampler = Sampler(plan, model, seed, Serial(), 0, plan.replicas, None)
    blocks = []
    while not sampler.finished:
        blocks.append(sampler.advance())
    rows = [len(block.sweep) for block in blocks]
    state = np.repeat(np.stack([block.state for block in blocks]), rows, axis=0)
    return np.concatenate([block.X for block in blocks]), state, sampler


def deviations(X, state, sampler, model):
    """z of <m>, <q>, <s2>, <m^2> in every state; state series, shape (t, ladder), of the rows."""
    rows, K = len(X), len(sampler.states)
    order = np.argsort(state.reshape(rows, -1, K), axis=2)
    in_state = np.take_along_axis(X.reshape(rows, -1, K, 5), order[..., None], axis=2)
    found = []
    for k in range(K):
        s, x = sampler.states, in_state[:, :, k]
        reference = exact.averages(model, s.P[k], s.chi[k], s.bias_center[k], s.bias_strength[k])
        columns = {"m": x[..., 0], "q": x[..., 1], "s2": x[..., 4], "m2": x[..., 0] ** 2}
        if model.attention == "linear":
            columns |= {"r": x[..., 3], "tau2": x[..., 2] ** 2}
        for name, column in columns.items():
            estimate = series.mean(column)
            found.append((estimate.value - reference[name]) / estimate.error)
    return np.array(found)


LADDERS = {
    "along P": (TWO, {"P": [2, 6, 15, 40], "chi": 3}),
    "along chi": (TWO, {"P": 8, "chi": [1, 2, 4, 8]}),
    "windows": (
        TWO, {"P": 8, "chi": 4, "bias_center": [0.3, 0.5, 0.7, 0.9], "bias_strength": 30.0},
    ),
    "grid": (TWO, {"P": [4, 9], "chi": [2, 5], "grid": True}),
    "random": (TWO, {"P": [2, 6, 15, 40], "chi": 3, "pairing": "random"}),
    "linear": (CopyModel(2, 2, "linear", 1.0, 1.0, 1.0), {"P": [3, 6, 9], "chi": [2, 3, 4]}),
}  # fmt: skip


@pytest.mark.parametrize("name", LADDERS)
def test_tempered_averages_are_exact_in_every_state(name):
    """16 to 24 numbers at a fixed seed: |z| < 4."""
    model, settings = LADDERS[name]
    X, state, sampler = tempered(model, **settings)
    assert (sampler.exchanged.accepted > 0.05 * sampler.exchanged.attempted).all()
    z = deviations(X, state, sampler, model)
    assert abs(z).max() < 4, z


@pytest.mark.parametrize("wrong", ["sign", "bias left out"])
def test_a_wrong_exchange_would_be_seen(monkeypatch, wrong):
    """Controls: the ratio upside down, and the bias not in the acceptance, must fail."""
    name = "windows" if wrong == "bias left out" else "along chi"
    model, settings = LADDERS[name]
    swap = exchange.exchange.swap

    def faulty(X, state, group, pairs, bounds, luck, coupling, *rest):
        coupling = coupling.copy()
        if wrong == "sign":  # exchanging the ends of every pair's couplings turns the ratio over
            low, high = pairs[:, bounds[group[0]] : bounds[group[0] + 1]]
            coupling[:, low], coupling[:, high] = coupling[:, high], coupling[:, low].copy()
        else:
            coupling[3] = 0.0
        return swap(X, state, group, pairs, bounds, luck, coupling, *rest)

    monkeypatch.setattr(exchange.exchange, "swap", faulty)
    X, state, sampler = tempered(model, sweeps=2000, **settings)
    assert abs(deviations(X, state, sampler, model)).max() > 6
