"""What is taken from one recording into a comparison: the device, the steps, the faults."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from traceanalyzer.comparison import recorded
from traceanalyzer.comparison.recorded import _chosen, _main_device, _step_time, known_faults
from traceanalyzer.comparison.work_tables import Chosen
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.report import Fault
from traceanalyzer.model.step_times import Saving
from traceanalyzer.rule.registry import Kind

INFO, LOW, HIGH = Severity.INFO, Severity.LOW, Severity.HIGH


@pytest.mark.parametrize(
    ("devices", "lengths", "expected"),
    [([0, 1, 1], [10, 4, 5], 0), ([0, 1, 1], [10, 4, 7], 1), ([3, 1], [5, 5], 1), ([7], [0], 7)],
)
def test_the_device_with_most_work_is_compared(devices: list[int], lengths: list[int], expected: int) -> None:
    """Of equal ones the first."""
    start = np.arange(len(devices)) * 100
    work: Any = SimpleNamespace(device=np.array(devices), start_ns=start, end_ns=start + np.array(lengths))
    assert _main_device(work) == expected


def steps_of(count: int, **changes: Any) -> Any:
    """Steps that are all warm, whole and launch something."""
    usual: dict[str, Any] = {
        "steady": [True] * count,
        "cut": [False] * count,
        "of_work": list(range(count)),
        "phase": [None] * count,
        "batch": [-1] * count,
        **changes,
    }

    class Steps(SimpleNamespace):
        def __len__(self) -> int:
            return count

    return Steps(**{name: one if name == "phase" else np.array(one) for name, one in usual.items()})


@pytest.mark.parametrize(
    ("steps", "places"),
    [
        (steps_of(4), [-1, 0, 1, 2]),  # the first is left out
        (steps_of(1), [0]),
        (steps_of(4, steady=[False, True, True, True]), [-1, -1, 0, 1]),
        (steps_of(4, cut=[False, False, False, True]), [-1, 0, 1, -1]),
        (steps_of(4, of_work=[0, 1, 1, 3, -1]), [-1, 0, -1, 1]),  # the third launches nothing
        (steps_of(3, steady=[False] * 3), [-1, 0, 1]),  # none is warm: all
        (steps_of(3, steady=[False, True, False]), [-1, 0, -1]),
        (steps_of(5, phase=["decode"] * 3 + ["prefill"] * 2), [-1, 0, 1, -1, -1]),
        (steps_of(5, phase=["prefill", "decode"] * 2 + ["prefill"]), [-1, -1, 0, -1, 1]),
        (steps_of(4, batch=[8, 4, 4, 8]), [-1, -1, 0, -1]),  # as often: the smaller
        (steps_of(4, batch=[8, 4, 8, 8], phase=["a", "a", "a", "b"]), [-1, -1, 0, -1]),
    ],
)
def test_warm_whole_steps_of_the_commonest_kind_are_compared(steps: Any, places: list[int]) -> None:
    work: Any = SimpleNamespace()
    chosen = _chosen(work, steps, 3)
    assert chosen.place.tolist() == [*places, -1]
    assert (chosen.count, chosen.device) == (sum(at >= 0 for at in places), 3)


@pytest.mark.parametrize(
    ("device_ns", "cpu_ns", "marked", "each"),
    [
        ((9, 10, 20, 60), (9, 10, 20, 30), True, (10, 20, 60)),
        ((9, 10, 20, 30), (9, 10, 20, 60), True, (10, 20, 60)),
        ((99, 10, 20, 30), (9, 10, 20, 60), True, (10, 20, 60)),  # the first is not chosen
        ((9, 1, 2, 3), (9, 10, 20, 60), False, (1, 2, 3)),  # one window: the device's time
    ],
)
def test_other_step_is_the_mean_of_the_longer_side(
    device_ns: tuple[int, ...], cpu_ns: tuple[int, ...], marked: bool, each: tuple[int, ...]
) -> None:
    steps: Any = SimpleNamespace(
        marked=marked, durations_ns=lambda device=None: np.array(cpu_ns if device is None else device_ns)
    )
    head: Any = SimpleNamespace(step=None)
    told = _step_time(steps, Chosen(np.array([-1, 0, 1, 2, -1]), 3, 0), head, None)
    assert told.each_ns == each
    assert told.ns == told.low_ns == told.high_ns == told.recorded_ns == round(sum(each) / 3)
    assert not told.predicted


@pytest.mark.parametrize("replayable", [True, False])
def test_replayable_step_is_given_at_several_cpu_paces(
    replayable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as quick a CPU as it was is half of the slowdown that the replay takes for typical."""
    asked: list[float] = []

    def replayed(program: object, slowdowns: list[float]) -> Any:
        asked.extend(slowdowns)
        return [SimpleNamespace(ns=at) for at in range(len(slowdowns))]

    monkeypatch.setattr(recorded, "run_at", replayed)
    monkeypatch.setattr(recorded, "EditedProgram", lambda program: program)
    steps: Any = SimpleNamespace(marked=True, durations_ns=lambda device=None: np.array([30, 40]))
    slowdown = SimpleNamespace(typical=2.0)
    forecast: Any = SimpleNamespace(
        program=None, replays=SimpleNamespace(slowdown=slowdown), base=[SimpleNamespace(cpu_ns=7.6)]
    )
    said = SimpleNamespace(unprofiled_ns=20, low_ns=18, high_ns=25, bound="cpu")
    head: Any = SimpleNamespace(step=said if replayable else None)
    told = _step_time(steps, Chosen(np.array([0, 1, -1]), 2, 0), head, forecast)
    assert (told.recorded_ns, told.each_ns, told.predicted) == (35, (30, 40), replayable)
    if not replayable:
        assert (told.ns, told.paces, asked) == (35, (), [])
        return
    assert (told.ns, told.low_ns, told.high_ns, told.cpu_ns, told.bound) == (20, 18, 25, 8, "cpu")
    assert asked == pytest.approx([0.8, 1.1, 1.5, 2.0, 2.66, 3.6, 5.0])
    assert told.paces == ((0.4, 0), (0.55, 1), (0.75, 2), (1.0, 3), (1.33, 4), (1.8, 5), (2.5, 6))


