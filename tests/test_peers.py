"""Numbers that other tools report, too: ours are those of the raw events."""

from __future__ import annotations

import csv
import sys
from types import ModuleType

import pandas as pd
import pytest

from benchmarks.peer_runs import tracelens
from benchmarks.peers import agrees, our_gemms, published_gemms, raw_gemms, unit_row
from benchmarks.raw_numbers import device_times, events_of
from tests.support.fixtures import FIXTURES
from tests.support.paths import REPOSITORY, SHARED
from traceanalyzer import diagnose, load

with (REPOSITORY / "benchmarks/truth/peers/amd_units.csv").open(encoding="utf-8") as file:
    UNITS = list(csv.DictReader(file))
shared = pytest.mark.skipif(not SHARED.exists(), reason="no shared traces")


@pytest.mark.parametrize("fixture", ["exposed-communication/bad", "needless-collectives/bad", "healthy/train"])
def test_times_of_the_device_are_those_of_the_raw_events(fixture: str) -> None:
    path = FIXTURES / f"{fixture}.json.gz"
    (device,) = diagnose(path).traces[0].accounting
    raw = device_times(events_of(path), (device.start_ns, device.end_ns))
    parts = device.parts_ns
    busy = sum(ns for part, ns in parts.items() if not part.startswith("idle"))
    assert (busy, parts.get("communication", 0)) == (raw["busy"], raw["exposed"])


def test_rates_of_gemms_are_those_of_the_raw_events() -> None:
    path = FIXTURES / "repeated-backward/bad.json.gz"
    raw = raw_gemms(events_of(path))
    assert raw[("aten::mm", 1, 2048, 2048, 8192)] == (64, pytest.approx(849.3, abs=0.1))
    assert our_gemms(load(path)) == {key: pytest.approx(rate) for key, (_, rate) in raw.items()}


def test_numbers_of_tracelens_come_from_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its report has them (commits 8643621 and 932e742), since it is not on PyPI."""
    gemm = {"name": "aten::mm", "param: M": 8944, "param: N": 2816, "param: K": 1024, "name_count": 48}
    tables = {
        "gpu_timeline": pd.DataFrame({"type": ["busy_time", "idle_time"], "time ms": [169.377, 27.025]}),
        "GEMM": pd.DataFrame([{**gemm, "param: B": 1, "TFLOPS/s_mean": 610.666}]),
    }
    module = ModuleType("TraceLens.Reporting.generate_perf_report_pytorch")
    module.generate_perf_report_pytorch = lambda **_: tables  # type: ignore[attr-defined]
    for name in ("TraceLens", "TraceLens.Reporting"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    numbers = tracelens("trace.json")()
    assert numbers["busy_us"] == 169_377
    assert numbers["gemms"] == [["aten::mm", 1, 8944, 2816, 1024, 48, 610.666]]


@shared
@pytest.mark.parametrize(("name", "gemms"), [("tracelens_h100_qwen05b", 5), ("tracelens_h100_timesformer", 10)])
def test_rates_of_gemms_are_those_that_tracelens_expects(name: str, gemms: int) -> None:
    ours, theirs = our_gemms(load(SHARED / "public2" / f"{name}.json.gz")), published_gemms(name)
    assert len(theirs) == gemms
    assert all(agrees(ours[key], rate) for key, rate in theirs.items())


@shared
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit["case"])
def test_units_of_amd_are_linked_and_agree(unit: dict[str, str]) -> None:
    row = unit_row(SHARED / "public2" / "amd_units" / f"{unit['case']}.json.gz", unit)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == "100%"
    assert cells[-1].startswith("same op")
    # Hand-made cases have types that are not torch's: no rate.
    assert "our rate" in cells[-1] or cells[5] == "no rate"
    assert cells[5] != "no rate" or unit["op"] == "aten::convolution"
