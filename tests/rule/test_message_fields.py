"""Fields of one meaning, with one unit: what a message may name, and what a mapping is told as."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.built_findings import MS, STEP, findings, only, scope, traced
from tests.support.failing_rules import hit, why, yielding
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule import Hits, LostTime, Work
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.messages import message_fields


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return traced((1 * MS, 2 * MS), (30 * MS, 3 * MS))


@pytest.mark.parametrize(
    ("evidence", "message", "said"),
    [
        ({"gbps": 7}, "{gbps} GB/s", "7 GB/s"),
        ({"k_ns": 5 * MS}, "{k} so far", "5.00 ms so far"),
        ({"copies": 3}, "{copies} bytes", "3 bytes"),
        ({"most": 2**62 - 1}, "{most}", "4,611,686,018,427,387,903"),
        ({"k_ns": None}, "nothing of it", "nothing of it"),
        ({"times": 3}, "{times} as many", "3 as many"),
    ],
)
def test_what_is_clear_passes(evidence: dict[str, Any], message: str, said: str) -> None:
    assert only((0, MS), evidence=evidence, message=message, info=True).message == said


@pytest.mark.parametrize(
    "message", ["{share} of the window", "{share} of the recorded time", "{share} of GPU time"]
)
def test_a_share_is_of_the_window(message: str) -> None:
    assert only((0, MS), message=message).message == message.format(share="1.0 %")


@pytest.mark.parametrize(
    ("steps", "each", "said"),
    [
        ((0, 1, 2, 3), "of each step", "1.00 ms of each step"),
        ((0, 1, 2), "a step", "750 µs a step"),
        ((0, 1), "of each step", "2.00 ms in total"),
        ((2,), "a step", "1.00 ms in total"),
    ],
)
def test_what_few_steps_have_is_told_in_total(steps: tuple[int, ...], each: str, said: str) -> None:
    """Of four steps."""
    found = only(
        *((STEP * number + MS, MS) for number in steps), message=f"idle for {{per_step}} {each}; {{total}}"
    )
    assert found.message == f"idle for {said}; {len(steps)}.00 ms"


def test_what_is_not_known_is_not_named(analysis: Analysis) -> None:
    made = yielding(lambda work, _: hit(work, evidence={"k_ns": None}, message="takes {k}"))
    said = why(analysis, made, claims=Claims.RECORDING)
    assert "evidence k_ns is None here: leave its field out where it is not known" in said


def test_shares_and_what_is_of_a_step_are_not_divided_by_steps() -> None:
    evidence = {"part_share": 0.4, "share": 0.5, "per_step_ns": 5, "total_ns": 40 * MS, "k_ns": 8 * MS}
    fields = message_fields(evidence, (4, 4), 4, 4)
    assert (fields["part"], fields["share"], fields["k_a_step"]) == ("40.0 %", "50.0 %", "2.00 ms a step")
    assert fields["total_a_step"] == "10.0 ms a step"
    for name in ("per_step_a_step", "share_a_step", "_a_step", "per_step_of_step"):
        assert name not in fields
    only_a_share = message_fields({"k_share": 0.4, "total_ns": 0}, (4, 4), 4, 4)
    assert not [name for name in only_a_share if name.startswith("k_") and name != "k_share"]


@pytest.mark.parametrize(
    ("name", "parts", "said"),
    [
        ("ops", {"a": 3, "b": 1}, "a (75 % of this time), b (25 %)"),
        ("ops_ns", {"a": 3, "b": 1}, "a (75 % of this time), b (25 %)"),
        ("moved_bytes", {"a": 3, "b": 1}, "a (75 % of these bytes), b (25 %)"),
        ("moved_bytes", {"a": 3}, "a"),
        ("k_share", {"a": 0.5, "b": 0.25}, "a (50 %), b (25 %)"),
        ("k_share", {"a": 0.5}, "a (50 %)"),
        ("k_share", {"a": 1.0, "b": 0.999}, "a (100 %), b (100 %)"),
        ("k_times", {"a": 3.25, "b": 2, "c": 1.5, "d": 1}, "a (3.25), b (2), c (1.5)"),
        ("k_speedup", {"a": 7}, "a (7)"),
    ],
)
def test_a_mapping_is_told_by_its_unit(name: str, parts: dict[str, float], said: str) -> None:
    fields = message_fields({name: parts, "total_ns": 0}, (1, 1), 1, 1)
    assert f"{fields[name]}" == said
    assert f"{fields[name]:of it}" == said.replace("of this time", "of it").replace("of these bytes", "of it")


def test_texts_without_loss_follow_their_duration() -> None:
    work = traced((0, MS), (30 * MS, 3 * MS)).index(Work)
    names = Texts(np.array([0, 1]), np.array(["short", "long"], object))
    hits = Hits(
        occurrences=work,
        message="{who}",
        advice="a.",
        lost=LostTime.none(),
        info=True,
        evidence={"who": names},
    )
    (found,) = findings([hits])
    assert found.message == "long (75 % of this time), short (25 %)"


@pytest.mark.parametrize(("of_window", "said"), [((), "500 µs"), (("idle_ns",), "1.00 ms")])
def test_what_is_of_the_window_already_is_all_of_it(of_window: tuple[str, ...], said: str) -> None:
    """Four kernels of one length, of which the user's window has two, in two steps: 2 ms of idle time there."""
    work = traced(*((STEP * number + MS, MS) for number in range(4))).index(Work)
    given = {"evidence": {"idle_ns": 2 * MS}, "message": "{idle_a_step}", "of_window": of_window}
    asked = scope(2 * STEP, 2)
    asked = type(asked)(asked.rank, asked.start_ns, asked.end_ns, asked.steps, asked=True)
    (found,) = findings([hit(work, **given)], asked)
    assert found.message == f"{said} a step"
    (whole,) = findings([hit(work, **given)])
    assert whole.message == "500 µs a step"
