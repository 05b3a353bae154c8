"""A job names the region of the code that makes a rank late."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from tests.support.region_programs import US, CodeProgram, regions_of
from traceanalyzer.cli.app import cli
from traceanalyzer.rules.communication.straggler import region_around

Shared = Callable[[str], Path]


def test_a_job_names_the_region_that_makes_a_rank_late(shared: Shared) -> None:
    ranks = [str(shared(f"ranks3/checks.bad.rank{rank}")) for rank in (0, 1)]
    screen = CliRunner().invoke(cli, ["diagnose", "--select", "straggler", *ranks]).output
    assert "1  Rank 0 spends 9.44 ms a step more in 32 x (isfinite, all, item), mostly in" in screen


def test_the_region_is_the_function_around_most_of_the_instants() -> None:
    program = CodeProgram()
    for _ in range(3):
        program.op("aten::mm")
        begin = program.now
        program.ops(["aten::sort", "aten::sum"])
        program.function("evaluate", begin)
        program.end_step()
    regions = regions_of(program)
    begin_ns = int(regions.tree.pieces.start_ns[0])
    assert region_around(regions, begin_ns + np.array([1, 16, 30]) * US) == "train.py(10): evaluate"
    assert region_around(regions, begin_ns + np.array([1]) * US) == ""
    assert region_around(None, np.array([begin_ns])) == ""
