"""What a fault of several findings saves and how severe it is, and which findings belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.edit_footprint import WHOLLY, Footprint
from traceanalyzer.replay.rewrites import Batch
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.faults import FaultOf, faults_of

HIGH, MEDIUM, LOW, INFO = Severity


def saved(share: float) -> Saving:
    return Saving(1, 1, 1, share, share, share, "replayed")


def found(severity: Severity, share: float | None, cost_share: float = 0.0) -> Finding:
    saving = None if share is None else saved(share)
    return replace(samples.findings()[0], severity=severity, saving=saving, cost_share=cost_share)


EVENTS = SimpleNamespace(once=lambda *_: None)


def pending(*edits: Any, info: bool = False, cause: str = "", key: str = "", **changes: Any) -> Any:
    """What a finding of rule "one" is built of."""
    occurrences = SimpleNamespace(events=EVENTS)
    hits = SimpleNamespace(
        info=info, edits=lambda: edits, cause=cause, fault_key=key, occurrences=occurrences
    )
    return SimpleNamespace(**{"order": Claims.EVENT, "rule": "one", "device": 0, "hits": hits} | changes)


class Replay:
    """A forecast: what each set of edits saves, and which were asked for."""

    program = SimpleNamespace(launch=None)

    def __init__(self, share: float = 0.0) -> None:
        self.share, self.asked = share, list[Any]()

    def saving(self, edits: Any) -> Saving:
        self.asked.append(list(edits))
        return saved(self.share)


def footprint(
    *holds: tuple[str, float], leads: str = "", prepares: str = "", name: str = "", backward: bool = False
) -> Any:
    """A footprint that holds others up to a share."""
    shares = dict(holds)
    return SimpleNamespace(
        name=name,
        work_ns=np.zeros(1),
        holds=lambda other, least=0.5: shares.get(other.name, 0.0) >= least,
        leads_to=lambda other, _: other.name == leads,
        prepares=lambda other, _: other.name == prepares,
        is_backward_of=lambda *_: backward,
    )


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`faults_of` of findings whose fixes have these footprints, in the order of their savings."""

    def grouped(
        all_pending: Sequence[Any], findings: Sequence[Finding], prints: Sequence[Any], forecast: Any
    ) -> FaultOf:
        given = iter(prints)
        monkeypatch.setattr(Footprint, "of", lambda *_: next(given))
        return faults_of(all_pending, findings, forecast)

    return grouped


SAME = (footprint(("b", 0.9), name="a"), footprint(name="b"))
"""Footprints of two fixes, of which the first includes the second."""
APART = (footprint(name="a"), footprint(name="b"))


@pytest.mark.parametrize(
    ("shares", "joint", "share", "severity"),
    [
        ((0.02, 0.01), 0.12, 0.12, HIGH),
        ((0.05, 0.01), 0.02, 0.05, MEDIUM),
        ((0.02, 0.01), 0.01, 0.02, LOW),
    ],
)
def test_a_fault_saves_what_its_fixes_save_together(
    shares: tuple[float, float], joint: float, share: float, severity: Severity, faults: Any
) -> None:
    """It saves no less, and is no less severe, than one of them."""
    forecast = Replay(joint)
    findings = [found(Severity.of(each), each) for each in shares]
    made = faults([pending("a"), pending("b", rule="two")], findings, SAME, forecast)
    assert (made.number, made.savings[0].share, made.severities) == ((0, 0), share, (severity,))
    assert forecast.asked == [["a", "b"]]


def test_a_fault_of_one_finding_saves_what_that_saves(faults: Any) -> None:
    forecast = Replay(0.5)
    findings = [found(LOW, 0.02), found(LOW, 0.01)]
    made = faults([pending("a"), pending("b", rule="two")], findings, APART, forecast)
    assert made.savings == (findings[0].saving, findings[1].saving)
    assert (made.severities, forecast.asked) == ((LOW, LOW), [])


def test_without_a_replay_each_finding_is_a_fault() -> None:
    made = faults_of([pending("a"), pending("a")], [found(LOW, None), found(HIGH, None)], None)
    assert (made.number, made.savings, made.severities) == ((0, 1), (None, None), (LOW, HIGH))


