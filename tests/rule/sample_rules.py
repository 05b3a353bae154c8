"""Rules for tests of what runs rules: one that finds, one that does not, one that cannot, one that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.finding import Confidence, Hit, Span
from traceanalyzer.model.trace import Trace
from traceanalyzer.rule import registry as rule_module
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import Rule, rule
from traceanalyzer.timeline.busy import Busy
from traceanalyzer.timeline.steps import Steps


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as a gap."""

    min_gap_ns: int = limit(10_000, "a launch takes as long")
    least: float = 0.5


@rule(limits=Limits, since="0.1")
def idle_device(steps: Steps, busy: Busy, limits: Limits) -> Iterator[Hit]:
    """Nothing runs on the device.

    Between two kernels the device waits | and nobody says why.
    """
    for device in busy.devices:
        starts, ends = busy.gaps(device, steps.window_start_ns, steps.window_end_ns)
        for start, end in zip(starts, ends, strict=True):
            if end - start >= limits.min_gap_ns:
                yield Hit(
                    span=Span(start, end, device=device),
                    events=(),
                    cost_ns=end - start,
                    cause="gap",
                    message="Idle {times}, {total} in all.",
                    advice="Keep it busy.",
                    confidence=Confidence.HIGH,
                )


@rule(limits=Limits, since="0.1")
def nothing_wrong(trace: Trace, limits: Limits) -> Iterator[Hit]:
    """Never finds anything."""
    yield from ()


@rule(limits=Limits, since="0.1")
def never_applicable(trace: Trace, limits: Limits) -> Iterator[Hit]:
    """Lacks what it needs."""
    raise Unavailable("no tea leaves: record with tea=True")


@rule(limits=Limits, since="0.1")
def always_failing(trace: Trace, limits: Limits) -> Iterator[Hit]:
    """Divides by zero after its first hit."""
    yield Hit(Span(0, 1), (), 0, "first", "", "", Confidence.LOW)
    raise ZeroDivisionError("division by zero")


FUNCTIONS = (always_failing, idle_device, never_applicable, nothing_wrong)
RULES: tuple[Rule, ...] = tuple(map(rule_module._describe, FUNCTIONS))


@pytest.fixture
def sample_rules(monkeypatch: pytest.MonkeyPatch) -> tuple[Rule, ...]:
    """These rules and no others."""
    monkeypatch.setattr(rule_module, "all_rules", lambda: RULES)
    return RULES
