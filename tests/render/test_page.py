"""Lines of a page, and numbers at which the text changes."""

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from traceanalyzer.cli.app import run
from traceanalyzer.cli.output import ascii_only
from traceanalyzer.model.device_times import DeviceTime, IdleCause
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Fault
from traceanalyzer.render.text.finding import put_fitted
from traceanalyzer.render.text.page import Page, as_text, bar, joined_frames
from traceanalyzer.render.text.report import device_bar, render_text
from traceanalyzer.render.words.escape import JOINED, joined_units, shortened
from traceanalyzer.render.words.phrases import cost_words, saving_words, short_amounts


def put(text: str, *, width: int = 60, indent: int = 0, hang: int = 0) -> list[str]:
    page = Page(width)
    page.put(text, indent=indent, hang=hang)
    return page.lines


def test_lines_after_the_first_hang() -> None:
    text = " ".join(["word"] * 20)
    first, second = " ".join(["word"] * 11), " ".join(["word"] * 9)
    assert put(text, indent=3, hang=4) == [f"   {first}", f"       {second}"]
    page = Page(60)
    page.pair("label", text)
    assert page.lines == ["label      " + " ".join(["word"] * 10), "           " + " ".join(["word"] * 10)]


@pytest.mark.parametrize(("function", "whole"), [("f" * 15, True), ("f" * 16, False)])
def test_a_place_in_python_stays_on_a_line_that_has_room_for_it(function: str, whole: bool) -> None:
    """After an indent of 3 and a hang of 4 there are 53 columns."""
    frame = f"{'a' * 27}.py(1234): {function}"
    lines = put(f"at one of the places {frame}", indent=3, hang=4)
    assert (frame in lines[-1]) is whole
    assert max(map(len, lines)) <= 60
    assert joined_frames(frame, len(frame)).count(" ") == 0
    assert joined_frames(frame, len(frame) - 1) == frame


def test_a_path_is_never_broken_and_a_long_word_is() -> None:
    path, word = "/home/" + "a" * 70, "b" * 70
    assert put(f"at {path}", indent=2) == ["  at", f"  {path}"]
    assert put(word, indent=2) == ["  " + "b" * 58, "  " + "b" * 12]
    assert put("well-known " * 6) == [("well-known " * 5).rstrip(), "well-known"]


@pytest.mark.parametrize(("left", "below"), [(50, False), (51, True)])
def test_two_texts_at_the_margins_have_two_blanks_between_them(left: int, below: bool) -> None:
    page = Page(60)
    page.sides("x" * left, "y" * 8)
    assert page.lines == (["x" * left, " " * 52 + "y" * 8] if below else ["x" * left + " " * 2 + "y" * 8])


def test_there_is_one_empty_line_at_most_and_none_at_the_top() -> None:
    page = Page()
    page.blank()
    page.put("a")
    page.blank()
    page.blank()
    page.put("b")
    assert page.lines == ["a", "", "b"]


@pytest.mark.parametrize(("asked", "width"), [(10, 60), (60, 60), (100, 100), (120, 120), (300, 120)])
def test_a_page_has_60_to_120_columns(asked: int, width: int) -> None:
    assert Page(asked).width == width


def test_weights_and_colours_are_what_the_stream_shows() -> None:
    page = Page(colour=True)
    assert page.styled("a", "dim") == "\x1b[2ma\x1b[0m"
    assert page.styled("a", "bold") == "\x1b[1ma\x1b[0m"
    assert page.styled("a", "red") == "\x1b[31ma\x1b[0m"
    assert page.styled("a", "") == "a"
    assert page.styled("", "red") == ""
    assert Page().styled("a", "red") == "a"


