"""The head of the page by itself: verdicts, the step in three bars, what to fix first, and what was recorded."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.html.pages import Parsed, quotes, shown
from tests.report import report_samples as samples
from tests.report.report_samples import MS, ORIGIN
from traceanalyzer.model.device_times import DeviceBusy, IdleCause
from traceanalyzer.model.finding import Finding, Occurrence, Severity
from traceanalyzer.model.report import AnalysedWindow, TraceReport, Verdict
from traceanalyzer.model.step_times import StepEstimate
from traceanalyzer.model.trace import Damage, Device
from traceanalyzer.render.html.head import ranks, recorded, shown_first, step_bars, verdict


def page_of(*traces: TraceReport, findings: Sequence[Finding] = (), job: object = None, drawn: int = 9) -> Any:
    """Of these traces, the first so many of which have a timeline."""
    report = replace(samples.report(), traces=traces, findings=tuple(findings))
    if job is not None:
        report = replace(report, job=job)
    timelines = [SimpleNamespace(timeline=object() if at < drawn else None) for at in range(len(traces))]
    return SimpleNamespace(report=report, traces=timelines, anchor=lambda at: f"trace-{at}")


# -- the step ---------------------------------------------------------------------------------------------


def bars(step: StepEstimate | None, together: StepEstimate | None = None) -> list[tuple[str, str, str]]:
    """(name, text, width of the bar) of each row."""
    page = shown(step_bars(step, together, "traces", 2))
    heads = page.texts("th")
    widths = [str(one.attributes["width"]) for one in page.of_class("bar")]
    texts = [row.removeprefix(head) for head, row in zip(heads, page.texts("tr"), strict=True)]
    return list(zip(heads, texts, widths, strict=True))


def test_step_is_shown_recorded_unprofiled_and_fixed() -> None:
    """On the scale of the longest; the change is that of the step without the profiler."""
    assert bars(samples.estimate(), samples.estimate(9 * MS)) == [
        ("recorded", "25.0 ms", "100.00%"),
        ("predicted, without the profiler", "18.0 ms (17.0 ms to 19.0 ms)", "72.00%"),
        ("predicted, after the fixes", "9.00 ms (8.00 ms to 10.0 ms)\N{MINUS SIGN}50 %", "36.00%"),
    ]
    longer = bars(samples.estimate(), samples.estimate(27 * MS))
    assert longer[2][1:] == ("27.0 ms (26.0 ms to 28.0 ms)+50 %", "108.00%")
    assert len(bars(samples.estimate(), samples.estimate())) == 2
    assert step_bars(None, samples.estimate(), "traces", 0) is None


def test_a_step_that_was_measured_has_no_interval() -> None:
    step = samples.estimate(20 * MS, low_ns=20 * MS, high_ns=20 * MS)
    assert bars(step) == [("recorded", "25.0 ms", "100.00%"), ("measured", "20.0 ms", "80.00%")]
    unsure = bars(samples.estimate(high_ns=30 * MS))
    assert [width for _, _, width in unsure] == ["83.33%", "60.00%"]


def test_the_ends_of_an_interval_are_drawn_below_it() -> None:
    page = shown(step_bars(samples.estimate(), samples.estimate(9 * MS), "traces", 2))
    ends = [(one.attributes["x1"], one.attributes["x2"]) for one in page.of_class("whisker")]
    assert ends[:3] == [("68.00%", "76.00%"), ("68.00%", "68.00%"), ("76.00%", "76.00%")]
    assert ends[3:] == [("32.00%", "40.00%"), ("32.00%", "32.00%"), ("40.00%", "40.00%")]
    assert page.values("data-path") == [
        "diagnose#/traces/2/step/traced_ns",
        *(f"diagnose#/traces/2/step/{name}" for name in ("unprofiled_ns", "low_ns", "high_ns")),
        *(f"diagnose#/traces/2/together/{name}" for name in ("unprofiled_ns", "low_ns", "high_ns")),
    ]


# -- verdicts and fixes -----------------------------------------------------------------------------------


def told(trace: TraceReport) -> list[str]:
    return shown(verdict(page_of(trace))).texts("dt")


def test_the_step_is_said_where_no_bars_show_it() -> None:
    summary = Verdict("18 ms", "the GPU", "")
    damage = (Damage("truncated", "it ends", 9, 1), Damage("garbled", "and begins", 9, 1))
    assert told(samples.trace(summary=summary)) == ["Step", "Limit"]
    assert told(samples.trace(summary=summary, step=samples.estimate())) == ["Step", "Limit"]
    named = samples.trace(summary=summary, parts={"step()": 0.6, "other": 0.4}, parts_of="GPU")
    (parts,) = shown(verdict(page_of(named))).of_class("parts")
    assert parts.text == "GPU time by regionstep() 60 %other 40 %"
    damaged = samples.trace(meta=samples.meta(damage=damage))
    assert told(damaged) == ["Not read"]
    assert shown(verdict(page_of(damaged))).texts("dd") == ["it endsand begins"]
    assert shown(verdict(page_of(samples.trace()))).elements[1].text == "The step is not known."


def test_of_a_job_the_slowest_rank_s_verdict_stands_first() -> None:
    parts = {"compute": 60 * MS, "communication": 40 * MS}
    traces = [
        samples.trace(
            rank,
            step=samples.estimate((9 + rank % 3) * MS),
            accounting=(samples.accounting(parts_ns=parts, idle_causes=()),),
            verdict=f"V{rank}" if rank else "",
        )
        for rank in range(4)
    ]
    page = shown(verdict(page_of(*traces)))
    assert page.texts("li") == [
        "rank 2, the slowest V2",
        "rank 0, replayed alone The step is not known.",
        "rank 1, replayed alone V1",
        "rank 3, replayed alone V3",
    ]
    assert page.values("href") == ["#trace-2", "#trace-0", "#trace-1", "#trace-3"]
    assert "diagnose#/traces/2/verdict" in page.values("data-path")


def test_ranks_stand_beside_each_other() -> None:
    causes = (IdleCause("idle:python", None, 9), IdleCause("idle:unknown", None, 1))
    busy = samples.trace(
        1, step=samples.estimate(), accounting=(samples.accounting(idle_causes=causes),), busy=(DeviceBusy(0, 1, 0.5),)
    )
    bare = samples.trace(0, busy=(), accounting=())
    info = samples.finding(0, rank=1, severity=Severity.INFO)
    found = [samples.finding(0, rank=1), samples.finding(0, rank=1), info, samples.finding(0, rank=0)]
    page = shown(ranks(page_of(bare, busy, findings=found)))
    cells = [one.text for one in page.elements if one.name in ("td", "th") and "tbody" in one.parents]
    assert cells[:7] == ["rank 0", "", "", "", "", "", "1"]
    assert cells[7] == "rank 1"
    assert cells[9:12] == ["25.0 ms", "18.0 ms", "50.0 %"]
    assert cells[13] == "2"
    assert cells[12] not in ("", "not explained")


@pytest.mark.parametrize(("count", "others"), [(5, []), (6, ["idle: other causes"])])
def test_bars_of_ranks_name_five_causes_and_the_others(count: int, others: list[str]) -> None:
    causes = tuple(IdleCause(f"cause {at}", None, 9 - at) for at in range(count))
    time = samples.accounting(parts_ns={f"idle:cause {at}": 9 - at for at in range(count)}, idle_causes=causes)
    page = shown(ranks(page_of(samples.trace(0, accounting=(time,)))))
    assert [one.text for one in page.elements if one.text.startswith("idle: other")] == others


def test_finding_place_is_its_first_or_a_typical_one() -> None:
    one = samples.finding(0, 5 * MS, 9 * MS)
    typical = replace(one, start_ns=ORIGIN + 5 * MS)
    elsewhere = replace(one, start_ns=ORIGIN + 1)
    assert isinstance(one.occurrences[0], Occurrence)
    page = page_of(samples.trace(), findings=[one, typical, elsewhere])
    assert [shown_first(page, at) for at in range(3)] == ["#at-1-1", "#at-2-1", "#at-3-1"]
    job = page_of(samples.trace(), findings=[one, typical, elsewhere], job=SimpleNamespace())
    assert [shown_first(job, at) for at in range(3)] == ["#at-1-1", "#at-2-2", "#at-3-1"]


# -- what was recorded ------------------------------------------------------------------------------------


def facts_of(trace: TraceReport, *, several: bool = False) -> list[tuple[str, str]]:
    page = shown(recorded(trace, 1, several))
    texts = [text.replace("\u00a0", " ") for text in page.texts("dd")]
    return list(zip(page.texts("dt"), texts, strict=True))


def test_devices_that_work_are_named_or_all_where_none_does() -> None:
    devices = (Device(0, "A"), Device(1, None), Device(2, "C"))
    meta = samples.meta(devices=devices)
    some = samples.trace(meta=meta, busy=(DeviceBusy(2, 1, 0.25), DeviceBusy(1, 1, 0.5)))
    assert [pair for pair in facts_of(some) if pair[0].startswith("device")] == [
        ("device 1", "unnamed, busy 50.0 % of the window"),
        ("device 2", "C, busy 25.0 % of the window"),
    ]
    none = facts_of(samples.trace(meta=meta, busy=()))
    assert [pair for pair in none if pair[0].startswith("device")] == [
        ("device 0", "A"),
        ("device 1", "unnamed"),
        ("device 2", "C"),
    ]


def test_requested_window_is_shown_with_its_place() -> None:
    window = AnalysedWindow(ORIGIN + 2 * MS, ORIGIN + 5 * MS)
    assert ("window", "3.00 ms") in facts_of(samples.trace(window=window))
    asked = samples.trace(window=replace(window, asked=True))
    assert ("window", "3.00 ms, from 2.000 ms to 5.000 ms, as asked for with --window") in facts_of(asked)


def test_steps_are_told_with_median_least_and_most() -> None:
    said = "4, median 25.0 ms, from 24.0 ms to 27.0 ms (steps are ProfilerStep marks)"
    assert ("steps", said) in facts_of(samples.trace())
    cold = replace(samples.steps(), steady=replace(samples.steps().every, count=3, median_ns=24 * MS))
    assert ("steps", said) in facts_of(samples.trace(steps=cold))  # all are counted
    unmarked = samples.steps(marked=False, source="no marks")
    assert ("steps", "no marks") in facts_of(samples.trace(steps=unmarked))
    assert "steps" not in dict(facts_of(samples.trace(steps=None)))


def test_ignored_events_are_counted_and_damage_has_ranks() -> None:
    meta = samples.meta(
        counted={"odd": 1_200, "even": 34},
        unknown_categories={"b": 2, "a": 3},
        anomalies={"unreadable Addr": 2},
        damage=(Damage("truncated", "it ends", 9, 1),),
    )
    alone = dict(facts_of(samples.trace(meta=meta)))
    assert alone["not understood"] == "even 34odd 1,200"
    assert alone["unknown kinds"] == "a 3b 2"
    assert alone["mended"] == "unreadable Addr 2"
    assert "not read" not in alone
    assert dict(facts_of(samples.trace(meta=meta), several=True))["not read"] == "it ends"
    assert "not read" not in dict(facts_of(samples.trace(), several=True))


def test_each_reason_why_something_is_not_known_is_told_once() -> None:
    missing = {"steps": "no marks", "step": "no marks", "busy": "no kernels"}
    trace = samples.trace(unavailable=missing)
    assert [text for name, text in facts_of(trace) if name == "not known"] == [
        "steps, step: no marks",
        "busy: no kernels",
    ]
    assert ("not recorded", "stacks, memory") in facts_of(trace)
    assert "not known" not in dict(facts_of(replace(trace, accounting=())))
    assert "not recorded" not in dict(facts_of(replace(trace, missing=())))


def places(page: Parsed) -> list[tuple[str, str]]:
    return [(path, text.replace("\u00a0", " ")) for path, _, _, text in quotes(page)]


def test_a_row_of_a_rank_has_its_own_numbers_and_leads_to_it() -> None:
    """Of two devices the first that is told, and its largest cause of idle time."""
    busy = (DeviceBusy(1, 25 * MS, 0.25), DeviceBusy(0, 50 * MS, 0.5))
    two = samples.trace(3, step=samples.estimate(), busy=busy)
    one = samples.trace(1, step=samples.estimate(9 * MS))
    page = shown(ranks(page_of(one, two)))
    assert places(page) == [
        ("diagnose#/traces/0/step/traced_ns", "25.0 ms"),
        ("diagnose#/traces/0/step/unprofiled_ns", "9.00 ms"),
        ("diagnose#/traces/0/busy/0/share", "37.0 %"),
        ("diagnose#/traces/1/step/traced_ns", "25.0 ms"),
        ("diagnose#/traces/1/step/unprofiled_ns", "18.0 ms"),
        ("diagnose#/traces/1/busy/0/share", "25.0 %"),
    ]
    links = [(at.text, at.attributes["href"]) for at in page.named("a")]
    assert links == [("rank 1", "#trace-0"), ("rank 3", "#trace-1")]
    assert page.texts("th", "thead") == [
        *("rank", "where the time went, as recorded", "step", "without the profiler", "busy"),
        *("most idle time by", "to fix"),
    ]


def test_damaged_trace_is_shown_with_its_verdict() -> None:
    damage = (Damage("truncated", "it ends", 9, 1), Damage("skipped files", "one was skipped"))
    page = shown(verdict(page_of(samples.trace(meta=samples.meta(damage=damage)))))
    assert [pair for pair in places(page) if "damage" in pair[0]] == [
        ("diagnose#/traces/0/meta/damage/0/message", "it ends"),
        ("diagnose#/traces/0/meta/damage/1/message", "one was skipped"),
    ]
    assert page.texts("dt")[-1] == "Not read"
    assert "Not read" not in shown(verdict(page_of(samples.trace()))).elements[0].text
