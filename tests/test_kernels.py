"""Kernels against their formulas: vector functions, random streams, incremental weights."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcattn import action, streams
from mcattn.kernels import jit, linear, simd, softmax, stream, weight
from mcattn.model import CopyModel
from mcattn.replicas import LANES, Replicas, couplings

PINNED_WORDS = [
    "0x3a231f3ddb40f5fe",
    "0xe11fcbc1a61a6419",
    "0xbd7d111347f92d37",
    "0x94d2393c1f47c244",
]
PINNED_NORMAL = -0.20087688470485607
ZIPF = tuple(np.array([4.0, 2.0, 1.0, 1.0]) / 8)


@jit.jit
def apply(which, x, y):
    for r in range(0, x.shape[0], simd.W):
        v = simd.load(x, r)
        if which == 0:
            simd.store(y, r, simd.exp(v))
        elif which == 1:
            simd.store(y, r, simd.log(v))
        elif which == 2:
            simd.store(y, r, simd.two_atanh_5(v))
        else:
            simd.store(y, r, simd.two_atanh_15(v))


def values(which, x):
    y = np.empty_like(x)
    apply(which, x, y)
    return y


def test_exponential_is_accurate_and_clamped():
    x = np.linspace(-690, 690, 8000)
    assert np.abs(values(0, x) / np.exp(x) - 1).max() < 2e-14
    far = np.array([-1e4, -701.0, 701.0, 1e4, 0.0, -0.0, 1.0, -1.0])
    assert values(0, far) == pytest.approx(np.exp(np.clip(far, -700, 700)), rel=1e-13)


def test_logarithm_is_accurate_over_the_whole_range():
    x = np.concatenate([np.geomspace(1e-300, 1e300, 4000), np.linspace(0.4, 2.5, 4000)])
    assert (np.abs(values(1, x) - np.log(x)) <= 1e-15 * np.maximum(1, np.abs(np.log(x)))).all()


@pytest.mark.parametrize(("which", "terms"), [(2, 5), (3, 15)])
def test_series_logarithm_keeps_its_bound(which, terms):
    t = np.linspace(-1 / 3, 1 / 3, 4000)
    order = 2 * terms + 1
    bound = 2 * np.abs(t) ** order / order / (1 - t * t) + 3e-16
    assert (np.abs(values(which, t) - 2 * np.arctanh(t)) <= bound).all()


def test_series_terms_cover_every_update():
    """|t| reaches its bound 1/(2 L eps + 3) when one row of a uniform pattern turns one-hot."""
    for L, eps in [(2, 1e-9), (2, 5.0), (16, 1.7), (64, 0.2)]:
        q0, q1 = 1 / L, 1 / L + (1 - 1 / L) / L
        t = (q1 - q0) / (q1 + q0 + 2 * eps)
        assert t <= 1 / (2 * L * eps + 3)
        terms = weight.series_terms(L, eps, "softmax")
        assert 2 * t ** (2 * terms + 1) / (2 * terms + 1) < 1e-16
    assert weight.series_terms(16, 1.7, "linear") == 0


def xoshiro256plus(words):
    """The generator as published, in Python integers."""
    mask = 2**64 - 1
    s = [int(w) for w in words]
    while True:
        yield (s[0] + s[3]) & mask
        t = (s[1] << 17) & mask
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = ((s[3] << 45) | (s[3] >> 19)) & mask


@jit.jit
def draw_lanes(words, out):
    for i in range(out.shape[0]):
        simd.store(out[i], 0, stream.draw(words, 0))


def test_stream_is_xoshiro256plus_in_every_lane():
    seeds = [streams.update_words(3, replica, 0) for replica in range(LANES)]
    words = simd.aligned((4, LANES), np.int64)
    words[:] = np.array(seeds).view(np.int64).T
    out = np.empty((50, LANES), dtype=np.int64)
    draw_lanes(words, out)
    for lane, seed in enumerate(seeds):
        reference = xoshiro256plus(seed)
        assert [int(x) for x in out[:, lane].view(np.uint64)] == [next(reference) for _ in out]


def test_streams_of_all_seeds_and_replicas_differ():
    seen = {
        tuple(streams.update_words(seed, replica, loop))
        for seed in range(9)
        for replica in range(64)
        for loop in range(3)
    }
    assert len(seen) == 9 * 64 * 3


def test_the_first_draws_are_pinned():
    """A change here changes every run ever published with a seed."""
    assert [hex(w) for w in streams.update_words(0, 0, 0)] == PINNED_WORDS
    assert streams.start_generator(0, 0, 0).standard_normal() == PINNED_NORMAL


def cases():
    return st.tuples(
        st.integers(2, 6),
        st.sampled_from([None, ZIPF]),
        st.sampled_from(["softmax", "linear"]),
        st.floats(0.1, 500),
        st.floats(0.5, 50),
        st.integers(0, 2**32),
    )


def moved_pair(model, rng, lanes):
    """Scores of `lanes` patterns before and after one score moved."""
    L = model.L
    before = rng.normal(size=(lanes, L, L)) * 1.5
    after = before.copy()
    a, b = rng.integers(L, size=2)
    after[:, a, b] += rng.normal(size=lanes)
    return before, after


def weight_change(model, X0, X1, P, chi, bias=0.0, center=0.0, along="m"):
    """The kernels' change of -F without the prior part, shape (lane,)."""
    lanes = len(X0)
    state = (np.full(lanes, value) for value in (P, chi, center, bias, 1.0))
    coupling = couplings(model, *state, along)
    sums, new, change = X0.T[:4].copy(), X1.T[:4].copy(), np.zeros(lanes)
    p, n = model.token_groups
    eps = coupling[weight.RIDGE].min() / p.max()
    terms = weight.series_terms(model.L, eps, model.attention)
    if len(p) > 1:
        weight.any_tokens(coupling, sums, new, change, float(model.V), terms, p, n)
    elif model.attention == "softmax":
        weight.uniform_softmax(coupling, sums, new, change, float(model.V), terms)
    else:
        weight.uniform_linear(coupling, sums, new, change, float(model.V))
    return change


