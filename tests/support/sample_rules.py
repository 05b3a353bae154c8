"""Rules for tests of what runs rules: one that finds, one that does not, one that cannot, one that fails."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace
from traceanalyzer.report import rank_report
from traceanalyzer.rule import registry
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.registry import Rule, rule
from traceanalyzer.rule.views import IdleTime, Work


@dataclass(frozen=True, slots=True)
class Limits:
    min_gap_ns: int = 10_000
    """a launch takes about as long"""
    least: float = 0.5
    """half"""


@rule(since="0.1", claims=Claims.REMAINDER, min_share=0.0, causes=("gap",), limits=Limits)
def idle_device(idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """Nothing runs on the device.

    Between two kernels the device waits | and nobody says why.
    """
    yield Hits(
        occurrences=idle[idle.dur_ns >= limits.min_gap_ns],
        cause="gap",
        message="Idle {times}, {total} in all.",
        advice="Keep it busy.",
    )


@rule(since="0.1")
def nothing_wrong(trace: Trace) -> Iterator[Hits]:
    """Never finds anything."""
    yield from ()


@rule(since="0.1")
def never_applicable(trace: Trace) -> Iterator[Hits]:
    """Lacks what it needs."""
    raise Unavailable("no tea leaves: record with tea=True")


@rule(since="0.1")
def always_failing(work: Work) -> Iterator[Hits]:
    """Divides by zero after its first hits."""
    yield Hits(occurrences=work, message="m", advice="a.")
    raise ZeroDivisionError("division by zero")


FUNCTIONS = (always_failing, idle_device, never_applicable, nothing_wrong)
RULES: tuple[Rule, ...] = tuple(map(registry.describe, FUNCTIONS))


@pytest.fixture
def sample_rules(monkeypatch: pytest.MonkeyPatch) -> tuple[Rule, ...]:
    """These rules and no others."""
    monkeypatch.setattr(registry, "all_rules", lambda: RULES)
    monkeypatch.setattr(rank_report, "_rules", rank_report._rules.__wrapped__)  # not kept for tests of other rules
    return RULES
