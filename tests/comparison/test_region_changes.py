"""Regions of both sides of a comparison."""

import json
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from tests.support.region_programs import CodeProgram
from traceanalyzer import compare
from traceanalyzer.cli.app import cli
from traceanalyzer.comparison.region_changes import RegionTime, region_changes
from traceanalyzer.comparison.result import RegionChange

Shared = Callable[[str], Path]


def step_of(**regions: float) -> dict[tuple[str, ...], RegionTime]:
    """A step of 100 ns of CPU time; functions by path, such as `train__hook`, with their time."""
    paths = {tuple(name.split("__")): RegionTime("function", ns, 0.0) for name, ns in regions.items()}
    return {(): RegionTime("step", 100.0, 10.0), **paths}


def test_of_nested_regions_that_is_listed_which_has_the_change() -> None:
    base = step_of(train=90, train__forward=80, train__forward__hook=40)
    new = step_of(train=52, train__forward=42, train__forward__hook=2)
    assert region_changes(base, new) == (RegionChange("hook", "function", "CPU", 40, 2, -38),)


def test_a_function_that_only_moves_is_not_listed() -> None:
    base = step_of(train=60, train__sample=50)
    new = step_of(wrapper=60, wrapper__sample=50)
    assert [(one.name, one.base_ns, one.new_ns) for one in region_changes(base, new)] == []


def test_regions_of_one_name_are_counted_together() -> None:
    base = step_of(encode=30, encode__hook=30, decode=20, decode__hook=20)
    new = step_of(encode=0, encode__hook=0, decode=0, decode__hook=0)
    assert region_changes(base, new) == (RegionChange("hook", "function", "CPU", 50, 0, -50),)


def program(calls: int) -> CodeProgram:
    """Three steps: 20 products, and a function on another line that adds so often."""
    one = CodeProgram()
    for _ in range(3):
        one.ops(["aten::mm", "aten::relu"] * 10)
        begin = one.now
        one.ops(["aten::add"] * calls)
        if calls:
            one.function("log_norms", begin)
        one.end_step()
    return one


def test_a_function_that_is_gone_stands_before_the_ops() -> None:
    found = compare(program(40).trace.load(), program(0).trace.load())
    (gone,) = found.regions
    assert (gone.name, gone.kind, gone.new_ns) == ("train.py: log_norms", "function", None)


def test_the_regions_of_recorded_programs(shared: Shared) -> None:
    sides = [str(shared(f"seventh/denoise_unet.{side}")) for side in ("bad", "fixed")]
    text = CliRunner().invoke(cli, ["compare", *sides]).output
    assert text.index("corpus9.py: hook()                                 7.4") < text.index("Work that changed")
    rows = json.loads(CliRunner().invoke(cli, ["compare", *sides, "--format", "json"]).output)["regions"]
    assert [(row["name"], row["of"]) for row in rows] == [("corpus9.py: hook", "CPU")]
