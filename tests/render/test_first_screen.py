"""The first screen: how long a finding is on it, which findings it shows, and what it explains below them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.model.finding import NOTHING_TO_DO, Finding, Outcome, Severity, Status
from traceanalyzer.model.report import Fault, TraceReport, Verdict
from traceanalyzer.model.trace import Device
from traceanalyzer.render.text.finding import WHOLE, put_finding, put_short
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.text.report import render_text
from traceanalyzer.render.words.savings import finding_name
from traceanalyzer.report.finding_order import triaged

LONG = "aten::mm waits for the host (a detail), once a step; and so on, and on, " * 6 + "until the end"


SENTENCE = "Do this to the model, and then do that to the loader as well."


def lines_of(detail: int, message: str, advice: str) -> list[str]:
    page = Page(80)
    found = replace(samples.findings()[0], message=message, advice=advice)
    put_short(page, 1, found, samples.report(findings=(found,)), detail)
    return page.lines


@pytest.mark.parametrize(
    ("detail", "message", "advice", "count", "of_advice"),
    [
        (WHOLE, LONG, f"{SENTENCE} {SENTENCE} {SENTENCE}", 5, 2),
        (WHOLE, LONG, "Do this.", 5, 1),  # what happened has the lines that are left
        (WHOLE, "it waits", "Do this.", 3, 1),
        (WHOLE, LONG, f"{SENTENCE[:-1]}, {'and that, ' * 20}too.", 7, 4),  # a sentence is never cut
        (1, LONG, "Do this.", 4, 1),
        (0, LONG, SENTENCE, 1, 0),
    ],
)
def test_a_finding_has_five_lines(detail: int, message: str, advice: str, count: int, of_advice: int) -> None:
    lines = lines_of(detail, message, advice)
    assert len(lines) == count
    begin = next((at for at, line in enumerate(lines) if "->" in line), count)
    assert count - begin == of_advice
    assert ("(more: --verbose)" in " ".join(lines)) is (message == LONG and detail > 0)


def test_saving_names_the_findings_that_must_come_first() -> None:
    page, whole = Page(80), Page(80)
    saving = replace(samples.saving(), beyond=True)
    found = replace(samples.findings()[0], message=LONG, advice=f"{SENTENCE} {SENTENCE}", saving=saving)
    on_cpu = replace(found, saving=samples.saving(), stream=None)
    on_gpu, info = replace(on_cpu, stream=7), replace(on_cpu, severity=Severity.INFO)
    report = samples.report(samples.trace(step=samples.estimate()), findings=(found, on_gpu, on_cpu, info))
    put_short(page, 1, found, report, WHOLE)
    put_finding(whole, 1, found, report)
    told = "saves 9.00 of 18.0 ms a step, in addition to what finding 3 saves"
    assert any(told in line for line in whole.lines)
    assert not any("in addition to" in line for line in page.lines)


def infos(count: int, advice: str = SENTENCE) -> list[Finding]:
    return [
        replace(
            one,
            severity=Severity.INFO,
            rule=f"rule-{at}",
            message=LONG if at % 2 else "it waits",
            advice=advice,
        )
        for at, one in enumerate([samples.findings()[0]] * count)
    ]


def numbers(text: str) -> list[int]:
    return [int(line.split()[0]) for line in text.splitlines() if re.match(r"\d+  ", line)]


def test_what_has_no_room_is_at_the_end_and_is_counted() -> None:
    """A short finding does not take the place of a long one before it: the numbers have no holes."""
    text = render_text(samples.report(findings=tuple(infos(20))))
    shown = numbers(text)
    assert 5 < len(shown) < 20
    assert shown == [*range(1, len(shown) + 1)]
    assert f"... and findings {len(shown) + 1} to 20: --verbose shows them" in text


def test_what_needs_no_fix_has_the_last_number() -> None:
    found = infos(3)
    found[0] = replace(found[0], advice=f"{NOTHING_TO_DO}: all is well.")
    found = [replace(one, fault=f"F{number}") for number, one in enumerate(found, 1)]
    faults = [
        Fault(f"F{number}", one.rule, None, one.severity, (number,)) for number, one in enumerate(found, 1)
    ]
    told, _ = triaged(found, [faults], [])
    assert [one.rule for one in told] == ["rule-1", "rule-2", "rule-0"]
    assert numbers(render_text(samples.report(findings=told))) == [1, 2]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model.py(12): forward", "model.py(12): forward()"),
        ("a.py(12): f", "a.py(12): f()"),
        ("aa_long.py(12): forward_of_all", "…_long.py(12): forward_of_all()"),
        ("a_lon.py(12): forward_of_all_kin", "forward_of_all_kin()"),
        ("/home/me/project/package/model.py(1234): forward", "model.py(1234): forward()"),
        ("package/modeling_of_something_long.py(1306): forward", "…thing_long.py(1306): forward()"),
    ],
)
def test_of_a_line_of_python_the_end_is_kept(name: str, said: str) -> None:
    found = replace(samples.findings()[0], cause="", by=name)
    assert finding_name(found, 31) == f"scheduler-gap: {said}"


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
    ("steps", "spoken"),
    [((9, 11), ["V0", "V1"]), ((9, 11, 10), ["V0", "V1", "V2"]), ((9, 11, 10, 8), ["V1"])],
)
def test_three_ranks_show_all_verdicts_four_the_slowest(steps: tuple[int, ...], spoken: list[str]) -> None:
    text = of_ranks(*steps)
    assert re.findall(r"V\d", text) == spoken
    assert [line for line in text.splitlines() if re.fullmatch(r"rank \d:", line)] == [
        f"rank {verdict[1]}:" for verdict in spoken
    ]


@pytest.mark.parametrize(("ranks", "most"), [(1, 60), (2, 80)])
def test_screen_has_60_lines_for_a_trace_80_for_several(ranks: int, most: int) -> None:
    whole = samples.report() if ranks == 1 else samples.two_ranks()
    low = replace(samples.findings(None if ranks == 1 else 0)[0], severity=Severity.LOW)
    text = render_text(replace(whole, findings=(low,) * 100))
    assert most - 1 <= len(text.splitlines()) <= most
    shown = numbers(text)
    assert shown == [*range(1, len(shown) + 1)]
    assert f"... and findings {len(shown) + 1} to 100: --verbose shows them" in text


@pytest.mark.parametrize(
    ("source", "findings", "shown"),
    [
        (
            "my trace.json",
            1,
            ["traceanalyzer open 'my trace.json' --finding 1", "traceanalyzer explain scheduler-gap"],
        ),
        ("-", 1, ["traceanalyzer explain scheduler-gap"]),  # nobody can open what was piped in
        ("a.json", 0, []),
    ],
)
def test_what_to_do_next_can_be_copied(source: str, findings: int, shown: list[str]) -> None:
    found = tuple(samples.findings()[:findings])
    text = render_text(samples.report(samples.trace(meta=samples.meta(source)), findings=found))
    assert [line[7:] for line in text.splitlines() if "traceanalyzer " in line[7:]] == shown
    assert f"severity: {findings} high" in text.splitlines()[0] or not findings


def test_next_recording_is_advised_if_something_is_judged() -> None:
    (told,) = [one for one in samples.findings() if one.rule == "lane-offset"]
    free = replace(told, advice="Record stacks.", cost_ns=0, cost_share=0.0)
    costly = replace(told, advice="Leave it.")
    report = samples.report(findings=(free, costly))
    text = render_text(report)
    assert "Next   Record stacks.\n" in text
    assert "Leave it." not in text
    assert "Findings about the profiler itself are not shown. --verbose shows all." in " ".join(text.split())
    assert "are not shown" not in render_text(replace(report, findings=(free,)))
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
    assert text.endswith(
        "\n2 rules ran, 2 others do not apply to this trace, 4 failed. --verbose shows all.\n"
    )
    assert re.findall(r"Failed (bad-\d: .*)", text) == [f"bad-{at}: ValueError: no" for at in range(3)]
    text = render_text(samples.report(findings=(), outcomes=(outcomes[0], outcomes[3])))
    assert text.endswith("\n1 rule ran, 1 other does not apply to this trace. --verbose shows all.\n")
    text = render_text(replace(samples.empty(), outcomes=(outcomes[2],)))
    assert text.endswith("\n1 rule about the recording ran. --verbose shows all.\n")


def test_hidden_findings_are_counted_and_printed_with_pedantic() -> None:
    doubtful = samples.finding(0, by="aten::guess", severity=Severity.LOW, pedantic=True)
    report = samples.report(findings=(samples.finding(0, by="aten::mm"), doubtful))
    for verbose in (False, True):
        text = render_text(report, verbose=verbose)
        assert text.endswith(" 1 finding of low confidence: --pedantic.\n")
        assert "aten::guess" not in text
        assert "aten::guess" in render_text(report, verbose=verbose, pedantic=True)


def second(trace: TraceReport) -> str:
    return render_text(samples.report(trace), width=120).splitlines()[1]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("H200",), "H200, "),
        (("H200", "H200", None), "2 x H200, unknown GPU, "),
        ((), ""),
    ],
)
def test_first_line_names_devices_steps_and_window(names: tuple[str | None, ...], said: str) -> None:
    devices = tuple(Device(at, name) for at, name in enumerate(names))
    meta = samples.meta(devices=devices)
    whole = samples.trace(meta=meta)
    assert second(whole) == f"{said}4 steps in a window of 100 ms"
    one = replace(whole, steps=samples.steps(every=replace(samples.times(1), total_ns=97 * MS)))
    outside = " (3.00 ms of it outside these steps)"
    assert second(one) == f"{said}1 step in a window of 100 ms{outside}"
    more = replace(one, steps=samples.steps(every=replace(samples.times(1), total_ns=97 * MS + 1)))
    assert outside[:5] not in second(more)
    for steps in (None, samples.steps(marked=False)):
        unmarked = replace(whole, steps=steps, window=replace(whole.window, asked=True))
        assert second(unmarked) == (f"{said}a window of 100 ms, as asked for with --window")


def legend(findings: Sequence[Finding]) -> str:
    return " ".join(render_text(replace(samples.replayed(), findings=tuple(findings))).split())


def test_the_legend_tells_of_savings_where_one_is_shown() -> None:
    saves = replace(samples.findings()[0], saving=samples.saving())
    nothing = replace(samples.saving(0.001), low_share=0.0, high_share=0.002)
    in_vain = replace(saves, severity=Severity.INFO, saving=nothing)
    settled = replace(saves, severity=Severity.INFO, advice=f"{NOTHING_TO_DO}.")
    other = replace(saves, saving=None)
    assert "Savings are shares" in legend([saves])
    assert "Savings are shares" not in legend([in_vain])
    assert "Savings are shares" not in legend([other, settled])
    assert "Recorded times contain" in legend([other])


def test_uncertain_saving_may_be_nothing() -> None:
    sure = replace(samples.findings()[0], saving=samples.saving())
    unsure = replace(sure, saving=replace(samples.saving(), low_share=-0.1))
    nearly = replace(samples.saving(0.002), low_share=-0.1, high_share=0.1)  # told as probably nothing
    said = "A range that begins at 0 means"
    assert said not in legend([sure])
    assert said in legend([sure, unsure])
    assert said not in legend([sure, replace(sure, saving=nearly)])
    assert "Savings are shares" in legend([replace(sure, saving=nearly)])


def test_what_may_save_is_said_where_one_may() -> None:
    sure = replace(samples.findings()[0], saving=samples.saving())
    may = replace(sure, severity=Severity.INFO)
    said = "'Possibly' means: only if your program allows the fix."
    assert said in legend([sure, may])
    assert said not in legend([sure, replace(may, saving=replace(samples.saving(), low_share=-0.1))])


def test_the_legend_tells_of_costs_where_one_is_shown() -> None:
    saves = replace(samples.findings()[0], saving=samples.saving(), rule="host-gap")
    costs = replace(
        saves, saving=None, message="9.00 ms of this time counts here, the rest in other findings"
    )
    said = "Time that counts in another finding is left out of the cost of finding 2."
    assert said in legend([saves, costs])
    assert "left out of the cost of findings 1 and 2." in legend([costs, costs])
    assert said not in legend([saves, replace(costs, message="all of it")])
    assert said not in legend([saves, replace(costs, severity=Severity.INFO)])
    assert said not in legend([saves, replace(costs, advice=f"{NOTHING_TO_DO}.")])


def test_the_legend_explains_what_is_shown_alone() -> None:
    """Of thirty findings those at the end have no room."""
    saves = replace(samples.findings()[0], saving=samples.saving(), severity=Severity.INFO)
    rest = replace(saves, saving=None, rule="scheduler-gap")
    assert "scheduler-gap is" in legend([rest, *[replace(saves, rule="host-gap")] * 30])
    assert "scheduler-gap is" not in legend([*[replace(saves, rule="host-gap")] * 30, rest])


def test_remaining_idle_time_is_explained_where_listed() -> None:
    gap = replace(samples.findings()[0], rule="host-gap")
    said = "scheduler-gap is idle time that no other finding explains."
    assert said not in legend([gap])
    assert legend([gap, *[replace(gap, rule="scheduler-gap")] * 2]).count(said) == 1


@pytest.mark.parametrize(
    ("changes", "idle_ms", "said"),
    [
        ({}, 50, True),  # four steps of 25 ms take 8 ms less without the profiler: 32 ms of 50
        ({}, 64, True),
        ({}, 65, False),
        ({"bound": "cpu"}, 50, False),
        ({"bounds": ("gpu", "cpu")}, 50, False),
        ({"unprofiled_ns": 23 * MS}, 20, False),  # 8 of 20 ms
        ({"unprofiled_ns": 22 * MS}, 20, True),
        ({"unprofiled_ns": 22 * MS}, 19, False),  # of little idle time nothing is said
    ],
)
def test_legend_explains_gpu_idle_caused_by_the_profiler(
    changes: dict[str, Any], idle_ms: int, said: bool
) -> None:
    """Of a window of 100 ms, and a step whose pace the GPU sets."""
    time = samples.accounting(
        parts_ns={"compute": (100 - idle_ms) * MS, "idle:dispatching": idle_ms * MS}, idle_causes=()
    )
    step = replace(samples.estimate(17 * MS), **({"bound": "gpu"} | changes))
    head = samples.trace(step=step, accounting=(time,), steps=samples.steps())
    text = " ".join(render_text(samples.report(head)).split())
    assert (
        "Recorded times contain what the profiler costs, and their shares are of the whole window; the line Limit"
        in text
    )
    caused = "Here most of the idle time is due to launches that the profiler slows down."
    assert (caused in text) is said
