"""The first screen: how long a finding is on it, which findings it shows, and what it explains below them."""

import re
from dataclasses import replace

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import NOTHING_TO_DO, Finding, Outcome, Severity, Status
from traceanalyzer.model.report import Fault, Report, TraceReport, Verdict
from traceanalyzer.model.trace import Device
from traceanalyzer.render.text.finding import WHOLE, put_finding, put_short
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.report import render_text
from traceanalyzer.report.finding_order import triaged

LONG = "aten::mm waits for the host (a detail), once a step; it goes on and on, " * 6 + "until the end"


SENTENCE = "Do this to the model, and then do that to the loader as well."


def lines_of(detail: int, message: str, advice: str) -> list[str]:
    page = Page(80)
    found = replace(samples.findings()[0], message=message, advice=advice)
    put_short(page, 1, found, samples.report(findings=(found,)), detail)
    return page.lines


@pytest.mark.parametrize(
    ("detail", "message", "advice", "count", "of_advice"),
    [
        (WHOLE, LONG, f"{SENTENCE} {SENTENCE} {SENTENCE}", 6, 2),
        (WHOLE, LONG, "Do this.", 5, 1),
        (WHOLE, "it waits", "Do this.", 3, 1),
        (WHOLE, LONG, f"{SENTENCE[:-1]}, {'and that, ' * 20}too.", 8, 4),  # a sentence is never cut
        (1, LONG, "Do this.", 3, 1),
        (0, LONG, SENTENCE, 2, 0),  # the cost stands below a title that leaves no room
    ],
)
def test_three_to_six_lines(detail: int, message: str, advice: str, count: int, of_advice: int) -> None:
    lines = lines_of(detail, message, advice)
    assert len(lines) == count
    begin = next((at for at, line in enumerate(lines) if "->" in line), count)
    assert count - begin == of_advice


def test_saving_names_the_findings_that_must_come_first() -> None:
    page, whole = Page(80), Page(80)
    saving = replace(samples.saving(), beyond=True)
    found = replace(samples.findings()[0], message=LONG, advice=f"{SENTENCE} {SENTENCE}", saving=saving)
    on_cpu = replace(found, saving=samples.saving(), stream=None)
    on_gpu, info = replace(on_cpu, stream=7), replace(on_cpu, severity=Severity.INFO)
    report = samples.report(samples.trace(step=samples.estimate()), findings=(found, on_gpu, on_cpu, info))
    put_short(page, 1, found, report, WHOLE)
    put_finding(whole, 1, found, report)
    told = "saves 9.00 ms a step, in addition to finding 3"
    assert any(told in line for line in whole.lines)
    assert not any("in addition to" in line for line in page.lines)


def infos(count: int, advice: str = SENTENCE) -> list[Finding]:
    return [
        replace(one, severity=Severity.INFO, rule=f"rule-{at}", message=LONG if at % 2 else "it waits", advice=advice)
        for at, one in enumerate([samples.findings()[0]] * count)
    ]


def numbers(text: str) -> list[int]:
    return [int(line.split()[0]) for line in text.splitlines() if re.match(r"\d+  ", line)]


def test_what_has_no_room_is_at_the_end_and_is_counted() -> None:
    """A short finding does not take the place of a long one before it: the numbers have no holes."""
    text = render_text(samples.report(findings=tuple(infos(20))))
    shown = numbers(text)
    assert 2 < len(shown) < 20
    assert shown == [*range(1, len(shown) + 1)]
    assert f"... --verbose shows findings {len(shown) + 1} to 20" in text


def test_a_question_about_much_work_is_shown_with_what_to_check() -> None:
    found = infos(20)
    for number, share in ((9, 0.14), (18, 0.15)):
        advice = f"Check labels {number}."
        found[number] = replace(found[number], rule="loss-head", evidence={"gpu_share": share}, advice=advice)
    text = render_text(samples.report(findings=tuple(found)))
    assert len(text.splitlines()) <= 24
    assert numbers(text)[0] == 1
    assert "\n19 " in text
    assert "-> Check labels 18." in text
    assert "-> Check labels 9." not in text


def test_the_first_finding_says_what_to_do_before_the_titles_that_fix_adds_up() -> None:
    """Their titles leave no room: those of the last give way."""
    trace = samples.trace(step=samples.estimate(40 * MS), together=samples.estimate(9 * MS))
    advice = f"{SENTENCE[:-1]}, {'and that, ' * 20}too."
    wrong = replace(samples.findings()[0], severity=Severity.LOW, advice=advice, saving=samples.saving())
    text = render_text(samples.report(trace, findings=(replace(wrong, title=SENTENCE * 2),) * 12))
    assert len(text.splitlines()) <= 24
    first, second = text.index("\n1  "), text.index("\n2  ")
    assert "->" in text[first:second]
    assert 2 <= numbers(text)[-1] < 12