@pytest.mark.parametrize(
    ("sizes", "width", "cells"),
    [
        ((1, 1, 1), 10, [4, 3, 3]),  # the first of equal fractions
        ((35, 2, 63), 45, [16, 1, 28]),  # 15.75, 0.9 and 28.35
        ((1, 99), 10, [0, 10]),
        ((0, 0), 10, [0, 0]),
        ((), 10, []),
    ],
)
def test_cells_go_to_the_largest_fractions(sizes: tuple[int, ...], width: int, cells: list[int]) -> None:
    assert bar(sizes, width) == cells


def test_lines_end_without_blanks_in_encodable_letters() -> None:
    assert as_text(["a  ", "12 µs × 3 ± 1 …"]) == "a\n12 µs × 3 ± 1 …\n"
    assert as_text(["a  ", "12 µs × 3 ± 1 … é"], ascii_only=True) == "a\n12 us x 3 +- 1 . \\xe9\n"


@pytest.mark.parametrize(
    ("width", "said"), [(11, "abcdefghijk"), (10, "abcde…hijk"), (9, "abcd…hijk"), (3, "a…k"), (1, "a…k")]
)
def test_a_name_is_cut_in_its_middle(width: int, said: str) -> None:
    """In at most so many letters, the first half of those that are kept the longer one."""
    assert shortened("abcdefghijk", width) == said


@pytest.mark.parametrize(("encoding", "plain"), [("UTF-8", False), ("utf-8-sig", False), ("cp1252", True)])
def test_blocks_need_a_stream_with_them(encoding: str, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert ascii_only() is plain


def test_options_show_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "--help"]) == 0
    assert "[default: 10; x>=1]" in " ".join(capsys.readouterr().out.split())


def fitted(text: str, lines: int = 1, *, width: int = 60) -> list[str]:
    page = Page(width)
    put_fitted(page, text, lines)
    return page.lines


def test_clause_that_ends_late_enough_is_preferred() -> None:
    """From two fifths of the room on; before that it is words that fill the line."""
    late = "The GPU waits for the host here, and then it goes on and on and on"
    assert fitted(late) == ["The GPU waits for the host here"]
    early = "Once, the GPU waits for the host here and then it goes on and on"
    assert fitted(early) == ["Once, the GPU waits for the host here and then it goes …"]


@pytest.mark.parametrize(
    ("words", "kept"),
    [("at the", ""), (", of", ""), ("at work", " at work"), ("that", ""), ("flat", " flat"), ("on a", "")],
)
def test_no_text_ends_with_a_word_that_leads_on(words: str, kept: str) -> None:
    text = f"The CPU launches kernels{' ' * (words[0] != ',')}{words} {'x' * 60}"
    assert fitted(text) == [f"The CPU launches kernels{kept} …"]


def test_a_sentence_is_kept_rather_than_a_clause_more() -> None:
    text = "The GPU waits for the host. It is late, so late, and so on it goes"
    assert fitted(text) == ["The GPU waits for the host"]


@pytest.mark.parametrize(
    "inner", ["60 % of the time", "7 % of this idle time", "60 % of the time, as said,", "9 % of the time; or more"]
)
def test_no_text_ends_within_parentheses(inner: str) -> None:
    text = f"The kernels of aten::mm wait ({inner} that was told of all of them together)"
    assert fitted(text) == ["The kernels of aten::mm wait …"]


def test_a_text_as_long_as_its_room_is_whole() -> None:
    whole, more = "x" * 29 + " " + "y" * 30, "x" * 29 + " " + "y" * 31
    assert fitted(whole) == [whole]
    assert fitted(more) == ["x" * 29 + " …"]


def test_details_go_one_after_the_other_and_only_as_many_as_must() -> None:
    shapes = "aten::mm runs (twice a step), for inputs of shapes 8x8, 16x16"
    assert fitted(f"{shapes}, at the end") == ["aten::mm runs (twice a step), at the end"]
    assert fitted(f"{shapes}, {'at the very end of it ' * 2}") == [
        "aten::mm runs, at the very end of it at the very end of it"
    ]


