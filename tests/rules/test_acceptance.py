"""The whole diagnosis against the truth, on shared traces whose steps are known without the profiler."""

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.faults import FAULTS
from benchmarks.replay_truth import at_hand
from tests.support.cached_reports import analysed, reported
from tests.support.fixtures import SHOWING
from tests.support.fixtures import name_of as fixture_name
from tests.support.paths import SHARED
from tests.support.trace_selection import one_of_each_writer
from tests.support.xdist_groups import last
from traceanalyzer import Finding, Report, Saving, Severity
from traceanalyzer.model import intervals
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.report.summary import scope_of
from traceanalyzer.rule.claims import PendingFinding, resolve_claims
from traceanalyzer.rule.grouping import group_hits
from traceanalyzer.rule.registry import all_rules

# Which rules name the fault of a pair of the shared traces; several where the fault has several true names.
NAMED = {
    name: " ".join(rules)
    for name, rules in FAULTS.items()
    if name.startswith(("pairs/", "pairs4/", "third/")) and name != "pairs/graph_break"  # its fix saves nothing
}
STILL_NAMED = {  # why a fixed program still has a finding of the rule
    "pairs4/metric_checks": "bincount waits for the size of its result there, too",
    "third/decode_sync": "it still reads twice a step",
}
SMALL_FAULT = 0.12  # of the step: such a fault may come after others
ALLOWED = 0.02  # by which truth may lie outside the interval: what repeats of one program differ by
STEP_KNOWN = ("pairs/", "pairs4/", "third/", "real/", "noise/", "slowdown/")
ABOUT_IDLE_TIME = ("gpu_idle", "host", "compile", "memory")
ROUNDS = [1, 2, 3, 4]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.json.gz')}"


def truth_ns(path: Path) -> float | None:
    """The median step without the profiler, where the file beside the trace tells it."""
    meta = Path(str(path).replace(".json.gz", ".meta.json"))
    told = json.loads(meta.read_text()).get("unprofiled_step_ms") if meta.exists() else None
    return None if told is None else 1e6 * statistics.median(told if isinstance(told, list) else [told])


def true_saving(path: Path) -> float:
    before, after = truth_ns(path), truth_ns(Path(str(path).replace(".bad.", ".fixed.")))
    assert before
    assert after
    return 1 - after / before


def above_info(report: Report) -> list[Finding]:
    return [found for found in report.findings if found.severity is not Severity.INFO]


def naming(report: Report, pair: str) -> list[Finding]:
    return [found for found in report.findings if found.rule in NAMED[pair].split()]


# -- of each trace ---------------------------------------------------------------------------------------------


@pytest.mark.of_shared(wanted=lambda name: name.removesuffix(".bad") in NAMED)
def test_the_fault_of_a_pair_is_named_first_or_second(shared_trace: Path) -> None:
    pair = name_of(shared_trace).removesuffix(".bad")
    report = reported(shared_trace)
    faults = list(dict.fromkeys(found.fault for found in report.findings))
    places = [faults.index(found.fault) for found in naming(report, pair)]
    assert min(places) < 2 or true_saving(shared_trace) < SMALL_FAULT, report.findings[:3]


@pytest.mark.of_shared(wanted=lambda name: name.removesuffix(".fixed") in NAMED)
def test_what_is_fixed_is_not_named(shared_trace: Path) -> None:
    pair = name_of(shared_trace).removesuffix(".fixed")
    first = "" if pair in STILL_NAMED else NAMED[pair].split()[0]
    assert [found for found in above_info(reported(shared_trace)) if found.rule == first] == []


@pytest.mark.of_shared(wanted=lambda name: name.startswith(STEP_KNOWN))
def test_a_busy_device_is_not_said_to_idle(shared_trace: Path) -> None:
    """The truth: time in which something runs, by step, over the step without the profiler."""
    step_ns = truth_ns(shared_trace) if at_hand(shared_trace) else None
    if step_ns is None or idle_share(analysed(shared_trace), step_ns) >= 0.1:
        return  # the device idles
    report = reported(shared_trace)
    groups = {outcome.rule: outcome.group for outcome in report.outcomes}
    loud = [found for found in report.findings if found.severity in (Severity.HIGH, Severity.MEDIUM)]
    assert [found for found in loud if groups[found.rule] in ABOUT_IDLE_TIME] == []


