"""What only the ranks together show: joint communication, groups, and programs of their own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.renamed import jobs_in, measured_of
from tests.job.ranks import EARLY, ENDS, LATE, REDUCES, rank, reduced
from tests.support.paths import SHARED
from tests.support.trace_builder import TraceBuilder
from tests.support.trace_selection import ALL
from traceanalyzer.job.cross_rank_indexes import RankKernels, waiting_together, with_waiting
from traceanalyzer.job.ranks import Here
from traceanalyzer.job.rates import bus_factor, data_bytes, roles
from traceanalyzer.job.runs import CollectiveRuns
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.nesting import Nesting

FAR = [one + 7_000_000 for one in LATE]


# -- kernels that wait for each other -----------------------------------------------------------------------


@pytest.mark.parametrize(("count", "told"), [(3, set()), (4, {"k"}), (5, {"k"})])
def test_four_executions_tell_that_kernels_wait_for_each_other(count: int, told: set[str]) -> None:
    every = {0: rank(EARLY[:count], ENDS[:count]), 1: rank(LATE[:count], ENDS[:count])}
    assert waiting_together(every) == told


def test_kernels_that_start_together_tell_nothing() -> None:
    """Whether they wait shows only where they start apart."""
    chance = [one + at for at, one in enumerate((90, 400, 50, 300, 120))]
    other = [one + more for one, more in zip(EARLY, chance, strict=True)]
    assert waiting_together({0: rank(EARLY, ENDS), 1: rank(EARLY, other)}) == set()


@pytest.mark.parametrize(("longer", "told"), [(1, {"k"}), (200, set())])
def test_durations_within_a_fiftieth_are_compute_kernels(longer: int, told: set[str]) -> None:
    """They make up for their starts, which are up to 700 us apart."""
    far = [end + 10_000 * (longer - 1) for end in ENDS]
    assert waiting_together({0: rank(EARLY, far), 1: rank(LATE, far)}) == told


def test_names_count_that_all_ranks_have() -> None:
    """Two kernels of three ranks: one is not on the last rank."""
    one, two = rank(EARLY, ENDS), rank(LATE, ENDS)
    runs = {"k": one.runs["k"], "l": one.runs["k"]}, {"k": two.runs["k"], "l": two.runs["k"]}
    every = {at: RankKernels(own, frozenset()) for at, own in enumerate(runs)}
    assert waiting_together(every) == {"k", "l"}
    assert waiting_together({**every, 2: one}) == {"k"}
    assert waiting_together({**every, 2: RankKernels({}, frozenset({"m"}))}) == {"m"}
    assert waiting_together({}) == frozenset()


def mixed() -> Analysis:
    """A kernel of torch's, two of one name on two streams, a copy and a collective."""
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 9_000)
    spans = (("gemm", 20_000, 7), ("mine", 50_000, 9), ("mine", 40_000, 8), (REDUCES, 60_000, 9))
    for number, (name, start, stream) in enumerate(spans, 1):
        trace.launched((1_000 * number, 500), (start, 5_000 + number), number, name=name, stream=stream)
    trace.copied((6_000, 500), (70_000, 5_000), 9, name="mine", stream=9)
    return Analysis(trace.load())


def test_kernels_waiting_for_ranks_are_communication() -> None:
    analysis = mixed()
    work = analysis.index(DeviceWork)
    before = {KINDS[kind] for kind in work.kind.tolist()}
    assert before >= {"compute", "communication"}
    after = with_waiting(analysis.trace, work, frozenset({"mine"}))
    kinds = [(int(start), KINDS[kind]) for start, kind in zip(work.start_ns, after.kind, strict=True)]
    shifted = {start - min(at for at, _ in kinds) + 20_000: kind for start, kind in kinds}
    assert [shifted[at] for at in (20_000, 40_000, 50_000, 60_000)] == ["compute", *["communication"] * 3]
    assert shifted[70_000].startswith("copy")
    assert with_waiting(analysis.trace, work, frozenset()).kind.tolist() == work.kind.tolist()


def test_kernels_shown_as_communication_are_known() -> None:
    analysis = mixed()
    assert RankKernels.of(analysis.trace, analysis.index(DeviceWork)).known == {REDUCES}


# -- groups -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("desc", "role"),
    [
        ("DATA_PARALLEL_GROUP_WITH_CP", "data"),
        ("mesh_dp_shard_cp", "data"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "tensor"),
        ("EXPERT_DATA_PARALLEL_GROUP", "data"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", "tensor"),
        ("tp", "tensor"),
        ("Mesh_PP", "pipeline"),
        ("ddp", "data"),
        ("replicated", None),
    ],
)
def test_a_group_of_two_names_serves_the_first_that_counts(desc: str, role: str | None) -> None:
    """Gradients of experts and of ranks that share a context are reduced over these."""
    assert role_of(reduced(desc=desc)) == role


