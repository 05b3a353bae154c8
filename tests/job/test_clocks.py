"""Planted clocks are recovered from the ends of collectives, by the median of ranks."""

import json
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cli.commands import call
from tests.job.ranks import REDUCES, US, Recording, Reductions, job_of
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose, load_job
from traceanalyzer.job.clocks import clocks_of
from traceanalyzer.job.cross_rank_indexes import introduce, measured
from traceanalyzer.job.loads import Load
from traceanalyzer.job.ranks import Here
from traceanalyzer.job.rates import bus_factor
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.overlay import Drift
from traceanalyzer.render.perfetto.archive import evened
from traceanalyzer.render.perfetto.overlay import overlays_of
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.timeline.device_work import KINDS

JITTER_NS = 5_000  # by which ends differ between ranks; 2 H200


def runs_of(start_ns: np.ndarray, end_ns: np.ndarray) -> CollectiveRuns:
    count = len(start_ns)
    every = np.arange(count)
    what, group = np.full(count, "allreduce", object), np.full(count, "0 [0, 1]", object)
    return CollectiveRuns(every, start_ns, end_ns, what, group, np.full(count, 1_000), every, every)


def recorded(offset_ns: int, drift_ppm: float, count: int, apart_ns: int, seed: int) -> dict[int, CollectiveRuns]:
    """Two ranks: the second one's clock is off and drifts, and it comes early or late at random."""
    chance = np.random.default_rng(seed)
    end = np.cumsum(chance.integers(apart_ns // 2, apart_ns * 2, count)) + 10**15
    arrival = [end - 50_000 - chance.integers(0, apart_ns // 4, count) for _ in (0, 1)]
    arrival[0] = np.where(chance.random(count) < 0.5, end - 50_000, arrival[0])
    ends = [end + chance.integers(-JITTER_NS, JITTER_NS, count) for _ in (0, 1)]

    def shown(at: np.ndarray) -> np.ndarray:
        return at + offset_ns + np.rint((at - 10**15) * (drift_ppm * 1e-6)).astype(np.int64)

    return {0: runs_of(arrival[0], ends[0]), 1: runs_of(shown(arrival[1]), shown(ends[1]))}


@example(offset_ns=-3_000_000, drift_ppm=40.0, count=100, apart_ns=20_000_000, seed=1)
@given(
    offset_ns=st.integers(-10_000_000, 10_000_000),
    drift_ppm=st.sampled_from([0.0, 40.0, -40.0, 8.0, -150.0]),
    count=st.integers(12, 200),
    apart_ns=st.integers(2_000_000, 50_000_000),
    seed=st.integers(0, 1_000),
)
def test_shift_and_drift(offset_ns: int, drift_ppm: float, count: int, apart_ns: int, seed: int) -> None:
    runs = recorded(offset_ns, drift_ppm, count, apart_ns, seed)
    clock = clocks_of(runs, measured(runs), {0: 0, 1: 0})[1]
    true = offset_ns + np.rint((runs[0].end_ns - 10**15) * (drift_ppm * 1e-6)).astype(np.int64)
    said = clock.ahead_ns(runs[1].end_ns)
    assert abs(said - true).max() <= clock.uncertainty_ns
    assert clock.broken == 0


def test_clock_offset_minus_3_ms_drift_40_us_per_second() -> None:
    runs = recorded(-3_000_000, 40.0, 100, 20_000_000, 1)
    clock = clocks_of(runs, measured(runs), {0: 0, 1: 0})[1]
    assert abs(clock.drift_ppm - 40.0) < 5.0
    true = -3_000_000 + 40 * (runs[0].end_ns[0] - 10**15) // 1_000_000
    assert abs(clock.offset_ns - true) <= clock.uncertainty_ns
    assert clock.uncertainty_ns < 40_000


def test_the_base_times_of_files_are_part_of_the_clocks() -> None:
    runs = recorded(0, 0.0, 50, 5_000_000, 2)
    clock = clocks_of(runs, measured(runs), {0: 0, 1: 7_000_000})[1]
    assert abs(clock.offset_ns - 7_000_000) <= clock.uncertainty_ns


@pytest.mark.parametrize("ahead_ns", [0, 3_000_000, -3_000_000])
def test_overlays_of_a_job_are_on_one_clock(ahead_ns: int, tmp_path: Path) -> None:
    compute = {0: (500, 300) * 6, 1: (500, 700) * 6}
    job = job_of(Reductions(compute, recordings={1: Recording(ahead_ns)}), tmp_path)
    analysed = analyses_of(job)
    report = report_of(analysed)
    apart = [one.base_time_ns - job[one.rank or 0].meta.base_time_ns for one in overlays_of(report, analysed)]
    assert report.job is not None
    clock = report.job.ranks[1].clock
    assert clock is not None
    assert clock.uncertainty_ns < 100_000
    assert apart[0] - apart[1] == pytest.approx(ahead_ns, abs=clock.uncertainty_ns)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(ahead_ns=st.sampled_from([-3_000_000, 0, 2_345_678]), drift_ppm=st.sampled_from([40.0, -40.0, 150.0, 0.0]))
@example(ahead_ns=-3_000_000, drift_ppm=40.0)
def test_collectives_of_an_archive_end_together(ahead_ns: int, drift_ppm: float) -> None:
    """In the traces themselves, from the first to the last of 0.6 s, beside slices of the same steps."""
    compute = {0: (5_000, 4_000) * 60, 1: (4_500, 5_000) * 60}
    recordings = {1: Recording(ahead_ns, drift_ppm=drift_ppm)}
    with TemporaryDirectory() as folder:
        job = job_of(Reductions(compute, recordings=recordings), Path(folder))
        call("annotate", folder, "-o", Path(folder) / "job.zip")
        with ZipFile(Path(folder) / "job.zip") as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
    said = json.loads(files["perfetto_manifest.json"])["perfetto_manifest"]["files"]
    offset = {one["path"]: one["clocks"]["offset_ns"] for one in said if "offset_ns" in one.get("clocks", {})}
    ends = []
    for rank in (0, 1):
        events = json.loads(files[f"rank{rank}.json"], parse_float=Decimal)["traceEvents"]
        kernels = [one for one in events if one["name"] == REDUCES]
        more = offset.get(f"rank{rank}.findings.pftrace", 0)
        ends.append(np.array([int((one["ts"] + one["dur"]) * 1_000) for one in kernels]) + more)
    analysed = analyses_of(job)
    report = report_of(analysed)
    assert report.job is not None
    clock = report.job.ranks[1].clock
    assert clock is not None
    assert len(ends[0]) == 120
    assert clock.drift_ppm == pytest.approx(drift_ppm, abs=0.1)
    assert abs(ends[1] - ends[0]).max() <= clock.uncertainty_ns == 1_000
    if drift_ppm:
        drawn, marks = overlays_of(report, analysed)[1], steps_of(files["rank1.json"])
        (steps,) = [track for track in drawn.slices if track.name.startswith("Steps")]
        assert abs(steps.start_ns - marks)[1:].max() <= 1  # the device begins the first where its work does


def steps_of(trace: bytes) -> np.ndarray:
    events = json.loads(trace)["traceEvents"]
    return np.array([round(one["ts"] * 1_000) for one in events if one["name"].startswith("ProfilerStep")])


TORN = b"""{"traceEvents": [
{"ph": "X", "name": "a", "ts": 1000000.500, "dur": 1000000.000, "args": {"said": "x\\"ts\\": 5, {}"}},
{"ph": "M", "name": "process_name", "ts": -99999999999.5},
{"dur": 2e6, "ph": "X", "ts" : "3000000", "name": "b"},
{"ph": "s", "ts": 2000000.500, "id": 5}
]}"""


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_a_trace_is_evened_wherever_its_blocks_begin(size: int) -> None:
    blocks = [TORN[at : at + size] for at in range(0, len(TORN), size)]
    told = json.loads(b"".join(evened(lambda: blocks, Drift(100.0, 1_000_000_000))), parse_float=Decimal)
    first, name, second, flow = told["traceEvents"]
    assert (first["ts"], first["dur"]) == (Decimal("1000000.500"), Decimal("999900.000"))
    assert flow["ts"] == first["ts"] + first["dur"]
    assert first["args"]["said"] == 'x"ts": 5, {}'
    assert name["ts"] == Decimal("-99999999999.5")
    assert (second["ts"], second["dur"]) == (Decimal("2999800.000"), Decimal("1999800.000"))
    assert b"".join(evened(lambda: blocks, Drift())) == TORN


@pytest.mark.parametrize("base_ns", [0, 10**18])
def test_collective_after_another_rank_left_it_is_broken(base_ns: int) -> None:
    """Both ranks leave all of them together, but of one the second rank says that it came 10 us after that."""
    end = np.arange(1, 51) * 5_000_000
    late = np.where(np.arange(50) == 20, 60_000, 0)
    runs = {0: runs_of(end - 50_000, end), 1: runs_of(end - 50_000 + late, end + late)}
    clock = clocks_of(runs, measured(runs), {0: base_ns, 1: base_ns})[1]
    assert (clock.offset_ns, clock.broken) == (0, 1)


SEND = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(("steps", "compute_ns", "waiting_ns"), [(2, 505.0, 50.5), (3, 10.0, 1.0), (4, 10.0, 1.0)])
def test_first_step_is_left_out_of_three_or_more(steps: int, compute_ns: float, waiting_ns: float) -> None:
    class Steps(SimpleNamespace):
        bounds_ns: dict[int, int] = {}  # noqa: RUF012

        def durations_ns(self, device: int | None) -> np.ndarray:
            return np.full(steps, 1_000)

        def __len__(self) -> int:
            return steps

    took, waited = np.array([1_000, *[10] * (steps - 1)]), np.array([100, *[1] * (steps - 1)])
    number = np.arange(steps)
    work: Any = SimpleNamespace(kind=np.full(steps, KINDS.index("compute")), start_ns=number * 0, end_ns=took)
    waits: Any = SimpleNamespace(entry=number, waiting_ns=waited)
    load = Load.of(work, Steps(marked=True, of_work=number), waits, np.zeros(steps))  # type: ignore[arg-type]
    assert (load.compute_ns, load.waiting_ns) == (compute_ns, waiting_ns)


def test_send_belongs_to_the_two_ranks_that_its_span_names() -> None:
    """Before it, at its begin, in it, at its end and after it; one whose call is not recorded is of nobody."""
    trace = TraceBuilder()
    trace.annotation("nccl:send 0->1", 100_000, 100_000)
    for number, at in enumerate((50_000, 100_000, 150_000, 200_000, 250_000), 1):
        trace.launch("cudaLaunchKernel", at, 1_000, number)
        trace.kernel(at + 500_000, 10_000, number, name=SEND, **{"Collective name": "send"})
    trace.kernel(900_000, 10_000, 99, name=SEND, **{"Collective name": "send"})
    analysis = Analysis(trace.load())
    runs, origin = analysis.index(CollectiveRuns), int(analysis.trace.cpu["start_ns"].min()) - 50_000
    assert (runs.start_ns - origin).tolist() == [600_000, 650_000, 700_000]
    assert set(runs.group) == {"0 to 1"}


@pytest.mark.parametrize("ranks", [2, 3, 8, 512])
def test_what_crosses_a_link_is_what_nccl_tests_say(ranks: int) -> None:
    """Counted on a ring: a rank keeps its own n-th part of what all exchange, and an all-reduce goes around twice."""
    kept = 1 / ranks
    crosses = {
        **dict.fromkeys(("allgather", "reducescatter", "alltoall"), 1 - kept),
        **dict.fromkeys(("broadcast", "reduce", "send", "recv"), 1.0),
        "allreduce": 2 * (1 - kept),
    }
    assert {name: bus_factor(name, ranks) for name in crosses} == pytest.approx(crosses)
    assert {bus_factor(name, 1) for name in crosses} == {0.0}


UNEVEN = {0: (500, 500, 500, 500), 1: (900, 900, 900, 900), 2: (500, 500, 500, 500)}


def cpu_only(rank: int, path: Path) -> Path:
    """A rank whose GPU was not recorded."""
    trace = TraceBuilder(distributedInfo={"rank": rank, "world_size": 4})
    for step in range(4):
        trace.step(step, 1_000_000 * (step + 1), 900 * US)
        trace.op("aten::mm", 1_000_000 * (step + 1) + US, 800 * US)
    return trace.write(path)


def test_rank_without_collectives_is_named_not_hiding_the_job(tmp_path: Path) -> None:
    job_of(Reductions(UNEVEN), tmp_path)
    cpu_only(3, tmp_path / "rank3.json")
    whole = diagnose(load_job(tmp_path))
    (tmp_path / "rank3.json").unlink()
    others = diagnose(load_job(tmp_path))
    assert whole.job is not None
    assert others.job is not None
    assert "collective in common" in (whole.job.unavailable or {})["rank 3"]
    assert whole.job.step == others.job.step
    assert [one.rank for one in whole.traces] == [0, 1, 2, 3]
    assert [one.rank for one in whole.job.ranks] == [0, 1, 2]


def test_ranks_that_cannot_answer_are_left_out(tmp_path: Path) -> None:
    job_of(Reductions(UNEVEN), tmp_path)
    cpu_only(3, tmp_path / "rank3.json")
    view = introduce(Here({rank: Analysis(trace) for rank, trace in load_job(tmp_path).items()}))
    assert view is not None
    assert set(view.waits) == {0, 1, 2}
