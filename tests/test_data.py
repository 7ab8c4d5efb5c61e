"""Token tables: every format is read alike, what does not fit is one sentence, draws are right."""

import warnings

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from mcattn import data
from mcattn.errors import JobError
from mcattn.model import CopyModel

MODEL = CopyModel(L=4, V=3)
IDS = np.array([[0, 1, 2, 2], [2, 0, 0, 1]])
HALF = np.array([[0, 0, 0, 0], [0, 0, 0.5, 0]])
FORMATS = (".npy", ".npz", ".h5", ".hdf5", ".txt", "")
fuzz = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def save(folder, suffix, table, **others):
    """A table in a file of this suffix, beside other arrays where the format has names."""
    path, table = folder / f"ids{suffix}", np.asarray(table)
    if suffix == ".npy":
        np.save(path, table)
    elif suffix == ".npz":
        np.savez(path, **{"tokens" if others else "any": table}, **others)
    elif suffix in (".h5", ".hdf5"):
        with h5py.File(path, "w") as f:
            for name, value in {"tokens" if others else "deep/any": table, **others}.items():
                f[name] = value
    else:
        np.savetxt(path, table)
    return path


def refused(path, sentence, model=MODEL):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(JobError, match=sentence) as caught:
            data.load(path, model)
    text = str(caught.value)
    assert path.name in text
    assert "\n" not in text
    return text


# --- what is read ----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("dtype", ["i1", "u8", ">i4", "f4"])
def test_every_format_gives_the_same_table(tmp_path, suffix, dtype):
    for table in (IDS, IDS[:1]):
        found = data.load(save(tmp_path, suffix, table.astype(dtype)), MODEL)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, table)


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_among_several_arrays_tokens_is_read(tmp_path, suffix):
    path = save(tmp_path, suffix, IDS, other=np.zeros((9, 9)))
    np.testing.assert_array_equal(data.load(path, MODEL), IDS)


def test_suffixes_in_capitals(tmp_path):
    path = save(tmp_path, ".npy", IDS).rename(tmp_path / "IDS.NPY")
    np.testing.assert_array_equal(data.load(str(path), MODEL), IDS)


@fuzz
@given(st.data(), st.sampled_from(FORMATS), st.integers(2, 7), st.integers(1, 9))
def test_what_fits_is_read(tmp_path, given_data, suffix, V, P):
    table = given_data.draw(arrays.arrays("i8", (P, 4), elements=st.integers(0, V - 1)))
    path = save(tmp_path, suffix, table)
    np.testing.assert_array_equal(data.load(path, CopyModel(L=4, V=V)), table)


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (IDS + 1, r"holds 1 to 3; ids are 0\.\.2"),
        (IDS - 1, r"holds -1 to 1; ids are 0\.\.2"),
        (IDS[:, :3], r"has shape \(2, 3\); it must be \(P, 4\)"),
        (IDS + HALF, "holds 0.5 in row 1, column 2; ids are whole"),
        (np.where(IDS == 1, np.nan, IDS), "holds nan in row 0, column 1; ids are whole numbers"),
        (np.where(IDS == 1, np.inf, IDS), "holds inf in row 0, column 1; ids are whole numbers"),
        (IDS * 1e300, r"holds 0 to 2e\+300; ids are 0\.\.2"),
    ],
)
def test_numbers_that_do_not_fit(tmp_path, suffix, table, sentence):
    refused(save(tmp_path, suffix, table), sentence)


