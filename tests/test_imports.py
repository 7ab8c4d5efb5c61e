"""Imports run one way, and reading results loads neither the compiler nor MPI."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mcattn

ROOT = Path(mcattn.__file__).parent
# Each room may import from itself and from the rooms after it.
ORDER = (
    ("cli",),
    ("cli_theory",),
    ("cli_options",),
    ("doctor", "theorytext", "minimareport", "plantext", "attentiontext"),
    ("plan", "attention"),
    ("run", "status"),
    ("store", "progress", "interrupts", "walltime"),
    ("layout", "lock"),
    ("exact_sampler",),
    ("training",),
    ("sampler",),
    ("extend", "exchange", "members", "exact_replicas"),
    ("replicas", "ranks", "jobtext", "runfile", "records", "network", "optimisers"),
    ("data",),
    ("arrays",),
    ("jobfile",),
    ("exactjob",),
    ("trainjob",),
    ("protocols", "jobfields"),
    ("windows",),
    ("linear_stages", "coexistence", "continuation"),
    ("minima",),
    ("problems",),
    ("finite_chi",),
    ("streams", "schema", "phases", "theory", "linear_exact"),
    ("landscape", "linear_landscape"),
    ("action", "ladder", "rows", "recipe"),
    ("counts",),
    ("model", "terminal"),
    ("errors",),
)
RANK = {name: i for i, group in enumerate(ORDER) for name in group}


def imported(path):
    """Modules of mcattn that a file imports anywhere, as names below mcattn."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{a.name}" for a in node.names]
            found |= set(names) if node.module == "mcattn" else {node.module}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
    return {name.split(".", 1)[1] for name in found if name.startswith("mcattn.")}


def top_level_packages(path):
    tree = ast.parse(path.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


CORE = sorted(p for p in ROOT.glob("*.py") if p.stem != "__init__")


@pytest.mark.parametrize("path", CORE, ids=lambda p: p.stem)
def test_core_imports_run_down(path):
    assert path.stem in RANK, f"give {path.name} its place in ORDER"
    for name in imported(path):
        room = name.split(".")[0]
        if room == "analysis":
            assert path.stem == "cli"
        elif room == "kernels":
            assert path.stem in (
                "replicas",
                "exchange",
                "run",
                "doctor",
                "network",
                "optimisers",
                "exact_replicas",
            )
        elif room in RANK:
            assert RANK[room] >= RANK[path.stem], f"{path.stem} imports {room} uphill"


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").glob("*.py")), ids=lambda p: p.stem)
def test_kernels_know_nothing_of_the_package(path):
    assert all(name.startswith("kernels") for name in imported(path))
    assert not top_level_packages(path) & {"h5py", "mpi4py", "matplotlib", "scipy", "pydantic"}


@pytest.mark.parametrize("path", sorted((ROOT / "analysis").glob("*.py")), ids=lambda p: p.stem)
def test_analysis_never_samples(path):
    allowed = {
        "analysis",
        "theory",
        "linear_exact",
        "linear_stages",
        "coexistence",
        "landscape",
        "linear_landscape",
        "finite_chi",
        "problems",
        "minima",
        "continuation",
        "data",
        "terminal",
    }
    allowed |= {"action", "model", "runfile", "schema", "phases", "errors"}
    assert {name.split(".")[0] for name in imported(path)} <= allowed


@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("mpi4py", {"ranks"}),
        ("typer", {"cli", "cli_options", "cli_theory"}),
        ("h5py", {"runfile", "layout", "store", "status", "doctor", "arrays"}),
        ("numba", {"jit", "simd"}),
        ("pydantic", {"jobfields", "jobfile", "jobtext", "trainjob"}),
    ],
)
def test_each_library_has_one_home(library, homes):
    files = [p for folder in (".", "kernels", "analysis") for p in (ROOT / folder).glob("*.py")]
    assert {p.stem for p in files if library in top_level_packages(p)} == homes


def test_only_figures_draw():
    files = [p for folder in (".", "kernels", "analysis") for p in (ROOT / folder).glob("*.py")]
    drawing = {p.stem for p in files if "matplotlib" in top_level_packages(p)}
    assert drawing
    assert all(name.endswith(("figure", "figures")) for name in drawing)


@pytest.mark.parametrize(
    "module", ["mcattn", "mcattn.analysis.report", "mcattn.theory", "mcattn.cli"]
)
def test_light_imports(module):
    code = f"import {module}, sys; print({{'numba', 'mpi4py'}} & set(sys.modules) or 'light')"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "light"


def test_a_second_copy_of_the_kernels_is_refused():
    top = Path(__file__).resolve().parent.parent
    for name in ("kernels", "analysis"):
        out = subprocess.run(
            [sys.executable, "-c", f"import {name}"], cwd=top, capture_output=True, text=True
        )
        assert out.returncode != 0
        assert f"mcattn.{name}" in out.stderr


def test_every_public_name_is_reachable():
    for name in mcattn.__all__:
        assert getattr(mcattn, name)
    assert {"action", "theory", "sample"} <= set(dir(mcattn))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mcattn.nothing
