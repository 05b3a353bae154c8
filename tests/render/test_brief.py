"""The brief for somebody who repairs a program without the tool."""

from pathlib import Path

import pytest

from tests.cli.commands import call
from tests.support.fixtures import FIXTURES
from tests.support.paths import SHARED
from traceanalyzer import diagnose
from traceanalyzer.render.text.brief import MAX_LINES
from traceanalyzer.rule.idioms import repairs
from traceanalyzer.rule.registry import all_rules

ITEM = FIXTURES / "implicit-sync" / "bad.json.gz"


def lines_of(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


def test_a_brief_has_problem_place_change_and_commands() -> None:
    text = diagnose(ITEM).brief()
    assert lines_of(text, "## ")[-2:] == ["## Where the step goes", "## How to verify"]
    assert lines_of(text, "## Change 1:") == [
        "## Change 1: aten::item reads a value back and makes the CPU wait 10 times a step, "
        "in step() (reading_back.py:19)"
    ]
    assert lines_of(text, "- Precondition:")[0].startswith("- Precondition: no code of the step decides by the value")
    assert "# before\ntotal += loss.item()" in text
    assert lines_of(text, "traceanalyzer ") == [
        "traceanalyzer record --shapes --stacks -o before.json.gz -- python PROGRAM.py   # before the change",
        "traceanalyzer record --shapes --stacks -o after.json.gz -- python PROGRAM.py",
        "traceanalyzer compare before.json.gz after.json.gz",
    ]
    assert lines_of(text, "Expect ")


def test_each_change_says_what_to_expect_with_those_before_it() -> None:
    report = diagnose(FIXTURES / "data-movement" / "bad.json.gz")
    (trace,) = report.traces
    after = [fault.step_after for fault in trace.faults if fault.step_after is not None]
    assert len(after) >= 2
    steps = [one.unprofiled_ns for one in after]
    assert steps == sorted(steps, reverse=True)
    assert after[-1] == trace.together
    expected = lines_of(report.brief(), "- Expect: ")
    assert len(expected) == len(after) - 1


def test_what_no_trace_can_answer_is_a_change_to_check() -> None:
    text = diagnose(SHARED / "real" / "gpt2_train.eager.json.gz").brief()
    (change,) = [part for part in text.split("## Change")[1:] if "loss-head" in part]
    assert "head(hidden[index])" in change


def test_an_example_is_left_out_if_the_script_lacks_its_code(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("for x in loader:\n    step(x)\n")
    assert "total += loss.item()" not in diagnose(ITEM).brief(script)
    script.write_text("for x in loader:\n    print(step(x).item())\n")
    assert "total += loss.item()" in diagnose(ITEM).brief(script)


def test_a_repair_that_the_script_has_is_named(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("model = torch.compile(model)\n")
    text = diagnose(FIXTURES / "unfused-pointwise" / "bad.json.gz").brief(script)
    assert "- Line 1 has this already (`model = torch.compile(model)`): look at the precondition first." in text


@pytest.mark.parametrize("fixture", ["launch-bound", "unfused-pointwise", "repeated-calls", "compile"])
def test_a_brief_has_at_most_150_lines(fixture: str) -> None:
    assert len(diagnose(FIXTURES / fixture / "bad.json.gz").brief().splitlines()) <= MAX_LINES


def test_a_trace_without_a_problem_still_has_its_regions() -> None:
    text = diagnose(FIXTURES / "healthy" / "train.json.gz").brief()
    assert "| of step | CPU | GPU | GPU idle | calls | region |" in text
    assert "- No change is known that saves time." in text or "may help" in text


def test_the_command_writes_the_brief_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "brief.md"
    call("brief", ITEM, "-o", path)
    assert path.read_text(encoding="utf-8").startswith("# Repair brief\n\nbad.json.gz; NVIDIA H200;")


def test_every_repair_is_of_a_rule_and_its_causes() -> None:
    causes = {rule.slug: {"", *rule.causes} for rule in all_rules()}
    assert [row for row in repairs() if row.cause not in causes.get(row.rule, ())] == []
    assert [row.rule for row in repairs() if not (row.before and row.after and row.needs and row.results)] == []


@pytest.mark.skipif(not SHARED.exists(), reason="the shared traces are not there")
def test_the_function_of_a_finding_is_quoted_once(tmp_path: Path) -> None:
    script = tmp_path / "corpus9.py"
    script.write_text("\n" * 124 + "@classmethod\ndef __torch_function__(cls, func):\n    return func()\n")
    text = diagnose(SHARED / "seventh" / "photo_train.bad.json.gz").brief(script)
    assert lines_of(text, "- Where: ")[0] == "- Where: `__torch_function__()` at line 125 of `corpus9.py`"
    assert lines_of(text, " 125  ") == [" 125  @classmethod"]