def idle_share(analysis: Analysis, step_ns: float) -> float:
    gpu, cpu = analysis.trace.gpu, analysis.trace.cpu
    work = gpu[gpu["category"].isin(["kernel", "gpu_memcpy", "gpu_memset"])]
    starts, lengths = work["start_ns"].to_numpy(), work["dur_ns"].to_numpy()
    busy = intervals.length(intervals.union(starts, starts + lengths))
    steps = int(cpu["name"].astype(str).str.match(r"ProfilerStep#\d+$").sum())
    return 1 - busy / max(steps, 1) / step_ns


@pytest.mark.of_shared(wanted=one_of_each_writer)
def test_no_nanosecond_is_claimed_twice(shared_trace: Path) -> None:
    check_claims(shared_trace)


@pytest.mark.parametrize("path", SHOWING, ids=fixture_name)
def test_no_nanosecond_of_a_fixture_is_claimed_twice(path: Path) -> None:
    """Nearly every rule has one."""
    check_claims(path)


def check_claims(path: Path) -> None:
    analysis = analysed(path)
    scope = scope_of(analysis, analysis.trace.meta.rank)
    all_pending = resolve_claims(list(_pending(analysis)), (scope.start_ns, scope.end_ns))
    for device in {pending.device for pending in all_pending}:
        owned = [pending.own for pending in all_pending if pending.device == device]
        together = intervals.union(*map(np.concatenate, zip(*owned, strict=True)))
        assert intervals.length(together) == sum(map(intervals.length, owned))
        said = sum(found.cost_ns for found in reported(path).findings if found.device == device)
        assert said <= intervals.length(together)


def _pending(analysis: Analysis) -> Iterator[PendingFinding]:
    for rule in all_rules():
        try:
            yield from group_hits(rule.slug, rule.claims, rule.hits(analysis))
        except Unavailable:
            continue


# -- of all of them --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def savings() -> list[tuple[str, float, Saving]]:
    """Pair, true saving and what is said of the fault that the finding which names it belongs to."""
    known = []
    for pair in NAMED:
        path = SHARED / f"{pair}.bad.json.gz"
        if not path.exists():
            pytest.skip("no shared traces")
        report = reported(path)
        of_fault = {fault.id: fault.saving for fault in report.traces[0].faults}
        said = [saving for found in naming(report, pair) if (saving := of_fault[found.fault or ""])]
        if said:
            known.append((pair, true_saving(path), max(said, key=lambda one: one.share)))
    return known


@last
def test_savings_are_near_the_truth(savings: list[tuple[str, float, Saving]]) -> None:
    """Of pairs that rules and edits were made in view of; what is not fitted stands in benchmarks/truth."""
    errors = {pair: abs(said.share - true) for pair, true, said in savings}
    first = [error for pair, error in errors.items() if at_hand(Path(pair))]
    assert len(savings) >= 0.9 * len(NAMED)
    assert statistics.mean(first) <= 0.03, first
    assert statistics.median(first) <= 0.015, first
    assert statistics.mean(errors.values()) <= 0.04, errors
    assert statistics.median(errors.values()) <= 0.03, errors


@last
def test_the_truth_is_within_the_interval(savings: list[tuple[str, float, Saving]]) -> None:
    outside = [
        (pair, true, said)
        for pair, true, said in savings
        if not said.low_share - ALLOWED <= true <= said.high_share + ALLOWED
    ]
    assert len(outside) <= 0.15 * len(savings), outside


@last
@pytest.mark.parametrize("program", ["gemm", "resnet"])
def test_the_same_program_four_times_gets_one_verdict(program: str, shared: Callable[[str], Path]) -> None:
    rounds = [above_info(reported(shared(f"noise/{program}.a{number}"))) for number in ROUNDS]
    keyed = [{(f.rule, f.cause, f.by, f.device): f for f in findings} for findings in rounds]
    for key in keyed[0]:
        assert all(key in one for one in keyed), key
        same = [one[key] for one in keyed]
        assert len({found.severity for found in same}) == 1, same
        known = [found.saving for found in same if found.saving]
        assert max((s.low_share for s in known), default=0) <= min((s.high_share for s in known), default=0)
    assert all(one.keys() == keyed[0].keys() for one in keyed)
