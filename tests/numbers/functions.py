"""Small functions over grids of what they may be given: function -> what each gives, as one word.

Where a number gets another unit, another digit or another name is decided in them, and each of those values is in the
grid with its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import product
from typing import Any

from tests.support.cached_reports import analysed
from tests.support.fixtures import FIXTURES
from traceanalyzer.comparison import canonical_names as compared_names
from traceanalyzer.comparison import formatting
from traceanalyzer.job.rates import bus_factor
from traceanalyzer.job.runs import is_pair
from traceanalyzer.model import shapes, short_names, units
from traceanalyzer.model.step_times import Saving
from traceanalyzer.read.folders import iteration_of_name, rank_of_name
from traceanalyzer.read.text.archive import is_trace_name
from traceanalyzer.render.html.markup import rounded
from traceanalyzer.render.perfetto import wire
from traceanalyzer.render.text import table
from traceanalyzer.render.words import escape, savings
from traceanalyzer.replay.behind import late_share
from traceanalyzer.report import words
from traceanalyzer.roofline import ffts, links, other_units
from traceanalyzer.roofline.gpus import Gpu
from traceanalyzer.roofline.op_families import MODELS
from traceanalyzer.roofline.op_model import _MODELS, flops_of, largest_odd_size, linked_op_cost_of, op_cost_of
from traceanalyzer.roofline.peaks import device_peaks, known_devices
from traceanalyzer.tensors.signatures import Signature
from traceanalyzer.timeline import collectives as collective_names
from traceanalyzer.timeline import kernel_families, names, serving, user_code
from traceanalyzer.torch_table.function_events import rewritten
from traceanalyzer.torch_table.key_averages import shapes_text

Grid = Iterable[tuple[Any, ...]]

_LEADING = (1, 1.004, 1.006, 1.23456, 4.994, 4.996, 9.4999, 9.5, 9.94, 9.96, 9.994, 9.996, 9.9994, 9.9996)
NUMBERS = sorted({round(lead * 10**power) for power in range(15) for lead in _LEADING} | {0, 2, 3, 59, 61})
SHARES = [n / 2_000 for n in range(0, 2_200, 7)] + [n / 100_000 for n in range(0, 1_100, 9)]
_DIMS = (
    [[64, 32], [32, 16], [], []],
    [[16], [64, 32], [32, 16], [], []],
    [[4, 8, 32, 16], [4, 8, 32, 16], [4, 8, 32, 16]],
    [[2, 3, 32, 32], [8, 3, 3, 3], [8], [], [], [], [], [], []],
    [[8, 16, 30], [8, 30, 7]],
    [[100, 64], [40]],
    [[4_096]],
)
_TYPES = ("float", "c10::BFloat16", "double", "long int")
_TEXTS = [
    "",
    "a",
    "a b",
    "µs 12 ns",
    "\x1b[31mred",
    "a_b-c.d",
    "x" * 80,
    "12 MiB of 34 %",
    "/home/a/b.py(12): f",
]
_CODE = [
    *(
        "train.py(3): step",
        "/usr/lib/python3.12/json/decoder.py(9): decode",
        "/home/a/site-packages/x/m.py(1): f",
    ),
    *(
        "<frozen runpy>(2): run",
        "/tmp/job/data.py(10): __next__",
        "nn.Module: Net_0",
        "<built-in method item>",
    ),
]
_FILES = [
    *("rank0.json", "rank12_trace.json.gz", "a.pt.trace.json", "r.json.zst", "trace.txt", "x.json.gz.part"),
    *(
        "iteration_20/rank3_trace.json",
        "worker7-42.pt.trace.json",
        "host_1234.999.pt.trace.json",
        "tp-1_pp-2.json",
    ),
]
_NAMED = (
    "compile",
    "exposed-communication",
    "hand-written-attention",
    "host-hotspot",
    "kernel-variance",
    "one-hot",
)
_MARKS = [
    *(
        "execute_context_1(8_8)_generation_0(0)",
        "execute_context_2(6144)_generation_3(3)",
        "execute_new_0_cached_64",
    ),
    *(
        "execute_new_2_cached_3",
        "execute_32_context_0(sq0sk0)_generation_32(sq32sk9)",
        "step[DECODE bs=64 toks=64]",
    ),
    "ProfilerStep#3",
]
_DEVICES = [
    *(one.name for one in known_devices()),
    *(
        "NVIDIA H200",
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA A100 80GB PCIe",
        "AMD Instinct MI300X",
        "Tesla T4",
        "",
        "A10",
    ),
]


@cache
def _names() -> list[str]:
    """Names of ops, calls, Python functions and work in a few fixtures."""
    analyses = [analysed(FIXTURES / name / "bad.json.gz") for name in _NAMED]
    frames = [frame for one in analyses for frame in (one.trace.cpu, one.trace.gpu)]
    return sorted({name for frame in frames for name in frame["name"].dropna().unique().tolist()})


def _signatures() -> list[Signature]:
    """Every op that has a model, with each of a few shapes and types."""
    ops = sorted({*MODELS, *_MODELS, "add", "add_", "relu", "unknown"})
    return [
        Signature(f"aten::{op}", tuple(dims), (kind,) * len(dims), ("",) * 3 + ("[1, 1]",) * (len(dims) - 3))
        for op, dims, kind in product(ops, _DIMS, _TYPES)
    ]


def _gpus() -> list[Gpu]:
    capabilities = (None, (7, 0), (8, 0), (9, 0))
    return [
        Gpu(name or None, 132, which, device_peaks(name)) for name, which in product(_DEVICES, capabilities)
    ]


def _savings() -> list[Saving]:
    shares = (-0.2, -0.004, 0.0, 0.0049, 0.005, 0.0994, 0.0996, 0.31, 1.0)
    return [
        Saving(round(1e6 * one), round(1e6 * low), round(1e6 * high), one, low, high, "a replay")
        for low, one, high in product(shares, repeat=3)
        if low <= one <= high
    ]


def _one(values: Iterable[Any]) -> Grid:
    return ((value,) for value in values)


def _grids() -> Iterable[tuple[Callable[..., Any], Grid]]:
    for of_number in (
        *(units.format_ns, units.format_bytes, formatting.number, formatting.signed_ns, table.format_memory),
        *(table.format_time, rounded, units.format_offset, wire.varint),
    ):
        yield of_number, _one(NUMBERS)
    for of_share in (units.format_share, formatting.percent, savings._rounded):
        yield of_share, _one(SHARES)
    pairs = [*product(NUMBERS[::23], NUMBERS[::19])]
    for of_pair in (words.format_span, formatting.times, table.format_share):
        yield of_pair, pairs
    yield late_share, product((-1.0, 0.0, 0.5, 3.0, 8.0), (0.0, 2.0, 9.0), (0.0, 1.0, 4.0, 10.0))
    yield savings._percents, _one(_savings())
    for of_length in (ffts.factors, ffts.is_awkward, ffts.next_length):
        yield of_length, _one([*range(1, 300), 1_009, 1_024, 4_099, 4_116])
    for of_name in (
        *(compared_names.plain_name, compared_names.canonical_kernel, compared_names.region_name),
        *(short_names.short_ops, short_names.short_op, short_names.short_kernel, short_names.plain_kernel),
        *(kernel_families.computes, kernel_families.is_product, kernel_families.is_fp32_on_vector_units),
        *(kernel_families.is_half_with_narrow_loads, kernel_families.is_gemm, names.is_compilation),
        *(names.runs_compiled_code, names.copy_kind, rewritten),
    ):
        yield of_name, _one(_names())
    yield collective_names.collective_of, ((name, None) for name in _names())
    yield serving.phase_and_batch, _one([*_MARKS, *_TEXTS])
    yield user_code.is_user_code, _one(_CODE)
    for of_file in (rank_of_name, iteration_of_name, is_trace_name):
        yield of_file, _one(_FILES)
    for of_text in (escape.printable, escape.joined_units):
        yield of_text, _one(_TEXTS)
    yield escape.shortened, product([*_TEXTS, *_FILES], (4, 9, 10, 30))
    texts = [str(dims).replace("'", '"') for dims in _DIMS]
    for of_shapes in (shapes.shapes_of, shapes_text):
        yield of_shapes, _one(texts)
    for of_shape in (shapes.product_of, shapes.sizes_of):
        yield of_shape, _one([str(dims[0]) for dims in _DIMS])
    for of_op in (op_cost_of, linked_op_cost_of, flops_of):
        yield of_op, _one(_signatures())
    yield largest_odd_size, product(_signatures()[:: len(_TYPES)], (8, 16))
    yield device_peaks, _one(_DEVICES)
    yield links.host_link, _one([*_DEVICES, None])
    kinds = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
    yield other_units.speedup, product(_gpus(), ("matmul", "convolution", "attention"), kinds, kinds)
    yield other_units.reached_flops_per_ns, product(_gpus(), ("matmul", "conv"), kinds, kinds)
    yield Gpu.shown.fget, _one(_gpus())  # type: ignore[attr-defined]
    collectives = ("allreduce", "allgather", "reduce_scatter", "broadcast", "alltoall", "send")
    yield bus_factor, product(collectives, (1, 2, 3, 8))
    yield is_pair, _one(["0", "0:1", "mesh_pp", None, "1->2", "pair"])


def outcomes() -> Mapping[str, list[str]]:
    """Function -> what it gives over its grid, in order."""
    return {
        f"{function.__module__.rpartition('.')[2]}_{function.__name__}": [
            repr(function(*given)).replace(" ", "_") for given in grid
        ]
        for function, grid in _grids()
    }
