"""Operations of regions, and the step's model FLOPs utilisation."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.comparison.programs import ADDED, MM, built
from tests.support.region_programs import CodeProgram
from traceanalyzer.cli.app import cli
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.regions.regions import RegionRates, Regions

# Two products a step of 512 x 512 x 512, a multiplication and an addition each.
FLOPS = 2 * 2 * 512**3


def test_a_step_is_held_against_the_peak_of_its_arithmetic() -> None:
    analysis = Analysis(built([MM, ADDED, MM]).load())
    rates, regions = analysis.index(RegionRates), analysis.index(Regions)
    assert rates.flops[0] == FLOPS
    assert rates.peaks == {"bf16": 989.5}
    assert rates.mfu == pytest.approx(FLOPS / 989.5e3 / regions.step_ns)
    assert rates.tflops[0] == pytest.approx(FLOPS / regions.totals["gpu_ns"][0] / 1e3)


def test_each_region_has_its_rate(tmp_path: Path) -> None:
    path = str(built([MM, ADDED]).write(tmp_path / "trace.json"))
    found = json.loads(CliRunner().invoke(cli, ["regions", path, "--format", "json"]).output)
    flops = {row["name"]: row["flops"] for row in found["regions"]}
    assert flops == {"step": FLOPS / 2, "aten::mm": FLOPS / 2, "aten::add": None}
    assert found["mfu_peaks"] == {"device": "H200 SXM", "tflops": {"bf16": 989.5}}
    text = CliRunner().invoke(cli, ["regions", path]).output
    assert "; MFU 0.0 % of 989.5 TFLOP/s bf16 (H200 SXM)\n" in text
    assert "of peak  region" in text


def test_without_shapes_no_rate_is_known() -> None:
    program = CodeProgram()
    program.op("aten::mm")
    program.end_step()
    with pytest.raises(Unavailable, match="no shapes"):
        Analysis(program.trace.load()).index(RegionRates)