def test_what_needs_no_fix_has_the_last_number() -> None:
    found = infos(3)
    found[0] = replace(found[0], advice=f"{NOTHING_TO_DO}: all is well.")
    found = [replace(one, fault=f"F{number}") for number, one in enumerate(found, 1)]
    faults = [Fault(f"F{number}", one.rule, None, one.severity, (number,)) for number, one in enumerate(found, 1)]
    told, _ = triaged(found, [faults], [])
    assert [one.rule for one in told] == ["rule-1", "rule-2", "rule-0"]
    assert numbers(render_text(samples.report(findings=told))) == [1, 2]


def of_ranks(*unprofiled_ms: int) -> str:
    """The screen of ranks that do not communicate, with these steps."""
    traces = tuple(
        samples.trace(
            rank,
            meta=samples.meta(f"{rank}.json", rank=rank),
            step=samples.estimate(ms * MS),
            summary=Verdict(limit=f"V{rank}"),
        )
        for rank, ms in enumerate(unprofiled_ms)
    )
    return render_text(samples.report(traces=traces, findings=()))


@pytest.mark.parametrize(
    ("steps", "spoken"), [((9, 11), ["V0", "V1"]), ((9, 11, 10), ["V0", "V1", "V2"]), ((9, 11, 10, 8), ["V1"])]
)
def test_three_ranks_show_all_verdicts_four_the_slowest(steps: tuple[int, ...], spoken: list[str]) -> None:
    text = of_ranks(*steps)
    assert re.findall(r"V\d", text) == spoken
    assert [line for line in text.splitlines() if re.fullmatch(r"rank \d:", line)] == [
        f"rank {verdict[1]}:" for verdict in spoken
    ]


@pytest.mark.parametrize(("ranks", "height", "most"), [(1, 10, 24), (1, 24, 24), (1, 40, 40), (2, 24, 30), (2, 60, 60)])
def test_screen_fills_the_terminal_24_or_30_lines_at_least(ranks: int, height: int, most: int) -> None:
    whole = samples.report() if ranks == 1 else samples.two_ranks()
    low = replace(samples.findings(None if ranks == 1 else 0)[0], severity=Severity.LOW)
    text = render_text(replace(whole, findings=(low,) * 100), height=height)
    assert most - 1 <= len(text.splitlines()) <= most
    shown = [int(number) for number in re.findall(r"^(\d+) +The GPU", text, re.MULTILINE)]
    assert shown == [*range(1, len(shown) + 1)]
    assert f"... --verbose shows findings {len(shown) + 1} to 100" in text


@pytest.mark.parametrize(
    ("source", "findings", "shown"),
    [
        ("my trace.json", 1, ["traceanalyzer open 'my trace.json' --finding 1 | explain scheduler-gap"]),
        ("-", 1, ["traceanalyzer explain scheduler-gap"]),  # nobody can open what was piped in
        ("a.json", 0, []),
    ],
)
def test_what_to_do_next_can_be_copied(source: str, findings: int, shown: list[str]) -> None:
    found = tuple(samples.findings()[:findings])
    text = render_text(samples.report(samples.trace(meta=samples.meta(source)), findings=found))
    assert [line[7:] for line in text.splitlines() if line.startswith("More ")] == shown
    assert text.splitlines()[0].endswith(f" {findings} problem" if findings else " no problem found")


def test_next_recording_is_advised_if_something_is_judged() -> None:
    (told,) = [one for one in samples.findings() if one.rule == "lane-offset"]
    free = replace(told, advice="Record stacks.", cost_ns=0, cost_share=0.0)
    costly = replace(told, advice="Leave it.")
    report = samples.report(findings=(free, costly))
    text = render_text(report)
    assert "Record stacks.\n" in text
    assert "Leave it." not in text
    assert "--verbose shows all, and what the profiler itself costs." in " ".join(text.split())
    assert "the profiler itself" not in render_text(replace(report, findings=(free,)))
    no_gpu = replace(samples.empty(), findings=(free,), outcomes=report.outcomes)
    assert "Record stacks." not in render_text(no_gpu)


