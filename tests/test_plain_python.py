"""The kernels' source run by the plain interpreter gives what the compiled kernels give."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

SCRIPT = """
import json, sys
import numpy as np
from mcattn.model import CopyModel
from mcattn.replicas import Replicas
from mcattn.exchange import Exchanger
from mcattn.ladder import Ladder
from mcattn.records import Exchanged
from mcattn.replicas import couplings

def exchanged(model, X):
    x = np.linspace(0, 1, 4)
    ladder = Ladder(25 + 9 * x, 5 + x, x, 3 * x, (4,), 2, 1, "random", 0)
    now = Exchanged.nothing(ladder.replicas(), 4, ladder)
    exchanger = Exchanger(ladder, model, 3)
    table = couplings(model, **ladder.controls(ladder.start()), step=x)
    for _ in range(30):
        exchanger.exchange(X, table, now)
    return now

attention, tokens = json.loads(sys.argv[1])
model = CopyModel(4, 3, attention, 1.0, 2.0, 0.5, tokens)
replicas = Replicas(model, seed=11, first=0, count=8)
replicas.start("copy", 6.0)
replicas.set_states(30.0, 6.0, 0.2, 3.0, 0.6)
X, accepted = replicas.advance(6, every=2)
replicas.refresh()
now = exchanged(model, replicas.sums())
words = [str(w) for w in replicas.stream_words().ravel()]
swaps = accepted.tolist() + now.state.tolist() + now.accepted.tolist()
X = X.ravel().tolist() + now.chance.ravel().tolist()
print(json.dumps([X, swaps, replicas.scores().tolist(), words]))
"""


def chain(attention, tokens, plain):
    environment = dict(os.environ, NUMBA_DISABLE_JIT="1" if plain else "0")
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, json.dumps([attention, tokens])],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(out.stdout)


@pytest.mark.parametrize("attention", ["softmax", "linear"])
@pytest.mark.parametrize("tokens", [None, [0.5, 0.3, 0.2]])
def test_compiled_equals_plain_python(attention, tokens):
    X, accepted, scores, words = chain(attention, tokens, plain=False)
    X_plain, accepted_plain, scores_plain, words_plain = chain(attention, tokens, plain=True)
    assert words == words_plain
    assert accepted == accepted_plain
    # Fused multiply-adds round once where plain Python rounds twice: equal decisions, and
    # values equal to a few units in the last place of each of the ~100 updates behind them.
    assert np.array(X) == pytest.approx(np.array(X_plain), rel=1e-12, abs=1e-13)
    assert np.array(scores) == pytest.approx(np.array(scores_plain), rel=1e-12, abs=1e-13)
