"""The fields that a message may name, as people read them; CONTRIBUTING.md lists them for authors of rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceanalyzer.model import units

_FORMS = {"ns": units.format_ns, "bytes": units.format_bytes, "share": units.format_share}
_PARTS_NAMED = 3  # of a mapping in a message


def message_fields(evidence: Mapping[str, Any], count: int, in_steps: int, steps: int) -> dict[str, str]:
    """Every field that a message may name, as text.

    Args:
        evidence: what the rule says and the totals; `delay_ns` also gives `{delay}`, a mapping its largest parts.
        count: occurrences of the pattern.
        in_steps: in how many steps they are, 0 where nothing marks steps.
        steps: how many steps there are.
    """
    shown = {name: _plain(value) for name, value in evidence.items()}
    for name, value in evidence.items():
        stem, _, unit = name.rpartition("_")
        if unit in _FORMS and value is not None and not isinstance(value, Mapping):
            shown[stem or unit] = _FORMS[unit](value)
        if isinstance(value, Mapping):
            shown[name] = _leading(value)
    return {
        "times": _times(count),
        "times_a_step": _times_a_step(count, in_steps),
        "in_steps": _in_steps(in_steps, steps),
    } | shown


def _leading(sums: Mapping[str, int]) -> str:
    """The largest parts with their shares: `aten::mm (24 %), aten::add_ (20 %)`; one alone without."""
    total = sum(sums.values())
    if len(sums) == 1:
        return next(iter(sums))
    parts = list(sums.items())[:_PARTS_NAMED]
    return ", ".join(f"{name} ({round(100 * part / total) if total else 0} %)" for name, part in parts)


def _plain(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return str(value)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _times_a_step(count: int, in_steps: int) -> str:
    """How often in a step that has it; over the window where nothing marks steps."""
    if in_steps == 0:
        return _times(count)
    often = count / in_steps
    return f"{_times(round(often)) if often >= 1.5 else 'once'} a step" if in_steps > 1 else _times(count)


def _in_steps(in_steps: int, steps: int) -> str:
    """In which steps, as people say it."""
    if in_steps == 0:
        return "over the window"
    if in_steps >= steps:
        return "in every step" if steps > 1 else "in the only step"
    return f"in {in_steps:,} of {steps:,} steps"
