"""Findings that one change removes are one fault, and what it saves."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.report import report_samples as samples
from tests.rules.kernel_programs import BF16, F32, NVJET, Op, program
from tests.support.cached_reports import reported
from traceanalyzer import Report, Severity, diagnose
from traceanalyzer.model.finding import Finding
from traceanalyzer.model.report import Fault
from traceanalyzer.model.step_times import Saving
from traceanalyzer.replay.edit_footprint import WHOLLY, Footprint
from traceanalyzer.replay.edits import Drop
from traceanalyzer.replay.rewrites import Batch
from traceanalyzer.replay.saving import MIN_OPEN_SHARE, Forecast, is_busy, only_profiled
from traceanalyzer.rule.advice import busy_advice
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.faults import FaultOf, faults_of, same_ops
from traceanalyzer.rule.views import Work

TOGETHER = {  # pair -> rules that the first fault holds
    # A copy to the host, the work there, and the copy back that waits.
    "pairs4/logits_cpu": {"exposed-copy", "host-hotspot", "implicit-sync"},
    "pairs4/small_h2d": {"repeated-calls", "implicit-sync", "launch-bound"},  # a loop, and the copy in it
    "third/numpy_metric": {"exposed-copy", "host-gap"},
    "third/clip_loop": {"repeated-calls", "implicit-sync", "launch-bound"},
}


def first(report: Report) -> Fault:
    return report.traces[0].faults[0]


@pytest.mark.parametrize("pair", TOGETHER)
def test_what_one_change_removes_is_one_fault(pair: str, shared: Callable[[str], Path]) -> None:
    report = reported(shared(f"{pair}.bad"))
    members = [report.findings[number - 1] for number in first(report).findings]
    assert {found.rule for found in members} == TOGETHER[pair]
    assert len(members) == len(TOGETHER[pair])
    saving = first(report).saving
    assert saving is not None
    assert all(found.saving and found.saving.share < saving.share + 0.01 for found in members)


@pytest.mark.parametrize("name", ["pairs4/zero_grad.bad", "pairs/fp32_gemm.bad", "pairs/clean_train.fixed"])
def test_every_finding_belongs_to_one_fault(name: str, shared: Callable[[str], Path]) -> None:
    report = reported(shared(name))
    faults = report.traces[0].faults
    numbers = [number for fault in faults for number in fault.findings]
    assert sorted(numbers) == list(range(1, len(report.findings) + 1))
    for fault in faults:
        assert {report.findings[number - 1].fault for number in fault.findings} == {fault.id}
        if len(fault.findings) == 1:
            assert fault.saving == report.findings[fault.findings[0] - 1].saving


def test_a_graph_is_no_part_of_another_fault(shared: Callable[[str], Path]) -> None:
    report = reported(shared("pairs4/amp_scaler.bad"))
    graph = next(found for found in report.findings if found.rule == "launch-bound")
    (own,) = [fault for fault in report.traces[0].faults if fault.id == graph.fault]
    assert len(own.findings) == 1


def hits_at(op: str, line: str | None = None, *, named_by: str = "", kind: bool = False) -> Any:
    work = Mock(spec=Work)
    work.op.name.values.return_value, work.line.values.return_value = [op], [line]
    work.kind.one_of.return_value = np.array([kind])
    return SimpleNamespace(occurrences=work, named_by=named_by)


@pytest.mark.parametrize(
    ("op", "line", "same"), [("mm", "a.py(3)", True), ("add", "a.py(3)", False), ("mm", "a.py(4)", False)]
)
def test_same_ops_at_the_same_line_are_one_fault(op: str, line: str, same: bool) -> None:
    assert same_ops(hits_at("mm", "a.py(3)"), hits_at(op, line)) is same


@pytest.mark.parametrize(
    ("kind", "second", "same"), [(True, "allreduce", False), (True, "allgather", True), (False, "allreduce", True)]
)
def test_collectives_of_two_kinds_are_two_faults(kind: bool, second: str, same: bool) -> None:
    """One op starts all of them."""
    one, other = (hits_at("record_param_comms", named_by=name, kind=kind) for name in ("allgather", second))
    assert same_ops(one, other) is same


@pytest.mark.parametrize(("others", "first"), [(9, "launch-bound"), (0, "unfused-pointwise")])
def test_short_chains_follow_a_graph_worth_twice_as_much(others: int, first: str) -> None:
    """Most of what fusing saves there are launches, and a graph takes all of them off the CPU."""
    add = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Arrays>(int)"
    chain = [Op("aten::add", add, 2, [[64, 64], [64, 64]], [F32, F32])] * 4
    products = [Op("aten::mm", NVJET, 3, [[64, 64], [64, 64]], [BF16, BF16])] * (1 + others)
    report = diagnose(program([*chain, *products] * 10))
    loud = [one.rule for one in report.findings if one.severity is not Severity.INFO]
    assert loud[0] == first


HIGH, MEDIUM, LOW, INFO = Severity


def saved(share: float) -> Saving:
    return Saving(1, 1, 1, share, share, share, "replayed")


def found(severity: Severity, share: float | None, cost_share: float = 0.0) -> Finding:
    saving = None if share is None else saved(share)
    return replace(samples.findings()[0], severity=severity, saving=saving, cost_share=cost_share)


EVENTS = SimpleNamespace(once=lambda *_: None)


def pending(
    *edits: Any, info: bool = False, cause: str = "", key: str = "", of_format: bool = False, **changes: Any
) -> Any:
    """What a finding of rule "one" is built of."""
    occurrences = SimpleNamespace(events=EVENTS)
    hits = SimpleNamespace(
        info=info, edits=lambda: edits, cause=cause, fault_key=key, of_format=of_format, occurrences=occurrences
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
    *holds: tuple[str, float],
    leads: str = "",
    prepares: str = "",
    replaces: str = "",
    name: str = "",
    backward: bool = False,
) -> Any:
    """A footprint that holds others up to a share."""
    shares = dict(holds)
    return SimpleNamespace(
        name=name,
        work_ns=np.zeros(1),
        holds=lambda other, least=0.5: shares.get(other.name, 0.0) >= least,
        replaces=lambda other: other.name == replaces,
        leads_to=lambda other, _: other.name == leads,
        prepares=lambda other, _: other.name == prepares,
        is_backward_of=lambda *_: backward,
        takes_whole_loops=lambda *_: False,
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
    [((0.02, 0.01), 0.12, 0.12, HIGH), ((0.05, 0.01), 0.02, 0.05, MEDIUM), ((0.02, 0.01), 0.01, 0.02, LOW)],
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


@pytest.mark.parametrize(
    ("replaces", "of_format", "number"),
    [(("b", ""), False, (0, 0)), (("", "a"), False, (0, 1)), (("b", ""), True, (0, 1))],
)
def test_kernels_that_another_fix_replaces_belong_to_what_is_worth_more(
    replaces: tuple[str, str], of_format: bool, number: tuple[int, int], faults: Any
) -> None:
    """Attention by hand comes before the padding of its products, which its fix makes needless.

    The fused kernel would gain from half precision, too.
    """
    prints = [footprint(name=name, replaces=other) for name, other in zip("ab", replaces, strict=True)]
    forecast = Replay()
    both = [pending("a"), pending("b", rule="two", of_format=of_format)]
    made = faults(both, [found(HIGH, 0.3), found(HIGH, 0.1)], prints, forecast)
    assert made.number == number
    together = number == (0, 0)
    assert made.preceded_by == ({1: frozenset([0])} if together else {})
    assert forecast.asked == ([["a"]] if together else [])


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
def test_loops_of_equal_counts_are_one_loop(first: list[Any], second: list[Any], same: bool, faults: Any) -> None:
    """As many repeats of as many loops: the loop forward and its backward."""
    made = faults([pending(*first), pending(*second)], [found(HIGH, 0.3), found(HIGH, 0.1)], APART, Replay())
    assert made.number == ((0, 0) if same else (0, 1))


@pytest.mark.parametrize(
    ("changes", "number"), [({}, (0, 0)), ({"rule": "two"}, (0, 1)), ({"cause": "b"}, (0, 1)), ({"device": 1}, (0, 1))]
)
def test_an_op_and_its_backward_are_one_fault_of_one_rule(
    changes: dict[str, Any], number: tuple[int, int], faults: Any
) -> None:
    prints = footprint(name="a", backward=True), footprint(name="b")
    findings = [found(HIGH, 0.3), found(HIGH, 0.1)]
    assert faults([pending(), pending(**changes)], findings, prints, Replay()).number == number


@pytest.mark.parametrize(("share", "number"), [(0.4, (0, 1, 1)), (0.2, (0, 0, 0))])
def test_needless_work_worth_a_loop_is_a_fault_apart(share: float, number: tuple[int, int, int], faults: Any) -> None:
    """A loop, the needless work in it, and a copy within both: the copy belongs to the needless work."""
    prints = (footprint(("b", 0.9), ("c", 0.9), name="a"), footprint(("c", 0.9), name="b"), footprint(name="c"))
    every = [pending(batch(0, 0)), pending(Drop([]), rule="two", order=Claims.WORK), pending(rule="three")]
    findings = [found(HIGH, 0.5), found(HIGH, share), found(HIGH, 0.1)]
    assert faults(every, findings, prints, Replay()).number == number


def test_only_the_thirty_that_save_most_are_compared(faults: Any) -> None:
    """Of those that save equally much the first."""
    shares = [0.01, *[0.1] * 31, 0.2]
    every = [pending(rule=str(number)) for number in range(len(shares))]
    prints = [footprint(*((str(other), 1.0) for other in range(30)), name=str(i)) for i in range(30)]
    made = faults(every, [found(LOW, share) for share in shares], prints, Replay())
    together = [i for i, number in enumerate(made.number) if number == made.number[32]]
    assert together == [*range(1, 30), 32]


def test_without_a_replay_nothing_is_known() -> None:
    assert not only_profiled(None)
    assert not is_busy(None)


def replayed(*steps: tuple[float, float], open_: bool = False) -> Any:
    """A forecast whose step takes (ns, work of the busiest stream in ns) with each plausible CPU."""
    base = [SimpleNamespace(ns=ns, gpu_ns=gpu_ns) for ns, gpu_ns in steps]
    replays = SimpleNamespace(steps=lambda edits: (base * 3)[:3])
    return Forecast(replays, SimpleNamespace(open=open_))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "share"),
    [
        ([(100, 50), (80, 50)], 0.625),  # the quickest CPU
        ([(80, 50), (100, 50)], 0.625),
        ([(100, 120)], 1.0),
        ([(0, 0)], 0.0),
    ],
)
def test_the_busiest_stream_works_all_of_the_step_at_most(steps: list[tuple[float, float]], share: float) -> None:
    assert replayed(*steps).busy_share == share


@pytest.mark.parametrize(("more", "busy"), [(-1e-6, False), (0.0, False), (1e-6, True)])
def test_device_is_busy_if_idle_is_below_the_replay_error(more: float, busy: bool) -> None:
    """And surely so where a slow CPU leaves it busy as well."""
    step = (1.0, 1 - MIN_OPEN_SHARE + more)
    assert only_profiled(replayed(step)) is busy
    assert is_busy(replayed(step)) is busy
    assert not is_busy(replayed(step, open_=True))


def test_what_to_do_where_the_device_is_busy_is_nothing_first() -> None:
    assert busy_advice("Take .item() out of the loop.") == (
        "Nothing to do: without the profiler the GPU is probably busy all the time. If you measure that it is not, "
        "take .item() out of the loop."
    )