@pytest.mark.parametrize(
    ("clause", "words"),
    [("kernels run, in", "others"), ("kernels run, at", "elsewhere"), ("at first; kernels run, in", "others")],
)
def test_the_parts_that_are_left_out_are_others_or_elsewhere(clause: str, words: str) -> None:
    parts = "aten::mm (24 % of this time), aten::add_ (20 %), aten::mul (10 %)"
    assert fitted(f"{clause} {parts}, and so it goes", width=90) == [
        f"{clause} aten::mm (24 % of this time) and {words}, and so it goes"
    ]


@pytest.mark.parametrize("clause", ["most for those of", "longest for those of", "they lie between"])
def test_of_the_largest_part_nothing_more_is_said(clause: str) -> None:
    parts = "aten::mm (24 % of this time), aten::add_ (20 %), aten::mul (10 %)"
    assert fitted(f"{clause} {parts}") == [f"{clause} aten::mm (24 % of this time)"]


@pytest.mark.parametrize(
    "amount",
    [
        "12 %",
        "3 x",
        "7 B",
        "1.5 KiB",
        "2 MiB",
        "4 GFLOP",
        "4 FLOP",
        "80 GB/s",
        "9 TFLOP/s",
        "3 s",
        "3 ms",
        "3 µs",
        "3 ns",
    ],
)
def test_no_line_ends_between_a_number_and_its_unit(amount: str) -> None:
    assert joined_units(f"takes {amount}, or so") == f"takes {amount.replace(' ', JOINED)}, or so"


@pytest.mark.parametrize("text", ["12 steps", "3 xs", "4 m", "7 B/w", "a s", "2 GB/step"])
def test_words_after_a_number_are_no_units(text: str) -> None:
    assert joined_units(text) == text


HIGH, INFO = Severity.HIGH, Severity.INFO


def found(share: float, low: float, high: float, severity: Severity = HIGH, **changes: Any) -> Finding:
    """A finding whose fix saves this share of the step."""
    saving = replace(samples.saving(share), low_share=low, high_share=high, high_ns=int(high * 18 * MS))
    return replace(samples.findings()[0], saving=saving, severity=severity, **changes)


@pytest.mark.parametrize(
    ("share", "high", "graded", "words"),
    [
        (0.005, 0.02, "saves 0 to 2 %, best guess 0.5 %", "18.0 -> 17.9 ms a step"),
        (0.0049, 0.01, "saves 0 to 1 %", "18.0 -> 17.9 ms a step"),
        (0.0049, 0.0099, "saves nothing", "18.0 -> 17.9 ms a step"),
        (-0.0049, 0.02, "saves 0 to 2 %", "18.0 -> 18.1 ms a step"),
        (-0.005, 0.02, "saves 0 to 2 %", "18.0 -> 18.1 ms a step"),
        (-0.0051, 0.02, "saves nothing", "18.0 -> 18.1 ms a step"),
    ],
)
def test_what_saves_next_to_nothing_is_said_to(share: float, high: float, graded: str, words: str) -> None:
    one = found(share, -0.01, high)
    assert short_amounts(one) == graded
    assert one.saving is not None
    assert saving_words(one.saving, samples.estimate()) == words


@pytest.mark.parametrize(
    ("share", "low", "high", "said"),
    [
        (0.0994, 0.05, 0.2, "saves 5 to 20 %, best guess 9.9 %"),
        (0.0995, 0.05, 0.2, "saves 5 to 20 %, best guess 10 %"),
        (0.02, 0.0051, 0.03, "saves 1 to 3 %, best guess 2.0 %"),
        (0.02, 0.005, 0.03, "saves 0 to 3 %, best guess 2.0 %"),
        (0.992, 0.9, 1.0, "saves 90 to 99 %, best guess 99 %"),
    ],
)
def test_shares_have_two_digits_and_an_interval(share: float, low: float, high: float, said: str) -> None:
    assert short_amounts(found(share, low, high)) == said


