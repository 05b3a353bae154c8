"""Lines of a page: where they break, what stands at the two margins, bars, and sentences cut to their room."""

from __future__ import annotations

import io

import pytest

from traceanalyzer.cli.app import run
from traceanalyzer.cli.output import ascii_only
from traceanalyzer.render.text.finding import put_fitted
from traceanalyzer.render.text.page import Page, as_text, bar, joined_frames
from traceanalyzer.render.words.escape import JOINED, joined_units, shortened


def put(text: str, *, width: int = 60, indent: int = 0, hang: int = 0) -> list[str]:
    page = Page(width)
    page.put(text, indent=indent, hang=hang)
    return page.lines


def test_lines_after_the_first_hang() -> None:
    text = " ".join(["word"] * 20)
    assert put(text, indent=3, hang=4) == [
        "   " + " ".join(["word"] * 11),
        "       " + " ".join(["word"] * 9),
    ]
    page = Page(60)
    page.pair("label", text)
    assert page.lines == [
        "label      " + " ".join(["word"] * 10),
        "           " + " ".join(["word"] * 10),
    ]


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
def test_cells_of_a_bar_go_to_the_largest_fractions(
    sizes: tuple[int, ...], width: int, cells: list[int]
) -> None:
    assert bar(sizes, width) == cells


def test_lines_end_without_blanks_in_encodable_letters() -> None:
    assert as_text(["a  ", "12 µs × 3 ± 1 …"]) == "a\n12 µs × 3 ± 1 …\n"
    assert as_text(["a  ", "12 µs × 3 ± 1 … é"], ascii_only=True) == "a\n12 us x 3 +- 1 . \\xe9\n"


@pytest.mark.parametrize(
    ("width", "said"),
    [(11, "abcdefghijk"), (10, "abcde…hijk"), (9, "abcd…hijk"), (3, "a…k"), (1, "a…k")],
)
def test_a_name_is_cut_in_its_middle(width: int, said: str) -> None:
    """In at most so many letters, the first half of those that are kept the longer one."""
    assert shortened("abcdefghijk", width) == said


@pytest.mark.parametrize(("encoding", "plain"), [("UTF-8", False), ("utf-8-sig", False), ("cp1252", True)])
def test_blocks_are_drawn_where_the_stream_can_show_them(
    encoding: str, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert ascii_only() is plain


def test_options_show_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ops", "--help"]) == 0
    assert "[default: 10; x>=1]" in " ".join(capsys.readouterr().out.split())


def fitted(text: str, lines: int = 1, *, width: int = 60, spare: int = 0) -> list[str]:
    page = Page(width)
    put_fitted(page, text, lines, spare=spare)
    return page.lines


def test_clause_that_ends_late_enough_is_preferred() -> None:
    """From two fifths of the room on; before that it is words that fill the line."""
    late = "The GPU waits for the host here, and then it goes on and on and on"
    assert fitted(late) == ["The GPU waits for the host here (more: --verbose)"]
    early = "Once, the GPU waits for the host here and then it goes on and on"
    assert fitted(early) == ["Once, the GPU waits for the host here (more: --verbose)"]


@pytest.mark.parametrize(
    ("words", "kept"),
    [("at the", ""), (", of", ""), ("at work", " at work"), ("that", ""), ("flat", " flat"), ("on a", "")],
)
def test_no_text_ends_with_a_word_that_leads_on(words: str, kept: str) -> None:
    text = f"The CPU launches kernels{' ' * (words[0] != ',')}{words} {'x' * 60}"
    assert fitted(text) == [f"The CPU launches kernels{kept} (more: --verbose)"]


def test_a_sentence_is_kept_rather_than_a_clause_more() -> None:
    text = "The GPU waits for the host. It is late, so late, and so on it goes"
    assert fitted(text) == ["The GPU waits for the host (more: --verbose)"]


@pytest.mark.parametrize(
    "inner",
    ["60 % of the time", "7 % of this idle time", "60 % of the time, as said,", "9 % of the time; or more"],
)
def test_no_text_ends_within_parentheses(inner: str) -> None:
    text = f"The kernels of aten::mm wait ({inner} that was told of all of them together)"
    assert fitted(text) == ["The kernels of aten::mm wait (more: --verbose)"]


def test_a_text_as_long_as_its_room_is_whole() -> None:
    whole, more = "x" * 29 + " " + "y" * 30, "x" * 29 + " " + "y" * 31
    assert fitted(whole) == [whole]
    assert fitted(more) == ["x" * 29 + " (more: --verbose)"]
    assert fitted(more, spare=1) == ["x" * 29, "y" * 31]


def test_details_go_one_after_the_other_and_only_as_many_as_must() -> None:
    shapes = "aten::mm runs (twice a step), for inputs of shapes 8x8, 16x16"
    assert fitted(f"{shapes}, at the end") == ["aten::mm runs (twice a step), at the end"]
    assert fitted(f"{shapes}, {'at the very end of it ' * 2}") == [
        "aten::mm runs, at the very end of it at the very end of it"
    ]


@pytest.mark.parametrize(
    ("clause", "words"),
    [
        ("kernels run, in", "others"),
        ("kernels run, at", "elsewhere"),
        ("at first; kernels run, in", "others"),
    ],
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
