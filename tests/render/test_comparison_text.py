"""A comparison as text: what has a line, how many of each, and what the lines say."""

from dataclasses import replace
from typing import Any

import pytest

from tests.report.report_samples import MS
from tests.support.comparison_samples import SOURCE, STEP, VERDICT, WORK, compared, counted, fall, fault, row
from traceanalyzer.comparison.result import Axes, DeviceAxis, RankChange, Waterfall, Word
from traceanalyzer.render.text.comparison import render_comparison


def lines(*, quiet: bool = False, **changes: Any) -> list[str]:
    text = render_comparison(compared(**changes), quiet=quiet)
    assert max(map(len, text.splitlines())) <= 80
    return text.splitlines()


def starting(begin: str, **changes: Any) -> list[str]:
    return [line for line in lines(**changes) if line.startswith(begin)]


def test_the_verdict_has_four_reasons_and_what_would_settle_it() -> None:
    verdict = replace(VERDICT, because=tuple("abcde"), settle="record again")
    said = lines(verdict=verdict, quiet=True)
    assert said[0].endswith(" slower")
    assert said[1:3] == ["BASE  a.json, NVIDIA H200, 4 steps", "NEW   a.json, NVIDIA H200, 4 steps"]
    assert lines(new=replace(SOURCE, names=("b.json",)), quiet=True)[1:3] == [
        "BASE  a.json, NVIDIA H200, 4 steps",
        "NEW   b.json, NVIDIA H200, 4 steps",
    ]
    assert said[4:] == ["NEW is slower.", *(f"  - {one}" for one in "abcd"), "To settle it: record again."]


def test_a_long_reason_has_as_many_phrases_as_two_lines_hold() -> None:
    phrases = [letter * 49 for letter in "abc"]
    said = lines(verdict=replace(VERDICT, because=("; ".join(phrases),)), quiet=True)
    assert [phrase in " ".join(said) for phrase in phrases] == [True, True, False]
    said = lines(verdict=replace(VERDICT, because=("; ".join([*phrases, *phrases]),)), quiet=True)
    assert " ".join(line.strip() for line in said).endswith(f"- {phrases[0]}; {phrases[1]}")


def test_steps_are_shown_recorded_or_at_their_own_pace() -> None:
    axes = Axes((), DeviceAxis(8 * MS, 6 * MS, -1_500_000, Word.FASTER, {}), STEP)
    (step,), (cpu,), (gpu,) = (starting(name, axes=axes) for name in ("Step  ", "CPU  ", "GPU  "))
    assert step.split("  ")[0] == "Step"
    told = "10.0 ms -> 12.0 ms +20.0 % slower recorded 15.0 ms -> 16.0 ms"
    assert " ".join(step.split()) == f"Step {told}"
    assert " ".join(cpu.split()) == "CPU 9.00 ms -> 6.00 ms -33.3 % unblocked, raw"
    assert " ".join(gpu.split()) == "GPU 8.00 ms -> 6.00 ms -25.0 % faster beyond noise -1.50 ms"
    paced = replace(axes, step=replace(STEP, new_raw_ns=11 * MS))
    assert starting("Step ", axes=paced)[0].endswith("raw 10.0 ms -> 11.0 ms")
    bare = replace(axes, step=replace(STEP, new_cpu_ns=None))
    assert starting("CPU ", axes=bare) == []


@pytest.mark.parametrize(("count", "more"), [(5, []), (6, ["        and 1 more"])])
def test_five_counters_that_differ_are_shown(count: int, more: list[str]) -> None:
    exact = [counted("same", 1, 1, Word.SAME), *(counted(f"counter {at}", at, at + 1) for at in range(count))]
    said = lines(axes=Axes(tuple(exact), None, None))
    first = next(at for at, line in enumerate(said) if line.startswith("Exact"))
    assert " ".join(said[first].split()) == "Exact counter 0 0 -> 1 aten::mm"
    assert [line.split()[:2] for line in said[first + 1 : first + 5]] == [["counter", f"{at}"] for at in range(1, 5)]
    assert said[first + 5 : first + 6 + len(more)] == [*more, ""]
    none = "Exact   no counter differs: launches, work, copies, waits and allocations are the same"
    assert " ".join(lines(axes=Axes(tuple(exact[:1]), None, None))[-4:-2]).split() == none.split()