def finding(rule: str, cause: str = "", by: str | None = None) -> Any:
    return SimpleNamespace(rule=rule, cause=cause, by=by)


def saving(share: float) -> Saving:
    return Saving(round(share * 1_000), 1, 2, share, share - 0.1, share + 0.1, "replayed")


@pytest.mark.parametrize(
    ("severity", "saved", "choice", "told"),
    [
        (LOW, None, False, True),
        (HIGH, 0.5, False, True),
        (INFO, None, False, False),
        (INFO, None, True, False),  # nothing tells what it is worth
        (INFO, 0.3, False, False),
        (INFO, 0.3, True, True),
        (INFO, -0.009, False, False),
        (INFO, -0.01, False, True),  # what does not pay
    ],
)
def test_listed_choices_and_unprofitable_fixes_are_shown(
    severity: Severity, saved: float | None, choice: bool, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "kind_of", lambda rule, cause: Kind.CHOICE if choice else Kind.FAULT)
    fault = Fault("F1", "title", None if saved is None else saving(saved), severity, (1,))
    head: Any = SimpleNamespace(faults=[fault])
    assert bool(known_faults(head, [finding("r")])) is told


def test_fault_is_known_by_first_finding_and_all_rules() -> None:
    findings = [finding("b", "late"), finding("a", "early", "train.py(3)"), finding("b"), finding("c")]
    faults = [
        Fault("F1", "", saving(0.25), HIGH, (2, 1, 3)),
        Fault("F2", "", None, LOW, (1, 4)),
        Fault("F3", "", None, LOW, (3,)),
        Fault("F4", "", None, LOW, ()),
    ]
    head: Any = SimpleNamespace(faults=faults)
    first, second, third = known_faults(head, findings)
    assert (first.key, first.rules, first.title) == ("a|early|train.py(3)", ("a", "b"), "a: train.py(3)")
    assert (first.severity, first.share, first.low_share, first.high_share) == ("high", 0.25, 0.15, 0.35)
    assert first.step_ns == 250
    assert (second.key, second.rules, second.title) == ("b|late|", ("b", "c"), "b: late")
    assert (second.severity, second.share) == ("low", None)
    assert (third.key, third.title) == ("b||", "b")
