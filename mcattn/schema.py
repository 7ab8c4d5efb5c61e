"""The layout of a run file: every dataset's name, axes, type and meaning, in one table.

docs/file-format.md explains the same table; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

FORMAT = "mcattn run"
FORMAT_VERSION = 1

TIME, REPLICA, STATE, PATTERN = "time", "replica", "state", "pattern"
LADDER, PAIR = "ladder", "pair"


@dataclass(frozen=True)
class Field:
    """One dataset: its group and name, the names of its axes, its dtype and its meaning."""

    group: str
    name: str
    axes: tuple[str, ...]
    dtype: str
    meaning: str

    @property
    def path(self) -> str:
        return f"{self.group}/{self.name}"


SAMPLES = (
    Field("samples", "sweep", (TIME,), "i8", "sweeps done by every replica when the row was taken"),
    Field("samples", "m", (TIME, REPLICA), "f8", "copy overlap"),
    Field("samples", "q", (TIME, REPLICA), "f8", "inverse participation"),
    Field("samples", "tau", (TIME, REPLICA), "f8", "mean row sum (1 for softmax)"),
    Field("samples", "r", (TIME, REPLICA), "f8", "mean squared row sum (1 for softmax)"),
    Field("samples", "s2", (TIME, REPLICA), "f8", "sum of the squared scores"),
    Field("samples", "state", (TIME, REPLICA), "i4", "row of /states in which the replica was"),
)
STATES = (
    Field("states", "P", (STATE,), "f8", "number of training sequences"),
    Field("states", "chi", (STATE,), "f8", "inverse temperature"),
    Field("states", "bias_center", (STATE,), "f8", "centre c of the bias strength (u - c)^2 / 2"),
    Field("states", "bias_strength", (STATE,), "f8", "strength of that bias; 0 means none"),
    Field(
        "states", "branch", (STATE,), "i4", "+1 up, -1 down, 0 neither: in P, or in chi if P stays"
    ),
    Field("states", "loop", (STATE,), "i4", "which loop of the path, one for each rate; 0 first"),
    Field("states", "thermalize", (STATE,), "i8", "sweeps in the state before the first row"),
    Field("states", "sweeps", (STATE,), "i8", "sweeps in the state while rows are taken"),
    Field("states", "step", (STATE,), "f8", "half-width of the proposal, tuned, then frozen"),
    Field("states", "attempted", (STATE,), "i8", "updates proposed while rows were taken"),
    Field("states", "accepted", (STATE,), "i8", "updates accepted while rows were taken"),
    Field("states", "drift", (STATE,), "f8", "largest relative error of a cache before a refresh"),
)
PATTERNS = (
    Field("patterns", "scores", (PATTERN, "a", "b"), "f8", "scores S of one replica"),
    Field("patterns", "sweep", (PATTERN,), "i8", "sweeps done when the pattern was stored"),
    Field("patterns", "replica", (PATTERN,), "i4", "replica it belongs to"),
    Field("patterns", "state", (PATTERN,), "i4", "row of /states in which the replica was"),
    Field("patterns", "reason", (PATTERN,), "i4", "0 chosen point, 1 before, 2 after a switch"),
)
EXCHANGES = (
    Field("exchanges", "low", (PAIR,), "i4", "row of /states of the pair's lower state"),
    Field("exchanges", "high", (PAIR,), "i4", "row of /states of the pair's upper state"),
    Field("exchanges", "attempted", (LADDER, PAIR), "i8", "swaps proposed while rows were taken"),
    Field("exchanges", "accepted", (LADDER, PAIR), "i8", "swaps accepted while rows were taken"),
    Field("exchanges", "chance", (LADDER, PAIR), "f8", "sum of their acceptance probabilities"),
    Field("exchanges", "place", (STATE,), "f8", "where on the ladder's path; n is its n-th point"),
)
# Only in training runs.
TRAINING = (
    Field("training", "H", (TIME, REPLICA), "f8", "loss with weight decay, on the training data"),
    Field("training", "loss", (TIME, REPLICA), "f8", "test loss per position, on fresh data"),
    Field(
        "training",
        "share",
        (TIME, REPLICA),
        "f8",
        "share of the squared scores' weights that acts on positions alone",
    ),
)
# Only in runs under the exact action of data sets, F = chi energy + log_det.
EXACT = (
    Field(
        "exact",
        "energy",
        (TIME, REPLICA),
        "f8",
        "F/chi of the replica's data at its P, at chi = inf",
    ),
    Field("exact", "log_det", (TIME, REPLICA), "f8", "what F has besides: (V/2) ln det(1 + G/rho)"),
    Field("exact", "loss", (TIME, REPLICA), "f8", "test loss per position of the mean weights"),
    Field(
        "exact",
        "drawn_loss",
        (TIME, REPLICA),
        "f8",
        "test loss per position of weights drawn from their posterior, on average",
    ),
)
DATA = (Field("exact", "set", (REPLICA,), "i4", "data set of the replica; 0 first"),)
EXTRA = TRAINING + EXACT  # what grows with a run in some runs only
MEMORY = Field(
    "resume", "memory", (REPLICA, "number"), "f8", "weights, then Adam's moments (training only)"
)
TABLE = SAMPLES + STATES + PATTERNS + EXCHANGES
RESUME = (
    Field("resume", "phase", (REPLICA,), "i1", "phase of the replica, as its last switch left it"),
    Field("resume", "switched", (REPLICA,), "bool", "whether it has switched in this state"),
    Field("resume", "scores", (REPLICA, "a", "b"), "f8", "scores S of the replica"),
    Field("resume", "words", (REPLICA, "word"), "u8", "state of the replica's random stream"),
    Field("resume", "step", (STATE,), "f8", "as in /states, at this checkpoint"),
    Field("resume", "attempted", (STATE,), "i8", "as in /states, at this checkpoint"),
    Field("resume", "accepted", (STATE,), "i8", "as in /states, at this checkpoint"),
    Field("resume", "drift", (STATE,), "f8", "as in /states, at this checkpoint"),
    Field("resume", "state", (REPLICA,), "i8", "row of /states in which the replica is"),
    Field("resume", "place", (STATE,), "f8", "as in /exchanges"),
    Field("resume", "swaps_attempted", (LADDER, PAIR), "i8", "as in /exchanges"),
    Field("resume", "swaps_accepted", (LADDER, PAIR), "i8", "as in /exchanges"),
    Field("resume", "swaps_chance", (LADDER, PAIR), "f8", "as in /exchanges"),
)

REASON_CHOSEN, REASON_BEFORE, REASON_AFTER = 0, 1, 2

ATTRIBUTES = {
    "format": "always 'mcattn run'",
    "format_version": "version of this layout",
    "job": "the job file as TOML text, with command-line settings merged in",
    "model": "the CopyModel as JSON",
    "protocol": "kind of the protocol: hysteresis, fixed, tempering, umbrella or train",
    "seed": "seed of every random stream of the run",
    "switch": "(low, high): a replica turns to copy above high in m, back to uniform below low",
    "planned_sweeps": "sweeps of every replica in the whole job",
    "bias_along": "the order parameter u that biases act on: m, or tau or beta for |tau| or |beta|",
    "complete": "whether all planned sweeps are in the file",
    "versions": "versions of mcattn and the libraries that made the numbers, as JSON",
}
RESUME_ATTRIBUTES = {
    "stage": "stages of the plan that are over",
    "done": "sweeps done in the stage after them",
    "sweep": "sweeps done in all",
    "exchanges": "exchanges done in all",
    "rows": "rows of /samples up to there (in a complete file)",
    "patterns": "rows of /patterns up to there (in a complete file)",
}