@pytest.mark.parametrize("suffix", FORMATS[:4])
@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (IDS[0], r"has shape \(4,\); it must be \(P, 4\)"),
        (3, r"has shape \(\); it must be \(P, 4\)"),
        (np.zeros((0, 4)), "holds no sequences; it must hold at least one"),
        (np.zeros((2, 4, 1)), r"has shape \(2, 4, 1\)"),
        (IDS > 0, "holds values of type bool; ids are whole numbers"),
        (IDS * 1j, "holds values of type complex128; ids are whole numbers"),
        (IDS.astype("S1"), r"holds values of type \|S1; ids are whole numbers"),
        (np.full((2, 4), 2**64 - 1, dtype="u8"), r"to 1\.84467e\+19; ids are 0\.\.2"),
    ],
)
def test_arrays_that_are_no_table(tmp_path, suffix, table, sentence):
    refused(save(tmp_path, suffix, table), sentence)


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_which_array_is_meant_must_be_clear(tmp_path, suffix):
    path = save(tmp_path, suffix, IDS, other=IDS)
    clear = data.load(path, MODEL)
    np.testing.assert_array_equal(clear, IDS)
    if suffix == ".npz":
        np.savez(path, one=IDS, two=IDS)
    else:
        with h5py.File(path, "a") as f:
            f.move("tokens", "deep/tokens")
    refused(path, "holds the arrays .*, .*; it must hold one array, or one called tokens")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.npy", b"", "cannot read token table"),
        ("a.npz", b"PK\x03\x04 and no more", "cannot read token table"),
        ("a.h5", b"no HDF5", "cannot read token table .*file signature not found"),
        ("a.txt", b"", r"has shape \(0, 1\)"),
        ("a.txt", b"0 1 2 x\n", "could not convert string 'x'"),
        ("a.txt", b"0 1 2 2\n0 1\n", "number of columns changed from 4 to 2 at row 2"),
        ("a.txt", b"0,1,2,2\n", "could not convert string '0,1,2,2'"),
        ("a.txt", b"\xff\xfe\x00", "cannot read token table"),
    ],
)
def test_files_that_are_no_table(tmp_path, name, content, sentence):
    path = tmp_path / name
    path.write_bytes(content)
    refused(path, sentence)


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_file_and_a_folder(tmp_path, suffix):
    refused(tmp_path / f"none{suffix}", "cannot read token table .*[Nn]o such file")
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    refused(folder, "cannot read token table")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickles_are_never_loaded(tmp_path, suffix):
    path = tmp_path / f"ids{suffix}"
    (np.save if suffix == ".npy" else np.savez)(path, IDS.astype(object))
    refused(path, "holds pickled objects; a token table must be plain numbers")
    path.write_bytes(b"\x80\x04K\x05.")
    refused(path, "holds pickled objects; a token table must be plain numbers")


def test_hdf5_without_numbers(tmp_path):
    path = tmp_path / "ids.h5"
    with h5py.File(path, "w") as f:
        f.create_group("tokens")
    refused(path, "holds no array; it must hold one array, or one called tokens")
    for value in ("abc", h5py.Empty("f8")):
        with h5py.File(path, "w") as f:
            f["tokens"] = value
        refused(path, "holds values of type .*; ids are whole numbers")


@fuzz
@given(st.sampled_from(FORMATS), st.data())
def test_damaged_files_are_one_sentence(tmp_path, suffix, given_data):
    """Bytes changed, cut off or added anywhere: a table of the right kind, or one JobError."""
    path = save(tmp_path, suffix, IDS)
    content = bytearray(path.read_bytes())
    for _ in range(given_data.draw(st.integers(1, 6))):
        content[given_data.draw(st.integers(0, len(content) - 1))] = given_data.draw(
            st.integers(0, 255)
        )
    end = given_data.draw(st.just(len(content)) | st.integers(0, len(content)))
    path.write_bytes(bytes(content[:end]) + given_data.draw(st.binary(max_size=20)))
    table, sentence = np.zeros((1, 4)), path.name
    try:
        table = data.load(path, MODEL)
    except JobError as err:
        sentence = str(err)
    assert path.name in sentence
    assert "\n" not in sentence
    assert table.shape[1] == 4
    assert set(np.unique(table)) <= {0, 1, 2}


# --- drawn data ------------------------------------------------------------------------------


def test_draws_are_nested_and_named_by_their_seed():
    whole = data.draw(MODEL, 500, 7)
    for P in (1, 2, 31, 499):
        np.testing.assert_array_equal(data.draw(MODEL, P, 7), whole[:P])
    assert (data.draw(MODEL, 500, 8) != whole).any()
    with pytest.raises(JobError, match="seed is -1; it must be an integer >= 0"):
        data.draw(MODEL, 1, -1)


@pytest.mark.parametrize("tokens", [None, (0.5, 0.3, 0.2)])
def test_draws_have_the_models_probabilities(tokens):
    """Chi-square of tokens at every position and of neighbours; seed fixed, level 1e-4 each.

    Probabilities moved by 0.02 give p-values below 1e-12 at 40 000 tokens: the control.
    """
    model = CopyModel(L=4, V=3, tokens=tokens)
    p, ids = np.array(tokens or (1 / 3,) * 3), data.draw(model, 10_000, 3)
    for a in range(4):
        counts = np.bincount(ids[:, a], minlength=3)
        assert stats.chisquare(counts, 10_000 * p).pvalue > 1e-4
        pairs = np.bincount(3 * ids[:, a - 1] + ids[:, a], minlength=9)
        assert stats.chisquare(pairs, 10_000 * np.outer(p, p).ravel()).pvalue > 1e-4
    everywhere = np.bincount(ids.ravel(), minlength=3)
    wrong = p + np.array([0.02, -0.02, 0])
    assert stats.chisquare(everywhere, 40_000 * wrong).pvalue < 1e-12
