"""Planning: phases, thresholds and recipes against the landscape and against the loss itself."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from mcattn import plan, theory
from mcattn.cli import app
from mcattn.errors import ModelError
from mcattn.model import CopyModel

SOFTMAX = CopyModel()
LINEAR = CopyModel(32, 4, "linear", 1, 1, 0.1)


@pytest.mark.parametrize(
    ("P", "phase", "deepest", "more"),
    [
        (250, "uniform", "uniform", (30, 57, 165)),
        (290, "uniform, copying possible", "uniform", (0, 17, 125)),
        (350, "copying favoured", "copy", (0, 0, 65)),
        (450, "copy", "copy", (0, 0, 0)),
    ],
)
def test_phases_of_softmax_attention(P, phase, deepest, more):
    found = plan.outlook(SOFTMAX, P)
    assert found.order == "first"
    assert not found.warning
    assert found.phase == phase
    assert tuple(at.more for at in found.thresholds) == more
    assert [one.name for one in found.branches if one.deepest] == [deepest]
    expected = {"uniform": {"uniform"}, "copy": {"copy"}}.get(phase, {"uniform", "copy"})
    assert {one.name for one in found.branches} == expected
    assert found.jump == pytest.approx(0.6296 - 0.0722, abs=2e-4)


@pytest.mark.parametrize(
    ("P", "phase", "name"),
    [
        (10, "silent", "silent"),
        (30, "uniform head", "uniform head"),
        (150, "copy head", "copy head"),
    ],
)
def test_phases_of_linear_attention(P, phase, name):
    found = plan.outlook(LINEAR, P)
    assert (found.order, found.phase, found.warning) == ("second", phase, True)
    assert found.branches[0].name == name
    onset = found.thresholds[0].P
    assert onset == pytest.approx(12.6288, abs=1e-4)


def test_copying_takes_over_where_beta_equals_alpha():
    at = plan.outlook(LINEAR, 10).thresholds[1].P
    one = theory.minima(LINEAR, at)[0]
    assert one.alpha == pytest.approx(one.beta, rel=1e-6)


def test_a_short_sequence_has_no_transition():
    found = plan.outlook(CopyModel(6, 4), 100, chi=3)
    assert (found.order, found.phase, found.thresholds, found.jump) == ("none", "smooth", (), 0)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_less_decay_does_what_more_sequences_do(attention):
    """At chi = inf the factor on both decays that is told brings the threshold to P."""
    model = replace(SOFTMAX if attention == "softmax" else LINEAR, attention=attention)
    for k, at in enumerate(plan.outlook(model, 200).thresholds):
        other = replace(model, g_s=model.g_s / at.decay, g_w=model.g_w / at.decay)
        moved = plan.outlook(other, 200).thresholds[k].P
        assert moved == pytest.approx(200, rel=1e-6)


@pytest.mark.parametrize("reduction", plan.REDUCTIONS)
def test_a_recipe_has_the_loss_of_the_model_it_is_translated_to(reduction):
    """2 kappa H / P equals mean square error plus decay, whatever the weights."""
    P, V, rng = 50, 3, np.random.default_rng(0)
    model, chi = plan.from_recipe(CopyModel(4, V), P, 0.02, 0.005, 0.001, reduction)
    errors, W, S = rng.normal(size=(P, 4, V)), rng.normal(size=(V, V)), rng.normal(size=(4, 4))
    H = (errors**2).sum() / 4 / (2 * model.kappa)
    H += (W**2).sum() / (2 * model.g_w) + (S**2).sum() / (2 * model.g_s)
    square = (errors**2).mean(axis=(0, 1))
    loss = square.sum() if reduction == "position" else square.mean()
    loss += 0.01 * (W**2).sum() + 0.0025 * (S**2).sum()
    assert chi * H == pytest.approx(loss / 0.001)


def test_a_recipe_without_noise_is_cold_and_has_one_decay():
    model, chi = plan.from_recipe(SOFTMAX, 100, 0.1)
    assert chi == np.inf
    assert model.g_s == model.g_w == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--P", "0"], "P is 0"),
        (["--P", "300", "--noise", "1"], "a recipe is given without --weight-decay"),
        (["--P", "300", "--weight-decay", "-1"], "weight_decay is -1"),
        (["--P", "300", "--weight-decay", "1", "--noise", "-1"], "noise is -1"),
        (["--P", "300", "--chi", "0"], "chi is 0"),
    ],
)
def test_wrong_input_is_told_in_a_sentence(words, sentence):
    with pytest.raises(ModelError, match=sentence):
        CliRunner().invoke(app, ["plan", *words], catch_exceptions=False)


def test_text_and_json_say_the_same():
    words = ["plan", "--P", "320", "--compare", "--weight-decay", "0.2", "--score-decay", "0.002"]
    text = CliRunner().invoke(app, words)
    assert text.exit_code == 0, text.output
    told = CliRunner().invoke(app, [*words, "--json"])
    back = json.loads(told.stdout, parse_constant=lambda word: pytest.fail(word))
    assert [one["model"]["attention"] for one in back] == ["softmax", "linear"]
    for one in back:
        for at in one["thresholds"]:
            assert f"{at['P']:.5g}" in text.output