def test_what_happens_once_costs_nothing_a_step() -> None:
    once = replace(samples.findings()[0], cost_per_step_ns=8 * MS, rule="cold-start")
    assert cost_words(once) == "cost 48.0 ms in total"
    assert cost_words(replace(once, rule="scheduler-gap")) == "cost 8.00 ms a step, 48.0 ms in total"


FIRST = "The CPU is the limit: until that changes, fixing this saves nothing."


@pytest.mark.parametrize(
    ("rule", "step", "share", "said"),
    [
        ("strided-copy", {}, 0.0049, True),
        ("strided-copy", {}, 0.005, False),
        ("strided-copy", {"bound": "gpu"}, 0.0, False),
        ("strided-copy", {"bounds": ("gpu", "cpu")}, 0.0, False),
        ("implicit-sync", {}, 0.0, False),
    ],
)
def test_savings_after_cpu_are_said(rule: str, step: Mapping[str, Any], share: float, said: bool) -> None:
    """Of the rules about the GPU's own work, where the CPU is the limit beyond doubt."""
    head = samples.trace(step=samples.estimate(**step))
    text = render_text(samples.report(head, findings=(found(share, 0.0, 0.2, Severity.LOW, rule=rule),)))
    assert (FIRST in " ".join(text.split())) is said


@pytest.mark.parametrize(("share", "words"), [(0.0049, "same fix as"), (0.005, "fixed with")])
def test_shared_cause_is_fixed_along_if_it_saves(share: float, words: str) -> None:
    first, second = found(0.5, 0.4, 0.6), found(0.2, 0.1, 0.3, Severity.LOW)
    fault = Fault("F1", "one cause", replace(samples.saving(share), low_share=0.0), HIGH, (1, 2))
    head = samples.trace(step=samples.estimate(), faults=(fault,))
    text = render_text(samples.report(head, findings=(first, second)), verbose=True)
    assert f"   {words} 1  " in text


@pytest.mark.parametrize(
    ("ranks", "count", "words"),
    [
        ((0, 1), 2, "both ranks"),
        ((0, 1, 2), 3, "all 3 ranks"),
        ((0, 2), 3, "ranks 0, 2"),
        ((0,), 2, "rank 0"),
        ((), 2, "rank 0"),
    ],
)
def test_a_finding_names_the_ranks_that_have_it(ranks: tuple[int, ...], count: int, words: str) -> None:
    traces = tuple(samples.trace(rank, meta=samples.meta(f"{rank}.json", rank=rank)) for rank in range(count))
    one = replace(samples.findings(0)[0], ranks=ranks)
    report = samples.report(traces=traces, findings=(one,))
    assert f"  high  scheduler-gap ({words})\n" in render_text(report)
    assert f" scheduler-gap ({words})\n" in render_text(report, verbose=True)


def test_an_instant_that_no_rank_tells_names_none_of_one_trace() -> None:
    text = render_text(samples.report(findings=(replace(samples.findings()[0], device=None),)))
    assert "  high  scheduler-gap\n" in text


NS = st.integers(1, 10**9)


def drawn(time: DeviceTime, *, rank: int | None = None, width: int = 80) -> list[str]:
    page = Page(width)
    device_bar(page, time, rank=rank)
    return page.lines


LEGEND = "  The outer rows add up to 100 %, the indented ones to the idle time."


