"""The network's loss and gradient: against the definition, finite differences, the action."""

import numpy as np
import pytest

from mcattn import action
from mcattn.exact_replicas import packed
from mcattn.model import CopyModel
from mcattn.network import NETWORKS, Network, Sequences

CASES = [(attention, kind) for attention in ("softmax", "linear") for kind in NETWORKS]


def tokens_of(model, P, seed=0):
    return np.random.default_rng(seed).integers(model.V, size=(P, model.L))


def with_counts(model, tokens):
    hot = np.eye(model.V)[tokens]
    return Sequences(tokens, packed(np.einsum("mbv,mcw->bcvw", hot, hot)))


def by_definition(model, kind, theta, tokens):
    """H from one-hot vectors, as written in theory.md."""
    V, L = model.V, model.L
    d = L if kind == "positional" else V + L
    W, M = theta[: V * V].reshape(V, V), theta[V * V :].reshape(d, d)
    value = (W**2).sum() / (2 * model.g_w) + (M**2).sum() / (2 * model.g_s)
    for x in tokens:
        hot = np.eye(V)[x]
        z = np.eye(L) if kind == "positional" else np.hstack([hot, np.eye(L)])
        f = action.pattern(z @ M @ z.T, model.attention) @ hot @ W.T
        value += ((np.roll(hot, 1, axis=0) - f) ** 2).sum() / (2 * L * model.kappa)
    return value


@pytest.mark.parametrize(("attention", "kind"), CASES)
def test_loss_is_that_of_the_definition_and_the_gradient_its_slope(attention, kind):
    model = CopyModel(5, 3, attention, 0.7, 2.0, 0.4)
    network = Network(model, kind)
    tokens = tokens_of(model, 11)
    theta = np.random.default_rng(1).standard_normal(network.size)
    value, grad = network.loss(theta, Sequences(tokens))
    assert value == pytest.approx(by_definition(model, kind, theta, tokens), rel=1e-12)
    h = 1e-5
    steps = h * np.eye(network.size)
    slope = [
        (
            by_definition(model, kind, theta + e, tokens)
            - by_definition(model, kind, theta - e, tokens)
        )
        / (2 * h)
        for e in steps
    ]
    np.testing.assert_allclose(grad, slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_counts_give_the_loss_of_their_sequences(attention):
    model = CopyModel(6, 5, attention, 0.7, 2.0, 0.4)  # V^2 = 25 is no multiple of the width
    network = Network(model)
    data = with_counts(model, tokens_of(model, 40))
    theta = np.random.default_rng(1).standard_normal(network.size)
    one, other = network.loss(theta, data), network.loss(theta, Sequences(data.tokens))
    assert one[0] == pytest.approx(other[0], rel=1e-13)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("attention", "kind"), CASES)
def test_batches_estimate_the_whole_without_bias(attention, kind):
    """The mean over all rows, taken one at a time, is the loss itself."""
    model = CopyModel(4, 3, attention)
    network = Network(model, kind)
    data = Sequences(tokens_of(model, 7))
    theta = np.random.default_rng(1).standard_normal(network.size)
    whole = network.loss(theta, data)
    parts = [network.loss(theta, data, np.array([mu])) for mu in range(7)]
    assert np.mean([value for value, _ in parts]) == pytest.approx(whole[0], rel=1e-12)
    np.testing.assert_allclose(np.mean([grad for _, grad in parts], axis=0), whole[1], rtol=1e-9)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_the_full_network_without_token_scores_is_the_positional_one(attention):
    model = CopyModel(5, 4, attention, 0.7, 2.0, 0.4)
    one, other = Network(model), Network(model, "full")
    rng = np.random.default_rng(2)
    W, S = rng.standard_normal((4, 4)), rng.standard_normal((5, 5))
    data = Sequences(tokens_of(model, 9))
    assert one.loss(one.join(W, S), data)[0] == pytest.approx(
        other.loss(other.join(W, S), data)[0], rel=1e-13
    )
    np.testing.assert_allclose(other.scores(other.join(W, S)), S)
    X, _, share = other.observe(other.join(W, S), data)
    np.testing.assert_allclose(X, one.observe(one.join(W, S), data)[0])
    assert share == 1


@pytest.mark.parametrize("tokens", [None, (0.6, 0.3, 0.1)])
def test_test_loss_is_the_average_over_fresh_sequences(tokens):
    """Exact expectation of the positional network against all 3^4 sequences; both networks."""
    model = CopyModel(4, 3, "softmax", tokens=tokens)
    p = np.full(3, 1 / 3) if tokens is None else np.array(tokens)
    rng = np.random.default_rng(3)
    W, S = rng.standard_normal((3, 3)), rng.standard_normal((4, 4))
    sequences = np.array(np.meshgrid(*[range(3)] * 4, indexing="ij")).reshape(4, -1).T
    full = Network(model, "full")
    each = [full.observe(full.join(W, S), Sequences(x[None]))[1] for x in sequences]
    one = Network(model)
    expected = one.observe(one.join(W, S), Sequences(sequences[:0]))[1]
    assert expected == pytest.approx(np.dot(p[sequences].prod(axis=1), each), rel=1e-12)
    assert expected != pytest.approx(np.mean(each), rel=1e-3) or tokens is None


def test_mean_scores_of_the_full_network():
    model = CopyModel(3, 2, tokens=(0.8, 0.2))
    network = Network(model, "full")
    theta = np.random.default_rng(4).standard_normal(network.size)
    M, p = network.split(theta)[1], np.array([0.8, 0.2])
    z = [np.concatenate([np.eye(2)[t], np.eye(3)[a]]) for a in range(3) for t in range(2)]
    S = np.array(z) @ M @ np.array(z).T
    expected = np.einsum("t,u,atbu->ab", p, p, S.reshape(3, 2, 3, 2))
    np.testing.assert_allclose(network.scores(theta), expected)
