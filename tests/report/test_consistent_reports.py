"""Every printed finding of every recording passes every check, and the lines above the findings agree with them."""

import statistics

import pytest

from tests.support.cached_reports import reported, reported_job
from tests.support.expected import Program, programs, selected_programs
from traceanalyzer import Report, Severity
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.report.finding_order import triage
from traceanalyzer.rule.consistency import Claim, failures_of, most_rates

SELECTED = set(selected_programs())
ROUNDING_NS = 2


def _parameter(program: Program) -> object:
    marks = [] if program in SELECTED else [pytest.mark.slow]
    if program.shared:
        marks.append(pytest.mark.xdist_group(program.name))
    return pytest.param(program, id=program.name, marks=marks)


@pytest.mark.parametrize("program", [_parameter(program) for program in programs()])
def test_printed_findings_contradict_nothing(program: Program) -> None:
    try:
        report = reported(*program.paths) if len(program.paths) == 1 else reported_job(*program.paths)
    except TraceAnalyzerError:
        return
    assert [str(failure) for claim in _claims(report) for failure in failures_of(claim)] == []
    assert [one.message for one in triage(report).pedantic.values() if not one.doubtful] == []
    for trace in report.traces if report.job is None else ():
        own = [report.findings[number - 1] for fault in trace.faults for number in fault.findings]
        shown = {one.fault for one in own if not one.pedantic}
        saved = [one.saving for one in trace.faults if one.severity is not Severity.INFO and one.id in shown]
        known = [saving.step_ns for saving in saved if saving is not None]
        if trace.step is not None and trace.together is not None and known:
            gain_ns = trace.step.unprofiled_ns - trace.together.unprofiled_ns
            assert gain_ns >= max(known) - ROUNDING_NS
            assert len(known) > 1 or gain_ns <= known[0] + ROUNDING_NS
    for rank in report.job.ranks if report.job is not None else ():
        if rank.dur_ns:
            assert rank.waiting_ns <= 1.05 * statistics.mean(rank.dur_ns)


def _claims(report: Report) -> list[Claim]:
    """The printed findings with what the report itself tells of them."""
    metas = {trace.rank: trace.meta for trace in report.traces}
    rates = most_rates(device.name for meta in metas.values() for device in meta.devices)
    findings = [one for one in report.findings if not one.pedantic]
    return [Claim(one, dialect=metas[one.rank].dialect, peaks=rates) for one in findings]
