"""Sentences cut to a number of lines: where they end, and that nothing ends within parentheses."""

from __future__ import annotations

import pytest

from traceanalyzer.render.text.finding import put_fitted, short_paths
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.words.escape import JOINED, joined_units


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


def test_paths_are_their_last_two_parts() -> None:
    assert short_paths("at /home/me/env/nn/linear.py(12): forward") == "at nn/linear.py(12): forward"
    assert short_paths("at nn/linear.py(12): forward") == "at nn/linear.py(12): forward"
    assert short_paths("(/home/me/a/b.pyx)") == "(a/b.pyx)"


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
