"""Training runs: optimisers against exact answers, ensembles, files, resume, ranks."""

import functools

import numpy as np
import pytest
import tiny
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

import mcattn
from mcattn import action, data, run, theory
from mcattn.errors import JobError, SamplingError
from mcattn.exact_replicas import packed
from mcattn.members import Members
from mcattn.model import CopyModel
from mcattn.network import Network, Sequences
from mcattn.ranks import Serial
from mcattn.recipe import Recipe

MODEL = {"L": 6, "V": 4, "g_s": 3.0, "g_w": 0.1}
TRAIN = {"kind": "train", "P": [30, 60], "steps": 70, "every": 10, "replicas": 3}
STOPS = (31, 64, 100, 139)


def table(**protocol):
    return {
        "model": MODEL,
        "protocol": {**TRAIN, **protocol},
        "data": {"seed": 5},
        "run": {"seed": 3, "commit_seconds": 1e-6},
    }


def carry_out(file, watch=None, **protocol):
    job, text = tiny.of_table(table(**protocol))
    return run.start(job, text, file, Serial(), watch or run.Watch())


def sequences(model, P, seed=0):
    tokens = data.draw(model, P, seed)
    return Sequences(tokens, packed(data.counts(tokens, model.V)))


def members(model, recipe, P, count=4, start="small", chi=np.inf, steps=1000, seed=1):
    """An ensemble at one P, started and ready to step."""
    given = sequences(model, P)
    out = Members(model, recipe, lambda P: [given], given, np.zeros(count, int), seed, 0)
    out.settle(P, chi, steps)
    out.start(start, np.full(count, chi), 0)
    out.set_rate(recipe.rate)
    return out, given


def height(S, tokens, model):
    """F/chi at chi = inf from theory.md, "Exact effective action", by V x V matrices."""
    hot = np.eye(model.V)[tokens]
    A = action.pattern(S, model.attention)
    z, y = A @ hot, np.roll(hot, 1, axis=1)
    G = np.einsum("mav,maw->vw", z, z) / model.L
    C = np.einsum("mav,maw->vw", y, z) / model.L
    explained = np.trace(C @ np.linalg.solve(G + model.kappa / model.g_w * np.eye(model.V), C.T))
    prior = (S * S).sum() / (2 * model.g_s)
    return prior + (len(tokens) - explained) / (2 * model.kappa)


@pytest.mark.parametrize(
    ("attention", "start", "P"),
    [
        pytest.param("softmax", "small", 300, marks=pytest.mark.long),
        ("softmax", "copy", 300),
        ("linear", "small", 30),
    ],
)
def test_adam_rests_in_a_minimum_of_the_exact_action(attention, start, P):
    """Both branches at one P; a second minimiser that knows nothing of W starts from there."""
    model = CopyModel(8, 6, attention)
    recipe = Recipe(rate=0.02, schedule="cosine")
    ensemble, given = members(model, recipe, P, count=1, start=start, steps=3000)
    X, _ = ensemble.advance(3000, every=3000)
    H, S = X[-1, 0, 5], ensemble.scores()[0]
    assert height(S, given.tokens, model) == pytest.approx(H, rel=1e-9)
    lower = minimize(
        lambda s: height(s.reshape(8, 8), given.tokens, model), S.ravel(), options={"gtol": 1e-7}
    )
    assert pytest.approx(lower.fun, rel=1e-8) == H
    found = action.order_parameters(lower.x.reshape(8, 8), attention)
    np.testing.assert_allclose(X[-1, 0, :5], found, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["positional", "full"])
def test_gradient_flow_is_the_solution_of_its_equation(kind):
    model = CopyModel(5, 3, kappa=0.5, g_w=0.2)
    recipe = Recipe(kind, "flow", 0.005)
    ensemble, given = members(model, recipe, 20, count=1, start="prior")
    begin = ensemble.snapshot()[0]
    ensemble.advance(400)
    network = Network(model, kind)
    path = solve_ivp(lambda t, w: -network.loss(w, given)[1], (0, 2), begin, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ensemble.snapshot()[0], path.y[:, -1], atol=1e-6)
    assert np.abs(path.y[:, -1] - begin).max() > 0.1


