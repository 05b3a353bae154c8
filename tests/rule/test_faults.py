"""Findings that one change of the program removes are one fault, with one replay's saving."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tests.rules.kernel_programs import BF16, F32, NVJET, Op, program
from tests.support.cached_reports import reported
from traceanalyzer import Report, Severity, diagnose
from traceanalyzer.model.report import Fault
from traceanalyzer.rule.faults import same_ops
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


def test_faults_come_by_severity(shared: Callable[[str], Path]) -> None:
    report = reported(shared("pairs4/zero_grad.bad"))
    faults = [one for one in report.traces[0].faults if "launch-bound" not in rules_of(report, one)]
    ranks = [fault.severity.rank for fault in faults]
    assert ranks == sorted(ranks)
    assert faults[0].severity is not Severity.INFO


@pytest.mark.parametrize("name", ["pairs4/metric_checks.bad"])
def test_a_graph_stands_after_what_is_worth_much_without_it(name: str, shared: Callable[[str], Path]) -> None:
    """It saves more, and is what is done last."""
    report = reported(shared(name))
    first, second, *_ = report.traces[0].faults
    assert "launch-bound" in rules_of(report, second)
    assert "launch-bound" not in rules_of(report, first)
    assert first.saving is not None
    assert second.saving is not None
    assert second.saving.share > first.saving.share


def rules_of(report: Report, fault: Fault) -> set[str]:
    return {report.findings[number - 1].rule for number in fault.findings}


def test_evidence_of_a_fault_follows_the_next_fault(shared: Callable[[str], Path]) -> None:
    report = reported(shared("pairs/item_sync.bad"))
    loud = [fault for fault in report.traces[0].faults if fault.severity is not Severity.INFO]
    assert any(len(fault.findings) > 1 for fault in loud)
    firsts = [fault.findings[0] for fault in loud]
    assert firsts == list(range(1, len(loud) + 1))
    assert "implicit-sync" in [report.findings[number - 1].rule for number in firsts[:2]]


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
    ("kind", "second", "same"),
    [(True, "allreduce", False), (True, "allgather", True), (False, "allreduce", True)],
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
