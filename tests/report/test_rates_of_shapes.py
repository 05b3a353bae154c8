"""Rates of several shapes together: weighted by their time, apart by type, device and peak."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from traceanalyzer.report.facts import Fact, rates
from traceanalyzer.roofline.peaks import Peaks

BF16 = "c10::BFloat16"
H200 = Peaks("H200", {"fp32": 60.0, "tf32": 500.0, "bf16": 1_000.0}, 4_800.0, "data sheet")
V100 = Peaks("V100", {"fp32": 15.0}, 900.0, "data sheet")
COLUMNS = ("kind", "dtypes", "device", "peak_tflops", "tflops", "gpu_ns")


def rates_of(*shapes: tuple[str, str, int, float | None, float | None, int]) -> list[Fact]:
    """Of shapes as `OpWork` has them; device 0 is an H200, device 1 a V100, and device 2 is not known."""
    frame = pd.DataFrame(shapes, columns=list(COLUMNS)).astype({"peak_tflops": float, "tflops": float})
    work = SimpleNamespace(shapes=frame, peaks={0: H200, 1: V100, 2: None})
    given: Any = SimpleNamespace(index=lambda _: work)
    return list(rates(given))


def test_a_rate_of_several_shapes_is_that_of_all_their_time() -> None:
    """100 TFLOP/s during 30 ns and 20 during 10 are 80; what has no count of operations is no part of it."""
    (one,) = rates_of(
        ("matmul", BF16, 0, 1_000.0, 100.0, 30),
        ("matmul", BF16, 0, 1_000.0, 20.0, 10),
        ("matmul", BF16, 0, 1_000.0, None, 99),
    )
    assert (one.values["tflops"], one.values["gpu_ns"]) == (80.0, 40)
    assert one.text.startswith("matmul in c10::BFloat16: 80 TFLOP/s, 8 % of the peak of 1,000")


def test_a_shape_counts_as_its_first_input_s_type() -> None:
    """A product whose bias, or mask, has another type."""
    (one,) = rates_of(
        ("matmul", f"{BF16}, float", 0, 1_000.0, 100.0, 10), ("matmul", BF16, 0, 1_000.0, 200.0, 10)
    )
    assert (one.values["dtypes"], one.values["tflops"]) == (BF16, 150.0)


@pytest.mark.parametrize(
    ("other", "values"),
    [
        (("conv", "float", 0, 60.0, 3.0, 7), ("conv", "float", 60.0)),
        (("matmul", BF16, 0, 1_000.0, 3.0, 7), ("matmul", BF16, 1_000.0)),
        (("matmul", "float", 0, 500.0, 3.0, 7), ("matmul", "float", 500.0)),
        (("matmul", "float", 1, 15.0, 3.0, 7), ("matmul", "float", 15.0)),
        (("matmul", "float", 2, None, 3.0, 7), ("matmul", "float", None)),
    ],
)
def test_other_work_type_peak_or_device_has_another_rate(
    other: Any, values: tuple[str, str, float | None]
) -> None:
    first, second = rates_of(("matmul", "float", 0, 60.0, 30.0, 10), other)
    assert (first.values["tflops"], first.values["gpu_ns"]) == (30.0, 10)
    assert (second.values["tflops"], second.values["gpu_ns"]) == (3.0, 7)
    assert tuple(second.values[name] for name in ("kind", "dtypes", "peak_tflops")) == values


def test_two_devices_of_one_peak_have_a_rate_each() -> None:
    """What is achievable is that of the device, and unknown where the device is."""
    first, second = rates_of(("matmul", "float", 0, 60.0, 30.0, 10), ("matmul", "float", 2, 60.0, 20.0, 10))
    assert first.values["achievable_tflops"] == H200.reached_tflops("matmul", "fp32")
    assert (second.values["tflops"], second.values["achievable_tflops"]) == (20.0, None)


def test_work_that_takes_no_time_has_a_rate_of_nothing() -> None:
    (one,) = rates_of(("matmul", "float", 0, 60.0, 30.0, 0))
    assert (one.values["tflops"], one.values["gpu_ns"]) == (0.0, 0)