@pytest.mark.parametrize(
    ("prints", "shares", "linked", "edits"),
    [
        ((footprint(("b", 0.9), name="a"), footprint(name="b")), (0.3, 0.1), True, ["a", "b"]),
        ((footprint(("b", 0.6), name="a"), footprint(name="b")), (0.3, 0.1), True, ["a"]),
        ((footprint(("b", 0.4), name="a"), footprint(name="b")), (0.3, 0.1), False, None),
        ((footprint(name="a"), footprint(("a", 0.9), name="b")), (0.3, 0.3 * WHOLLY + 1e-9), True, ["a", "b"]),
        ((footprint(name="a"), footprint(("a", 0.6), name="b")), (0.3, 0.29), True, ["b"]),
        ((footprint(name="a"), footprint(("a", 0.9), name="b")), (0.3, 0.3 * WHOLLY - 1e-9), False, None),
        ((footprint(leads="b", name="a"), footprint(name="b")), (0.3, 0.1), True, ["a", "b"]),
        ((footprint(name="a"), footprint(leads="a", name="b")), (0.3, 0.1), True, ["a", "b"]),
        ((footprint(prepares="b", name="a"), footprint(name="b")), (0.3, 0.1), True, ["a", "b"]),
        ((footprint(name="a"), footprint(prepares="a", name="b")), (0.3, 0.1), True, ["a", "b"]),
    ],
)  # fmt: skip
def test_a_fix_that_includes_or_causes_another_is_one_fault(
    prints: Any, shares: tuple[float, float], linked: bool, edits: list[str] | None, faults: Any
) -> None:
    """Edits of a finding of which the other's fix removes a part only are another change."""
    forecast = Replay()
    findings = [found(HIGH, share) for share in shares]
    made = faults([pending("a"), pending("b", rule="two")], findings, prints, forecast)
    assert made.number == ((0, 0) if linked else (0, 1))
    assert forecast.asked == ([edits] if edits else [])


@pytest.mark.parametrize(
    ("rules", "keys", "linked"),
    [
        (("one", "two"), ("stalled-thread", "stalled-thread"), True),
        (("one", "two"), ("stalled-thread", ""), False),
        (("one", "two"), ("stalled-thread", "other"), False),
        (("one", "two"), ("", ""), False),
        (("one", "one"), ("stalled-thread", "stalled-thread"), False),
    ],
)
def test_two_rules_declare_by_a_key_that_they_find_one_fault(
    rules: tuple[str, str], keys: tuple[str, str], linked: bool, faults: Any
) -> None:
    both = [pending(rule=rule, key=key, cause=rule + key) for rule, key in zip(rules, keys, strict=True)]
    both[1].device = 1
    made = faults(both, [found(HIGH, 0.3), found(HIGH, 0.1)], APART, Replay())
    assert made.number == ((0, 0) if linked else (0, 1))


def batch(*groups: int) -> Batch:
    rows = np.arange(len(groups))
    return Batch(2 * rows, 2 * rows + 1, list(groups))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ([batch(0, 0, 0, 1, 1)], [batch(0, 0), batch(0, 0, 0)], True),
        ([batch(0, 0, 0)], [batch(0, 0)], False),
        ([batch(0, 0)], [batch(0, 0, 1, 1)], False),
        ([], [], False),
        ([], [batch(0, 0)], False),
    ],
)
def test_loops_of_equal_counts_are_one_loop(
    first: list[Any], second: list[Any], same: bool, faults: Any
) -> None:
    """As many repeats of as many loops: the loop forward and its backward."""
    made = faults([pending(*first), pending(*second)], [found(HIGH, 0.3), found(HIGH, 0.1)], APART, Replay())
    assert made.number == ((0, 0) if same else (0, 1))


@pytest.mark.parametrize(
    ("changes", "number"),
    [({}, (0, 0)), ({"rule": "two"}, (0, 1)), ({"cause": "b"}, (0, 1)), ({"device": 1}, (0, 1))],
)
def test_an_op_and_its_backward_are_one_fault_of_one_rule(
    changes: dict[str, Any], number: tuple[int, int], faults: Any
) -> None:
    prints = footprint(name="a", backward=True), footprint(name="b")
    findings = [found(HIGH, 0.3), found(HIGH, 0.1)]
    assert faults([pending(), pending(**changes)], findings, prints, Replay()).number == number


def test_only_the_thirty_that_save_most_are_compared(faults: Any) -> None:
    """Of those that save equally much the first."""
    shares = [0.01, *[0.1] * 31, 0.2]
    every = [pending(rule=str(number)) for number in range(len(shares))]
    prints = [footprint(*((str(other), 1.0) for other in range(30)), name=str(i)) for i in range(30)]
    made = faults(every, [found(LOW, share) for share in shares], prints, Replay())
    together = [i for i, number in enumerate(made.number) if number == made.number[32]]
    assert together == [*range(1, 30), 32]
