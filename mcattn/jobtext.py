"""Reading job files, and one sentence for each way in which they can be wrong."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from mcattn.errors import JobError
from mcattn.jobfile import Data, Fixed, Grid, Hysteresis, Job, RunSettings, Tempering, Umbrella
from mcattn.model import CopyModel
from mcattn.trainjob import Train

_PROTOCOLS: dict[str, type[BaseModel]] = {
    "hysteresis": Hysteresis,
    "fixed": Fixed,
    "tempering": Tempering,
    "umbrella": Umbrella,
    "train": Train,
}


def load(path: str | Path, overrides: list[str] | None = None) -> tuple[Job, str]:
    """Read and check a job file.

    Parameters
    ----------
    overrides : settings such as "model.L=12", which win over the file's.

    Returns
    -------
    job : the checked settings.
    text : the job as TOML with the overrides merged in, to be kept with the results.

    Raises
    ------
    JobError : the sentence names the file, the key, what was found and what is allowed.
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as err:
        reason = getattr(err, "strerror", None) or "it is not UTF-8 text"
        raise JobError(f"cannot read job file {path}: {reason}") from None
    except (ValueError, RecursionError) as err:
        raise JobError(f"{path} is not valid TOML: {err}") from None
    for setting in overrides or []:
        _override(table, setting)
    return parse(table, str(path)), tomli_w.dumps(table)


def parse(table: dict[str, Any], where: str) -> Job:
    """The checked settings of a job given as nested tables; `where` names it in errors."""
    try:
        _check_keys(table)
        return Job(**table)
    except ValidationError as err:
        raise JobError(f"{where}: {_sentence(err)}") from None
    except JobError as err:
        raise JobError(f"{where}: {err}") from None


def parse_text(text: str, where: str) -> Job:
    """The checked settings of a job stored as TOML text."""
    return parse(tomllib.loads(text), where)


def _override(table: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise JobError(f"--set {setting}: expected TABLE.KEY=VALUE, such as model.L=12")
    if "\n" in setting:
        raise JobError(f"--set {setting!r}: give one setting at a time")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text.strip()
    for part in parts[:-1]:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise JobError(f"--set {setting}: {part} is a value, not a table")
    table[parts[-1]] = value


def _check_keys(table: dict[str, Any]) -> None:
    """Refuse unknown keys, naming the nearest known one, and tables that are not tables."""
    _known("", table, list(Job.model_fields))
    for name in Job.model_fields:
        if name in table and not isinstance(table[name], dict):
            raise JobError(f"{name} is {table[name]!r}; it must be a table, [{name}]")
    for name in ("model", "protocol"):
        if name not in table:
            raise JobError(f"table [{name}] is missing")
    kind = table["protocol"].get("kind")
    if not isinstance(kind, str) or kind not in _PROTOCOLS:
        found = "missing" if kind is None else repr(kind)
        allowed = ", ".join(repr(name) for name in _PROTOCOLS)
        raise JobError(f"protocol.kind is {found}; it must be one of {allowed}")
    _known("model", table["model"], list(CopyModel.__dataclass_fields__))
    _known("protocol", table["protocol"], list(_PROTOCOLS[kind].model_fields))
    _known("data", table.get("data", {}), list(Data.model_fields))
    _known("run", table.get("run", {}), list(RunSettings.model_fields))
    for key, value in table["protocol"].items():
        if isinstance(value, dict):
            _known(f"protocol.{key}", value, list(Grid.model_fields))


def _known(where: str, table: dict[str, Any], known: list[str]) -> None:
    for key in table:
        if key not in known:
            name = f"{where}.{key}" if where else key
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise JobError(f"unknown key {name}; {hint}")


def _sentence(err: ValidationError) -> str:
    """What the first complaint of pydantic says, in the words of a job file."""
    first = err.errors()[0]
    # The discriminator's tag follows "protocol" in pydantic's location; no file has it.
    parts = [str(part) for part in first["loc"] if part not in _PROTOCOLS]
    key = ".".join(parts)
    if first["type"] == "missing":
        return f"{key} is missing"
    text = first["msg"].removeprefix("Value error, ")
    if first["type"] == "value_error":
        own_key = text.startswith("is ") or len(parts) == 0
        return f"{key} {text}" if own_key else f"{parts[0]}.{text}"
    found = first["input"]
    return f"{key} is {found!r}; {text.replace('Input should be', 'it must be')}"