@settings(max_examples=150, deadline=None)
@given(cases())
def test_incremental_weight_equals_the_action(case):
    L, tokens, attention, P, chi, seed = case
    model = CopyModel(L, 4, attention, 1.3, 0.8, 0.4, tokens)
    before, after = moved_pair(model, np.random.default_rng(seed), LANES)
    X0, X1 = (action.order_parameters(S, attention) for S in (before, after))
    prior = chi * (X1 - X0)[:, 4] / (2 * model.g_s)
    F0, F1 = (action.population(X, model, P, chi) for X in (X0, X1))
    expected = F0 - F1 + prior
    got = weight_change(model, X0, X1, P, chi)
    # Rounding of F itself sets the tolerance: it is a difference of numbers of size chi P.
    assert got == pytest.approx(expected, abs=1e-12 * (chi * P + 10))
    assert np.abs(got - expected * 1.001).max() > 1e-9 * np.abs(expected).max()


@pytest.mark.parametrize("tokens", [None, ZIPF])
@pytest.mark.parametrize("along", ["m", "tau", "beta"])
def test_bias_enters_as_a_harmonic_well(along, tokens):
    """The order parameters come from A itself, both signs of tau and of beta occur."""
    attention = "softmax" if along == "m" else "linear"
    model = CopyModel(4, 4, attention, 1.0, 1.0, 1.0, tokens)
    before, after = moved_pair(model, np.random.default_rng(5), LANES)
    X0, X1 = (action.order_parameters(S, attention) for S in (before, after))
    biased = weight_change(model, X0, X1, 10.0, 3.0, bias=40.0, center=0.3, along=along)
    free = weight_change(model, X0, X1, 10.0, 3.0)
    signed = [
        {"m": X[:, 0], "tau": X[:, 2], "beta": action.alpha_beta(X, model.L)[1]}[along]
        for X in (X0, X1)
    ]
    u = signed if along == "m" else np.abs(signed)
    assert along == "m" or np.min(signed) < 0 < np.max(signed)
    well = [20.0 * (x - 0.3) ** 2 for x in u]
    assert biased - free == pytest.approx(well[0] - well[1], abs=1e-12)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize("tokens", [None, ZIPF])
