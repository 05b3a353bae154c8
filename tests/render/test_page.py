"""Lines of a page: where they break, what stands at the two margins, and how a bar is shared out."""

from __future__ import annotations

import pytest

from traceanalyzer.render.text.page import Page, as_text, bar, joined_frames
from traceanalyzer.render.words.escape import shortened


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
