"""Traces to reports: every rule judged alone, the window respected, several ranks in one report."""

import pytest

from tests.support.sample_rules import RULES, sample_rules  # noqa: F401 - a fixture
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.job.ranks import Here
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.device_times import DeviceBusy
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.finding import Status
from traceanalyzer.model.trace import Job, Trace
from traceanalyzer.report.diagnosis import restricted
from traceanalyzer.report.summary import accounting_of

MS = 1_000_000
START = 5 * MS

pytestmark = pytest.mark.usefixtures("sample_rules")


def busy_trace(kernels: int = 4, **header: object) -> Trace:
    """Kernels of 1 ms every 2 ms, each launched when it starts, in steps of two."""
    made = TraceBuilder(**header)
    for at in range(kernels):
        begin = START + 2 * at * MS
        made.launched((begin, 10_000), (begin + 20_000, MS), at + 1)
    for step in range(kernels // 2):
        made.step(step, START + 4 * step * MS, 4 * MS)
    return made.load()


def cpu_trace() -> Trace:
    """One op, and no GPU."""
    made = TraceBuilder(devices=())
    made.op("aten::mm", START, MS)
    return made.load()


def test_every_rule_has_an_outcome_despite_one_failure() -> None:
    report = diagnose(busy_trace())
    why = [o.why and o.why.partition(" (")[0] for o in report.outcomes]  # less the file and line that failed
    assert [(o.rule, o.status, said) for o, said in zip(report.outcomes, why, strict=True)] == [
        ("always-failing", Status.FAILED, "ZeroDivisionError: division by zero"),
        ("idle-device", Status.FOUND, None),
        ("never-applicable", Status.NOT_APPLICABLE, "no tea leaves: record with tea=True"),
        ("nothing-wrong", Status.CLEAR, None),
    ]
    assert {finding.rule for finding in report.findings} == {"idle-device"}


def test_costs_are_shares_of_the_window() -> None:
    report = diagnose(busy_trace(), select=["idle-device"])
    (finding,) = report.findings
    length = report.traces[0].window.length_ns
    assert length == 8 * MS
    assert finding.cost_ns == 4 * MS
    assert finding.cost_share == finding.cost_ns / length
    assert finding.message == "Idle 6 times, 4.00 ms in all."


def test_select_ignore_and_settings() -> None:
    report = diagnose(busy_trace(), ignore=["always-failing"], settings={"idle-device.min_gap_ns": "2000000"})
    judged = [outcome.rule for outcome in report.outcomes]
    assert judged == ["idle-device", "never-applicable", "nothing-wrong"]
    assert report.limits["idle-device.min_gap_ns"] == 2_000_000
    assert report.limits["nothing-wrong.min_share"] == 0.005
    assert report.findings == ()
    with pytest.raises(BadOption, match="no rule is called 'idle'"):
        diagnose(busy_trace(), select=["idle"])


def test_the_summary_says_what_the_header_shows() -> None:
    head = diagnose(busy_trace()).traces[0]
    assert (head.rank, head.window.asked, head.unavailable) == (None, False, {})
    assert head.steps is not None
    assert (head.steps.every.count, head.steps.kind, head.steps.device) == (2, "ProfilerStep", 0)
    assert head.steps.every.min_ns <= head.steps.every.median_ns <= head.steps.every.max_ns
    assert head.busy == (DeviceBusy(0, 4 * MS, 0.5),)
    assert "shapes" in head.missing


def test_a_window_counts_from_the_first_event() -> None:
    analysis = restricted(busy_trace(), (2 * MS, 4 * MS))
    assert analysis.window.asked_ns == (START + 2 * MS, START + 4 * MS)
    report = diagnose(busy_trace(), window=(2 * MS, 4 * MS), select=["idle-device"])
    assert report.traces[0].window.length_ns == 2 * MS
    assert report.traces[0].window.asked is True
    assert report.findings[0].cost_ns == MS


def test_a_window_may_be_open_and_reach_beyond_the_trace() -> None:
    trace = busy_trace()
    assert restricted(trace, None).trace is trace
    assert restricted(trace, None).window.asked_ns is None
    assert restricted(trace, (None, 900 * MS)).window.asked_ns == (START, START + 8 * MS)
    assert restricted(trace, (MS, None)).window.asked_ns == (START + MS, START + 8 * MS)


def test_a_trace_without_a_gpu_lane_is_reported_and_says_so() -> None:
    report = diagnose(cpu_trace())
    idle = next(outcome for outcome in report.outcomes if outcome.rule == "idle-device")
    assert idle.status is Status.NOT_APPLICABLE
    assert idle.why is not None
    assert "GPU" in idle.why
    assert report.traces[0].accounting == ()
    assert report.traces[0].unavailable is not None
    assert report.traces[0].unavailable["busy"] == idle.why


def python_trace() -> Trace:
    """Python functions, and not one event of either lane."""
    made = TraceBuilder(devices=())
    made.python("train.py(3): step", START, MS, python_id=1)
    return made.load()


def test_a_trace_without_either_lane_is_reported_and_says_so() -> None:
    report = diagnose(python_trace())
    head = report.traces[0]
    assert head.steps is None
    assert set(head.unavailable or {}) == {"step", "steps", "busy", "accounting"}
    assert head.window.length_ns == 0


def test_books_of_several_ranks_are_one_table() -> None:
    books = accounting_of(Here({0: Analysis(busy_trace()), 1: Analysis(cpu_trace()), 2: Analysis(busy_trace(6))}))
    assert books.groupby("rank")["ns"].sum().to_dict() == {0: 8 * MS, 2: 12 * MS}
    assert list(books) == ["rank", "device", "step", "class", "cause", "op", "ns"]
    assert accounting_of(Here({None: Analysis(cpu_trace())})).dtypes.equals(books.dtypes)


def test_ranks_go_by_number_and_findings_say_theirs() -> None:
    report = diagnose(Job({1: busy_trace(6), 0: busy_trace(4)}), select=["idle-device"])
    assert [head.rank for head in report.traces] == [0, 1]
    assert [(finding.rank, finding.cost_ns) for finding in report.findings] == [(1, 6 * MS), (0, 4 * MS)]
    assert [outcome.rank for outcome in report.outcomes] == [0, 1]


def test_a_single_trace_keeps_the_rank_that_it_declares() -> None:
    trace = busy_trace(distributedInfo={"rank": 3, "world_size": 8})
    assert {finding.rank for finding in diagnose(trace).findings} == {3}


def test_accounting_adds_up_to_the_window() -> None:
    (time,) = diagnose(busy_trace()).traces[0].accounting
    assert time.device == 0
    assert sum(time.parts_ns.values()) == time.length_ns == 8 * MS
    assert sum(time.idle_ns.values()) == time.classes_ns["idle"] == 4 * MS


def test_the_same_trace_gives_the_same_report() -> None:
    assert diagnose(busy_trace()).findings == diagnose(busy_trace()).findings


def test_samples_cover_every_status() -> None:
    assert {outcome.status for outcome in diagnose(busy_trace()).outcomes} == set(Status)
    assert len(RULES) == len(Status)
