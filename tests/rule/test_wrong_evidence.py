"""Evidence, shares and templates that no report can show are sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rule.careless import hit, judged, why, yielding
from tests.rule.grouped import traced
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.texts import Texts
from traceanalyzer.render.data.encode import to_json
from traceanalyzer.rule import Hits, LostTime, Work
from traceanalyzer.rule.checks import check
from traceanalyzer.rule.claims import Claims

MS = 1_000_000
NAMES = Texts(np.arange(2), np.array(["first", "second"], object))


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return traced((1 * MS, 2 * MS), (30 * MS, 3 * MS))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"evidence": None}, "evidence is a mapping, not NoneType: leave it out"),
        ({"evidence": {"count": 3}}, "evidence count is said of every finding already"),
        ({"evidence": {"total_ns": 3}}, "evidence total_ns is said of every finding already"),
        ({"evidence": {"by": "mm"}}, "evidence by is said of every finding already"),
        ({"evidence": {"per_step_of_step": 3}}, "evidence per_step_of_step is said of every finding already"),
        ({"evidence": {"": 3}}, "evidence has the name '': names are letters, digits and _"),
        ({"evidence": {"a b": 3}}, "evidence has the name 'a b'"),
        ({"evidence": {3: 3}}, "evidence has the name 3"),
        ({"evidence": {"a": 72, "a_bytes": 9}, "message": "{a}"}, "evidence a and a_bytes would both be {a}"),
        (
            {"evidence": {"w_ns": 6, "w_of_step": 7}, "message": "{w_of_step}"},
            "w_of_step and w_ns would both be {w_of_step}",
        ),
        ({"evidence": {"wait_total_ns": [1, 2]}}, "evidence wait_total_ns is a list: a number, or a mapping"),
        ({"evidence": {"wait_ns": "6 ms"}}, "evidence wait_ns is a text: a number of ns"),
        ({"evidence": {"wait_ns": True}}, "evidence wait_ns is True: a number of ns"),
        ({"evidence": {"moved_bytes": np.True_}}, "evidence moved_bytes is True: a number of bytes"),
        ({"evidence": {"gpu_share": True}}, "evidence gpu_share is True: a number of share"),
        ({"evidence": {"wait_ns": -3}}, "evidence wait_ns is -3: no less than 0"),
        ({"evidence": {"names": NAMES, "wait_ns": -3}}, "evidence wait_ns is -3: no less than 0"),
        ({"evidence": {"moved_bytes": -3}}, "evidence moved_bytes is -3: no less than 0"),
        ({"evidence": {"slower_times": -0.5}}, "evidence slower_times is -0.5: no less than 0"),
        ({"evidence": {"best_speedup": -1}}, "evidence best_speedup is -1: no less than 0"),
        ({"evidence": {"best_speedup": True}}, "evidence best_speedup is True: a number of speedup"),
        ({"advice": " "}, "advice is empty: say what to do"),
        ({"evidence": {"ops": {"mm": True}}}, "evidence ops has a part that is True: each is a number"),
        ({"evidence": {"ops": {"mm": np.False_}}}, "each is a number"),
        ({"evidence": {"ops": {"mm": -3}}}, "evidence ops has a part of -3: parts are no less than 0"),
        ({"evidence": {"ops": {"mm": "3"}}}, "evidence ops has a part that is '3': each is a number"),
        ({"evidence": {"wait_ns": 10**15}}, "evidence wait_ns is 1e+15: all threads and streams have"),
        ({"evidence": {"wait_ns": {"mm": 10**15}}}, "evidence wait_ns is 1e+15: all threads"),
        ({"message": "takes {total!r}"}, "message has {total!r}: fields are texts, and take no .attribute"),
        ({"message": "takes {total[0]}"}, "message has {total[0]}: fields are texts"),
        ({"message": "takes {total.real}"}, "message has {total.real}: fields are texts"),
        ({"advice": "Drop {by}."}, "advice has {by}: it is no template"),
        ({"advice": "Drop {no_such_field}."}, "advice has {no_such_field}: it is no template"),
        ({"advice": "Drop {total:>3}."}, "advice has {total:>3}: it is no template"),
        ({"info": 1}, "info is bool, not int"),
        ({"fixed_elsewhere": "yes"}, "fixed_elsewhere is bool, not str"),
        ({"confidence": "high"}, "confidence is Confidence, not str"),
        ({"normal_share": True}, "normal_share is a number, not bool"),
        ({"recurring_share": None}, "recurring_share is a number, not NoneType"),
        ({"recurring_share": -0.5}, "recurring_share is -0.5: a share is 0 to 1"),
        ({"recurring_share": 1.001}, "recurring_share is 1: a share is 0 to 1"),
        ({"related": None}, "related is list or tuple, not NoneType"),
        ({"related": [3]}, "related[0] is a view, not int"),
    ],
)
def test_what_no_report_can_show_fails_the_rule(analysis: Analysis, given: dict[str, Any], said: str) -> None:
    assert said in why(analysis, yielding(lambda work, _: hit(work, **given)))


def test_numbers_of_numpy_become_pythons(analysis: Analysis) -> None:
    evidence = {"ops": {"mm": np.uint8(200), "add": np.int16(100)}, "sizes": [(np.int64(3), [np.float32(2)])]}
    (found,) = judged(
        analysis,
        yielding(lambda work, _: hit(work, message="{ops}", evidence=evidence)),
        claims=Claims.RECORDING,
    ).findings
    assert found.message == "mm (67 % of this time), add (33 %)"
    assert found.evidence["sizes"] == [(3, [2.0])]
    assert b'"sizes":[[3,[2.0]]]' in to_json(found.evidence)


def test_a_view_is_not_a_list_of_related_ones(analysis: Analysis) -> None:
    assert "related is list or tuple, not Work" in why(
        analysis, yielding(lambda work, _: hit(work, related=work))
    )


def test_what_may_be_said_passes(analysis: Analysis) -> None:
    work = analysis.index(Work)
    evidence: dict[str, Any] = {
        "kernels_ns": work.total_ns,
        "ops": {"mm": 3, "add": 0.0},
        "sure": True,
        "slope": -0.5,
        "rows": [{"a": [1, None, "b"]}],
        "wait_ns": None,
        "times": 3,
    }
    message = "{{a.b}} takes {total}, {ops:of these ops' time}, {kernels}"
    advice = "Use {torch.compile} for void f<{lambda(int)#1}>, {anonymous}::g, or pass {fused=True}."
    check(Hits(occurrences=work, message=message, advice=advice, evidence=evidence))
    rounded = 1.0 + 1e-12  # as a quotient of sums may be
    check(hit(work, evidence={"gpu_share": rounded}, normal_share=rounded, recurring_share=rounded))


@pytest.mark.parametrize(
    "excess", [np.array([True, False]), np.array([1, 2], np.int32), np.array([0.5, 1.0]), [1, 2]]
)
def test_an_excess_is_int64(analysis: Analysis, excess: Any) -> None:
    with pytest.raises(TypeError, match="excess_ns is an int64 array of one dimension, not"):
        LostTime.excess(analysis.index(Work), excess)
