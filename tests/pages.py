"""The pages of documentation, their code, and places in which that code can run."""

import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import tomli_w
from tiny import BIN

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"sh", "python", "toml", "text", "{eval-rst}", "{toctree}"}
_BLOCK = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.S | re.M)
_RECURSIVE = {"make test", "make test-long"}  # what runs these pages

# Settings that make a shipped job a matter of seconds; the commands that use it stay the same.
SHORT = {
    "hysteresis": {
        "sweeps": [20, 40],
        "thermalize": 10,
        "equilibrate": 20,
        "replicas": 32,
        "P": {"start": 280, "stop": 440, "points": 17},
    },
    "data": {"sweeps": 40, "thermalize": 20, "replicas": 16},
    "train": {"steps": 60, "P": [280, 420, 280]},
    "train_linear": {"steps": 60},
    "plane": {"sweeps": 200, "thermalize": 50, "tune_rounds": 0, "ladders": 1},
}


@dataclass(frozen=True)
class Block:
    """A piece of code: its language, whether it is long or for Slurm, and where it stands."""

    language: str
    kind: str
    code: str
    place: str


def blocks(page):
    """Every fenced block of a page."""
    text, found = page.read_text(), []
    for match in _BLOCK.finditer(text):
        words = (match[2].split() or [""])[:2]
        indent, line = len(match[1]), text[: match.start()].count("\n") + 1
        code = "\n".join(row[indent:] for row in match[3].splitlines())
        place = f"{page.relative_to(ROOT)}:{line}"
        found.append(Block(words[0], words[1] if len(words) > 1 else "", code, place))
    return found


def with_code(kind):
    """Names of the pages that have shell or Python code of a kind."""
    return [
        str(page.relative_to(ROOT))
        for page in PAGES
        if any(b.language in ("sh", "python") and b.kind == kind for b in blocks(page))
    ]


def short_jobs(folder):
    """The shipped jobs in folder/jobs, those of SHORT made short."""
    shutil.copytree(ROOT / "jobs", folder / "jobs")
    for name, settings in SHORT.items():
        path = folder / "jobs" / f"{name}.toml"
        table = tomllib.loads(path.read_text())
        table["protocol"] |= settings
        path.write_text(tomli_w.dumps(table))


def whole_tree(folder):
    """All tracked files, and the environment of this one, so that make finds it ready."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(BIN.parent)


def attention(folder):
    """maps.npy, maps.h5: causal attention of 2 layers and 3 heads at 4 steps, a batch of 5."""
    scores = np.random.default_rng(0).normal(size=(4, 2, 3, 5, 8, 8))
    weights = np.tril(np.exp(scores))
    weights /= weights.sum(axis=-1, keepdims=True)
    np.save(folder / "maps.npy", weights)
    with h5py.File(folder / "maps.h5", "w") as f:
        f["run7/attention"] = weights


def shell(code, folder, preamble="", **environment):
    """Run a block, all of it, as a reader would who stops at the first error."""
    rows = [row for row in code.splitlines() if row.split("#")[0].strip() not in _RECURSIVE]
    code = "\n".join(rows)
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{preamble}\n{code}"],
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        timeout=5400,
    )