def test_difference_parts_are_drawn_by_size_with_one_rest() -> None:
    deltas = [12 * MS, -6 * MS, 0, 1_000, 5 * MS, 4 * MS, 3 * MS, 2 * MS, -1 * MS]
    said = lines(waterfall=fall(*deltas))
    first = said.index("From BASE's step to NEW's")
    assert [" ".join(line.split()) for line in said[first + 1 : first + 10]] == [
        "10.0 ms BASE",
        f"+12.0 ms {'█' * 12} idle part 0",
        f"-6.00 ms {'█' * 6} part 1",
        "+1.00 µs █ part 3",
        f"+5.00 ms {'█' * 5} part 4",
        f"+4.00 ms {'█' * 4} part 5",
        f"+3.00 ms {'█' * 3} part 6",
        "+1.00 ms 2 other parts",
        "29.0 ms NEW",
    ]
    assert not any("other parts" in line for line in lines(waterfall=fall(1, 2, 3, 4, 5, 6)))


@pytest.mark.parametrize(("deltas", "drawn"), [((0, 0), False), ((5, -5), True), ((5,), True), ((), False)])
def test_where_nothing_differs_nothing_falls(deltas: tuple[int, ...], drawn: bool) -> None:
    assert bool(starting("From BASE's step", waterfall=fall(*deltas))) is drawn


def test_steps_that_differ_by_no_known_part_are_told() -> None:
    said = lines(waterfall=Waterfall(10 * MS, 12 * MS, (), {}))
    first = said.index("From BASE's step to NEW's")
    assert said[first + 1 : first + 3] == ["   10.0 ms  BASE", "   12.0 ms  NEW"]
    assert starting("From BASE's step", waterfall=None) == []


def test_six_rows_beyond_noise_are_shown_with_what_else_differs() -> None:
    rows = [row("aten::mm", Word.SLOWER, new=replace(WORK, count=5.0, ns=3e6), note="kernel a -> b; shapes too")]
    rows += [row("aten::add", Word.GONE, new=None, outer="aten::add"), row("aten::same", Word.SAME)]
    rows += [row(f"aten::op{at}", Word.FASTER) for at in range(5)]
    said = lines(rows=tuple(rows))
    first = said.index("Work that changed, beyond noise (7 of 8)")
    found = [" ".join(line.split()) for line in said[first + 1 : said.index("", first)]]
    assert found[:4] == [
        "slower +900 µs aten::linear > aten::mm 4 -> 5 x, 2.00 ms -> 3.00 ms",
        "kernel a -> b",
        "gone +900 µs aten::add 4 x, 2.00 ms",
        "faster +900 µs aten::linear > aten::op0 4 x, 2.00 ms -> 2.00 ms",
    ]
    assert len(found) == 7
    assert starting("Work that changed", rows=(rows[2],)) == []


def test_faults_that_changed_are_shown_and_the_others_counted() -> None:
    faults = [fault("gone", got_share=0.15), fault("unchanged"), fault("worse", said_share=-0.08)]
    said = lines(faults=(*faults, fault("new", said_share=None)))
    first = said.index("Faults (1 unchanged)")
    assert said[first + 1 : first + 5] == [
        "  gone: title of gone; predicted 17 % (12 % to 30 %), got 15 %",
        "  worse: title of worse; predicted to add 8 %",
        "  new: title of new",
        "",
    ]
    many = lines(faults=(fault("new"),) * 6)
    first = many.index("Faults")
    assert many[first + 5] == "  2 others"
    assert len(starting("  new", faults=(fault("new"),) * 6)) == 4
    assert starting("  1 others", faults=(fault("new"),) * 5)
    assert not [line for line in lines(faults=(fault("new"),) * 4) if line.endswith(" others")]
    assert starting("Faults", faults=(fault("unchanged"),)) == ["Faults (1 unchanged)"]


def test_ranks_that_changed_alike_are_one_line() -> None:
    def rank(number: int, other: bool, new: int | None) -> RankChange:
        return RankChange(number, other, 10 * MS, new, None, None, Word.SLOWER if new else Word.GONE)

    told = "10.0 ms -> 12.0 ms slower"
    every = [rank(number, False, 12 * MS) for number in range(3)]
    assert starting("rank", ranks=(*every,)) == ["ranks 0 to 2: 10.0 ms -> 12.0 ms  slower"]
    two = lines(ranks=(*every, rank(3, True, 12 * MS), rank(4, False, None)))
    assert [" ".join(line.split()) for line in two if line.startswith("rank")] == [
        f"ranks 0 to 2: {told}",
        f"rank 3 (other work): {told}",
        "rank 4: 10.0 ms -> missing gone",
    ]
    many = lines(ranks=tuple(rank(number, False, (12 + number) * MS) for number in range(6)))
    assert len([line for line in many if line.startswith("rank")]) == 4
    assert "and 2 more" in many


def test_the_footer_says_how_work_was_matched_and_five_notes() -> None:
    said = lines(rungs={"op": 0.9, "name": 0.005, "rest": 0.0049}, notes=tuple(f"note {at}" for at in range(6)))
    assert said[-6:] == ["GPU time matched by: op 90 %, name 0 %", *(f"note: note {at}" for at in range(5))]
