"""The machine code of the sweeps: what their innermost loops must not hold."""

import platform

import numba
import pytest

from mcattn.kernels import linear, softmax
from mcattn.model import CopyModel
from mcattn.replicas import Replicas


def inner_loops(assembly):
    """Lines of the loops that hold no other loop: from a label to a jump back to it."""
    lines = assembly.splitlines()
    labels = {line[:-1]: i for i, line in enumerate(lines) if line.endswith(":")}
    jumps = [(line.split()[-1], i) for i, line in enumerate(lines) if line.startswith("\tj")]
    loops = [(labels[to], i) for to, i in jumps if labels.get(to, i) < i]
    starts = [begin for begin, _ in loops]
    return [lines[a : b + 1] for a, b in loops if not any(a < c <= b for c in starts)]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 assembly")
@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_loops_over_lanes_hold_no_masked_store_and_no_call(attention):
    replicas = Replicas(CopyModel(3, 4, attention, 1, 1, 1), 0, 0, 8)
    replicas.start("copy", 5.0)
    replicas.set_states(10.0, 5.0, 0.0, 0.0, 0.5)
    replicas.advance(1)
    cached = (softmax if attention == "softmax" else linear).run
    kernel = numba.njit(error_model="numpy")(cached.py_func)  # code from a cache shows no assembly
    kernel.compile(cached.signatures[0])
    (assembly,) = kernel.inspect_asm().values()
    assert "maskmov" not in assembly
    loops = ["\n".join(body) for body in inner_loops(assembly)]
    over_lanes = [loop for loop in loops if "pd\t" in loop]
    assert any("divpd\t" in loop for loop in over_lanes)
    assert not any("\tcall" in loop for loop in over_lanes)
