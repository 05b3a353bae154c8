"""`traceanalyzer regions`: the tree as text, JSON and rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from traceanalyzer.cli.app import cli

Shared = Callable[[str], Path]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["regions", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_regions_name_annotations_and_repeated_blocks(shared: Shared) -> None:
    text = run(str(shared("sixth/lm_small_train.bad")))
    assert "Optimizer.step#Muon.step" in text
    assert "24 x to, " in text
    assert "6 x layer_norm, " in text


def test_depth_limits_the_text_only(shared: Shared) -> None:
    path = str(shared("sixth/lm_small_train.bad"))
    assert len(run(path, "--depth", "1").splitlines()) < len(run(path, "--depth", "3").splitlines())
    whole, flat = (json.loads(run(path, "--format", "json", "--depth", str(depth))) for depth in (9, 1))
    assert whole["regions"] == flat["regions"]


def test_order_by_gpu_time_begins_with_most_of_it(shared: Shared) -> None:
    document = json.loads(run(str(shared("real/gpt2_train.eager")), "--format", "json"))
    step, *regions = document["regions"]
    assert step["kind"] == "step"
    assert step["gpu_ns"] == max(region["gpu_ns"] for region in document["regions"])
    assert {"phase", "block", "op", "backward"} <= {region["kind"] for region in regions}
    assert "6 x layer_norm, " in run(str(shared("real/gpt2_train.eager")), "--by", "gpu").splitlines()[4]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_regions_as_rows(shared: Shared, form: str, tmp_path: Path) -> None:
    target = tmp_path / f"regions.{form}"
    run(str(shared("pairs/launch_bound.bad")), "--format", form, "--output", str(target))
    assert target.stat().st_size > 200


def test_a_trace_without_gpu_work_names_what_it_lacks(shared: Shared) -> None:
    result = CliRunner().invoke(cli, ["regions", str(shared("public/hta_cpu_only"))])
    assert "no kernels, copies or memsets" in str(result.exception)