def role_of(analysis: Analysis) -> Any:
    work, runs = analysis.index(DeviceWork), analysis.index(CollectiveRuns)
    (role,) = roles(analysis.trace, work, runs, analysis.index(Nesting)).tolist()
    return role


@pytest.mark.parametrize(
    ("outer", "inner", "role"),
    [
        (("op", "torch::autograd::AccumulateGrad"), ("op", "c10d::allreduce_"), "data"),
        (("annotation", "FSDP::all_gather"), ("op", "c10d::allreduce_"), "data"),
        (("annotation", "FSDP::all_gather"), ("annotation", "nccl:all_reduce"), None),
        (("annotation", "forward"), ("op", "FSDP::inner"), None),
    ],
    ids=["outermost op", "annotation around it", "not the nearest", "called by what is not outermost"],
)
def test_collectives_have_callers(outer: tuple[str, str], inner: tuple[str, str], role: str | None) -> None:
    trace = TraceBuilder()
    for (kind, name), start, dur in ((outer, 500, 18_000), (inner, 1_000, 15_000)):
        getattr(trace, kind)(name, start, dur)
    told: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float"}
    trace.op("record_param_comms", 2_000, 9_000, **told)
    trace.launched((3_000, 5_000), (20_000, 100_000), 1, name=REDUCES)
    assert role_of(Analysis(trace.load())) == role


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("allreduce", 4, 1.5),
        ("allreduce", 2, 1.0),
        ("allgather", 4, 0.75),
        ("reducescatter", 8, 0.875),
        ("alltoall", 2, 0.5),
        ("broadcast", 4, 1.0),
        ("sendrecv", 2, 1.0),
        ("allreduce", 1, 0.0),
        ("broadcast", 1, 0.0),
    ],
)
def test_what_of_the_data_crosses_a_link(collective: str, ranks: int, factor: float) -> None:
    assert bus_factor(collective, ranks) == factor


@pytest.mark.parametrize(
    ("op", "kernel", "size"),
    [
        ((1_000, 8_000, "Float"), {}, 32_000),
        ((1_000, 8_000, "Float"), {"In msg nelems": 16_000, "Out msg nelems": 2_000}, 64_000),
        ((1_000, 8_000, "Float"), {"dtype": "Half"}, 16_000),
        ((1_000, 8_000, "Float"), {"Out msg nelems": 500}, 4_000),
        ((-1, 0, "Float"), {}, 0),
        ((1_000, 8_000, ""), {}, 0),
    ],
)
def test_kernel_metadata_comes_first(op: tuple[int, int, str], kernel: dict[str, Any], size: int) -> None:
    trace = TraceBuilder()
    sent, received, kind = op
    told: dict[str, Any] = {
        "Collective name": "allreduce",
        "In msg nelems": sent,
        "Out msg nelems": received,
        "dtype": kind,
    }
    trace.op("record_param_comms", 2_000, 9_000, **told)
    trace.launch("cudaLaunchKernel", 3_000, 5_000, 1)
    trace.kernel(20_000, 100_000, 1, name=REDUCES, **kernel)
    analysis = Analysis(trace.load())
    moved = data_bytes(analysis.trace, analysis.index(DeviceWork), analysis.index(CollectiveRuns))
    assert moved.tolist() == [size]


# -- ranks --------------------------------------------------------------------------------------------------


def test_ranks_are_asked_in_order_and_failing_ones_skipped() -> None:
    made: dict[int | None, Analysis] = {rank: mixed() for rank in (3, 1)}
    ranks = Here(made, {"10": ("a.json",), "20": ("b.json",)})

    def ask(analysis: Analysis, own: int, shared: int) -> int:
        if own == 0:
            raise Unavailable("nothing")
        assert analysis in made.values()
        return own * shared

    assert ranks.all == (3, 1)
    assert ranks.each(ask, {1: 5, 3: 7}, 10) == {1: 50, 3: 70}
    assert list(ranks.each(ask, {1: 5, 3: 7}, 10)) == [1, 3]
    assert ranks.each(ask, {1: 0, 3: 7}, 10) == {3: 70}
    assert ranks.iterations == {"10": ("a.json",), "20": ("b.json",)}
    assert Here(made).iterations == {}
    assert Here({3: made[3]}, ranks.iterations).iterations == ranks.iterations


