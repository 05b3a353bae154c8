"""`traceanalyzer list`: events of one sort by name."""

import json

import pytest
from click.testing import CliRunner

from tests.cli.commands import printed
from tests.support.paths import REPOSITORY
from traceanalyzer import listed_events, load
from traceanalyzer.cli.app import NAMES, cli
from traceanalyzer.cli.views import list_
from traceanalyzer.report.tables import LISTS

TRACE = REPOSITORY / "fixtures/exposed-copy/bad.json.gz"


def test_kinds_are_those_of_the_package() -> None:
    (what,) = (one for one in list_.params if one.name == "what")
    assert what.type.choices == LISTS


@pytest.mark.parametrize("what", ["kernels", "copies"])
def test_totals_are_those_of_the_trace(what: str) -> None:
    trace = load(TRACE)
    every = trace.kernels
    copies = every["kind"].astype(str).str.startswith("copy")
    wanted = every[copies if what == "copies" else ~copies & (every["kind"] != "memset")]
    rows = listed_events(trace, what)
    assert rows["total_ns"].sum() == wanted["dur_ns"].sum()
    assert rows["count"].sum() == len(wanted)
    assert rows["share"].sum() == pytest.approx(1.0)
    assert rows["total_ns"].is_monotonic_decreasing
    assert (rows["min_ns"] <= rows["mean_ns"]).all()
    assert (rows["mean_ns"] <= rows["max_ns"]).all()


def test_gaps_are_the_idle_time_by_cause() -> None:
    trace = load(TRACE)
    gaps = trace.idle_gaps().groupby("cause")["dur_ns"].sum().to_dict()
    rows = listed_events(trace, "gaps")
    assert dict(zip(rows["name"], rows["total_ns"], strict=True)) == gaps


def test_rows_name_the_region_of_most_of_their_time() -> None:
    rows = listed_events(load(REPOSITORY / "fixtures/host-hotspot/bad.json.gz"), "kernels")
    assert rows["region"].tolist() == ["8 x (matmul, tanh)"] * 2


def test_one_step_has_its_part_of_the_kernels() -> None:
    whole, step = (
        json.loads(printed("list", "kernels", str(TRACE), "--format", "json", *more)) for more in ((), ("--step", "6"))
    )
    counts = [sum(row["count"] for row in one["events"]) for one in (whole, step)]
    assert step["step"] == 6
    assert 0 < counts[1] < counts[0]


def test_text_names_the_op_and_the_line() -> None:
    text = printed("list", "copies", str(TRACE), "--top", "1")
    assert "Memcpy HtoD (Pageable -> Device)" in text
    assert "aten::copy_" in text
    assert "moving.py(20): step" in text
    assert max(map(len, text.splitlines())) <= 100


def test_missing_step_is_refused_with_those_that_are_there() -> None:
    result = CliRunner().invoke(cli, ["list", "syncs", str(TRACE), "--step", "99"])
    assert result.exit_code != 0
    assert "no step 99: the trace has" in str(result.exception)


def test_every_command_is_in_one_group_of_the_help() -> None:
    text = CliRunner().invoke(cli, ["--help"]).output
    for name in NAMES:
        assert sum(line.startswith(f"  {name} ") for line in text.splitlines()) == 1
    titles = [line for line in text.splitlines() if line.endswith(":") and line[0].isupper()]
    assert titles == ["Options:", "Diagnose:", "Look:", "Compare:", "Record:", "Data:", "Agents:"]
    assert len(text.splitlines()) <= 42
