"""`[tool.traceanalyzer]` of pyproject.toml: what a project always wants; the command line goes before it."""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.step_times import GivenStep

_KEYS = ("fail-on", "ignore", "limits", "select", "step-ms")
_SEVERITIES = ("high", "medium", "low", "never")


@dataclass(frozen=True, slots=True)
class Config:
    """What the table says of options of `diagnose`; `over` are rules that are ignored no longer, by their last day."""

    fail_on: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    step_ms: GivenStep | None = None
    over: tuple[str, ...] = ()


def read_config(folder: Path, today: datetime.date) -> Config:
    """The table of the nearest pyproject.toml at or above the folder; empty where there is none."""
    paths = (parent / "pyproject.toml" for parent in (folder, *folder.parents))
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return Config()
    table = _table(path)
    try:
        return _config_of(table, today)
    except BadOption as error:
        problem = f"[tool.traceanalyzer] {error.problem}"
        raise BadOption(problem, where=path, remedy=error.remedy) from None


def _config_of(table: Mapping[str, Any], today: datetime.date) -> Config:
    for key in table:
        if key not in _KEYS:
            raise BadOption(f"has no key {key!r}", remedy=f"It has {', '.join(_KEYS)}.")
    fail_on = table.get("fail-on")
    if fail_on is not None and fail_on not in _SEVERITIES:
        raise BadOption(f"has fail-on = {fail_on!r}", remedy=f"It is one of {', '.join(_SEVERITIES)}.")
    select = table.get("select", [])
    if not isinstance(select, list) or not all(isinstance(name, str) for name in select):
        raise BadOption(f"has select = {select!r}", remedy="It is a list of names of rules.")
    ignored, over = _ignored(table.get("ignore", []), today)
    limits, step_ms = _limits(table.get("limits", {})), _time(table.get("step-ms"))
    return Config(fail_on, tuple(select), ignored, limits, step_ms, over)


def _table(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise BadOption(problem, where=path, remedy="Allow reading it.") from error
    except (ValueError, RecursionError) as error:
        remedy = "Correct it, or pass --no-config."
        raise BadOption(f"is no TOML: {error}", where=path, remedy=remedy) from None
    tool = document.get("tool", {})
    table = tool.get("traceanalyzer", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise BadOption("tool.traceanalyzer is no table", where=path, remedy="Write [tool.traceanalyzer].")
    return table


def _ignored(value: Any, today: datetime.date) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rules to ignore, and those whose last day has passed."""
    remedy = 'An entry is {rule = "cold-start", reason = "one epoch only", until = 2027-01-31}.'
    if not isinstance(value, list):
        raise BadOption(f"has ignore = {value!r}", remedy=remedy)
    still: list[str] = []
    over: list[str] = []
    for entry in value:
        whole = isinstance(entry, dict) and set(entry) == {"rule", "reason", "until"}
        if not whole or not isinstance(entry["rule"], str) or not str(entry["reason"]).strip():
            problem = f"has an entry of ignore without rule, reason and until: {entry!r}"
            raise BadOption(problem, remedy=remedy)
        until = entry["until"]
        if type(until) is not datetime.date:
            raise BadOption(f"has until = {until!r}, which is not a date", remedy=remedy)
        (still if today <= until else over).append(entry["rule"])
    return tuple(still), tuple(over)


def _limits(value: Any) -> dict[str, str]:
    remedy = 'It is a table such as {"scheduler-gap.min_gap_ns" = 20000}.'
    if not isinstance(value, dict):
        raise BadOption(f"has limits = {value!r}", remedy=remedy)
    for name, limit in value.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float | str) or "." not in name:
            raise BadOption(f"has the limit {name!r} = {limit!r}", remedy=remedy)
    return {name: str(limit) for name, limit in value.items()}


def _time(value: Any) -> GivenStep | None:
    try:
        if isinstance(value, bool | dict):
            raise BadOption("not a time")
        return GivenStep.of(value)
    except BadOption:
        remedy = "It is a positive number of ms, of less than a day, a list of such, or a range: 18:19."
        raise BadOption(f"has step-ms = {value!r}", remedy=remedy) from None
