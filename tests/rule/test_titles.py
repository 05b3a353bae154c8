"""Titles of findings: one sentence with the problem, its number and the code."""

import re
from string import Formatter

import pytest

from traceanalyzer.rule.idioms import toml_table
from traceanalyzer.rule.registry import all_rules
from traceanalyzer.rule.titles import MAX_TITLE, first_clauses, title_of

LINES = {"/home/me/train.py(45): step": 9, "train.py(7): main": 1}


def templates() -> list[str]:
    causes = [cause for rule in toml_table("titles").values() for cause in rule.values()]
    return [text for cause in causes for text in ([cause] if isinstance(cause, str) else cause)]


def test_every_rule_and_cause_has_a_title() -> None:
    for rule in all_rules():
        known = toml_table("titles")[rule.slug]
        assert set(known) <= {*rule.causes, "any"}, rule.slug
        missing = {cause for cause in rule.causes if cause.removesuffix("-once") not in known}
        assert "any" in known or not missing, rule.slug


def test_no_title_is_of_a_rule_that_is_gone() -> None:
    assert set(toml_table("titles")) == {rule.slug for rule in all_rules()}


@pytest.mark.parametrize("template", templates())
def test_templates_are_one_sentence(template: str) -> None:
    fields = [name for _, name, _, _ in Formatter().parse(template) if name]
    assert fields or re.search(r"[A-Z]", template)
    assert not template.endswith((".", "…", ":", ","))
    assert len(Formatter().vformat(template, (), dict.fromkeys(fields, "12.3 ms"))) <= 130


def test_title_names_the_function_that_has_most_of_the_time() -> None:
    fields = {"by": "aten::item", "times_a_step": "4 times a step"}
    title = title_of("implicit-sync", "read-back", "", fields, {"lines": LINES})
    assert title == "aten::item reads a value back and makes the CPU wait 4 times a step, in step() (train.py:45)"


@pytest.mark.parametrize(
    ("lines", "end"),
    [
        ({"train.py(45): step": 5, "train.py(7): main": 5}, "a step, in step() (train.py:45)"),
        ({"train.py(45): step": 4, "train.py(7): main": 3, "train.py(9): loss": 2}, "a step"),  # none has half
        ({"train.py(7): main": 3, "train.py(45): step": 4, "train.py(9): loss": 3}, "a step, in main() (train.py:7)"),
    ],
)
def test_title_names_a_place_with_half_of_the_time_or_around_the_rest(lines: dict[str, int], end: str) -> None:
    title = title_of("strided-copy", "", "", {"times_a_step": "twice a step", "gpu": "9 %"}, {"lines": lines})
    assert title.replace(": 9 % of GPU work", "").endswith(f" run twice {end}")


def test_title_without_room_loses_the_place() -> None:
    fields = {"by": "aten::item", "times_a_step": "4 times a step"}
    lines = {"package/some_module_with_a_very_long_name.py(45): function_with_a_long_name_too": 1}
    title = title_of("implicit-sync", "read-back", "", fields, {"lines": lines})
    assert title == "aten::item reads a value back and makes the CPU wait 4 times a step"


def test_title_takes_the_next_template_where_a_number_is_not_known() -> None:
    evidence = {"sizes": [50257]}
    several = {"sizes": [50257, 30522]}
    fields = {"spent_a_step": "7.86 ms a step"}
    assert "50,257 is not a multiple of 8" in title_of("misaligned-gemm", "", "", fields, evidence)
    title = title_of("misaligned-gemm", "", "", fields, several)
    assert title == "Half-precision GEMMs use slow kernels with narrow loads: 7.86 ms a step"


def test_a_library_function_is_named_with_the_callback_it_calls() -> None:
    evidence = {"lines": {"pkg/logits.py(15): __call__": 9}, "callee": f"{'very_' * 9}long.py(22): allowed"}
    fields = {"times_a_step": "twice a step"}
    title = title_of("implicit-sync", "loss-scaling", "", fields, evidence)
    assert title.endswith("makes the CPU wait twice a step, in __call__() calling allowed()")
    same = {**evidence, "callee": f"{'very_' * 9}long.py(22): __call__"}
    title = title_of("implicit-sync", "argument-check", "", fields, same)
    assert title.endswith("makes the CPU wait twice a step, in __call__() (logits.py:15)")


def test_names_are_cut_in_their_middle() -> None:
    fields = {"slow": "3", "executions": "60", "kernel": "k" * 90, "worst_dur": "2 ms", "median_dur": "1 ms"}
    title = title_of("kernel-variance", "outliers", "", fields, {})
    assert len(title) <= MAX_TITLE
    assert re.fullmatch(r"k+…k+ takes up to 2 ms instead of 1 ms in 3 of 60 launches", title)


def test_a_rule_without_templates_has_its_first_clause() -> None:
    message = "aten::item waits twice a step; the GPU is idle"
    assert title_of("own-rule", "", message, {}, {}) == "aten::item waits twice a step; the GPU is idle"
    assert first_clauses(message, 30) == ("aten::item waits twice a step", "The GPU is idle")


@pytest.mark.parametrize(
    ("message", "title", "rest"),
    [
        ("it waits", "It waits", ""),
        ("cudaMemcpyAsync waits", "cudaMemcpyAsync waits", ""),
        (
            "it waits for the host; once a step it reads a value",
            "It waits for the host",
            "Once a step it reads a value",
        ),
        ("aten::mm waits for the host; and so on, and on", "aten::mm waits for the host", ""),
        ("in a.py(168): sample() waits; the GPU idles", "In a.py(168): sample() waits", "The GPU idles"),
        ("pauses without ops (5 times; 2 ms) cost a lot; x", "Pauses without ops cost a lot", "X"),
        ("so many words that they need more room than there is", "So many words that they need more room", ""),
    ],
)
def test_first_clause_that_fits(message: str, title: str, rest: str) -> None:
    assert first_clauses(message, 42) == (title, rest)
