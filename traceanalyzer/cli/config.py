"""`[tool.traceanalyzer]` of pyproject.toml: what a project always wants; the command line goes before it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.records import dataclass
from traceanalyzer.model.step_times import GivenStep

_KEYS = ("fail-on", "ignore", "limits", "select", "step-ms")
_SEVERITIES = ("high", "medium", "low", "never")


@dataclass(frozen=True, slots=True)
class Config:
    """What the table says.

    Attributes:
        fail_on, select, ignore, settings, step_ms: as the options of `diagnose`; None or empty where not said.
        over: rules that are no longer ignored, since the last day of their entry has passed.
    """

    fail_on: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    step_ms: GivenStep | None = None
    over: tuple[str, ...] = ()


def read_config(folder: Path, today: datetime.date) -> Config:
    """The table of the nearest pyproject.toml at or above the folder; empty where there is none.

    Raises:
        BadOption: the file is no TOML, or the table says what cannot be meant.
    """
    path = next(
        (p for parent in (folder, *folder.parents) if (p := parent / "pyproject.toml").is_file()), None
    )
    if path is None:
        return Config()
    table = _table(path)

    def refuse(problem: str, remedy: str) -> BadOption:
        return BadOption(f"[tool.traceanalyzer] {problem}", where=path, remedy=remedy)

    for key in table:
        if key not in _KEYS:
            raise refuse(f"has no key {key!r}", f"It has {', '.join(_KEYS)}.")
    ignored, over = _ignored(table.get("ignore", []), today, refuse)
    return Config(
        _one_of(table.get("fail-on"), refuse),
        _names(table.get("select", []), refuse),
        ignored,
        _limits(table.get("limits", {}), refuse),
        _time(table.get("step-ms"), refuse),
        over,
    )


_Refuse = Callable[[str, str], BadOption]


def _table(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadOption(
            f"cannot be read: {error.strerror}", where=path, remedy="Allow reading it."
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadOption(
            f"is no TOML: {error}", where=path, remedy="Correct it, or pass --no-config."
        ) from None
    tool = document.get("tool", {})
    table = tool.get("traceanalyzer", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise BadOption("tool.traceanalyzer is no table", where=path, remedy="Write [tool.traceanalyzer].")
    return table


def _one_of(value: Any, refuse: _Refuse) -> str | None:
    if value is not None and value not in _SEVERITIES:
        raise refuse(f"has fail-on = {value!r}", f"It is one of {', '.join(_SEVERITIES)}.")
    return None if value is None else str(value)


def _names(value: Any, refuse: _Refuse) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise refuse(f"has select = {value!r}", "It is a list of names of rules.")
    return tuple(value)


def _ignored(value: Any, today: datetime.date, refuse: _Refuse) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rules to ignore, and those whose last day has passed."""
    remedy = 'An entry is {rule = "cold-start", reason = "one epoch only", until = 2027-01-31}.'
    if not isinstance(value, list):
        raise refuse(f"has ignore = {value!r}", remedy)
    still: list[str] = []
    over: list[str] = []
    for entry in value:
        whole = isinstance(entry, dict) and set(entry) == {"rule", "reason", "until"}
        if not whole or not isinstance(entry["rule"], str) or not str(entry["reason"]).strip():
            raise refuse(f"has an entry of ignore without rule, reason and until: {entry!r}", remedy)
        until = entry["until"]
        if type(until) is not datetime.date:
            raise refuse(f"has until = {until!r}, which is not a date", remedy)
        (still if today <= until else over).append(entry["rule"])
    return tuple(still), tuple(over)


def _limits(value: Any, refuse: _Refuse) -> dict[str, str]:
    remedy = 'It is a table such as {"scheduler-gap.min_gap_ns" = 20000}.'
    if not isinstance(value, dict):
        raise refuse(f"has limits = {value!r}", remedy)
    for name, limit in value.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float | str) or "." not in name:
            raise refuse(f"has the limit {name!r} = {limit!r}", remedy)
    return {name: str(limit) for name, limit in value.items()}


def _time(value: Any, refuse: _Refuse) -> GivenStep | None:
    try:
        if isinstance(value, bool | dict):
            raise BadOption("not a time")
        return GivenStep.of(value)
    except BadOption:
        remedy = "It is a positive number of ms, of less than a day, a list of such, or a range: 18:19."
        raise refuse(f"has step-ms = {value!r}", remedy) from None
