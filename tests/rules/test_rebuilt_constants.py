"""Constants that are made again in every call."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.rules.launches import POINTWISE, US, of_rule
from tests.support.trace_builder import TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.finding import Confidence
from traceanalyzer.tensors.ops.table import constant_shape
from traceanalyzer.tensors.signatures import Signature

Call = tuple[str, list[Any], list[str], bool]  # name, shapes, numbers, whether it launches

WINDOW: list[Call] = [
    ("aten::hann_window", [[], []], ["400", "False"], False),
    ("aten::pow", [[400], []], ["", "0.85"], False),
    ("aten::to", [[400], []], ["", "6"], True),
]
SINES: list[Call] = [
    ("aten::arange", [[]] * 5, ["128", "", "", "", "False"], True),
    ("aten::mul", [[128], []], [], True),
    ("aten::unsqueeze", [[128], []], ["", "1"], False),
    ("aten::sin", [[128, 1]], [], True),
]
USE: list[Call] = [("aten::mul", [[64, 400], [400]], [], True)] * 4


def calling(*each: Sequence[Call], types: str = "float", shapes: bool = True) -> TraceBuilder:
    """Steps of these ops, of 10 us each, that launch kernels of 1 us at once."""
    trace, at = TraceBuilder(), 0
    for step, ops in enumerate(each):
        begin = at
        for name, dims, scalars, launches in ops:
            kinds = [types if dim == [] and not scalars else "float" if dim else "Scalar" for dim in dims]
            args: dict[str, Any] = {"Input Dims": dims, "Input type": kinds, "Concrete Inputs": scalars}
            trace.op(name, at, 10 * US, **(args if shapes else {}))
            if launches:
                trace.launched((at + 4 * US, 5 * US), (at + 9 * US, 1 * US), name=POINTWISE)
            at += 12 * US
        trace.step(step, begin, at - begin)
    return trace


@pytest.mark.parametrize(("made", "launches"), [(WINDOW, 1), (SINES, 3)], ids=["on the CPU", "on the device"])
def test_what_is_made_of_numbers_alone_is_made_once(made: list[Call], launches: int) -> None:
    (one,) = of_rule(calling(*[[*made, *USE] * 2] * 4, types="double"), "computed-again")
    assert (one.cause, one.confidence) == ("rebuilt-constants", Confidence.MEDIUM)
    assert one.evidence["launches"] == 2 * launches
    assert one.saving is not None
    assert one.saving.share > 0.2


def test_constants_on_the_cpu_are_named_without_gpu_time() -> None:
    mask = [(name, dims, scalars, False) for name, dims, scalars, _ in SINES]
    (one,) = of_rule(calling(*[[*mask, *USE]] * 4, types="double"), "computed-again")
    assert one.message.endswith("They take 40.0 µs of CPU time a step")


def test_chain_begins_without_tensors_and_ends_at_data() -> None:
    """The product of 400 numbers follows what was made of 128, and those of 400 were made before others came."""
    data: Call = ("aten::mul", [[400], [400]], [], True)
    step = [*WINDOW, *USE, *SINES, data, *USE]
    (one,) = of_rule(calling(*[step] * 4, types="double"), "computed-again")
    assert (one.evidence["launches"], one.evidence["cpu_ns"]) == (1 + 3, 70 * US)
    at_once = [*WINDOW, *SINES, data, *USE]  # one chain, which has made 400 numbers, too
    (one,) = of_rule(calling(*[at_once] * 4, types="double"), "computed-again")
    assert (one.evidence["launches"], one.evidence["cpu_ns"]) == (1 + 3 + 1, 80 * US)


def test_a_chain_ends_with_its_step() -> None:
    """The two ops at the end of each step are none, though the next step begins with such a chain."""
    (one,) = of_rule(calling(*[[*WINDOW, *USE, *WINDOW[:2]]] * 4), "computed-again")
    assert one.evidence["cpu_ns"] == 30 * US


def _changing(step: int) -> list[Call]:
    return [("aten::arange", [[]] * 5, [str(128 + step), "", "", "", "False"], True), *SINES[1:], *USE]


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(calling(*[[*WINDOW, *USE]] * 2), id="two steps"),
        pytest.param(calling(*[[*WINDOW, *USE]] * 3, USE), id="not in every step"),
        pytest.param(calling([*WINDOW, *USE] * 4, USE, USE, USE), id="often in the first step only"),
        pytest.param(calling(*map(_changing, range(4))), id="another length in every step"),
        pytest.param(calling(*[[*SINES, *USE]] * 4), id="times one number that may be data"),
        pytest.param(calling(*[[WINDOW[0], *USE, *WINDOW[1:]]] * 4), id="others between"),
        pytest.param(calling(*[[*WINDOW[::2], *USE]] * 4), id="two ops: a buffer"),
        pytest.param(calling(*[[SINES[0], *SINES[2:], *USE]] * 4), id="two ops and a view"),
        pytest.param(calling(*[[("aten::randn", [[]], ["[400]"], True), *WINDOW[1:], *USE]] * 4), id="at random"),
    ],
)
def test_what_may_change_is_left_alone(trace: TraceBuilder) -> None:
    assert of_rule(trace, "computed-again") == []


def test_without_shapes_it_is_not_applicable() -> None:
    (outcome,) = diagnose(calling(*[[*WINDOW, *USE]] * 4, shapes=False).load(), select=["computed-again"]).outcomes
    assert outcome.status == "not applicable"


@pytest.mark.parametrize(
    ("name", "dims", "scalars", "made"),
    [
        ("arange", [[]] * 6, ["2", "9"], (7,)),
        ("arange", [[]] * 7, ["0", "9", "2"], (5,)),
        ("linspace", [[]] * 7, ["0", "1", "66"], (66,)),
        ("eye", [[]] * 5, ["4"], (4, 4)),
        ("eye", [[]] * 6, ["4", "5"], (4, 5)),
        ("full", [[]] * 6, ["[2, 3]", "0"], (2, 3)),
        ("fft_rfftfreq", [[]] * 5, ["8"], (5,)),
        ("randn", [[]], ["[2]"], None),
        ("full", [[]], [], None),
    ],
)
def test_shapes_of_what_numbers_make(
    name: str, dims: list[Any], scalars: list[str], made: tuple[int, ...] | None
) -> None:
    assert constant_shape(Signature(f"aten::{name}", tuple(dims), (), tuple(scalars))) == made


@pytest.mark.parametrize(
    ("name", "dims", "scalars", "made"),
    [
        ("tril", [[4, 4], []], ["", "0"], (4, 4)),
        ("sub", [[1, 256], [64, 1]], [], (64, 256)),
        ("sub", [[3], [4]], [], None),
        ("max", [[4], [4]], [], (4,)),
        ("max", [[4]], [], None),
        ("unsqueeze", [[4, 5], []], ["", "-1"], (4, 5, 1)),
        ("slice", [[66], [], [], [], []], ["", "0", "0", "-2", "1"], (64,)),
        ("select", [[6, 7], [], []], ["", "-1", "2"], (6,)),
        ("pad", [[64, 256], []], ["", "[0, 1]"], (64, 257)),
        ("transpose", [[2, 3, 4], [], []], ["", "-1", "0"], (4, 3, 2)),
        ("permute", [[2, 3, 4], []], ["", "[2, 0, 1]"], (4, 2, 3)),
        ("t", [[2, 3]], [], (3, 2)),
        ("outer", [[2], [3]], [], (2, 3)),
        ("cat", [[[2, 3], [2, 4]], []], ["", "-1"], (2, 7)),
        ("view", [[6, 4], []], ["", "[-1, 8]"], (3, 8)),
        ("expand", [[1, 4], []], ["", "[2, 3, -1]"], (2, 3, 4)),
        ("repeat", [[2, 4], []], ["", "[3, 1]"], (6, 4)),
        ("matmul", [[2, 3], [3, 4]], [], None),
        ("rand_like", [[2, 3]], [], None),
    ],
)
def test_shapes_of_what_tensors_make(
    name: str, dims: list[Any], scalars: list[str], made: tuple[int, ...] | None
) -> None:
    assert constant_shape(Signature(f"aten::{name}", tuple(dims), (), tuple(scalars))) == made