def test_batches_lead_adam_near_the_minimum_of_the_whole():
    model = CopyModel(8, 6)
    whole, _ = members(model, Recipe(schedule="cosine"), 300, count=1, start="copy", steps=1500)
    parts, _ = members(
        model, Recipe(schedule="cosine", batch=50), 300, count=1, start="copy", steps=1500
    )
    one, other = (e.advance(1500, every=1500)[0][-1, 0] for e in (whole, parts))
    assert one[5] < other[5] < 1.002 * one[5]
    np.testing.assert_allclose(one[:4], other[:4], rtol=0.02)


LANGEVIN = {"P": 12, "chi": 3.0}


@functools.cache
def exact_averages():
    """<m>, <q> and <|S|^2> under exp(-F) of L = 2 by quadrature over the two score gaps.

    A row's two scores are a gap d, on which the data part depends, and a free sum.
    """
    model, P, chi = CopyModel(2, 3, kappa=0.3, g_s=2.0, g_w=0.5), LANGEVIN["P"], LANGEVIN["chi"]
    tokens = sequences(model, P).tokens
    gaps = np.linspace(-9, 9, 91)
    m, q, weight = (np.empty((91, 91)) for _ in range(3))
    for i, d in enumerate(gaps):
        for j, e in enumerate(gaps):
            S = np.array([[-d, d], [e, -e]]) / 2
            A = action.pattern(S, "softmax")
            z = A @ np.eye(3)[tokens]
            G = np.einsum("mav,maw->vw", z, z) / 2
            F = chi * height(S, tokens, model)
            F += 3 / 2 * np.linalg.slogdet(np.eye(3) + G * model.g_w / model.kappa)[1]
            m[i, j], q[i, j], weight[i, j] = (A[0, 1] + A[1, 0]) / 2, (A * A).sum() / 2, F
    weight = np.exp(weight.min() - weight)
    weight /= weight.sum()
    square = (gaps[:, None] ** 2 + gaps**2) / 2
    s2 = (weight * square).sum() + model.g_s / chi * 2
    return model, np.array([(weight * m).sum(), (weight * q).sum(), s2])


def langevin_z(h, recipe):
    """z of <m>, <q> and <|S|^2> of 32 independent chains against quadrature."""
    model, exact = exact_averages()
    ensemble, _ = members(
        model, recipe, LANGEVIN["P"], count=32, start="prior", chi=LANGEVIN["chi"]
    )
    ensemble.set_rate(h)
    ensemble.advance(100)
    X, accepted = ensemble.advance(2000, every=4)
    each = X[..., [0, 1, 4]].mean(axis=0)
    error = each.std(axis=0, ddof=1) / np.sqrt(32)
    return (each.mean(axis=0) - exact) / error, accepted.mean() / 2000


def test_adjusted_langevin_dynamics_samples_the_exact_action():
    """Three numbers at |z| < 4: a right sampler passes at 99.9 % (t with 31 degrees)."""
    z, acceptance = langevin_z(0.25, Recipe(optimiser="sgld"))
    assert np.abs(z).max() < 4
    assert 0.3 < acceptance < 0.95


def test_a_long_step_without_adjustment_is_off():
    """Control: the same steps from batches, without acceptance, have another law."""
    z, acceptance = langevin_z(0.25, Recipe(optimiser="sgld", batch=12))
    assert np.abs(z).max() > 6
    assert acceptance == 1


def test_the_full_network_uses_positions_alone():
    """theory.md, point 8: nearly all of |W_G|^2 in the position-position block, once it copies."""
    model = CopyModel(8, 6)
    recipe = Recipe("full", rate=0.02, schedule="cosine")
    ensemble, _ = members(model, recipe, 400, count=1, start="copy", steps=400)
    X, _ = ensemble.advance(400, every=400)
    assert X[-1, 0, 0] > 0.5
    assert X[-1, 0, 7] > 0.98


