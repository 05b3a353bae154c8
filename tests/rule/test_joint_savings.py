"""What a fault of several findings saves and how severe it is, and which findings belong together."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.report import report_samples as samples
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.edit_footprint import WHOLLY
from traceanalyzer.replay.rewrites import Batch, Fuse
from traceanalyzer.rule import faults
from traceanalyzer.rule.claims import Claims

HIGH, MEDIUM, LOW, INFO = Severity


def saved(share: float) -> Saving:
    return Saving(1, 1, 1, share, share, share, "replayed")


def found(severity: Severity, share: float | None, cost_share: float = 0.0) -> Finding:
    saving = None if share is None else saved(share)
    return replace(samples.findings()[0], severity=severity, saving=saving, cost_share=cost_share)


def pending(*edits: Any, info: bool = False, **changes: Any) -> Any:
    """What a finding was made of."""
    hits = SimpleNamespace(info=info, edits=lambda: edits, cause=changes.pop("cause", ""))
    return SimpleNamespace(**{"order": Claims.EVENT, "rule": "one", "device": 0, "hits": hits} | changes)


class Replay:
    """A forecast: what each set of edits saves, and which were asked for."""

    program = SimpleNamespace(launch=None)

    def __init__(self, share: float) -> None:
        self.share, self.asked = share, list[Any]()

    def saving(self, edits: Any) -> Saving:
        self.asked.append(list(edits))
        return saved(self.share)


@pytest.mark.parametrize(
    ("members", "joint", "share", "severity"),
    [
        ([(found(LOW, 0.01), False), (found(LOW, 0.02), False)], 0.12, 0.12, HIGH),
        ([(found(LOW, 0.01), False), (found(MEDIUM, 0.05), False)], 0.02, 0.05, MEDIUM),  # no less than one
        ([(found(INFO, 0.2), True), (found(LOW, 0.01), False)], 0.2, 0.2, HIGH),
        ([(found(INFO, 0.2), True), (found(INFO, 0.2), True)], 0.2, 0.2, INFO),
        ([(found(HIGH, None), False), (found(LOW, 0.01), False)], 0.01, 0.01, HIGH),  # as severe as the worst
    ],
)
def test_a_fault_saves_what_all_of_its_fixes_save_together_and_no_less_than_one_of_them(
    members: list[tuple[Finding, bool]], joint: float, share: float, severity: Severity
) -> None:
    forecast: Any = Replay(joint)
    given = [(pending(info=info), one) for one, info in members]
    saving, graded = faults._joint(given, ["a", "b"], forecast)  # type: ignore[list-item]
    assert saving is not None
    assert (saving.share, graded, forecast.asked) == (share, severity, [["a", "b"]])


def test_a_fault_of_one_finding_saves_what_that_saves() -> None:
    forecast: Any = Replay(0.5)
    one = found(LOW, 0.01)
    assert faults._joint([(pending(), one)], [], forecast) == (one.saving, LOW)
    assert forecast.asked == []


def test_what_another_drops_in_part_only_is_no_edit_of_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings 0 and 2 are one fault; the third's own fix is another change."""
    monkeypatch.setattr(faults, "_linked", lambda *_: ([(0, 2)], {2}, {}))
    forecast: Any = Replay(0.3)
    every = [pending("a", "b"), pending("c"), pending("d")]
    made = faults.faults_of(every, [found(LOW, 0.01), found(MEDIUM, 0.04), found(LOW, 0.02)], forecast)
    assert (made.number, forecast.asked) == ((0, 1, 0), [["a", "b"]])
    assert [one.share for one in made.savings if one] == [0.3, 0.04]
    assert made.severities == (HIGH, MEDIUM)


def test_without_a_replay_each_finding_is_a_fault_of_its_own() -> None:
    made = faults.faults_of([pending("a"), pending("a")], [found(LOW, None), found(HIGH, None)], None)
    assert (made.number, made.savings, made.severities) == ((0, 1), (None, None), (LOW, HIGH))


def printed(*holds: tuple[str, float], leads: str = "", prepares: str = "", name: str = "") -> Any:
    """A footprint that holds others up to a share."""
    known = dict(holds)
    return SimpleNamespace(
        name=name,
        holds=lambda other, least=0.5: known.get(other.name, 0.0) >= least,
        leads_to=lambda other, _: other.name == leads,
        prepares=lambda other, _: other.name == prepares,
    )


