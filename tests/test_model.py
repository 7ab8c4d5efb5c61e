"""Every refusal of CopyModel names the parameter, what was found and what it must be."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcattn.errors import McattnError, ModelError
from mcattn.model import CopyModel


def refusal(**parameters: object) -> str:
    """The sentence with which a model is refused."""
    with pytest.raises(ModelError) as error:
        CopyModel(**parameters)  # type: ignore[arg-type]
    return str(error.value)


def test_the_default_is_the_standard_case():
    expected = dict(L=16, V=16, attention="softmax", kappa=1.0, g_s=3.0, g_w=0.03, tokens=None)
    assert CopyModel().to_dict() == expected


def test_a_model_error_is_the_users_and_a_value_error():
    assert issubclass(ModelError, McattnError)
    assert issubclass(ModelError, ValueError)


# --- sizes and numbers -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["L", "V"])
@pytest.mark.parametrize("value", [True, np.True_, 16.0, "16", None, [16], math.nan, np.float64(4)])
def test_sizes_must_be_integers(name: str, value: object):
    assert refusal(**{name: value}) == f"{name} is {value!r}; it must be an integer >= 2"


@pytest.mark.parametrize("name", ["L", "V"])
@pytest.mark.parametrize("value", [1, 0, -3, np.int64(1)])
def test_sizes_start_at_two(name: str, value: int):
    assert refusal(**{name: value}) == f"{name} is {value}; it must be at least 2"


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint16])
def test_numpy_integers_become_plain_ones(kind: type):
    model = CopyModel(L=kind(4), V=kind(3))
    assert (type(model.L), type(model.V)) == (int, int)
    assert model == CopyModel(L=4, V=3)


@pytest.mark.parametrize("name", ["kappa", "g_s", "g_w"])
@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.nan, math.inf, -math.inf, np.float32(-2)])
def test_strengths_must_be_finite_and_positive(name: str, value: float):
    assert refusal(**{name: value}) == f"{name} is {value!r}; it must be finite and > 0"


@pytest.mark.parametrize("name", ["kappa", "g_s", "g_w"])
@pytest.mark.parametrize("value", [None, "much", [1.0, 2.0], 1j])
def test_strengths_must_be_numbers(name: str, value: object):
    assert refusal(**{name: value}) == f"{name} is {value!r}; it must be a number > 0"


@pytest.mark.parametrize("value", [2, np.float32(2), np.int64(2)])
def test_strengths_become_plain_floats(value: float):
    model = CopyModel(kappa=value, g_s=value, g_w=value)
    assert {type(x) for x in (model.kappa, model.g_s, model.g_w)} == {float}
    assert model == CopyModel(kappa=2.0, g_s=2.0, g_w=2.0)


@pytest.mark.parametrize("value", ["Softmax", "cosine", "", None, 1])
def test_only_two_attentions_are_known(value: object):
    assert refusal(attention=value) == (f"attention is {value!r}; it must be 'softmax' or 'linear'")


# --- tokens ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "found"), [((0.5, 0.5), "(2,)"), ((), "(0,)"), (1.0, "()"), ([[0.5, 0.5]], "(1, 2)")]
)
def test_tokens_must_be_as_many_as_the_vocabulary(tokens: object, found: str):
    expected = f"tokens has shape {found}; it needs V = 3 probabilities"
    assert refusal(V=3, tokens=tokens) == expected


@pytest.mark.parametrize("tokens", [("a", "b"), "uniform", (0.5, [0.5]), (1j, 1)])
def test_tokens_must_be_numbers(tokens: object):
    expected = "tokens must be numbers, the probabilities of the V tokens"
    assert refusal(V=2, tokens=tokens) == expected


@pytest.mark.parametrize("tokens", [(1.0, 0.0), (1.5, -0.5), (math.nan, 1.0), (math.inf, 0.1)])
def test_tokens_must_be_positive(tokens: tuple[float, ...]):
    expected = "tokens must all be finite and > 0; leave out tokens that never occur"
    assert refusal(V=2, tokens=tokens) == expected


@pytest.mark.parametrize(("tokens", "total"), [((0.5, 0.6), "1.1"), ((2, 3), "5")])
def test_tokens_must_sum_to_one(tokens: tuple[float, ...], total: str):
    assert refusal(V=2, tokens=tokens) == (f"tokens sum to {total}; probabilities must sum to 1")


def test_a_rounded_sum_is_mended():
    model = CopyModel(V=3, tokens=(0.5, 0.3, 0.2 + 5e-10))
    assert model.tokens is not None
    assert sum(model.tokens) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("V", [2, 3, 7, 10, 16])
def test_equal_tokens_are_the_uniform_model(V: int):
    model = CopyModel(V=V, tokens=(1 / V,) * V)
    assert model.tokens is None
    assert model == CopyModel(V=V)
    assert hash(model) == hash(CopyModel(V=V))
    assert CopyModel(V=2, tokens=(0.5 + 1e-6, 0.5 - 1e-6)).tokens is not None


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_any_sequence_of_tokens_will_do(kind: type):
    model = CopyModel(V=2, tokens=kind([0.25, 0.75]))
    assert model.tokens == (0.25, 0.75)
    assert {type(p) for p in model.tokens} == {float}


def test_token_groups_gather_equal_probabilities():
    p, n = CopyModel(V=5).token_groups
    assert (p.tolist(), n.tolist()) == ([0.2], [5.0])
    p, n = CopyModel(V=4, tokens=(0.375, 0.125, 0.125, 0.375)).token_groups
    assert (p.tolist(), n.tolist()) == ([0.125, 0.375], [2.0, 2.0])
    assert (p.dtype, n.dtype) == (float, float)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=8))
def test_sums_over_groups_are_sums_over_tokens(weights: list[int]):
    tokens = [w / sum(weights) for w in weights]
    p, n = CopyModel(V=len(tokens), tokens=tuple(tokens)).token_groups
    assert len(p) == len(set(weights))
    for power in range(4):
        assert (n * p**power).sum() == pytest.approx(sum(x**power for x in tokens), rel=1e-14)


# --- a value, not a variable -----------------------------------------------------------------


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(CopyModel)])
def test_a_model_cannot_change(name: str):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(CopyModel(), name, 3)


def test_a_variant_is_checked_again():
    model = CopyModel(V=3, tokens=(0.5, 0.3, 0.2))
    assert dataclasses.replace(model, g_s=2).g_s == 2.0
    with pytest.raises(ModelError, match=re.escape("tokens has shape (3,); it needs V = 4")):
        dataclasses.replace(model, V=4)


@pytest.mark.parametrize(
    "tokens", [None, (0.5, 0.25, 0.25, 2**-60), (0.4, 0.3, 0.2, 0.1), (0.7, 0.1, 0.1, 0.1)]
)
def test_a_model_survives_json(tokens: tuple[float, ...] | None):
    model = CopyModel(5, 4, "linear", 0.7, 1.3, 0.02, tokens)
    values = model.to_dict()
    assert list(values) == [field.name for field in dataclasses.fields(CopyModel)]
    again = CopyModel(**json.loads(json.dumps(values)))
    assert again == model
    assert hash(again) == hash(model)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=16), st.floats(-9e-10, 9e-10))
def test_tokens_settle_after_one_reading(weights: list[float], excess: float):
    """A run file that is read and written again must not drift by a rounding each time."""
    tokens = [w / sum(weights) for w in weights]
    tokens[0] += excess
    model = CopyModel(V=len(tokens), tokens=tuple(tokens))
    assert CopyModel(**model.to_dict()) == model


def test_writing_tokens_as_given_keeps_them():
    """Probabilities that already sum to 1, up to rounding, are the user's and stay as they are."""
    assert CopyModel(V=4, tokens=(0.4, 0.3, 0.2, 0.1)).tokens == (0.4, 0.3, 0.2, 0.1)
