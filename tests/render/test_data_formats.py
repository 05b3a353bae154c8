"""Data for other tools: comparisons, fingerprints, JSON, CSV, JUnit, SARIF and GitHub."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from tests.report import report_samples as samples
from tests.report.report_samples import MS
from tests.support.comparison_samples import STEP, VERDICT, WORK, compared, counted, fault, row
from traceanalyzer.allocator.memory_view import DeviceMemory
from traceanalyzer.comparison.result import Axes, Part, Waterfall, Word
from traceanalyzer.model.finding import Finding, Outcome, Severity, Status
from traceanalyzer.render.data.ci import fingerprint, render_github, render_junit, render_sarif, source_line
from traceanalyzer.render.data.comparison import comparison_document, comparison_markdown
from traceanalyzer.render.data.encode import signature, to_json
from traceanalyzer.render.data.json import document
from traceanalyzer.render.data.table import facts_fields, facts_frame, memory_fields, ops_fields, records, table_csv
from traceanalyzer.report.facts import Fact


def test_a_comparison_without_changes_is_its_verdict_and_reasons() -> None:
    because = ("<b> & [c]|`d`\\",)
    verdict = replace(VERDICT, headline="a_b is *slower*.", because=because, settle="record again")
    assert comparison_markdown(compared(verdict=verdict)) == (
        "### traceanalyzer: slower\n\na\\_b is \\*slower\\*.\n\n- &lt;b&gt; & \\[c\\]\\|\\`d\\`\\\\\n\n"
        "To settle it: record again.\n\n"
    )
    assert "To settle it" not in comparison_markdown(compared())
    evil = comparison_markdown(compared(verdict=replace(VERDICT, headline="a\x1b[2Jb")))
    assert "a\\\\x1b\\[2Jb" in evil


def test_comparison_tables_have_counters_parts_and_changes() -> None:
    parts = [Part("compute", f"part {at}", 0, 1, ns * MS) for at, ns in enumerate((3, 0, -2, 1, 1, 1, 1, 1, 1, 1, -4))]
    text = comparison_markdown(
        compared(
            axes=Axes((counted("launches", 3, 5), counted("waits", 1, 1, Word.SAME)), None, STEP),
            waterfall=Waterfall(10 * MS, 14 * MS, tuple(parts), {}),
            rows=(*(row(f"aten::op{at}", Word.FASTER, delta_ns=-MS) for at in range(11)), row("aten::same", Word.SAME)),
            faults=(fault("new", said_share=None), fault("unchanged"), fault("gone", said_share=None)),
            notes=("first_note", "second"),
        )
    )
    lines = text.splitlines()
    assert "| launches | 3 -&gt; 5 | aten::mm |" in lines
    assert "waits" not in text
    at = lines.index("| BASE | 10.0 ms |")
    assert lines[at + 1 : at + 11] == [
        "| compute: part 0 | +3.00 ms |",
        "| compute: part 2 | -2.00 ms |",
        *(f"| compute: part {part} | +1.00 ms |" for part in range(3, 9)),
        "| 2 other parts | -3.00 ms |",
        "| NEW | 14.0 ms |",
    ]
    assert sum(line.startswith("| aten::linear &gt; aten::op") for line in lines) == 10
    assert "| aten::linear &gt; aten::op0 | faster | 4 x, 2.00 ms -&gt; 2.00 ms | -1.00 ms |" in lines
    assert [line for line in lines if line.startswith("- ")][2:] == ["- new: title of new", "- gone: title of gone"]
    assert text.endswith("\n> first\\_note\n\n> second\n")


def test_comparison_document_has_all_but_drawn_steps() -> None:
    made = comparison_document(compared(notes=("note",), rungs={"op": 1.0}))
    assert made["notes"] == ("note",)
    assert made["rungs"] == {"op": 1.0}
    assert made["tool"]["name"] == "traceanalyzer"
    assert "strips" not in made
    names = {"base", "new", "verdict", "axes", "waterfall", "rows", "faults", "ranks"}
    assert names <= set(made)
    assert WORK.count == 4.0


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"message": "other words", "cost_ns": 1, "start_ns": 5}, True),
        ({"evidence": {"lines": {"/home/you/a.py(99): f": 1}}}, True),  # the line and the folder move
        ({"evidence": {"lines": {"/home/me/a.py(3): g": 1}}}, False),
        ({"evidence": {"lines": {"/home/me/b.py(3): f": 1}}}, False),
        ({"evidence": {}}, False),
        ({"rule": "hotspot"}, False),
        ({"cause": "early"}, False),
        ({"by": "aten::add"}, False),
        ({"by": None}, False),
    ],
)
def test_a_finding_is_known_again_by_what_does_not_move(changes: dict[str, Any], same: bool) -> None:
    one = samples.finding(0, by="aten::mm", evidence={"lines": {"/home/me/a.py(3): f": 1}})
    assert (fingerprint(replace(one, **changes)) == fingerprint(one)) is same
    assert len(fingerprint(one)) == 32


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ((1 << 64) - 1, b"18446744073709551615"),
        (1 << 64, b"1.8446744073709552e19"),
        (-(1 << 63), b"-9223372036854775808"),
        (-(1 << 63) - 1, b"-9.223372036854775808e18"),
        (10**307, b"1e307"),
        (10**309, b"null"),
        ("\udc80", b'"\\\\udc80"'),
        ({"\udc80": ("\udc81", [1 << 64])}, None),
        ("\x80 \x9f \xa0", '"\\u0080 \\u009f \xa0"'.encode()),
    ],
)
def test_what_json_cannot_hold_becomes_what_it_can(value: object, written: bytes | None) -> None:
    made = to_json(value)
    if written is None:
        assert json.loads(made) == {"\\udc80": ["\\udc81", [float(1 << 64)]]}
    elif b"e" in written:
        assert json.loads(made) == pytest.approx(json.loads(written))
    else:
        assert made == written


def test_signatures_keep_texts_and_write_all_else_as_json() -> None:
    made = signature(source="a\udc80", more=[1, "b"])
    assert made["traceanalyzer.source"] == "a\\udc80"
    assert made["traceanalyzer.more"] == '[1,"b"]'
    assert {"traceanalyzer.version", "traceanalyzer.schema_version"} < set(made)


def test_facts_have_all_their_events_and_values() -> None:
    fact = Fact("peak", "It is so.", {"gbps": 2.5}, (1, 2, 3, 4, 5))
    said = {"name": "peak", "text": "It is so."}
    written = said | {"values": {"gbps": 2.5}, "event_ids": (1, 2, 3, 4, 5)}
    assert facts_fields([fact]) == {"facts": [written]}
    (row,) = facts_frame([fact]).to_dict("records")
    assert row == said | {"values": '{"gbps":2.5}', "event_ids": "[1,2,3,4,5]"}


def test_json_trace_has_window_and_every_step_time() -> None:
    steps = samples.steps(cold=samples.times(1, 60 * MS), steady=samples.times(3, 20 * MS))
    trace = samples.trace(steps=steps, together=samples.estimate(9 * MS), step=samples.estimate(), unavailable=None)
    (made,) = document(samples.report(trace))["traces"]
    window = trace.window
    assert made["window"] == {"start_ns": window.start_ns, "end_ns": window.end_ns, "length_ns": 100 * MS}
    assert made["steps"]["median_ns"] == 25 * MS
    assert made["steps"]["steady"]["median_ns"] == 20 * MS
    assert made["steps"]["cold"]["count"] == 1
    assert "every" not in made["steps"]
    assert made["together"].unprofiled_ns == 9 * MS
    assert made["step"].unprofiled_ns == 18 * MS
    assert made["unavailable"] == {}
    two = samples.trace(accounting=(samples.accounting(), samples.accounting(device=1)))
    assert [one["device"] for one in document(samples.report(two))["accounting"]] == [0, 1]


def test_a_table_as_csv_leaves_the_table_and_has_lists_as_json() -> None:
    frame = pd.DataFrame({"name": ["a\x1bb\x1f", "c,d"], "stack": [["x", "y"], []]})
    assert table_csv(frame) == b'name,stack\na\\x1bb\\x1f,"[""x"",""y""]"\n"c,d",[]\n'
    assert frame["stack"][0] == ["x", "y"]
    assert records(pd.DataFrame({"n": pd.array([1, None], "Int64")})) == [{"n": 1}, {"n": None}]


def test_views_in_json_have_every_table_at_its_place() -> None:
    one, two, three = (pd.DataFrame({"n": [at]}) for at in (1, 2, 3))
    work: Any = SimpleNamespace(window_ns=5, steps=2, peaks={0: None}, ops=one, shapes=two, kernels=three)
    tables = {"ops": [{"n": 1}], "inputs": [{"n": 2}], "kernels": [{"n": 3}]}
    assert ops_fields(work) == {"window_ns": 5, "steps": 2, "peaks": {"0": None}} | tables
    numbers = dict.fromkeys(DeviceMemory.__dataclass_fields__, 0)
    device = DeviceMemory(**{**numbers, "before_bytes": 7, "alive": one, "kept": two, "uses": three})  # type: ignore[arg-type]
    view: Any = SimpleNamespace(devices=(device,), calls=three, out_of_memory=4)
    made = memory_fields(view, one)
    assert (made["ops"], made["calls"], made["out_of_memory"]) == ([{"n": 1}], [{"n": 3}], 4)
    (told,) = made["devices"]
    assert (told["before_bytes"], told["alive_at_peak"], told["not_freed"]) == (7, [{"n": 1}], [{"n": 2}])
    assert told["uses_at_peak"] == [{"n": 3}]
    assert "curve" not in told


def test_rank_suite_has_its_rules_and_one_has_the_jobs() -> None:
    outcomes = (
        Outcome("a", Status.FOUND, None, 0),
        Outcome("b", Status.NOT_APPLICABLE, "no steps", 0),
        Outcome("a", Status.CLEAR, None, 1),
        Outcome("job", Status.FOUND),
        Outcome("late", Status.FAILED, "ValueError"),
    )
    failing = [samples.finding(0, rule=rule, rank=rank) for rule, rank in (("a", 0), ("a", 0), ("job", 1))]
    root = ElementTree.fromstring(render_junit(replace(samples.two_ranks(), outcomes=outcomes), failing))
    counts = ("name", "tests", "failures", "errors", "skipped")
    assert [tuple(suite.get(name) for name in counts) for suite in root] == [
        ("rank0.json", "2", "1", "0", "1"),
        ("rank1.json", "1", "0", "0", "0"),
        ("all ranks", "2", "1", "1", "0"),
    ]
    failure = root[0][0].find("failure")
    assert failure is not None
    assert len((failure.text or "").splitlines()) == 2


def placed(lines: Any, **changes: Any) -> Finding:
    """A finding with its time by line."""
    return samples.finding(0, evidence={"lines": lines}, **changes)


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ({"a.py(3): f": 5, "b.py(4): g": 9}, ("b.py", 4, "g")),
        ({"b.py(4): g": 5, "a.py(3): f": 5}, ("a.py", 3, "f")),
        ({"<built-in method item>": 9, "a.py(3): f": 5}, ("a.py", 3, "f")),
        ({"a.py(3): f": None, "b.py(4): g": 0.5}, ("b.py", 4, "g")),
        ({"my (1) dir/a.py(30): <lambda>": 1}, ("my (1) dir/a.py", 30, "<lambda>")),
        ({"a.pyx(3): f": 5}, None),
        ({}, None),
        (["a.py(3): f"], None),
        (None, None),
    ],
)
def test_line_of_a_finding_has_most_of_its_time(lines: Any, place: tuple[str, int, str] | None) -> None:
    found = source_line(placed(lines))
    assert (found and (found.file, found.line, found.function)) == place


def test_commands_of_github_escape_what_would_end_them() -> None:
    texts = {"rule": "a:b,c%d", "message": "100 %:\r\nso, it", "advice": "Do.", "title": "1, 2"}
    found = placed({"C:\\a,b.py(3): f": 1}, cause="", by=None, **texts)
    assert render_github(samples.report(findings=(found,))) == (
        "::error file=C%3A\\a%2Cb.py,line=3,title=1%2C 2 (a%3Ab%2Cc%25d%2C high)::100 %25:%0D%0Aso, it. Do.\n"
    )


@pytest.mark.parametrize(
    ("known", "command", "words"),
    [("high", "notice", "known"), ("low", "warning", "more severe"), (None, "warning", "new")],
)
def test_a_baseline_decides_the_command_and_the_mark(known: str | None, command: str, words: str) -> None:
    found = samples.finding(0, severity=Severity.MEDIUM)
    before = {} if known is None else {fingerprint(found): Severity(known).rank}
    (line,) = render_github(samples.report(findings=(found,)), before).splitlines()
    assert line.startswith(f"::{command} ")
    assert f"medium, {words})::" in line.replace("%2C", ",")


def test_github_is_told_of_what_is_above_info_by_its_severity() -> None:
    every = tuple(replace(samples.finding(0), severity=severity) for severity in Severity)
    lines = render_github(samples.report(findings=every)).splitlines()
    assert [line.split(" title=")[0] for line in lines] == ["::error", "::warning", "::notice"]


def test_sarif_has_uris_lines_from_one_and_each_rule_once() -> None:
    found = (
        placed({"my dir\\a.py(0): f": 1}, rule="z-rule"),
        samples.finding(0, rule="unplaced"),
        placed({"b.py(7): g": 1}, rule="a-rule", severity=Severity.INFO, saving=samples.saving()),
        placed({"c.py(8): g": 1}, rule="z-rule", severity=Severity.LOW),
    )
    run = json.loads(render_sarif(samples.report(findings=found), {"a-rule": "What A is"}))["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert rules == [
        {"id": "a-rule", "shortDescription": {"text": "What A is"}},
        {"id": "z-rule", "shortDescription": {"text": "z-rule"}},
    ]
    places = [one["locations"][0]["physicalLocation"] for one in run["results"]]
    assert [(one["artifactLocation"]["uri"], one["region"]["startLine"]) for one in places] == [
        ("my%20dir/a.py", 1),
        ("b.py", 7),
        ("c.py", 8),
    ]
    levels = [(one["ruleIndex"], one["level"]) for one in run["results"]]
    assert levels == [(1, "error"), (0, "none"), (1, "note")]
    assert [one["properties"]["saving"] for one in run["results"]] == [None, 0.5, None]


def test_junit_counts_what_failed_was_skipped_and_could_not_run() -> None:
    outcomes = (
        Outcome("a", Status.FOUND),
        Outcome("b", Status.FOUND),
        Outcome("c", Status.NOT_APPLICABLE, "no \x1b\ud800steps"),
        Outcome("d", Status.NOT_APPLICABLE),
        Outcome("e", Status.FAILED, "ZeroDivisionError"),
        Outcome("f", Status.CLEAR, "costs too little"),
    )
    failing = [replace(samples.finding(0), rule="a", message=f"says {at}", advice="Do.") for at in range(2)]
    (suite,) = ElementTree.fromstring(render_junit(samples.report(outcomes=outcomes), failing))
    counts = {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "6", "failures": "1", "errors": "1", "skipped": "2"}
    inside = {case.get("name"): [(one.tag, one.get("message")) for one in case] for case in suite}
    assert inside == {
        "a": [("failure", "high: says 0. Do.")],
        "b": [],
        "c": [("skipped", "no \ufffd\\ud800steps")],
        "d": [("skipped", "")],
        "e": [("error", "ZeroDivisionError")],
        "f": [],
    }
    assert suite.findtext("testcase/failure") == "high: says 0. Do.\nhigh: says 1. Do."
