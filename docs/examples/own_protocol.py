"""A protocol of one's own: a quench. Copy heads made at a large P are taken to a small one at once.

Run: python docs/examples/own_protocol.py
"""

import numpy as np

from mcattn import CopyModel, phases, theory
from mcattn.protocols import Plan, Stage, States
from mcattn.ranks import Serial
from mcattn.sampler import Sampler


def quench(P, chi, wait, replicas, every=10):
    """A plan: 200 sweeps at P[0], then `wait` sweeps at each further P, never going back."""
    P = np.asarray(P, dtype=float)
    count = len(P)
    nothing = np.zeros(count)
    length = np.array([200] + [wait] * (count - 1))
    states = States(
        P=P,
        chi=np.full(count, chi),
        bias_center=nothing,
        bias_strength=nothing,
        branch=np.full(count, -1),
        loop=np.zeros(count, dtype=int),
        thermalize=np.where(np.arange(count), 0, 100),
        sweeps=length,
    )
    stages = tuple(
        Stage(
            states=np.full(replicas, k),
            thermalize=int(states.thermalize[k]),
            sweeps=int(states.sweeps[k]),
            every=every,
            restart=k == 0,
            loop=0,
            keep_patterns=0,
        )
        for k in range(count)
    )
    return Plan("quench", states, stages, replicas, start="copy")


def survival(model, plan, seed=0):
    """Share of replicas still in the copy phase after each row, (t,), with P of the row, (t,)."""
    jump = theory.boundary(model, plan.states.chi[0])
    low, high = (jump.m_minus + x * (jump.m_plus - jump.m_minus) for x in (0.25, 0.75))
    sampler = Sampler(plan, model, seed, Serial(), 0, plan.replicas, (low, high))
    m, P = [], []
    while not sampler.finished:
        block = sampler.advance()
        m += list(block.X[..., 0])
        P += [plan.states.P[block.state[0]]] * len(block.X)
    label = np.full(plan.replicas, phases.COPY, dtype=np.int8)
    return (phases.follow(np.array(m), label, low, high) == phases.COPY).mean(axis=1), np.array(P)


if __name__ == "__main__":
    model = CopyModel(L=16, V=16, kappa=1.0, g_s=3.0, g_w=0.03)
    plan = quench([400, 330, 315, 300], chi=10, wait=300, replicas=32)
    share, P = survival(model, plan)
    for value in plan.states.P:
        print(f"P = {value:g}: {share[value == P][-1]:.0%} of the copy heads are left")
