"""Run files: their layout, readers while a run goes on, and a crash at every possible moment."""

import os
import re
import shutil
from pathlib import Path

import crashes
import h5py
import numpy as np
import pytest
import tiny
import xarray

import mcattn
from mcattn import action, run, runfile, schema, store
from mcattn.errors import RunFileError
from mcattn.ranks import Serial

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run of the tiny job."""
    path = tmp_path_factory.mktemp("whole") / "run.h5"
    assert tiny.carry_out(path).complete
    return path


def test_the_file_holds_what_the_schema_says(whole):
    with h5py.File(whole) as f:
        assert f.attrs.keys() == schema.ATTRIBUTES.keys()
        lengths = {"replica": 20, "a": 8, "b": 8, "state": 8, "time": 4 * 7 + 4 * 9}
        lengths |= {"ladder": 0, "pair": 0}
        lengths["pattern"] = f["patterns/sweep"].shape[0]
        for field in schema.TABLE:
            dataset = f[field.path]
            assert dataset.dtype == np.dtype(field.dtype), field.path
            assert dataset.shape == tuple(lengths[axis] for axis in field.axes), field.path
            names = [dataset.dims[i][0].name.split("/")[-1] for i in range(dataset.ndim)]
            assert names == list(field.axes), field.path
            assert dataset.attrs["long_name"] == field.meaning
        scales = {f"{field.group}/{axis}" for field in schema.TABLE for axis in field.axes}
        found = []
        f.visit(lambda name: found.append(name) if isinstance(f[name], h5py.Dataset) else None)
        assert set(found) == scales | {field.path for field in schema.TABLE + schema.RESUME}
        lengths["word"] = 4
        for field in schema.RESUME:
            assert f[field.path].dtype == np.dtype(field.dtype), field.path
            assert f[field.path].shape == tuple(lengths[axis] for axis in field.axes), field.path
        assert f["resume"].attrs.keys() == schema.RESUME_ATTRIBUTES.keys()
        assert f["resume"].attrs["sweep"] == f.attrs["planned_sweeps"] - 13  # the last block's
        assert f["resume"].attrs["rows"] == lengths["time"] - 3


def test_the_documented_layout_is_the_schema():
    text = (ROOT / "docs" / "file-format.md").read_text().replace("&#124;", "|")
    rows = re.findall(r"^\| `/([^`]+)` \| \(([^)]*)\) \| (\w+) \| (.+) \|$", text, re.MULTILINE)
    expected = [
        (f.path, ", ".join(f.axes), f.dtype, f.meaning)
        for f in (*schema.TABLE, *schema.EXTRA, *schema.DATA, *schema.RESUME, schema.MEMORY)
    ]
    assert rows == expected
    attributes = re.findall(r"^\| `(\w+)` \| (.+) \|$", text, re.MULTILINE)
    assert attributes == [*schema.ATTRIBUTES.items(), *schema.RESUME_ATTRIBUTES.items()]


def test_xarray_reads_the_samples_with_their_axes(whole):
    with xarray.open_dataset(whole, engine="h5netcdf", group="samples") as data:
        assert data["m"].dims == ("time", "replica")
        assert data["sweep"].dims == ("time",)
        assert (data["m"].values == mcattn.open_run(whole).X[..., 0]).all()


def test_rows_are_due_and_labelled(whole):
    data = mcattn.open_run(whole)
    plan = tiny.job()[0].protocol.plan()
    expected, states, sweep = [], [], 0
    for stage in plan.stages:
        rows = np.arange(1, stage.rows + 1) * stage.every
        expected += (sweep + stage.thermalize + rows).tolist()
        states += [stage.states[0]] * stage.rows
        sweep += stage.length
    assert data.sweep.tolist() == expected
    assert (data.state == np.array(states)[:, None]).all()
    assert data.complete
    assert data.planned_sweeps == sweep == plan.total_sweeps
    assert (data.states["attempted"] == data.states["sweeps"] * 20 * 8 * 9).all()
    assert (data.states["drift"] < 1e-10).all()


def test_patterns_agree_with_their_labels(whole):
    """A chosen pattern is the replica at the end of its state: its X is the row taken then."""
    data = mcattn.open_run(whole)
    chosen = data.patterns["reason"] == schema.REASON_CHOSEN
    assert chosen.sum() == 2 * 3 * 2  # 2 replicas at both ends and the turn, 2 rates
    for i in np.flatnonzero(chosen):
        row = np.flatnonzero(data.sweep == data.patterns["sweep"][i])[0]
        replica = data.patterns["replica"][i]
        assert data.state[row, replica] == data.patterns["state"][i]
        X = action.order_parameters(data.patterns["scores"][i], "softmax")
        assert pytest.approx(data.X[row, replica], rel=1e-10) == X


def test_switches_leave_the_patterns_before_and_after(whole):
    data = mcattn.open_run(whole)
    low, high = data.switch
    reason, m = data.patterns["reason"], []
    for S in data.patterns["scores"]:
        m.append(action.order_parameters(S, "softmax")[0])
    m = np.array(m)
    before, after = reason == schema.REASON_BEFORE, reason == schema.REASON_AFTER
    assert before.sum() == after.sum() > 20
    same_event = np.flatnonzero(before)
    assert (data.patterns["replica"][same_event] == data.patterns["replica"][same_event + 1]).all()
    assert (reason[same_event + 1] == schema.REASON_AFTER).all()
    rising = m[same_event] < m[same_event + 1]
    assert (m[same_event + 1][rising] > low).all()
    assert (m[same_event][~rising] > m[same_event + 1][~rising]).all()
    assert rising.any()
    assert not rising.all()
    assert high > low


@pytest.mark.parametrize("stride", [61, pytest.param(1, marks=pytest.mark.long)])
def test_a_crash_at_any_moment_loses_nothing(whole, tmp_path, stride):
    """Die at the first, second, ... change of the file system; go on; compare with `whole`."""
    path = tmp_path / "run.h5"
    for operations in range(0, 10_000, stride):
        died = crashes.killed_after(operations, lambda: tiny.carry_out(path))
        if not died:
            break
        committed = mcattn.open_run(path).sweep if path.exists() else np.empty(0)
        if path.exists():
            readable = mcattn.open_run(whole)
            assert (committed == readable.sweep[: len(committed)]).all()
            assert np.array_equal(mcattn.open_run(path).X, readable.X[: len(committed)])
            tiny.continued(path)
        else:
            tiny.carry_out(path)
        assert tiny.same(path, whole), operations
        assert [p.name for p in tmp_path.iterdir()] == ["run.h5"]
        path.unlink()
    assert operations > 100
    assert tiny.same(path, whole)


def test_repeated_crashes_lose_nothing(whole, tmp_path):
    """The same run killed again and again, each time a little later."""
    path = tmp_path / "run.h5"
    crashes.killed_after(12, lambda: tiny.carry_out(path))
    kills, seen = 1, 0
    while crashes.killed_after(17, lambda: tiny.continued(path)):
        rows = len(mcattn.open_run(path).sweep)
        assert rows >= seen
        kills, seen = kills + 1, rows
    assert kills > 10
    assert tiny.same(path, whole)


def test_readers_never_disturb_a_running_run(whole, tmp_path):
    path = tmp_path / "run.h5"
    readable = mcattn.open_run(whole)
    rows = []

    def look(done, planned):
        data = mcattn.open_run(path)
        assert np.array_equal(data.X, readable.X[: len(data.sweep)])
        assert not data.complete
        rows.append(len(data.sweep))

    tiny.carry_out(path, run.Watch(progress=look))
    assert rows == sorted(rows)
    assert len(set(rows)) > 10
    assert tiny.same(path, whole)


@pytest.mark.parametrize("sweeps", [1, 70, 400])
def test_a_stopped_run_goes_on(whole, tmp_path, sweeps):
    path = tmp_path / "run.h5"
    outcome = tiny.carry_out(path, tiny.stop_after(sweeps))
    assert not outcome.complete
    with pytest.raises(RunFileError, match=r"unfinished; type: mcattn resume .*run.h5"):
        tiny.carry_out(path)
    assert tiny.continued(path).complete
    assert tiny.same(path, whole)


def test_a_finished_run_is_left_alone(whole, tmp_path):
    path = tmp_path / "run.h5"
    shutil.copy(whole, path)
    before = path.stat()
    assert tiny.carry_out(path).complete
    assert tiny.continued(path).complete
    assert path.stat() == before
    with pytest.raises(RunFileError, match="holds another job"):
        tiny.carry_out(path, replicas=8)


def test_a_second_process_on_the_same_run_is_refused(tmp_path):
    path = tmp_path / "run.h5"
    tiny.carry_out(path, tiny.stop_after(100))
    child = os.fork()
    if child == 0:
        holder = tiny.job()
        held = store.Store(path, run._header(*holder, holder[0].protocol.plan(), None), holder[1])
        open(tmp_path / "held", "w").close()
        import time

        time.sleep(60)
        held.close()
        os._exit(0)
    while not (tmp_path / "held").exists():
        pass
    with pytest.raises(
        RunFileError, match=r"is being written by process \d+ on \S+; wait or stop it"
    ):
        tiny.continued(path)
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert tiny.continued(path).complete  # a dead holder leaves nothing to remove by hand


def test_missing_parts_are_noticed(tmp_path):
    path = tmp_path / "run.h5"
    tiny.carry_out(path, tiny.stop_after(200))
    parts = sorted(store.parts_folder(path).glob("*.h5"))
    parts[2].unlink()
    with pytest.raises(RunFileError, match="lacks the part from sweep"):
        tiny.continued(path)


def test_other_files_are_named_for_what_they_are(whole, tmp_path):
    with pytest.raises(RunFileError, match="does not exist"):
        mcattn.open_run(tmp_path / "none.h5")
    with pytest.raises(RunFileError, match="is a folder"):
        mcattn.open_run(tmp_path)
    text = tmp_path / "text.h5"
    text.write_text("hello")
    with pytest.raises(RunFileError, match="not a readable HDF5 file"):
        mcattn.open_run(text)
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as f:
        f["weights"] = 1
    with pytest.raises(RunFileError, match=r"HDF5 but not an mcattn run \(it holds: weights\)"):
        mcattn.open_run(other)
    future = tmp_path / "future.h5"
    shutil.copy(whole, future)
    with h5py.File(future, "r+") as f:
        f.attrs["format_version"] = 99
    with pytest.raises(RunFileError, match="has run-file format 99"):
        mcattn.open_run(future)
    damaged = tmp_path / "damaged.h5"
    shutil.copy(whole, damaged)
    with h5py.File(damaged, "r+") as f:
        del f["samples/q"]
    with pytest.raises(RunFileError, match="it lacks samples/q"):
        mcattn.open_run(damaged)
    for size in (0, 100, 5000):
        cut = tmp_path / f"cut{size}.h5"
        cut.write_bytes(whole.read_bytes()[:size])
        with pytest.raises(RunFileError, match="not a readable HDF5 file"):
            mcattn.open_run(cut)


def test_places_that_cannot_be_written_are_named(tmp_path):
    with pytest.raises(RunFileError, match=r"nowhere is not a folder"):
        tiny.carry_out(tmp_path / "nowhere" / "run.h5")
    with pytest.raises(RunFileError, match=r"cannot write /proc/run\.h5"):
        tiny.carry_out("/proc/run.h5")


def test_a_run_begun_with_other_kernels_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    tiny.carry_out(path, tiny.stop_after(100))
    now = run.versions()
    monkeypatch.setattr(run, "versions", lambda: {**now, "kernels": "0000"})
    with pytest.raises(RunFileError, match="begun with other kernels"):
        run.resume(path, Serial(), run.Watch())


@pytest.mark.parametrize("name", ["50%.h5", "a%%c%b.h5", "two wörds.h5"])
def test_odd_names_hold_the_same_run(whole, tmp_path, name):
    path = tmp_path / name
    tiny.carry_out(path, tiny.stop_after(100))
    readable = mcattn.open_run(whole)
    assert np.array_equal(mcattn.open_run(path).X, readable.X[: len(mcattn.open_run(path).sweep)])
    assert tiny.continued(path).complete
    assert tiny.same(path, whole)


def test_a_part_that_vanishes_while_the_run_goes_on_is_no_hole(tmp_path):
    path = tmp_path / "run.h5"

    def remove_first(done, planned):
        if done > 200:
            for part in sorted(store.parts_folder(path).glob("*.h5"))[:1]:
                part.unlink()

    with pytest.raises(RunFileError):
        tiny.carry_out(path, run.Watch(progress=remove_first))
    with pytest.raises(RunFileError):
        mcattn.open_run(path)


def test_a_run_without_its_parts_is_not_begun_again(tmp_path):
    path = tmp_path / "run.h5"
    tiny.carry_out(path, tiny.stop_after(200))
    shutil.rmtree(store.parts_folder(path))
    with pytest.raises(RunFileError, match="files were removed from it, or it was moved without"):
        tiny.continued(path)


def test_a_link_is_the_run_it_leads_to(whole, tmp_path):
    path, link = tmp_path / "run.h5", tmp_path / "elsewhere" / "link.h5"
    tiny.carry_out(path, tiny.stop_after(200))
    link.parent.mkdir()
    link.symlink_to(path)
    assert tiny.continued(link).complete
    assert link.is_symlink()
    assert tiny.same(path, whole)
    assert [p.name for p in link.parent.iterdir()] == ["link.h5"]


def overtaken(monkeypatch, meanwhile):
    """Let another process do something between the first look at a run and its lock."""
    compile_kernels = run.compile_kernels
    calls = []

    def slow(model):
        if not calls:
            calls.append(model)
            meanwhile()
        compile_kernels(model)

    monkeypatch.setattr(run, "compile_kernels", slow)


def test_a_run_finished_meanwhile_is_left_alone(whole, tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    tiny.carry_out(path, tiny.stop_after(200))
    overtaken(monkeypatch, lambda: tiny.continued(path))
    with pytest.raises(RunFileError, match="was finished by another process"):
        tiny.continued(path)
    assert tiny.same(path, whole)


def test_two_new_runs_on_one_file_do_not_mix(whole, tmp_path, monkeypatch):
    path = tmp_path / "run.h5"
    overtaken(monkeypatch, lambda: tiny.carry_out(path, tiny.stop_after(200)))
    with pytest.raises(RunFileError, match="was begun by another process"):
        tiny.carry_out(path, replicas=16)
    assert tiny.continued(path).complete
    assert tiny.same(path, whole)


def test_what_is_not_the_run_s_stays_in_its_folder(tmp_path):
    path = tmp_path / "run.h5"
    tiny.carry_out(path, tiny.stop_after(100))
    note = store.parts_folder(path) / "readme.txt"
    note.write_text("mine")
    assert tiny.continued(path).complete
    assert [p.name for p in note.parent.iterdir()] == ["readme.txt"]


def test_damage_is_one_sentence(whole, tmp_path, monkeypatch):
    """Random bytes of a run file changed: it reads as before, or one sentence says it does not."""
    monkeypatch.setattr(runfile, "_PAUSE", 0)  # nobody writes: waiting for it helps no reader
    rng = np.random.default_rng(4)
    data, path = whole.read_bytes(), tmp_path / "damaged.h5"
    said = []
    for _ in range(60):
        content = bytearray(data)
        start = int(rng.integers(len(data) - 50))
        content[start : start + 50] = rng.bytes(50)
        path.write_bytes(content)
        try:
            mcattn.open_run(path)
        except RunFileError as err:
            said.append(str(err))
    assert len(said) > 5
    assert all(text.startswith(str(path)) for text in said), said