def test_starts_are_where_they_say():
    model = CopyModel(8, 6)
    for start in ("small", "prior", "copy"):
        ensemble, _ = members(model, Recipe(), 300, count=200, start=start)
        W, M = np.split(ensemble.snapshot(), [36], axis=1)
        width = {"small": 0.01, "prior": 1.0, "copy": 0.01}[start]
        assert (M - M.mean(axis=0)).std() == pytest.approx(width * np.sqrt(3), rel=0.05)
        assert (W - W.mean(axis=0)).std() == pytest.approx(width * np.sqrt(0.03), rel=0.05)
        m = action.order_parameters(ensemble.scores(), "softmax")[:, 0].mean()
        assert m == pytest.approx(0.8 if start == "copy" else 1 / 8, abs=0.02)


def test_too_large_a_rate_is_said():
    model = CopyModel(4, 3, "linear")
    ensemble, _ = members(model, Recipe(optimiser="flow", rate=5.0), 100, count=1, start="prior")
    with np.errstate(all="ignore"):
        ensemble.advance(60)
    with pytest.raises(SamplingError, match="rate 5 is too large"):
        ensemble.refresh()


def test_the_file_holds_every_step_of_every_member(tmp_path):
    carry_out(tmp_path / "run.h5", pattern_replicas=2)
    found = mcattn.open_run(tmp_path / "run.h5")
    assert found.protocol == "train"
    assert found.complete
    assert found.sweep.tolist() == list(range(10, 141, 10))
    assert found.X.shape == (14, 3, 5)
    assert set(found.training) == {"H", "loss", "share"}
    model, P = CopyModel(**MODEL), found.states["P"][found.state]
    best = action.test_loss(found.X, model, P)  # of the mean W at these scores
    assert (found.training["loss"] > best - 0.05).all()
    assert np.isinf(found.states["chi"]).all()
    chosen = found.patterns
    for i in range(len(chosen["sweep"])):
        row = np.flatnonzero(found.sweep == chosen["sweep"][i])[0]
        X = action.order_parameters(chosen["scores"][i], "softmax")
        np.testing.assert_allclose(X, found.X[row, chosen["replica"][i]], rtol=1e-10)


CASES = [
    {},
    {"optimiser": "sgld", "chi": 5, "thermalize": 40},
    {"network": "full", "batch": 7, "path": "scratch"},
]


@pytest.mark.parametrize("case", CASES, ids=["adam", "sgld", "full"])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, case):
    whole, path = tmp_path / "whole.h5", tmp_path / "run.h5"
    assert carry_out(whole, **case).complete
    assert not carry_out(path, tiny.stop_after(STOPS[0]), **case).complete
    for stop in STOPS[1:]:
        run.resume(path, Serial(), tiny.stop_after(stop))
    tiny.continued(path)
    assert tiny.same(whole, path)


