"""Elements, quoted values and numbers of the page, each by itself."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from tests.html.pages import parsed
from traceanalyzer.render.html.markup import (
    UNITS,
    Html,
    breakable,
    code,
    escaped,
    json_block,
    number,
    packed,
    pointer,
    prose,
    quoted,
    rounded,
    scrolled,
    tag,
    together,
)


@pytest.mark.parametrize(
    ("unit", "value", "text"),
    [
        ("percent", 0.4567, "46"),
        ("percent", 0.999, "99"),  # no fix saves all of a step
        ("percent", 1.0, "99"),
        ("percent", -0.2, "0"),
        ("count", 1_234_567, "1,234,567"),
        ("number", 3, "3"),
        ("number", 1_234, "1234"),
        ("number", 1_234.5, "1,234"),
        ("rate", 9.94, "9.9"),
        ("rate", 10.0, "10"),
        ("rate", 12_345.6, "12,346"),
        ("offset", 12_345_678, "12.346 ms"),
        ("ns", 1_500, "1.50 µs"),
        ("bytes", 1_536, "1.50 KiB"),
        ("share", 0.125, "12.5 %"),
        ("text", "a\x1bb", "a\\x1bb"),
    ],
)
def test_numbers_are_written_by_their_unit(unit: str, value: Any, text: str) -> None:
    assert UNITS[unit](value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(99.94, "99.9"), (100.4, "100"), (-1_234.0, "-1,234"), (-99.94, "-99.9"), (0.0, "0")]
)
def test_number_has_three_digits_and_all_before_the_point(value: float, text: str) -> None:
    assert rounded(value) == text


def test_zero_or_empty_attributes_and_children_are_written() -> None:
    assert tag("li", 0, value=0) == '<li value="0">0</li>'
    assert tag("option", "", value="") == '<option value=""></option>'
    assert tag("p", None, hidden=False, title=None) == "<p></p>"
    assert tag("button", data_path="a", aria_label="b", class_="c", for_="d") == (
        '<button data-path="a" aria-label="b" class="c" for="d"></button>'
    )
    assert tag("line", y1=2) == '<line y1="2"/>'
    assert tag("rect", tag("title", "t")) == "<rect><title>t</title></rect>"  # it has something in it
    assert tag("meta", name_="x") == '<meta name="x">'


def test_markup_is_escaped_once_and_long_texts_are_cut() -> None:
    assert together([Html("<b>"), None, "<", 0]) == "<b>&lt;0"
    assert escaped(Html("<" * 5_000)) == "<" * 5_000
    assert len(escaped("a" * 5_000)) == 1_600


def test_places_in_a_document_follow_the_rfc() -> None:
    assert pointer("diagnose", "findings", 0, "by/op", "a~b") == "diagnose#/findings/0/by~1op/a~0b"
    assert pointer("ops-1", "~1") == "ops-1#/~01"


def test_quoted_values_say_where_they_stand_exactly() -> None:
    assert number("d#/a", 1_500, "ns") == (
        '<data value="1500" data-path="d#/a" data-unit="ns">1.50 µs</data>'
    )
    assert quoted("d#/a", "a/b", "code", class_="x") == (
        '<code data-path="d#/a" data-unit="text" class="x">a/<wbr>b</code>'
    )
    assert quoted("d#/a", "a/b") == '<span data-path="d#/a" data-unit="text">a/b</span>'
    assert prose("d#/a", "takes 12 ms") == '<span data-path="d#/a" data-unit="text">takes 12\xa0ms</span>'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at::native::mm", "at::<wbr>native::<wbr>mm"),
        ("/home/me/train_step.py", "/<wbr>home/<wbr>me/<wbr>train_<wbr>step.py"),
        ("a<b_&_/", "a&lt;b_&amp;_/"),  # nothing begins after these
    ],
)
def test_lines_end_after_the_parts_of_a_name(text: str, shown: str) -> None:
    assert breakable(text) == shown
    assert code(text, title="t") == f'<code title="t">{shown}</code>'


def test_what_is_wider_than_the_page_scrolls_by_the_keyboard() -> None:
    assert scrolled("all of it", Html("<i></i>"), "wide") == (
        '<div class="wide" tabindex="0" role="group" aria-label="all of it"><i></i></div>'
    )
    assert 'class="scroll"' in scrolled("", Html(""))


def test_data_of_scripts_is_the_value() -> None:
    value = {"a&b": ["<", ">", "\u2028", "\u2029", 1.5, None]}
    (block,) = parsed(str(json_block("data", value)).encode()).elements
    assert block.attributes == {"type": "application/json", "id": "data"}
    assert not set("<>&\u2028\u2029") & set(block.text)
    assert json.loads(block.text) == value
    (block,) = parsed(str(packed("more", value)).encode()).elements
    assert block.attributes == {"type": "text/plain", "id": "more"}
    assert json.loads(zlib.decompress(base64.b64decode(block.text))) == value
