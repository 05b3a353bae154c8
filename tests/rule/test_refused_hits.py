"""Texts and evidence that no report can show, kinds that there are not, and rules whose file is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rule.grouped import scope, traced
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.finding import Status
from traceanalyzer.rule import Hits, Work, registry
from traceanalyzer.rule.judging import judge
from traceanalyzer.rule.messages import filled

GIVEN: dict[str, Any] = {"message": "some work", "advice": "Drop it."}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"message": ""}, "message is empty"),
        ({"message": 5}, "message is a text, not int"),
        ({"advice": None}, "advice is a text, not NoneType"),
        ({"cause": None}, "cause is a text, not NoneType"),
        ({"named_by": 5}, "named_by is a text, not int"),
        ({"evidence": {"work": [object()]}}, "evidence work has a object"),
        ({"evidence": {"sizes": np.ones(3)}}, "evidence sizes has a ndarray"),
        ({"evidence": {"parts": [{"first": [{"part_share": float("nan")}]}]}}, "evidence parts is nan"),
    ],
)
def test_what_no_report_can_show_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Hits(occurrences=traced((1_000, 5_000)).index(Work), **GIVEN | given)


def test_views_are_no_evidence_and_texts_are() -> None:
    work = traced((1_000, 5_000)).index(Work)
    with pytest.raises(ValueError, match="evidence work has a Work: give numbers, texts, lists or mappings"):
        Hits(occurrences=work, **GIVEN, evidence={"work": work})
    known = {"names": work.name, "rows": np.int64(3), "none": None, "sure": True, "by_op": {"mm": 3}}
    assert Hits(occurrences=work, **GIVEN, evidence=known).evidence["names"] is work.name


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("takes {totl}", r"message names \{totl\}; its fields are share, total"),
        ("{by} waits", r"message names \{by\}: give named_by; its fields are share, total"),
        ("takes {total:.1f}", "Unknown format code 'f'.*its fields are texts"),
        ("takes {total", "'takes {total': expected '}'"),
    ],
)
def test_messages_that_cannot_be_filled_say_which_fields_there_are(message: str, why: str) -> None:
    fields = {"total": "3.1 ms", "share": "4 %"}
    assert filled("takes {total}", fields) == "takes 3.1 ms"
    with pytest.raises(ValueError, match=why):
        filled(message, fields)


def test_a_finding_whose_message_cannot_be_filled_fails_its_rule() -> None:
    def misspelt(work: Work) -> Any:
        yield Hits(occurrences=work, **GIVEN | {"message": "takes {totl}"})

    analysis = traced((1_000, 5_000))
    described = registry.replace(registry.find_rule("hotspot"), slug="mine", function=misspelt, limits=None)
    described = registry.replace(described, needs={"work": registry.find_rule("hotspot").needs["work"]})
    (outcome,) = judge([described], analysis, scope(), None).outcomes
    assert outcome.status is Status.FAILED
    assert outcome.why is not None
    assert "message names {totl}; its fields are" in outcome.why


def test_kinds_of_work_that_there_are_not_are_refused() -> None:
    work = traced((1_000, 5_000)).index(Work)
    assert len(work.of_kind("compute", "memset")) == len(work)
    with pytest.raises(
        ValueError, match="none is called copy_dtoh; there are compute, communication, copy_h2d"
    ):
        work.of_kind("copy_dtoh", "compute")
    with pytest.raises(ValueError, match="none is called kernel; there are compute"):
        work.kind.one_of("kernel")
    with pytest.raises(TypeError, match="one_of takes texts"):
        work.kind.one_of(("compute", "memset"))  # type: ignore[arg-type]


def test_texts_of_none_are_refused() -> None:
    """-1 is no position from the end."""
    name = traced((1_000, 5_000)).index(Work).name
    assert name[-1] == name[0]
    assert len(name[np.array([0, 0])]) == 2
    with pytest.raises(IndexError, match="texts at positions below 0: -1 stands for none, leave it out"):
        name[np.array([0, -1])]


def test_positions_of_none_and_masks_of_two_dimensions_are_refused() -> None:
    work = traced((1_000, 5_000)).index(Work)
    with pytest.raises(IndexError, match=r"from -1 to 0 cannot choose.*-1 stands for none, leave it out"):
        work[np.array([0, -1])]
    with pytest.raises(TypeError, match="by one dimension, not by 2"):
        work[np.ones((len(work), 1), bool)]


def test_a_rule_that_is_left_out_says_why_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = registry.Broken("my-rule", "rules/host/my_rule.py", "SyntaxError: invalid syntax")
    monkeypatch.setattr(registry, "broken_files", lambda: (broken,))
    with pytest.raises(BadOption, match=r"rules/host/my_rule.py is left out: SyntaxError: invalid syntax"):
        registry.find_rule("my-rule")
    with pytest.raises(BadOption, match="no rule is called 'other-rule'"):
        registry.find_rule("other-rule")
