"""The tree of regions: what it consists of, and that it adds up."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.region_programs import US, CodeProgram, cached_gradients, calls_of, regions_of
from traceanalyzer import load
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.regions.regions import Regions
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.timeline.device_work import DeviceWork

Shared = Callable[[str], Path]
BLOCK = ["aten::mul", "aten::add", "aten::copy_"]


def repeated(times: int) -> CodeProgram:
    """Three steps: a product, and three ops that run so many times."""
    program = CodeProgram()
    for _ in range(3):
        program.op("aten::mm")
        program.ops(BLOCK * times)
        program.end_step()
    return program


def test_ops_that_run_in_turn_are_a_block() -> None:
    assert calls_of(regions_of(repeated(20))) == {
        "aten::mm": 1,
        "aten::mul, aten::add, aten::copy_": 20,
        "aten::mul, aten::add, aten::copy_ > aten::mul": 20,
        "aten::mul, aten::add, aten::copy_ > aten::add": 20,
        "aten::mul, aten::add, aten::copy_ > aten::copy_": 20,
    }


def test_ops_that_run_in_turn_three_times_are_no_block() -> None:
    calls = calls_of(regions_of(repeated(3)))
    assert calls["aten::mul"] == 3
    assert len(calls) == 4


def training(nodes: bool = True) -> CodeProgram:
    """Three steps with a forward pass in a function, its backward, and an optimizer."""
    program = CodeProgram()
    for step in range(3):
        begin = program.now
        program.op("aten::mm", sequence=10 * step)
        program.op("aten::relu", sequence=10 * step + 1)
        program.function("forward", begin)
        if nodes:
            program.node("ReluBackward0", 10 * step + 1)
            program.node("MmBackward0", 10 * step)
        begin = program.now
        program.op("aten::_foreach_add_")
        program.annotate("Optimizer.step#SGD.step", begin)
        program.end_step()
    return program


def test_backward_is_in_the_region_of_its_forward_op() -> None:
    calls = calls_of(regions_of(training()))
    forward = "forward and backward > train.py(10): forward"
    assert calls[f"{forward} > aten::mm"] == 1
    assert calls[f"{forward} > MmBackward0"] == 1
    assert calls["optimizer > Optimizer.step#SGD.step > aten::_foreach_add_"] == 1


def test_a_step_without_backward_has_no_forward_phase() -> None:
    assert calls_of(regions_of(training(nodes=False)))["train.py(10): forward > aten::mm"] == 1


def test_time_without_ops_belongs_to_the_function_around_it() -> None:
    program = CodeProgram()
    for _ in range(3):
        program.op("aten::mm")
        begin = program.now
        program.pause(500 * US)
        program.function("decode", begin)
        program.op("aten::relu")
        program.end_step()
    regions = regions_of(program)
    node = regions.tree.name.index("train.py(10): decode")
    assert regions.totals["cpu_ns"][node] == 500 * US


def assert_adds_up(analysis: Analysis) -> Regions:
    """Each ns of the CPU, each launch and each piece of work of the replayed steps is in one node."""
    regions, program = analysis.index(Regions), analysis.index(Forecast).program
    sample = program.sample
    assert int(regions.cpu_ns.sum()) == int((sample.end_ns - sample.begin_ns).sum())
    pieces = regions.tree.pieces
    assert (pieces.end_ns[:-1] <= pieces.start_ns[1:]).all()
    assert ((pieces.node >= 0) & (pieces.node < len(regions.tree.parent))).all()
    assert (regions.tree.parent[1:] < np.arange(1, len(regions.tree.parent))).all()
    work = analysis.index(DeviceWork)
    assert regions.launches.sum() == len(np.unique(work.call[program.work.entry]))
    assert (regions.bound_ns <= regions.gpu_ns * (1 + 1e-9)).all()
    return regions


@pytest.mark.parametrize(
    "name",
    [
        "sixth/lm_small_train.bad",
        "seventh/denoise_unet.bad",
        "real/gpt2_train.eager",
        "real/llama_decode.eager",
        "pairs/launch_bound.bad",
        "public/hta_v100_ns",
    ],
)
def test_recorded_regions_add_up(shared: Shared, name: str) -> None:
    assert_adds_up(Analysis(load(shared(name))))


def test_work_in_a_hook_of_backward_belongs_to_its_function() -> None:
    calls = calls_of(regions_of(cached_gradients()))
    assert calls["forward and backward > train.py(10): encode"] == 1
    assert calls["forward and backward in a hook > train.py(10): encode"] == 1
    assert not any("AccumulateGrad" in path for path in calls)
    backward = {path: count for path, count in calls.items() if path.endswith("AddmmBackward0")}
    assert sum(backward.values()) == 4
    assert all("in a hook > train.py(10): encode" in path for path in backward)


pieces = st.lists(
    st.tuples(st.sampled_from(["op", "pause", "function", "loop", "train"]), st.integers(1, 30)), min_size=1, max_size=8
)


def built(parts: list[tuple[str, int]]) -> CodeProgram:
    program, sequence = CodeProgram(), 0
    for _ in range(2):
        program.op("aten::mm")
        for kind, size in parts:
            begin = program.now
            if kind == "pause":
                program.pause(size * US)
            elif kind == "loop":
                program.ops(["aten::mul", "aten::add"] * size)
            elif kind == "function":
                program.ops(["aten::sum"] * (size % 3))
                program.pause(size * US)
                program.function(f"part{size % 4}", begin)
            elif kind == "train":
                for place in range(size % 5):
                    program.op("aten::tanh", sequence=sequence + place)
                for place in reversed(range(size % 5)):
                    program.node("TanhBackward0", sequence + place)
                sequence += 10
            else:
                program.op("aten::mm")
        program.end_step()
    return program


@given(pieces)
def test_regions_of_any_program_add_up(parts: list[tuple[str, int]]) -> None:
    analysis = Analysis(built(parts).trace.load())
    regions = assert_adds_up(analysis)
    work = analysis.index(Forecast).program.work
    assert regions.launches.sum() == len(work.entry)
    assert regions.gpu_ns.sum() == pytest.approx(2 * US * len(work.entry))
