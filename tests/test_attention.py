"""Order parameters of anyone's attention arrays: the theory's own, and patterns made of parts."""

import json

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from mcattn import action, attention
from mcattn.cli import app
from mcattn.errors import JobError

L = 12


def uniform(kind):
    A = np.tril(np.ones((L, L))) if kind == "causal" else np.ones((L, L))
    return A / A.sum(axis=1, keepdims=True)


def copying(kind, k):
    """Rows that copy from k before; causal rows that cannot attend uniformly."""
    A = np.roll(np.eye(L), -k, axis=1)
    if kind == "causal":
        A[:k] = uniform(kind)[:k]
    return A


def patterns(seed=0, shape=(2, 3)):
    S = np.random.default_rng(seed).normal(size=(*shape, L, L))
    return action.pattern(S, "softmax"), S


def test_periodic_patterns_have_the_order_parameters_of_the_theory():
    A, S = patterns()
    found = attention.order(A)
    X = action.order_parameters(S, "softmax")
    alpha, beta = action.alpha_beta(X, L)
    assert found.kind == "periodic"
    for name, expected in (("m", X[..., 0]), ("q", X[..., 1]), ("alpha", alpha), ("beta", beta)):
        np.testing.assert_allclose(getattr(found, name), expected, atol=1e-12)


@pytest.mark.parametrize("kind", ["causal", "periodic"])
@pytest.mark.parametrize("k", [0, 1, 3])
def test_a_mixture_is_taken_apart(kind, k):
    """alpha U + beta Pi, but for the causal rows that have nothing to copy from."""
    A = 0.3 * uniform(kind) + 0.7 * copying(kind, k)
    found = attention.order(A, offset=k)
    assert found.kind == kind
    a = np.arange(k if kind == "causal" else 0, L)
    assert found.m == pytest.approx(A[a, a - k].mean())
    both = np.stack([uniform(kind).ravel(), shift(kind, k).ravel()], axis=1)
    expected = np.linalg.lstsq(both, A.ravel(), rcond=None)[0]
    np.testing.assert_allclose([found.alpha, found.beta], expected, atol=1e-12)
    if kind == "periodic":
        np.testing.assert_allclose([found.alpha, found.beta], [0.3, 0.7])


def shift(kind, k):
    Pi = np.roll(np.eye(L), -k, axis=1)
    if kind == "causal":
        Pi[:k] = 0
    return Pi


@pytest.mark.parametrize("kind", ["causal", "periodic"])
def test_what_is_left_is_orthogonal_to_both_patterns(kind):
    S = np.random.default_rng(3).normal(size=(4, L, L))
    if kind == "causal":
        S[:, np.triu(np.ones((L, L), dtype=bool), 1)] = -np.inf
    A = np.exp(S) / np.exp(S).sum(axis=-1, keepdims=True)
    found = attention.order(A)
    assert found.kind == kind
    U, Pi = uniform(kind), shift(kind, 1)
    rest = A - found.alpha[:, None, None] * U - found.beta[:, None, None] * Pi
    assert abs((rest * U).sum(axis=(1, 2))).max() < 1e-12
    assert abs((rest * Pi).sum(axis=(1, 2))).max() < 1e-12


def test_the_offset_is_found():
    A = np.stack([0.4 * uniform("causal") + 0.6 * copying("causal", k) for k in (0, 2, 5)])
    assert attention.order(A, offset=None).offset.tolist() == [0, 2, 5]


def test_entropy_goes_from_nothing_to_one():
    for kind in ("causal", "periodic"):
        assert attention.order(uniform(kind)).entropy == pytest.approx(1)
    assert attention.order(copying("periodic", 1)).entropy == 0


def test_means_over_axes():
    A, _ = patterns(shape=(2, 3, 4))
    whole = attention.order(A)
    found = attention.averaged(whole, [0, -1])
    np.testing.assert_allclose(found.m, whole.m.mean(axis=(0, 2)))
    assert found.offset.tolist() == [1, 1, 1]
    with pytest.raises(JobError, match=r"no axis 5 .* before L x L is \(2, 3, 4\)"):
        attention.averaged(whole, [5])
    mixed = attention.order(np.stack([copying("periodic", k) for k in (1, 2)]), offset=None)
    assert attention.averaged(mixed, [0]).offset == -1


@pytest.mark.parametrize(
    ("A", "words"),
    [
        (np.ones((3, 4)) / 4, r"shape \(3, 4\)"),
        (np.ones(5), r"shape \(5,\)"),
        (np.ones((0, 4, 4)), "holds no pattern"),
        (2 * np.eye(4), r"holds 2 at \(0, 0\)"),
        (np.eye(4) - 0.1, r"holds -0.1 at \(0, 1\)"),
        (np.full((4, 4), np.nan), "holds nan"),
        (0.9 * np.eye(4), r"4 of 4 rows do not sum to 1; row \(0,\) sums to 0.9"),
        (np.array([["a", "b"], ["c", "d"]]), "attention is made of numbers"),
    ],
)
def test_what_is_no_attention_is_refused(A, words):
    with pytest.raises(JobError, match=words):
        attention.order(A)


def test_wrong_questions_are_refused():
    with pytest.raises(JobError, match="offset is 12; it must be from 0 to 11"):
        attention.order(uniform("causal"), offset=12)
    with pytest.raises(JobError, match="kind is 'none'"):
        attention.order(uniform("causal"), kind="none")


@pytest.fixture
def files(tmp_path):
    A = patterns()[0].astype(np.float32)
    np.save(tmp_path / "a.npy", A)
    np.savez(tmp_path / "b.npz", attention=A, loss=np.zeros(3))
    with h5py.File(tmp_path / "c.h5", "w") as f:
        f["maps/layer"] = A
        f["other"] = 1.0
    return tmp_path


def test_every_kind_of_file_tells_the_same(files):
    expected = attention.order(patterns()[0])
    for words in (["a.npy"], ["b.npz"], ["c.h5", "--name", "maps/layer"]):
        words[0] = str(files / words[0])
        told = CliRunner().invoke(app, ["order", *words, "--json"])
        assert told.exit_code == 0, told.output
        (one,) = json.loads(told.stdout).values()
        m = np.reshape([row["m"] for row in one["patterns"]], (2, 3))
        np.testing.assert_allclose(m, expected.m, atol=1e-6)
        text = CliRunner().invoke(app, ["order", *words, "--mean", "0"])
        assert text.exit_code == 0, text.output
        assert "3 periodic pattern(s)" in text.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["c.h5"], "holds the arrays maps/layer, other; it must hold one array, or one called"),
        (["a.npy", "--offset", "x"], "--offset is 'x'; it must be a whole number or any"),
        (["none.npy"], "cannot read attention array"),
        (["a.txt"], "is no attention array; expected one of the endings .npy"),
    ],
)
def test_files_that_do_not_fit_are_told_in_a_sentence(files, words, sentence):
    (files / "a.txt").write_text("1 0\n0 1\n")
    with pytest.raises(JobError, match=sentence):
        CliRunner().invoke(
            app, ["order", str(files / words[0]), *words[1:]], catch_exceptions=False
        )
