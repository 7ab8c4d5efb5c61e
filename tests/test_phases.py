"""The two-threshold rule that decides when a replica has switched phase."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcattn.phases import COPY, UNIFORM, follow

LOW, HIGH = 0.3, 0.6


def phases(m: list[float], start: int = UNIFORM) -> list[int]:
    """The phases of one replica, as a list."""
    return follow(np.array(m)[:, None], np.array([start]), LOW, HIGH)[:, 0].tolist()


def test_a_replica_switches_only_beyond_the_far_threshold():
    m = [0.1, 0.45, 0.59, 0.61, 0.45, 0.31, 0.29, 0.45, 0.7]
    assert phases(m) == [0, 0, 0, 1, 1, 1, 0, 0, 1]


def test_between_the_thresholds_the_past_decides():
    assert phases([0.4, 0.5], UNIFORM) == [UNIFORM, UNIFORM]
    assert phases([0.4, 0.5], COPY) == [COPY, COPY]


def test_the_first_row_may_switch():
    assert phases([0.9], UNIFORM) == [COPY]
    assert phases([0.0], COPY) == [UNIFORM]


def test_the_thresholds_themselves_belong_to_the_band():
    assert phases([HIGH], UNIFORM) == [UNIFORM]
    assert phases([LOW], COPY) == [COPY]


def test_noise_around_one_threshold_is_one_switch():
    noise = [0.55, 0.65] * 20
    switched = np.abs(np.diff(phases(noise))).sum()
    # One threshold alone would count every crossing.
    single = np.abs(np.diff((np.array(noise) > HIGH).astype(int))).sum()
    assert (switched, single) == (1, 39)


def test_a_missing_value_keeps_the_phase():
    assert phases([np.nan, 0.9, np.nan, 0.1]) == [UNIFORM, COPY, COPY, UNIFORM]


def test_replicas_are_independent_and_types_are_small():
    m = np.array([[0.1, 0.9, 0.5], [0.9, 0.1, 0.5]])
    before = np.array([UNIFORM, UNIFORM, COPY])
    out = follow(m, before, LOW, HIGH)
    assert out.tolist() == [[UNIFORM, COPY, COPY], [COPY, UNIFORM, COPY]]
    assert out.dtype == np.int8
    assert before.tolist() == [UNIFORM, UNIFORM, COPY]


@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_no_rows_or_no_replicas_give_an_empty_answer(shape: tuple[int, int]):
    out = follow(np.empty(shape), np.zeros(shape[1], dtype=np.int8), LOW, HIGH)
    assert out.shape == shape


SERIES = st.lists(st.sampled_from([0.1, LOW, 0.45, HIGH, 0.8]), min_size=2, max_size=30)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SERIES, st.sampled_from([UNIFORM, COPY]), st.data())
def test_a_series_in_two_pieces_equals_the_whole(m: list[float], start: int, data: st.DataObject):
    cut = data.draw(st.integers(1, len(m) - 1))
    head = phases(m[:cut], start)
    assert head + phases(m[cut:], head[-1]) == phases(m, start)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SERIES, st.sampled_from([UNIFORM, COPY]))
def test_the_mirror_image_swaps_the_phases(m: list[float], start: int):
    mirrored = follow(-np.array(m)[:, None], np.array([1 - start]), -HIGH, -LOW)[:, 0]
    assert (1 - mirrored).tolist() == phases(m, start)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(SERIES, st.sampled_from([UNIFORM, COPY]))
def test_every_phase_is_that_of_the_last_decisive_value(m: list[float], start: int):
    for t, phase in enumerate(phases(m, start)):
        decisive = [x for x in m[: t + 1] if x > HIGH or x < LOW]
        assert phase == (int(decisive[-1] > HIGH) if decisive else start)