def test_caches_follow_the_scores(attention, tokens):
    model = CopyModel(5, 4, attention, 1.0, 1.0, 0.5, tokens)
    replicas = Replicas(model, seed=1, first=0, count=11)
    chi = np.linspace(2, 20, 11)
    replicas.start("uniform", chi)
    replicas.set_states(np.linspace(5, 60, 11), chi, 0.0, 0.0, 1.0 / np.sqrt(chi))
    X, accepted = replicas.advance(200, every=200)
    assert (accepted > 0).all()
    recomputed = action.order_parameters(replicas.scores(), attention)
    assert (replicas.sums() == X[-1]).all()
    assert X[-1] == pytest.approx(recomputed, rel=1e-11, abs=1e-12)
    sums = replicas._sums[: 2 if attention == "softmax" else 4]
    caches = [replicas._rows[0], *sums, replicas._weights]
    caches = [cache.reshape(-1, replicas._lanes) for cache in caches if cache.size]
    for cache in caches:
        cache[0] *= 1.001
        before = [each.copy() for each in caches]
        drift = replicas.refresh()
        errors = [
            abs(old - new).max(axis=0) / abs(new).max(axis=0)
            for old, new in zip(before, caches, strict=True)
        ]
        assert drift == pytest.approx(np.max(errors, axis=0)[:11], rel=1e-9)
        assert drift.max() > 1e-6
    assert (replicas.refresh() == 0).all()


def test_kernels_compile_one_signature_each():
    for attention in ("softmax", "linear"):
        for L, tokens, count in [(3, None, 3), (4, ZIPF, 9)]:
            replicas = Replicas(CopyModel(L, 4, attention, 1, 1, 1, tokens), 0, 0, count)
            replicas.start("copy", 5.0)
            replicas.set_states(10.0, 5.0, 0.0, 0.0, 0.5)
            replicas.advance(3, every=1)
            replicas.advance(3)
            replicas.sums()
    measures = (softmax.measure, linear.measure)
    for kernel in (softmax.run, softmax.refresh, linear.run, linear.refresh, *measures):
        assert len(kernel.signatures) == 1


def test_a_replica_does_not_know_its_lane_or_its_neighbours():
    model = CopyModel(5, 4, "softmax", 1.0, 2.0, 0.5)

    def chain(first, count, replica):
        replicas = Replicas(model, seed=7, first=first, count=count)
        replicas.start("uniform", 8.0)
        replicas.set_states(40.0, 8.0, 0.0, 0.0, 0.7)
        return replicas.advance(50, every=5)[0][:, replica - first]

    whole = chain(0, 24, 13)
    assert (whole == chain(8, 8, 13)).all()
    assert (whole == chain(13, 1, 13)).all()
    assert (whole != chain(0, 24, 12)).any()


def test_the_cut_into_calls_changes_nothing():
    model = CopyModel(4, 4, "linear", 1.0, 1.0, 0.5)

    def rows(cuts):
        replicas = Replicas(model, seed=2, first=0, count=8)
        replicas.start("uniform", 8.0)
        replicas.set_states(6.0, 8.0, 0.0, 0.0, 0.3)
        done, parts = 0, []
        for n in cuts:
            parts.append(replicas.advance(n, every=3, done=done)[0])
            done += n
        return np.concatenate(parts)

    whole = rows([30])
    assert len(whole) == 10
    assert (whole == rows([1, 2, 7, 20])).all()


def test_cache_key_follows_the_content_of_every_kernel_file(tmp_path, monkeypatch):
    copy = tmp_path / "kernels"
    copy.mkdir()
    for file in jit.Path(jit.__file__).parent.glob("*.py"):
        (copy / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(jit, "__file__", str(copy / "jit.py"))
    before = jit.digest()
    with (copy / "weight.py").open("a") as f:
        f.write("# edited\n")
    assert jit.digest() != before


def test_unwritable_cache_falls_back_to_compiling(monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/nowhere")
    assert jit.cache_folder() is None
    assert math.isfinite(values(0, np.zeros(8))[0])