def test_members_do_not_depend_on_the_number_of_ranks(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(tiny.of_table(table(optimiser="sgld", chi=5, thermalize=40, batch=9))[1])
    for n in (1, 3):
        done = tiny.command("run", job, "-o", tmp_path / f"{n}.h5", ranks=n)
        assert done.returncode == 0, done.stderr
    assert tiny.same(tmp_path / "1.h5", tmp_path / "3.h5")
    too_many = tiny.command("run", job, "-o", tmp_path / "4.h5", ranks=4)
    assert too_many.returncode == 2
    X = mcattn.open_run(tmp_path / "1.h5").X
    assert len(np.unique(X[-1, :, 0])) == 3  # and members do differ


def test_members_are_dealt_out_to_data_sets(tmp_path):
    job = table(replicas=4)
    job["data"] |= {"sets": 2}
    run.start(*tiny.of_table(job), tmp_path / "two.h5", Serial(), run.Watch())
    carry_out(tmp_path / "one.h5")
    two, one = mcattn.open_run(tmp_path / "two.h5"), mcattn.open_run(tmp_path / "one.h5")
    assert np.array_equal(two.X[:, :2], one.X[:, :2])
    assert not np.array_equal(two.X[:, 2], one.X[:, 2])


@pytest.mark.parametrize(
    ("protocol", "sentence"),
    [
        ({"optimiser": "sgld"}, "chi is missing; sgld samples"),
        ({"chi": 3}, "chi is for sgld; adam has no temperature"),
        ({"thermalize": 3}, "thermalize is for sgld"),
        ({"optimiser": "flow", "schedule": "cosine"}, "schedule is for adam"),
        ({"optimiser": "flow", "batch": 3}, "batch is for adam and sgld"),
        ({"every": 71}, "steps is 70; it must be at least every = 71"),
        ({"P": [0.3, 5]}, "P has 0.3; sequences are counted from 1"),
        ({"P": {"start": 5, "stop": 6, "points": 4}}, "same whole number"),
        ({"P": [5, 1e9]}, "P has 1e[+]09; it must be at most 1e[+]07"),
        ({"network": "partial"}, "network is 'partial'"),
    ],
)
def test_wrong_settings_are_refused(protocol, sentence):
    with pytest.raises(JobError, match=sentence):
        tiny.of_table(table(**protocol))


def test_members_must_share_the_data_sets_evenly():
    with pytest.raises(JobError, match=r"replicas is 3; it must be a multiple of data.sets = 2"):
        tiny.of_table(table() | {"data": {"sets": 2}})


def test_too_few_or_too_many_data_are_said(tmp_path):
    np.save(tmp_path / "ids.npy", data.draw(CopyModel(**MODEL), 50, 0))
    job = table() | {"data": {"file": str(tmp_path / "ids.npy")}}
    with pytest.raises(JobError, match=r"ids.npy holds 50 sequences; 60 are needed"):
        run.start(*tiny.of_table(job), tmp_path / "run.h5", Serial(), run.Watch())
    job = table() | {"model": {"L": 200, "V": 200}}
    with pytest.raises(JobError, match=r"L = 200 and V = 200 need 1.6e\+09 counts"):
        run.start(*tiny.of_table(job), tmp_path / "run.h5", Serial(), run.Watch())
    assert [path.name for path in tmp_path.iterdir()] == ["ids.npy"]


def test_a_training_run_is_not_extended(tmp_path):
    carry_out(tmp_path / "run.h5")
    done = tiny.command("resume", tmp_path / "run.h5", "--extend", "10")
    assert done.returncode == 2
    assert "is a training run" in done.stderr


def test_adam_leaves_each_branch_where_it_ends():
    """The standard case: at P_hi = 414.8 on the way up, at P_lo = 279.7 on the way down, not at P*.

    The limits are 1.3 % away; the disorder of a data set moves these points by less.
    """
    model, recipe = CopyModel(), Recipe(schedule="cosine")
    table = data.draw(model, 430, seed=1)

    def train(P):
        return [Sequences(table[:P], packed(data.counts(table[:P], model.V)))]

    ends = {}
    for start, path in (("small", (380, 409, 420)), ("copy", (320, 284, 276))):
        ensemble = Members(model, recipe, train, train(1)[0], np.zeros(1, int), 1, 0)
        for P in path:
            ensemble.settle(P, np.inf, 1500)
            if path[0] == P:
                ensemble.start(start, np.full(1, np.inf), 0)
            ensemble.renew()
            ensemble.set_rate(recipe.rate)
            ends[P] = ensemble.advance(1500, every=1500)[0][-1, 0]
    m = {P: row[0] for P, row in ends.items()}
    assert m[409] < 0.15
    assert m[420] > 0.7
    assert m[284] > 0.5
    assert m[276] < 0.1
    for P in (320, 380):  # on different branches: both stable here
        minima = {m.m > 0.3: m for m in theory.minima(model, P)}
        branch = minima[P == 320]
        np.testing.assert_allclose(ends[P][[0, 6]], [branch.m, branch.loss], rtol=0.02)