def test_a_file_that_cannot_be_read_is_answered_with_why(tmp_path: Any) -> None:
    (path := tmp_path / "a.json").write_bytes(b"{}")
    trace = TraceBuilder()
    trace.op("aten::mm", 0, 10)
    good = trace.write(tmp_path / "b.json")

    def events(analysis: Analysis, own: None, more: int) -> int:
        assert own is None
        return analysis.trace.meta.events + more

    found = Here({}).once(events, [str(path), str(good)], 5)
    assert list(found) == [str(path), str(good)]
    assert isinstance(found[str(path)], Exception)
    assert found[str(good)] == 6


RENAMED = ("jobs/deepseek_v3_train.", "jobs/lightllm_overlap/", "ranks/moe_a2a.fixed.", "ddp/exposed.")


@pytest.mark.parametrize("ahead", [0, 7_000_000])
def test_kernels_that_end_together_wait_for_each_other(ahead: int) -> None:
    other = rank([one + ahead for one in LATE], [one + ahead for one in ENDS])
    assert waiting_together({0: rank(EARLY, ENDS), 1: other}) == {"k"}


def test_last_executions_count_of_a_longer_recording() -> None:
    """Recordings end together: two executions more come first."""
    longer = rank([-9_000, -8_000, *EARLY], [-8_950, -7_950, *ENDS])
    assert waiting_together({0: longer, 1: rank(LATE, ENDS)}) == {"k"}


def test_kernels_that_take_as_long_wherever_they_start_compute() -> None:
    first, second = (rank(starts, [one + 90 for one in starts]) for starts in (EARLY, LATE))
    assert waiting_together({0: first, 1: second}) == frozenset()


def test_durations_that_differ_by_chance_compute() -> None:
    chance = np.random.default_rng(1)
    ranks = {
        number: rank(EARLY, [one + int(took) for one, took in zip(EARLY, chance.integers(50, 90, 5), strict=True)])
        for number in range(4)
    }
    assert waiting_together(ranks) == frozenset()


def test_one_rank_alone_and_a_few_executions_tell_nothing() -> None:
    assert waiting_together({0: rank(EARLY, ENDS)}) == frozenset()
    few = {0: rank(EARLY[:3], ENDS[:3]), 1: rank(LATE[:3], ENDS[:3])}
    assert waiting_together(few) == frozenset()


def test_what_one_rank_shows_holds_of_all() -> None:
    known = RankKernels({}, frozenset({"k"}))
    assert waiting_together({0: known, 1: rank(EARLY, [one + 90 for one in EARLY])}) == {"k"}


def test_kernels_that_wait_are_found_among_copies_and_products() -> None:
    """A kernel of no known name on 20 blocks; before each comes a copy of 10 us and a product of 40 us."""
    ranks = {}
    for number, starts in enumerate((EARLY, LATE)):
        built = TraceBuilder(distributedInfo={"rank": number, "world_size": 2})
        for i, (start, end) in enumerate(zip(starts, ENDS, strict=True)):
            before = (ENDS[i] - 890) * 1_000
            built.memcpy(before, 10_000, 3 * i + 1)
            built.kernel(before + 20_000, 40_000, 3 * i + 2, name="sm90_xmma_gemm_f32f32")
            built.kernel(start * 1_000, (end - start) * 1_000, 3 * i + 3, name="exchanged", grid=(20, 1, 1))
        trace = built.load()
        ranks[number] = RankKernels.of(trace, Analysis(trace).index(DeviceWork))
    for found, starts in zip(ranks.values(), (EARLY, LATE), strict=True):
        assert set(found.runs) == {"exchanged"}
        began, took = found.runs["exchanged"]
        assert began.tolist() == [1_000 * one for one in starts]
        assert took.tolist() == [1_000 * (end - one) for one, end in zip(starts, ENDS, strict=True)]
    assert waiting_together(ranks) == {"exchanged"}


def _folder(name: str) -> Path:
    return SHARED / name.partition("/")[0]


@pytest.mark.parametrize("name", RENAMED)
def test_communication_is_found_though_its_kernels_are_renamed(name: str) -> None:
    if not _folder(name).is_dir():
        pytest.skip(f"no shared traces in {SHARED.name}/")
    alone, together = measured_of(jobs_in(_folder(name))[name], ("alone", "together"))
    assert together[0] >= 0.95 * together[1]
    assert alone[0] >= 0.8 * alone[1]
    for found in (alone, together):
        assert found[2] <= 0.01 * found[3]


@pytest.mark.skipif(not ALL, reason="all jobs: TRACEANALYZER_ALL=1")
def test_communication_of_all_jobs_is_found_though_renamed() -> None:
    folders = [SHARED / name for name in ("jobs", "ranks", "ranks2", "ddp") if (SHARED / name).is_dir()]
    for ranks in (ranks for folder in folders for ranks in jobs_in(folder).values()):
        (together,) = measured_of(ranks, ("together",))
        assert together[2] <= 0.01 * together[3]
