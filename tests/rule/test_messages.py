"""What findings say of their hits, which fields a message may name, and where limits come from."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.support.built_findings import MS, STEP, findings, only, scope, traced
from tests.support.failing_rules import hit, why, yielding
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import MAX_OCCURRENCES
from traceanalyzer.model.texts import Texts
from traceanalyzer.rule import Hits, LostTime, Work
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.messages import filled, message_fields, singular
from traceanalyzer.rule.registry import LimitInfo, limits_of


def test_costs_per_step_and_steps() -> None:
    found = only((0, 4 * MS), (2 * MS * 13, 4 * MS), (27 * MS, MS))
    assert (found.steps, found.cost_per_step_ns) == (2, found.cost_ns // 4)


def test_only_the_costliest_occurrences_are_listed() -> None:
    many = [(number * 20_000, 1_000 + number) for number in range(MAX_OCCURRENCES + 5)]
    found = only(*many)
    assert (found.count, len(found.occurrences)) == (MAX_OCCURRENCES + 5, MAX_OCCURRENCES)
    assert min(o.cost_ns for o in found.occurrences) == 1_005


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{op} {delay} {moved} {ratio}", "aten::mm 12.3 µs 1.00 MiB 0.25"),
        ("{count} {times} {delay_of_step}", "2 twice 12.3 µs"),
        ("{total} {share} {per_step}", "2.00 ms 2.0 % 500 µs"),
        ("{in_steps} {times_a_step}", "in 2 of 4 steps in 2 of 4 steps, once each"),
        ("{nothing} {shape} {flag}", "unknown 4, 1,024 True"),
        ("{ops}", "aten::mm (75 % of this time), aten::add (25 %)"),
        ("{one}", "aten::mm"),
        ("{most}", "aten::mm"),
        ("{none}", "aten::mm (0 % of this time)"),
        ("{size}", "5"),
        ("{by}", "gemm"),
    ],
)
def test_message_fields(template: str, text: str) -> None:
    evidence = {
        "op": "aten::mm",
        "delay_ns": 12_345,
        "moved_bytes": 1 << 20,
        "ratio": 0.25,
        "nothing": None,
        "shape": [4, 1024],
        "flag": True,
        "size": np.int64(5),
        "ops": {"aten::mm": 3, "aten::add": 1},
        "one": {"aten::mm": 3},
        "most": {"aten::mm": 999, "aten::add": 1},
        "none": {"aten::mm": 0, "aten::add": 0},
    }
    found = only((0, MS), (30 * MS, MS), named_by="gemm", message=template, evidence=evidence)
    assert found.message == text
    assert type(found.evidence["size"]) is int


def test_a_message_without_its_evidence_is_a_fault_of_the_rule() -> None:
    with pytest.raises(ValueError, match=r"message names \{absent\}"):
        only((0, MS), message="{absent}")


def test_work_queued_before_the_first_step_is_of_no_step() -> None:
    trace = TraceBuilder()
    for number in range(4):
        trace.step(number, (number + 1) * STEP, STEP)
        trace.launched(((number + 1) * STEP + MS, 1_000), ((number + 1) * STEP + 2 * MS, MS), number + 1)
    for number in range(3):
        trace.kernel(number * MS, MS, 90 + number)
    work = Analysis(trace.load()).index(Work)
    (found,) = findings([Hits(work, "{times_a_step}, {times}", "a.")], scope(5 * STEP))
    assert found.message == "once a step, 7 times"


@pytest.mark.parametrize(
    ("count", "in_steps", "steps", "text"),
    [
        (4, 4, 4, "once a step"),
        (8, 4, 4, "twice a step"),
        (6, 4, 4, "1.5 times a step"),
        (23, 20, 20, "once a step"),  # 15 % of 1.15 are more than what it is off
        (24, 20, 20, "1.2 times a step"),
        (12, 3, 4, "4 times a step"),
        (5, 1, 4, "5 times"),
        (1, 1, 1, "once"),
        (4_000, 2, 2, "2,000 times a step"),
        (90, 20, 20, "4 times a step"),  # 4.5
        (3, 3, 4, "once a step"),
        (2, 2, 4, "in 2 of 4 steps, once each"),
        (3, 2, 4, "3 times in total, in 2 of 4 steps"),
        (7, 0, 0, "7 times"),
    ],
)
def test_rate_per_step_is_whole_if_about_right(count: int, in_steps: int, steps: int, text: str) -> None:
    fields = message_fields({}, (99, count), in_steps, steps)
    assert (fields["times"], fields["times_a_step"]) == ("99 times", text)


def test_a_number_a_step_is_the_number_alone() -> None:
    assert message_fields({}, (6, 6), 4, 4)["number_a_step"] == "1.5 a step"
    assert message_fields({}, (4_000, 4_000), 2, 2)["number_a_step"] == "2,000 a step"
    assert message_fields({}, (1, 1), 0, 0)["in_steps"] == "over the window"


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"a": 50, "b": 30, "c": 15, "d": 5}, "a (50 % of these waits), b (30 %), c (15 %)"),
        ({"a": 994, "b": 6, "c": 4}, "a (99 % of these waits), b (1 %)"),
        ({"a": 995, "b": 4}, "a"),
        ({" a ": 1}, "a"),
    ],
)
def test_three_largest_nonzero_parts_are_named(parts: dict[str, int], text: str) -> None:
    assert only((0, MS), message="{ops:of these waits}", evidence={"ops": parts}).message == text


@pytest.mark.parametrize(
    ("in_steps", "steps", "each"),
    [
        (4, 4, "300 µs"),
        (3, 4, "300 µs"),  # three quarters; over all of the steps
        (2, 2, "600 µs"),
        (2, 3, None),
        (1, 1, None),
        (0, 4, None),
    ],
)
def test_a_total_is_over_the_steps_where_three_quarters_have_it(in_steps: int, steps: int, each: str | None) -> None:
    """Of 2 ms 60 % are within the steps."""
    fields = message_fields({"spent_ns": 2 * MS}, (4, 4), in_steps, steps, within=0.6)
    told = [fields[name] for name in ("spent_a_step", "spent_of_step", "spent_on_average")]
    in_total = ["2.00 ms in total", "2.00 ms", "2.00 ms in total"]
    assert told == ([f"{each} a step", each, f"{each} a step on average"] if each else in_total)


def test_of_a_window_totals_are_what_it_has_of_them() -> None:
    """What a rule adds up is of all of the trace; what the finding has in total is of the window already."""
    fields = message_fields({"spent_ns": 6 * MS, "total_ns": 2 * MS}, (2, 2), 2, 2, part=0.5)
    assert fields["spent_a_step"] == "1.50 ms a step"
    assert fields["total_a_step"] == "1.00 ms a step"
    assert fields["spent"] == "6.00 ms"


@pytest.mark.parametrize(
    ("lost_ns", "text"),
    [(MS, ""), (5 * MS // 4 + 5, "; 250 µs a step of this time counts here, the rest in other findings")],
)
def test_what_other_findings_have_of_the_lost_time_is_told(lost_ns: int, text: str) -> None:
    fields = message_fields({"total_ns": MS}, (4, 4), 4, 4, lost_ns=lost_ns)
    assert fields["elsewhere"] == text


@pytest.mark.parametrize(
    ("in_steps", "steps", "text"),
    [
        (0, 3, "over the window"),
        (1, 1, "in the one recorded step"),
        (2, 2, "in every step"),
        (1, 2, "in 1 of 2 steps"),
        (2_000, 2_001, "in 2,000 of 2,001 steps"),
    ],
)
def test_steps_are_said_as_people_say_them(in_steps: int, steps: int, text: str) -> None:
    assert message_fields({}, (1, 1), in_steps, steps)["in_steps"] == text


@pytest.mark.parametrize(("lost_ns", "shared"), [(10 * MS, False), (10 * MS + 2, True)])
def test_finding_with_four_fifths_omits_the_others(lost_ns: int, shared: bool) -> None:
    fields = message_fields({"total_ns": 8 * MS}, (4, 4), 4, 4, lost_ns=lost_ns)
    assert bool(fields["elsewhere"]) is shared


def test_numbers_and_lists_are_plain() -> None:
    given = {"ratio": 0.12345, "large": 1234.5, "rows": [12_345, 0.5, None, True], "flag": False, "name": "a"}
    fields = message_fields(given, (1, 1), 0, 0)
    texts = ["0.123", "1.23e+03", "12,345, 0.5, unknown, True", "False", "a"]
    assert [fields[name] for name in given] == texts
    assert filled("{name} ", fields) == "a "
    for message in (" {empty}", "\n"):
        with pytest.raises(ValueError, match="says nothing: its fields are empty"):
            filled(message, {"empty": " "})


def test_the_engines_words_are_left_out_of_all_fields() -> None:
    name = "autograd::engine::evaluate_function: MmBackward0"
    fields = message_fields({"op": name, "ops": {name: 3, "aten::mm": 1}}, (1, 1), 0, 0)
    assert fields["op"] == "MmBackward0"
    assert f"{fields['ops']:of it}" == "MmBackward0 (75 % of it), aten::mm (25 %)"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("takes {totl}", r"message names \{totl\}; its fields are share, total"),
        ("{by} waits", r"message names \{by\}: give named_by; its fields are share, total"),
        ("takes {total:.1f}", "Unknown format code 'f'.*its fields are texts"),
        ("takes {total", "'takes {total': expected '}'"),
    ],
)
def test_unfillable_message_lists_available_fields(message: str, why: str) -> None:
    fields = {"total": "3.1 ms", "share": "4 %"}
    assert filled("takes {total}", fields) == "takes 3.1 ms"
    with pytest.raises(ValueError, match=why):
        filled(message, fields)


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


@pytest.mark.parametrize("message", ["{share} of the window", "{share} of the recorded time", "{share} of GPU time"])
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
    found = only(*((STEP * number + MS, MS) for number in steps), message=f"idle for {{per_step}} {each}; {{total}}")
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
    given: dict[str, Any] = {"lost": LostTime.none(), "info": True, "evidence": {"who": names}}
    hits = Hits(work, "{who}", "a.", **given)
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


@dataclass(frozen=True, slots=True)
class Limits:
    """Some limits."""

    min_gap_ns: int = 2_000
    """shortest gap on an
    H200"""
    min_share: float = 0.005
    """where low begins"""
    min_bytes: int = 1 << 20
    """one page"""
    least: float = 0.5


def test_limits_are_listed_with_value_unit_and_source() -> None:
    listed = list(limits_of(Limits()))
    assert listed[0] == LimitInfo("min_gap_ns", 2_000, "shortest gap on an H200")
    assert [one.shown for one in listed] == ["2.00 µs", "0.50 %", "1.00 MiB", ""]
    assert listed[3] == LimitInfo("least", 0.5, "")


def test_limits_are_plain_fields() -> None:
    assert Limits().min_gap_ns == 2_000
    assert next(limits_of(replace(Limits(), min_gap_ns=7))).value == 7
    assert list(limits_of(None)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A loop repeats 1 ops, with 1 launches each", "A loop repeats 1 op, with 1 launch each"),
        ("rank 1 launches 21 kernels", "rank 1 launches 21 kernels"),
        ("runs 1 passes 2 times a step, 12 times in total", "runs 1 pass twice a step, 12 times in total"),
        ("1 times as long, 2 times the tokens", "1 times as long, 2 times the tokens"),
    ],
)
def test_counts_of_one_are_singular(text: str, expected: str) -> None:
    assert singular(text) == expected