@pytest.mark.parametrize(
    ("first", "second", "shares", "linked", "partly"),
    [
        (printed(("b", 0.9), name="a"), printed(name="b"), (0.3, 0.1), True, set()),
        (printed(("b", 0.6), name="a"), printed(name="b"), (0.3, 0.1), True, {1}),
        (printed(("b", 0.4), name="a"), printed(name="b"), (0.3, 0.1), False, set()),
        (printed(name="a"), printed(("a", 0.9), name="b"), (0.3, 0.3 * WHOLLY + 1e-9), True, set()),
        (printed(name="a"), printed(("a", 0.6), name="b"), (0.3, 0.3), True, {0}),
        (printed(name="a"), printed(("a", 0.9), name="b"), (0.3, 0.3 * WHOLLY - 1e-9), False, set()),
        (printed(leads="b", name="a"), printed(name="b"), (0.3, 0.1), True, set()),
        (printed(name="a"), printed(leads="a", name="b"), (0.3, 0.1), True, set()),
        (printed(prepares="b", name="a"), printed(name="b"), (0.3, 0.1), True, set()),
        (printed(name="a"), printed(prepares="a", name="b"), (0.3, 0.1), True, set()),
    ],
)
def test_a_fix_that_drops_most_of_what_another_does_or_leads_to_it_is_the_same_change(
    first: Any, second: Any, shares: tuple[float, float], linked: bool, partly: set[int]
) -> None:
    forecast: Any = Replay(0.0)
    every = [pending(rule="one"), pending(rule="two")]
    pairs, found_partly = faults._removed_together(
        every, dict(enumerate(shares)), {0: first, 1: second}, forecast
    )
    assert (pairs, found_partly) == ([(0, 1)] if linked else [], partly)


@pytest.mark.parametrize(
    ("rules", "causes", "still"),
    [
        (("host-gap", "host-hotspot"), ("", "stalled"), True),
        (("host-hotspot", "host-gap"), ("stalled", ""), True),
        (("host-gap", "host-hotspot"), ("stalled", "stalled"), True),
        (("host-gap", "host-hotspot"), ("", "busy"), False),
        (("host-gap", "host-gap"), ("stalled", "stalled"), False),
        (("host-gap", "hotspot"), ("stalled", "stalled"), False),
    ],
)
def test_a_thread_that_stands_still_does_so_for_one_reason(
    rules: tuple[str, str], causes: tuple[str, str], still: bool
) -> None:
    one, other = (pending(rule=rule, cause=cause) for rule, cause in zip(rules, causes, strict=True))
    assert faults._stand_still(one, other) is still


def batch(*groups: int) -> Batch:
    rows = np.arange(len(groups))
    return Batch(2 * rows, 2 * rows + 1, list(groups))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ([batch(0, 0, 0, 1, 1)], [batch(0, 0), batch(0, 0, 0)], True),  # as many repeats of as many loops
        ([batch(0, 0, 0)], [batch(0, 0)], False),
        ([batch(0, 0)], [batch(0, 0, 1, 1)], False),
        ([], [], False),
        ([], [batch(0, 0)], False),
    ],
)
def test_loops_of_as_many_repeats_are_one_loop_forward_and_backward(
    first: list[Any], second: list[Any], same: bool
) -> None:
    assert faults._same_loop(pending(*first), pending(*second)) is same


@pytest.mark.parametrize("changes", [{"rule": "two"}, {"cause": "b"}, {"device": 1}])
def test_what_another_rule_or_cause_or_device_has_is_no_second_sight_of_one_code(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "_same_ops", lambda *_: True)
    events = SimpleNamespace(once=lambda *_: None)
    prints: Any = SimpleNamespace(is_backward_of=lambda *_: False)

    def one(**given: Any) -> Any:
        made = pending(**given)
        made.hits.occurrences = SimpleNamespace(events=events)
        return made

    program: Any = None
    assert faults._same_code(one(), one(), prints, prints, program)
    assert not faults._same_code(one(), one(**changes), prints, prints, program)


def test_the_thirty_that_save_most_are_compared_and_of_equal_ones_the_first() -> None:
    shares = [0.01, *[0.1] * 31, 0.2]
    chosen = faults._worth_comparing([pending()] * len(shares), [found(LOW, share) for share in shares])
    assert list(chosen) == [32, *range(1, 30)]


def test_a_fix_is_of_one_kind_where_all_of_its_edits_are() -> None:
    fuse: Any = object.__new__(Fuse)
    assert faults._made_of(pending(fuse, fuse), Fuse)
    assert not faults._made_of(pending(fuse, batch(0, 0)), Fuse)
    assert not faults._made_of(pending(), Fuse)
