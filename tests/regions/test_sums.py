"""Regions summed by module, function or phase."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.region_programs import CodeProgram
from traceanalyzer import load
from traceanalyzer.cli.app import cli
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.regions.regions import Regions

Shared = Callable[[str], Path]


@pytest.fixture
def program() -> CodeProgram:
    """Two steps of a Block of a Linear (2 ops) and an op of its own, and of an op outside of modules."""
    program = CodeProgram()
    for _ in range(2):
        block = program.now
        program.op("aten::norm")
        linear = program.now
        program.ops(["aten::mm", "aten::add"])
        program.module("Linear", linear)
        program.module("Block", block)
        program.op("aten::sum")
        program.end_step()
    return program


def test_each_op_counts_for_the_innermost_module(program: CodeProgram) -> None:
    rows = Analysis(program.trace.load()).index(Regions).by_name("module")
    assert dict(zip(rows["name"], rows["gpu_ns"], strict=True)) == {"Linear": 4_000, "Block": 2_000, "": 2_000}
    assert dict(zip(rows["name"], rows["calls"], strict=True)) == {"Linear": 1, "Block": 1, "": 0}


def test_sums_add_up_to_the_step(program: CodeProgram) -> None:
    regions = Analysis(program.trace.load()).index(Regions)
    for kind in ("module", "function", "phase"):
        rows = regions.by_name(kind)
        assert rows["gpu_ns"].sum() == 8_000
        assert rows["predicted_ns"].sum() == pytest.approx(regions.totals["predicted_ns"][0], abs=len(rows))


def test_time_with_inner_modules_is_that_of_the_outermost(program: CodeProgram) -> None:
    rows = Analysis(program.trace.load()).index(Regions).by_name("module").set_index("name")
    block, linear = rows.loc["Block"], rows.loc["Linear"]
    assert block["with_inner_ns"] == pytest.approx(block["predicted_ns"] + linear["predicted_ns"], abs=2)


def test_ops_by_module_are_rows_of_text_and_data(program: CodeProgram, tmp_path: Path) -> None:
    path = str(program.trace.write(tmp_path / "trace.json"))
    text = CliRunner().invoke(cli, ["ops", path, "--by", "module"]).output
    assert [line.split()[-1] for line in text.splitlines()[-4:]] == ["module", "Linear", "module", "Block"]
    document = json.loads(CliRunner().invoke(cli, ["ops", path, "--by", "module", "--format", "json"]).output)
    assert [row["name"] for row in document["rows"]][:1] == ["Linear"]
    assert CliRunner().invoke(cli, ["ops", path, "--by", "function"]).output.startswith("No function is known")


def test_sums_have_no_markdown(program: CodeProgram, tmp_path: Path) -> None:
    path = str(program.trace.write(tmp_path / "trace.json"))
    result = CliRunner().invoke(cli, ["ops", path, "--by", "phase", "--format", "markdown"])
    assert result.exit_code != 0


def test_a_call_across_two_phases_counts_once(shared: Shared) -> None:
    rows = Analysis(load(shared("real/cnn_lab.eager"))).index(Regions).by_name("module").set_index("name")
    assert rows.loc["Conv2d", "calls"] == 2
    assert rows.loc["Flatten", "calls"] == 1
