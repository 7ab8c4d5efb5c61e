"""What the documentation tells to do can be done, and leads somewhere."""

import re
import shutil
import subprocess
import sys
import tomllib

import pages
import pytest
import slurm_cluster
import tiny
from pages import PAGES, ROOT

from mcattn import jobtext

# Command lines that no block may hide from the tests, such as an indented paragraph.
_COMMAND = re.compile(r"^ {4,}(mcattn|mpiexec|mpirun|make|sbatch|from mcattn|import) ")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_all_code_is_marked(page):
    for block in pages.blocks(page):
        assert block.language in pages.LANGUAGES, block.place
        assert block.kind in ("", "long", "slurm"), block.place
    rest = pages._BLOCK.sub("", page.read_text())
    assert "```" not in rest
    assert not [line for line in rest.splitlines() if _COMMAND.match(line)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"`[^`\n]*`", "", pages._BLOCK.sub("", page.read_text()))
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


def _anchors(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


@pytest.fixture(scope="module")
def loop(tmp_path_factory):
    """A short run of the standard job."""
    folder = tmp_path_factory.mktemp("loop")
    pages.short_jobs(folder)
    done = tiny.command("run", "jobs/hysteresis.toml", "-o", "loop.h5", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "loop.h5"


@pytest.mark.parametrize("page", pages.with_code(""))
def test_short_code_runs(page, loop, tmp_path):
    """With shipped jobs made short."""
    pages.short_jobs(tmp_path)
    pages.attention(tmp_path)
    seldom = {"protocol": {**tiny.TABLE["protocol"], "replicas": 32}, "run": {"seed": 3}}
    (tmp_path / "job.toml").write_text(tiny.of_table({**tiny.TABLE, **seldom})[1])
    (tmp_path / "runs").mkdir()
    for name in ("runs/hysteresis.h5", "loop.h5", "RUN.h5"):
        (tmp_path / name).write_bytes(loop.read_bytes())
    shutil.copytree(ROOT / "docs" / "examples", tmp_path / "docs" / "examples")
    if page in ("docs/running.md", "docs/quickstart.md"):  # they start their runs themselves
        (tmp_path / "RUN.h5").unlink()
        (tmp_path / "loop.h5").unlink()
    run_page(page, "", tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("page", pages.with_code("long"))
def test_long_code_runs(page, tmp_path):
    """As it stands, in a copy of the whole tree."""
    pages.whole_tree(tmp_path)
    run_page(page, "long", tmp_path)


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.parametrize("page", pages.with_code("slurm"))
def test_code_for_slurm_runs(page, tmp_path):
    """In a Slurm started for the purpose; each submission is waited for."""
    if slurm_cluster.missing():
        pytest.skip(f"not installed: {', '.join(slurm_cluster.missing())}")
    tree, home = tmp_path / "tree", tmp_path / "home"
    tree.mkdir()
    home.mkdir()
    pages.whole_tree(tree)
    for path in (tree / "jobs").iterdir():
        path.unlink() if path.is_file() else None
    conf = slurm_cluster.start(tmp_path / "slurm")
    preamble = 'module() { :; }; sbatch() { command sbatch --wait "$@"; }'
    try:
        for block in (b for b in pages.blocks(ROOT / page) if b.kind == "slurm"):
            done = pages.shell(block.code, tree, preamble, SLURM_CONF=str(conf), HOME=str(home))
            assert done.returncode == 0, f"{block.place}\n{done.stdout}\n{done.stderr}"
    finally:
        slurm_cluster.stop(tmp_path / "slurm")


def run_page(page, kind, folder):
    """Run the blocks of one kind in order: shell on its own, Python in one process after it."""
    python = []
    for block in pages.blocks(ROOT / page):
        if block.kind != kind:
            continue
        if block.language == "sh":
            done = pages.shell(block.code, folder)
            assert done.returncode == 0, f"{block.place}\n{done.stdout}\n{done.stderr}"
        elif block.language == "python":
            python.append(block.code)
    if python:
        words = [sys.executable, "-W", "error", "-c", "\n".join(python)]
        done = subprocess.run(
            words, cwd=folder, env={**tiny.os.environ, "MPLBACKEND": "Agg"},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{page}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_job_files_on_the_pages_are_valid(page):
    for block in pages.blocks(page):
        if block.language == "toml" and "[protocol]" in block.code:
            jobtext.parse(tomllib.loads(block.code), block.place)


def test_code_that_fails_is_found(tmp_path):
    """The control: a wrong option, and a failure before the last command of a block."""
    assert pages.shell("mcattn theory --no-such", tmp_path).returncode == 2
    assert pages.shell("mcattn theory --L x\ntrue", tmp_path).returncode == 2
    assert pages.shell("mcattn theory > out.txt\nmake test", tmp_path).returncode == 0