def test_rules_count_once_and_three_failures_are_named() -> None:
    outcomes = (
        Outcome("a", Status.FOUND, None, 0),
        Outcome("a", Status.NOT_APPLICABLE, "no kernels", 1),
        Outcome("b", Status.CLEAR),
        Outcome("c", Status.NOT_APPLICABLE, "no steps"),
        Outcome("d", Status.NOT_APPLICABLE, "no steps"),
        *(Outcome(f"bad-{at}", Status.FAILED, "ValueError: no") for at in range(4)),
    )
    text = render_text(samples.report(findings=(), outcomes=outcomes))
    assert text.endswith("\n2 rules ran, 2 do not apply, 4 failed. --verbose shows all.\n")
    assert re.findall(r"Failed (bad-\d: .*)", text) == [f"bad-{at}: ValueError: no" for at in range(3)]
    text = render_text(samples.report(findings=(), outcomes=(outcomes[0], outcomes[3])))
    assert text.endswith("\n1 rule ran, 1 does not apply. --verbose shows all.\n")
    text = render_text(replace(samples.empty(), outcomes=(outcomes[2],)))
    assert text.endswith("\n1 rule about the recording ran. --verbose shows all.\n")


def test_hidden_findings_are_counted_and_printed_with_pedantic() -> None:
    doubtful = samples.finding(0, message="a guess", severity=Severity.LOW, pedantic=True)
    report = samples.report(findings=(samples.finding(0, by="aten::mm"), doubtful))
    for verbose in (False, True):
        text = render_text(report, verbose=verbose)
        assert " ".join(text.split()).endswith(" 1 finding of low confidence: --pedantic.")
        assert "guess" not in text
        assert "guess" in render_text(report, verbose=verbose, pedantic=True)


def first_line(trace: TraceReport) -> str:
    return render_text(samples.report(trace, findings=()), width=120).splitlines()[0]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("H200",), "   H200, 4 steps "),
        (("H200", "H200", None), "   2 x H200, unknown GPU, 4 steps "),
        ((), "   4 steps "),
    ],
)
def test_first_line_names_file_devices_and_steps(names: tuple[str | None, ...], said: str) -> None:
    devices = tuple(Device(at, name) for at, name in enumerate(names))
    whole = samples.trace(meta=samples.meta("my.json", devices=devices))
    assert first_line(whole).startswith(f"my.json{said}")
    asked = replace(whole, window=replace(whole.window, asked=True))
    assert ", window of 100 ms " in first_line(asked)
    for steps in (None, samples.steps(marked=False)):
        assert "step" not in first_line(replace(whole, steps=steps))


@pytest.mark.parametrize(
    ("severity", "rule", "said"),
    [
        (Severity.HIGH, "host-gap", "1 problem"),
        (Severity.INFO, "host-gap", "no problem found"),
        (Severity.INFO, "loss-head", "1 to check"),
    ],
)
def test_first_line_counts_problems_and_questions(severity: Severity, rule: str, said: str) -> None:
    found = replace(samples.findings()[0], severity=severity, rule=rule)
    assert render_text(samples.report(findings=(found,))).splitlines()[0].endswith(f"  {said}")


PARTS = {"step()": 0.5, "AdamW.step": 0.3, "waiting": 0.2}


def with_parts(count: int = 1) -> Report:
    report = samples.replayed()
    trace = replace(report.traces[0], parts=PARTS, parts_of="CPU")
    return replace(report, traces=(trace,), findings=report.findings[:count])


def test_first_screen_says_where_the_step_goes() -> None:
    lines = render_text(with_parts(), width=100).splitlines()
    assert "Where the step goes (CPU time by region): step() 50 %; AdamW.step 30 %; waiting 20 %" in lines
    assert "Where" not in render_text(with_parts(), quiet=True)


def test_parts_that_do_not_fit_two_lines_are_left_out() -> None:
    report = with_parts()
    long = {f"{'x' * 50}{number}": 0.2 for number in range(4)}
    shown = render_text(replace(report, traces=(replace(report.traces[0], parts=long),)))
    place = shown.splitlines().index(next(line for line in shown.splitlines() if line.startswith("Where")))
    assert shown.splitlines()[place + 1].startswith("   x")
    assert not shown.splitlines()[place + 2].startswith("   x")


def test_parts_of_a_job_are_the_mean_of_its_ranks() -> None:
    text = " ".join(render_text(samples.two_ranks()).split())
    assert "Where the step goes (recorded, mean of 2 ranks): idle 63 %; compute" in text


def test_findings_say_what_to_do_before_any_says_more() -> None:
    """Five problems at 24 lines: three have place and remedy, none its message."""
    title = "GEMMs of float32 run without tensor cores, 341 times a step: 55.6 % of GPU work, in forward() (net.py:23)"
    wrong = replace(samples.findings()[0], severity=Severity.HIGH, title=title, message=LONG, advice=SENTENCE)
    lines = render_text(samples.report(findings=(wrong,) * 5)).splitlines()
    assert len(lines) <= 24
    assert sum(line.startswith(f"   -> {SENTENCE}") for line in lines) == 3
    assert sum(line.startswith("   ") and "(net.py:23)" in line for line in lines) == 5
    assert not any("it goes on and on" in line for line in lines)
