"""What a tempering run is said to be: round trips, verdicts, averages by state, tables, figure."""

import io
import json

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console
from synthetic_runs import HIGH_M, LOW_M, run, softmax_sums, states

from mcattn.analysis import ladder_figure, report, tempering
from mcattn.jobfile import Tempering
from mcattn.ladder import respaced
from mcattn.model import CopyModel
from mcattn.ranks import Serial
from mcattn.sampler import Sampler


def zigzag(count, rows):
    """State of `count` replicas that go up and down the ladder without a stop, shape (t, r).

    What even-odd pairing does when every swap is accepted.
    """
    loop = np.concatenate([np.arange(count), np.arange(count)[::-1]])
    t = np.arange(rows)[:, None]
    start = np.where(np.arange(count) % 2, 2 * count - 1 - np.arange(count), np.arange(count))
    return loop[(t + start) % (2 * count)]


def synthetic(state, accepted, attempted=1000, chance=None, ladders=1):
    """A run with these states, (t, r), and swaps accepted, (p,); m is LOW_M or HIGH_M by state."""
    count = state.shape[1] // ladders
    table = states(np.linspace(300, 400, count), *np.zeros((3, count), int))
    rng = np.random.default_rng(1)
    level = np.where(state < count // 2, LOW_M, HIGH_M)
    accepted = np.broadcast_to(accepted, (ladders, count - 1))
    attempted = np.broadcast_to(attempted, (ladders, count - 1))
    exchanges = {
        "low": np.arange(count - 1),
        "high": np.arange(1, count),
        "attempted": attempted,
        "accepted": accepted,
        "chance": accepted.astype(float),
        "place": np.arange(count, dtype=float),
    }
    X = softmax_sums(level * (1 + 0.05 * rng.standard_normal(state.shape)))
    return run(X, state, table, protocol="tempering", exchanges=exchanges)


def printed(result):
    text = io.StringIO()
    report.print_tables(result, Console(file=text, width=100, highlight=False))
    json.loads(report.json_text(result))
    FigureCanvasAgg(ladder_figure.ladder_figure(result)).draw()
    return text.getvalue()


def test_round_trips_are_counted_exactly():
    state = zigzag(6, 12 * 10 + 1)
    assert (np.sort(state, axis=1) == np.arange(6)).all()
    trips, upward = tempering.travel(state, 6)
    # A round takes 12 rows; a replica that starts inside has its first trip later.
    expected = []
    for r in range(6):
        at_end = [(t, k) for t, k in enumerate(state[:, r]) if k in (0, 5)]
        turns = [k for i, (_, k) in enumerate(at_end) if i == 0 or at_end[i - 1][1] != k]
        turns = turns[turns.index(0) :]
        expected.append((len(turns) - 1) // 2)
    assert trips.tolist() == expected
    assert trips.min() >= 9
    assert trips.max() == 10
    assert upward == pytest.approx([1, 0.5, 0.5, 0.5, 0.5, 0], abs=0.1)


@pytest.mark.parametrize(
    ("path", "trips"),
    [
        ([0, 1, 2, 1, 0], 1),
        ([2, 1, 0], 0),  # began at the far end: half a trip
        ([2, 1, 0, 1, 2, 1, 0], 1),
        ([1, 0, 1, 0, 1, 0], 0),
        ([0, 1, 2, 1, 2, 1, 0, 0, 2, 0], 2),
        ([1, 1, 1], 0),
    ],
)
def test_what_a_round_trip_is(path, trips):
    assert tempering.travel(np.array(path)[:, None], 3)[0].tolist() == [trips]


def test_a_good_ladder_is_called_good():
    result = tempering.analyze(synthetic(zigzag(6, 200), accepted=700))
    assert result.works
    assert result.barrier == pytest.approx(5 * 0.3)
    assert result.recommended == 4
    assert result.occupancy == pytest.approx(np.full((6, 6), 1 / 6), abs=0.01)
    text = printed(result)
    assert "The ladder works" in text
    assert "0.700" in text
    assert "states suit this path" in text
    assert not [w for w in result.warnings if "Lambda" in w]


def test_a_hopeless_gap_and_an_untried_pair_show():
    state = np.tile(np.arange(6), (50, 1))
    state[1::2, :2] = [1, 0]
    attempted = np.array([1000, 1000, 1000, 0, 1000])
    data = synthetic(state, np.array([500, 400, 0, 0, 300]), attempted)
    result = tempering.analyze(data)
    assert not result.works
    assert "No round trip: the ladder is cut between state 2" in result.verdict
    assert "where 0 of 1000 swaps were accepted" in result.verdict
    rows = [line.split() for line in printed(result).splitlines()]
    assert ["2", "-", "3", "1000", "0", "0.000"] in [row[:6] for row in rows]
    assert ["3", "-", "4", "0", "0", "n/a"] in [row[:6] for row in rows]
    assert any("1 of 5 pairs were never tried" in text for text in result.warnings)


def test_a_first_order_gap_is_told_from_a_cut_ladder():
    """Neighbours swap well, but replicas turn back between states 2 and 3."""
    low, high = zigzag(3, 300), 3 + zigzag(3, 300)
    result = tempering.analyze(synthetic(np.concatenate([low, high], axis=1), accepted=600))
    assert not result.works
    assert "do not get past state 2" in result.verdict
    assert "umbrella windows" in result.verdict
    assert result.upward == (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)


def test_too_few_states_are_warned_of():
    result = tempering.analyze(synthetic(zigzag(4, 100), accepted=200))
    assert result.recommended == 6
    assert any("4 states; about 6 suit this path" in text for text in result.warnings)


def test_rows_rarer_than_exchanges_are_warned_of():
    often, rarely = (
        synthetic(zigzag(6, 200)[::step], accepted=100, attempted=100) for step in (1, 12)
    )
    said = [any("rarer" in w for w in tempering.analyze(data).warnings) for data in (often, rarely)]
    assert said == [False, True]


def test_averages_belong_to_states_not_to_replicas():
    """Every replica visits both levels; the states do not."""
    ladders, count = 3, 4
    state = np.concatenate([np.roll(zigzag(count, 400), i, axis=0) for i in range(ladders)], axis=1)
    result = tempering.analyze(synthetic(state, accepted=900, ladders=ladders))
    for k, summary in enumerate(result.states):
        assert summary.replicas == ladders
        level = LOW_M if k < 2 else HIGH_M
        assert summary.m.value == pytest.approx(level, rel=0.01)
        assert summary.copy_fraction == pytest.approx(float(k >= 2), abs=0.02)
    assert len(result.round_trips) == 12


# ---------------------------------------------------------------- tuning


def test_respacing_equalises_a_known_barrier():
    """Rejection grows with the cube of the place: equal steps of place^3 are the answer."""
    place = np.linspace(0, 3, 12)
    for _ in range(8):
        place = respaced(place, np.diff(place**3) / 40)
    steps = np.diff(place**3)
    assert steps == pytest.approx(np.full(11, 27 / 11), rel=0.02)
    assert place[[0, -1]].tolist() == [0, 3]
    even = respaced(np.linspace(0, 2, 5), np.zeros(4))  # equal states: nothing to gain
    assert even == pytest.approx(np.linspace(0, 2, 5))


def test_tuning_makes_neighbours_of_a_skewed_ladder_swap_alike():
    """chi from 0.5 to 32 in even steps: nearly all of the barrier lies in the first gap."""
    model = CopyModel(3, 3, "softmax", 1.0, 2.0, 0.5)

    def rejections(rounds):
        job = Tempering(
            kind="tempering", P=10, chi=[0.5, 32], states=8, ladders=8, exchange_every=5,
            tune_rounds=rounds, tune_sweeps=1000, thermalize=100, sweeps=3000,
        )  # fmt: skip
        plan = job.plan()
        sampler = Sampler(plan, model, 2, Serial(), 0, plan.replicas, None)
        while not sampler.finished:
            sampler.advance()
        order = np.argsort(plan.ladder.pairs[0])
        return sampler.exchanged.rejection()[order], sampler.states.chi

    given, chi = rejections(0)
    assert np.ptp(given) > 0.3
    assert np.allclose(chi, np.linspace(0.5, 32, 8))
    tuned, chi = rejections(4)
    assert abs(tuned - tuned.mean()).max() < 0.05
    assert chi[[0, -1]].tolist() == [0.5, 32]
    assert np.allclose(np.diff(np.log(chi)), np.log(64) / 7, rtol=0.5)  # nearly geometric