def test_a_device_has_a_bar_and_a_row_for_every_class_and_cause() -> None:
    """The bar has what is left of 80 columns: 45, of which 35 %, 2 % and 63 % are 16, 1 and 28 whole ones."""
    first, *rows = drawn(samples.accounting())
    assert first == "shares of recorded time, device 0  " + "█" * 16 + "▼" + "·" * 28
    assert rows == [
        "  █ compute                 35.0 %   35.0 ms",
        "  ▼ copy to the device       2.0 %   2.00 ms",
        "  · idle                    63.0 %   63.0 ms",
        "    data loading            50.0 %   50.0 ms  enumerate(DataLoa…derIter.__next__",
        "    waiting for launches    12.0 %   12.0 ms  before aten::mm",
        "    not explained            1.0 %   1.00 ms",
        LEGEND,
    ]
    of_a_rank = drawn(samples.accounting(), rank=0)
    assert of_a_rank[0].startswith("shares of recorded time, rank 0, device 0  █")
    assert of_a_rank[1:] == rows[:-1]  # one legend for all ranks stands elsewhere


def test_a_device_that_is_never_idle_has_no_row_for_it() -> None:
    busy = samples.accounting(parts_ns={"compute": 100 * MS, "idle:python": 0}, idle_causes=())
    assert drawn(busy)[1:] == ["  █ compute                100.0 %    100 ms"]


def causes_of(*ops: tuple[str, str, int]) -> list[str]:
    """Rows of causes, each of (cause, op, ms)."""
    parts: dict[str, int] = {"compute": 10 * MS}
    for cause, _, ms in ops:
        parts[f"idle:{cause}"] = parts.get(f"idle:{cause}", 0) + ms * MS
    named = tuple(IdleCause(f"idle:{cause}", op, ms * MS) for cause, op, ms in ops)
    rows = drawn(samples.accounting(parts_ns=parts, idle_causes=named), width=120)
    return [row[4:] for row in rows if row.startswith("    ")]


def test_quarter_of_a_cause_names_its_op_but_no_own_launch() -> None:
    launch = "cudaLaunchKernel"
    (row,) = causes_of(("python", launch, 26), ("python", "a", 25), ("python", "b", 25), ("python", "c", 24))
    assert row.endswith("100 ms  a, b")


@pytest.mark.parametrize(
    ("first", "second", "rest", "named"),
    [(50, 0, 50, ["a"]), (49, 0, 51, []), (25, 25, 50, ["a, b"]), (26, 24, 50, []), (26, 25, 49, ["a, b"])],
)
def test_ops_with_half_of_a_cause_are_named(first: int, second: int, rest: int, named: list[str]) -> None:
    others = [("python", f"c{at}", 1) for at in range(rest)]
    (row,) = causes_of(*[one for one in (("python", "a", first), ("python", "b", second)) if one[2]], *others)
    assert row.split("100 ms")[1].split("  ")[1:] == named


@pytest.mark.parametrize(
    ("cause", "named"),
    [
        ("dispatching", "before aten::mm, aten::add"),
        ("launch-latency", "before aten::mm, aten::add"),
        ("synchronisation", "aten::mm, aten::add"),
    ],
)
def test_the_op_that_the_device_waits_for_stands_after_before(cause: str, named: str) -> None:
    (row,) = causes_of((cause, "cudaLaunchKernel", 30), (cause, "aten::mm", 30), (cause, "aten::add", 25))
    assert row.endswith(f"  {named}")


@pytest.mark.parametrize(("count", "rest"), [(5, False), (6, True)])
def test_five_causes_have_a_row_and_the_others_one(count: int, rest: bool) -> None:
    rows = causes_of(*((f"cause-{k}", f"aten::op{k}", 10 - k) for k in range(count)))
    assert [row.split()[-1] for row in rows[:5]] == [f"aten::op{k}" for k in range(5)]
    assert rows[5:] == ["other causes             5.0 %   5.00 ms"] * rest


def test_copies_and_waits_have_the_colour_of_their_kind() -> None:
    page = Page(80, colour=True)
    device_bar(page, samples.accounting(parts_ns={"copy_h2d": 60 * MS, "communication_waiting": 40 * MS}), rank=None)
    assert page.lines[1].startswith("  \x1b[36m▼\x1b[0m copy to the device")
    assert page.lines[2].startswith("  \x1b[35m◌\x1b[0m ")
