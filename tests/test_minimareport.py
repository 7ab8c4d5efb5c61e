"""`mcattn minima`: what it reports of a job is what the branches and searches give."""

import io
import json
import math

import numpy as np
import pytest
import tiny
import tomli_w
from rich.console import Console

from mcattn import data, minimareport, theory
from mcattn.continuation import Branches
from mcattn.errors import JobError
from mcattn.minima import search
from mcattn.model import CopyModel
from mcattn.problems import DataSet, Population

MODEL = {"L": 12, "V": 6, "g_w": 0.1}
SMALL = CopyModel(**MODEL)
LINEAR = {"L": 8, "V": 4, "attention": "linear", "g_s": 1.0, "g_w": 0.1}
TRAIN = {"kind": "train", "P": [95, 115.4, 95], "replicas": 6}


def job(protocol=TRAIN, model=MODEL, **sets):
    return {"model": model, "protocol": protocol, "data": sets}


def report(*args, chi=None, starts=4, **sets):
    return minimareport.report(tiny.of_table(job(*args, **sets))[0], chi, starts)


def shown(result):
    out = io.StringIO()
    minimareport.show(result, Console(file=out, width=160))
    return [line.split() for line in out.getvalue().splitlines()]


@pytest.fixture(scope="module")
def trained():
    """Report of a training job with two data sets."""
    return report(seed=3, sets=2)


def test_branches_of_a_training_job(trained):
    """Whole P in order, each once; every number that of the branch itself."""
    result = trained
    assert result["chi"] is None
    assert [one["name"] for one in result["problems"]] == ["population", "seed 3", "seed 4"]
    tables = [DataSet(SMALL, data.draw(SMALL, 140, seed)) for seed in (3, 4)]
    for one, problem in zip(result["problems"], [Population(SMALL), *tables], strict=True):
        branches = Branches(problem)
        jump = branches.jump()
        assert one["P_star"] == pytest.approx(jump.P_star, rel=1e-9)
        assert (one["P_lo"], one["P_hi"]) == pytest.approx((jump.P_lo, jump.P_hi), rel=1e-5)
        where = [(row["P"], row["branch"]) for row in one["minima"]]
        every = [(P, branch) for P in (95.0, 115.0) for branch in ("uniform", "copy")]
        assert where == [one for one in every if one != (115.0, "uniform")]
        for row in one["minima"]:
            minimum = getattr(branches, row["branch"]).at(row["P"])
            for name in ("F_per_chi", "m", "alpha", "beta", "loss"):
                assert row[name] == pytest.approx(getattr(minimum, name), rel=1e-8)
    assert result["problems"][1]["P_star"] != result["problems"][2]["P_star"]


def test_chi_is_the_jobs_largest_or_the_one_given():
    """A job without data sets reports the population, at its P whole or not."""
    model = CopyModel(**LINEAR)
    fixed = {"kind": "fixed", "P": 20.5, "chi": [50.0, 80.0], "replicas": 2}
    for chi, used in ((None, 80.0), (50.0, 50.0), (math.inf, None)):
        result = report(fixed, LINEAR, chi=chi)
        (population,) = result["problems"]
        assert result["chi"] == used
        (row,) = population["minima"]
        (best,) = theory.minima(model, 20.5, used or math.inf)
        assert row["P"] == 20.5
        assert row["alpha"] == pytest.approx(best.alpha, rel=1e-7)


def test_linear_attention_reports_the_lowest_minimum():
    model = LINEAR
    result = report(TRAIN | {"P": [20, 60], "replicas": 2}, model, seed=1)
    population, one = result["problems"]
    assert "P_star" not in one
    table = data.draw(CopyModel(**model), 60, 1)
    for k, P in enumerate((20, 60)):
        (best, *_) = theory.minima(CopyModel(**model), P)
        assert population["minima"][k]["beta"] == pytest.approx(best.beta, rel=1e-6)
        found = search(DataSet(CopyModel(**model), table), P, starts=4, seed=0)
        assert one["minima"][k]["beta"] == found.lowest.beta
        assert one["minima"][k]["share"] == found.share
    rows = shown(result)
    assert rows[0][-1] == "share"
    assert [row[:3] for row in rows[1:3]] == [["20", "lowest", w] for w in ("population", "exact")]


def test_tables_show_means_and_scatter(trained):
    rows = shown(trained)
    points = np.array([one["P_star"] for one in trained["problems"][1:]])
    assert [row[0] for row in rows[1:4]] == ["population", "seed", "seed"]
    summary = next(row for row in rows if row[:2] == ["data", "sets"])
    assert summary[3] == f"{points.mean():.2f}({100 * points.std(ddof=1):.0f})"
    copy = next(row for row in rows if row[:3] == ["115", "copy", "exact"])
    assert copy[3] == "2/2"
    assert rows[-1][-2:] == ["last", "digits."]


def test_a_file_may_end_before_the_branches_do(tmp_path):
    rows = math.ceil(theory.boundary(SMALL).P_star) + 3
    path = tmp_path / "ids.npy"
    np.save(path, data.draw(SMALL, rows, 0))
    result = report(TRAIN | {"P": [95]}, file=str(path))
    assert [one["name"] for one in result["problems"]] == ["population", "ids.npy"]
    assert result["problems"][1]["P_hi"] is None
    assert [shown(result)[2][i] for i in (0, 3)] == ["ids.npy", "beyond"]
    with pytest.raises(JobError, match=f"holds {rows} sequences; 900 are needed"):
        report(TRAIN | {"P": [900]}, file=str(path))


def test_the_command(tmp_path, trained):
    path = tmp_path / "job.toml"
    path.write_text(tomli_w.dumps(job(seed=3, sets=2)))
    done = tiny.command("minima", path, "--set", "data.sets=1")
    assert f"{trained['problems'][1]['P_star']:.2f}" in done.stdout
    path.write_text(tomli_w.dumps(job(TRAIN | {"P": [20]}, LINEAR)))
    done = tiny.command("minima", path, "--json", "--starts", "1")
    names = [one["name"] for one in json.loads(done.stdout)["problems"]]
    assert names == ["population", "seed 0"]
    wrong = tiny.command("minima", path, "--chi", "0")
    assert wrong.returncode == 2
    assert wrong.stderr.splitlines()[-1] == "mcattn: error: chi is 0.0; it must be > 0, or inf"
