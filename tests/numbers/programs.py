"""Built traces whose numbers are kept: programs of limits, traces of chance, and jobs of several ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, TypeVar, cast, get_args

from tests.comparison.programs import ADDED, MM
from tests.comparison.programs import built as built_program
from tests.fuzz.cases import changed
from tests.idle.generated import CALLS, COPIES, KERNELS, MARKS, OPS, OVERHEADS
from tests.job.ranks import Recording, Reductions
from tests.numbers.variations import changed_copy
from tests.numbers.varied_programs import VARIED
from tests.numbers.varied_programs import analysis_of as varied
from tests.read.samples import everything
from tests.rules.kernel_programs import Op
from tests.rules.limit_programs import PROGRAMS, built
from tests.support.exporter_layouts import Layout
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import H200, PID, TraceBuilder, content_of, load_bytes
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.trace import Trace
from traceanalyzer.read.load import load_file
from traceanalyzer.report.diagnosis import analyses_of

US = 1_000
_CHANCES = 24
_SHAPES = ([[64, 64], [64, 64]], [[8, 128], [128, 32]], [[4, 3, 16, 16], [8, 3, 3, 3]], [[1_024]])
_TYPES = ("float", "c10::BFloat16", "double", "long int")
_WORK = (
    *KERNELS,
    "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_TNT",
    "void at::native::vectorized_elementwise_kernel<4, float>(int)",
)

_GPUS = (
    {},
    {"name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "numSms": 108},
    {"name": "AMD Instinct MI300X", "numSms": 304},
    {"name": "Tesla V100-SXM2-16GB", "computeMajor": 7, "numSms": 80},
    {"name": ""},
    {"name": "Graphics Card 9000"},
    {"name": "Quadro RTX 6000", "computeMajor": 7, "computeMinor": 5, "numSms": 72},
)

BUILT = [f"built/{rule}/{number}" for rule, made in PROGRAMS.items() for number in range(len(made))]
_CHANGED = (
    "exposed-copy",
    "allocator-thrash",
    "exposed-communication",
    "implicit-sync",
    "compile",
    "host-hotspot",
)
CHANGED = [f"changed/{seed}" for seed in range(6 * len(_CHANGED))]
BROKEN = [f"broken/{path.name}" for path in sorted((FIXTURES / "broken").glob("*.json*"))]
LAYOUTS = [f"layout/{layout}" for layout in get_args(Layout)]
CHANCES = [f"chance/{seed}" for seed in range(_CHANCES)]
COPIED = [f"copy/{seed}" for seed in range(240)]
_OF_JOB = 6  # copies of each job
T = TypeVar("T")
Next = Callable[[], int]
Streams = dict[tuple[int, int], int]
"""(device, stream) -> when it is free"""


@cache
def analysis_of(name: str) -> Analysis:
    """What the name says is built, or read.

    Raises:
        TraceAnalyzerError: it cannot be read.
    """
    kind, _, which = name.partition("/")
    match kind:
        case "built":
            return built(name)
        case "broken":
            return Analysis(load_file(FIXTURES / name))
        case "layout":
            return Analysis(everything().load(cast(Layout, which)))
        case "copy":
            return Analysis(_copy(_program(int(which)), int(which)))
        case "changed":
            path = FIXTURES / _CHANGED[int(which) // 6] / "bad.json.gz"
            return Analysis(load_bytes(changed(int(which), path)))
    return Analysis(by_chance(int(which)).load())


def _program(number: int) -> Trace:
    """One of the programs that are changed by chance, or a trace of chance."""
    every = [(rule, number) for rule, made in VARIED.items() for number in range(len(made))]
    at = number % (len(every) + _CHANCES)
    return varied(*every[at]).trace if at < len(every) else by_chance(at - len(every)).load()


def _copy(trace: Trace, seed: int) -> Trace:
    return load_bytes(changed_copy(content_of(trace), seed))


def by_chance(seed: int) -> TraceBuilder:
    """Steps of nested calls on two threads, with work on two devices, memory, stacks, waits and pauses.

    Only `random()` and `randrange()` choose, which stay the same in all versions of Python. The last two traces have
    one lane only.
    """
    rng, gpu = Random(seed), _GPUS[seed % len(_GPUS)]
    devices = [{**H200, **gpu, "id": device} for device in (0, 1)]
    trace = TraceBuilder(devices=devices, record_shapes=1, profile_memory=1, with_stack=seed % 2)
    numbers = iter(range(1, 10_000))
    free = {(device, stream): 0 for device in (0, 1) for stream in (7, 13)}
    clock = 0
    for step in range(3 + seed % 4):
        begin = clock
        for _ in range(2 + rng.randrange(5)):
            clock = _call(rng, trace, clock, numbers.__next__, free, depth=0)
            clock += rng.randrange(3) * rng.randrange(30 * US)
        if seed % 3:
            trace.step(step, begin, clock - begin + rng.randrange(2))
        if rng.random() < 0.3:
            trace.overhead(_one_of(rng, OVERHEADS), clock, rng.randrange(20 * US))
    if seed % 2:
        trace.python("train.py(1): main", 0, clock, python_id=1)
        trace.python("train.py(7): step", 0, clock // 2, python_id=2, parent=1)
    if seed >= _CHANCES - 2:
        on_gpu = ("kernel", "gpu_memcpy", "gpu_memset")
        trace.events = [one for one in trace.events if (one["cat"] in on_gpu) == (seed == _CHANCES - 1)]
    return trace


def _one_of(rng: Random, values: Sequence[T]) -> T:
    return values[rng.randrange(len(values))]


def _call(rng: Random, trace: TraceBuilder, at: int, number: Next, free: Streams, depth: int) -> int:
    """An op with what is in it, from `at` on; when it ends."""
    name, tid = _one_of(rng, OPS), PID if rng.random() < 0.9 else PID + 1
    now, kind = at + rng.randrange(4 * US), rng.randrange(8)
    if kind < 3 and depth < 3:
        for _ in range(1 + rng.randrange(3)):
            now = _call(rng, trace, now, number, free, depth + 1) + rng.randrange(2 * US)
    elif kind < 7:
        now = _launch(rng, trace, now, number(), free, tid)
    else:
        took = rng.randrange(90 * US)
        trace.launch(_one_of(rng, CALLS), now, took, number(), tid=tid)
        now += took
    end = now + rng.randrange(5 * US)
    if rng.random() < 0.8:
        shapes = {"Input Dims": _one_of(rng, _SHAPES), "Input type": [_one_of(rng, _TYPES)] * 2}
        trace.op(name, at, end - at, tid=tid, **(shapes if rng.random() < 0.7 else {}))
    else:
        trace.annotation(_one_of(rng, MARKS), at, end - at, tid=tid)
    if rng.random() < 0.2:
        size = (1 + rng.randrange(9)) << 20
        trace.memory(at, size if rng.random() < 0.6 else -size, address=rng.randrange(6), allocated=size)
    return end


def _launch(rng: Random, trace: TraceBuilder, at: int, number: int, free: Streams, tid: int) -> int:
    """A launch and its work, behind what its stream has; when the launch returns."""
    took, sort = US + rng.randrange(9 * US), rng.randrange(10)
    name = {0: "cudaMemcpyAsync", 1: "cudaMemsetAsync", 2: "cudaGraphLaunch"}.get(sort, "cudaLaunchKernel")
    trace.launch(name, at, took, number, tid=tid)
    device, stream = place = _one_of(rng, [*free])
    for _ in range(3 if sort == 2 else 1):
        begin = max(free[place], at + rng.randrange(12 * US))
        long = rng.randrange(_one_of(rng, (2, 20 * US, 150 * US)))
        free[place] = begin + long
        where = {"device": device, "stream": stream}
        if sort == 0:
            trace.memcpy(begin, long, number, name=_one_of(rng, COPIES), size=rng.randrange(1 << 24), **where)
        elif sort == 1:
            trace.memset(begin, long, number, size=rng.randrange(1 << 16), **where)
        elif sort != 3:  # the record of the work is lost
            trace.kernel(
                begin, long, number, name=_one_of(rng, _WORK), grid=(1 + rng.randrange(300), 1, 1), **where
            )
    return at + took


JOBS: Mapping[str, Reductions] = {
    "even": Reductions({0: (500,) * 5, 1: (510,) * 5}),
    "one late": Reductions({0: (1_000,) * 5, 1: (1_700,) * 5, 2: (1_100,) * 5}),
    "in turns": Reductions({0: (500, 300) * 4, 1: (500, 700) * 4}, seq=True),
    "clocks": Reductions(
        {0: (400, 420, 440, 410, 430, 400), 1: (600, 380, 620, 390, 640, 600)},
        elements=(1 << 20, 1 << 16),
        recordings={1: Recording(ahead_ns=7_654_321, first=1, drift_ppm=40.0)},
    ),
    "no marks": Reductions(
        {0: (300,) * 6, 1: (900, 310) * 3, 2: (320,) * 6}, recordings={1: Recording(marked=False)}
    ),
    "mesh_tp": Reductions({0: (500,) * 4, 1: (700, 400) * 2}, seq=True),
    "EXPERT_MODEL_PARALLEL_GROUP": Reductions({0: (90,) * 4, 1: (80,) * 4}),
}
"""Name, which two of the groups have as their description -> a job."""


COPIED_JOBS = [f"{name}/{seed}" for name in JOBS for seed in range(_OF_JOB)]
"""Jobs of which each rank was changed in its own way, or none but one."""


@cache
def ranks_of(name: str) -> list[tuple[int | None, Analysis]]:
    """The ranks of a job, which know of each other."""
    job, _, seed = name.partition("/")
    made = JOBS[job].traces()
    for event in (event for trace in made.values() for event in trace.events):
        if "_" in job and "Process Group Name" in event.get("args", {}):
            event["args"]["Process Group Description"] = job
    traces = {rank: trace.load() for rank, trace in made.items()}
    if seed:
        changed = list(traces)[: 1 if int(seed) % 2 else None]
        traces |= {rank: _copy(traces[rank], 10 * int(seed) + rank) for rank in changed}
    return analyses_of(traces)


TALL = Op("aten::mm", MM.kernel, 180, [[2_048, 512], [512, 512]], MM.types)
SLOW = replace(ADDED, dur=250)
CHANGES: Mapping[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "more syncs": (lambda: built_of([MM, ADDED]), lambda: built_of([MM, ADDED], syncs=2)),
    "fewer copies": (lambda: built_of([MM] * 3, copies=3), lambda: built_of([MM] * 3, copies=1)),
    "slower": (lambda: built_of([MM, ADDED] * 4), lambda: built_of([MM, SLOW] * 4)),
    "other op": (lambda: built_of([MM, ADDED] * 3), lambda: built_of([MM, TALL, ADDED] * 2)),
    "batch": (lambda: built_of([MM, TALL] * 2), lambda: built_of([replace(MM, dur=260), TALL] * 2)),
    "noise": (lambda: built_of([ADDED] * 5, jitter=2), lambda: built_of([ADDED] * 5, jitter=40)),
    "captures": (
        lambda: [built_of([MM, ADDED], jitter=one) for one in (5, 9)],
        lambda: [built_of([MM, SLOW, ADDED], jitter=one) for one in (5, 9)],
    ),
    "chances": (lambda: by_chance(1).load(), lambda: by_chance(8).load()),
    "jobs": (lambda: traces_of("even"), lambda: traces_of("in turns")),
}
"""What changes -> (base, new)."""


def built_of(ops: Sequence[Op], **options: int) -> Trace:
    """A program of these ops, read."""
    return built_program(ops, **options).load()


def traces_of(job: str) -> dict[int, Trace]:
    """The ranks' traces."""
    return {rank: trace.load() for rank, trace in JOBS[job].traces().items()}


COPIED_CHANGES = [
    f"{name}/{seed}" for name in ("more syncs", "slower", "other op", "batch") for seed in range(10)
]
"""Comparisons of which one side was changed."""


def changed_pair(name: str) -> list[Any]:
    """Base and new of a comparison."""
    change, _, seed = name.partition("/")
    pair = [made() for made in CHANGES[change]]
    if seed:
        pair[int(seed) % 2] = _copy(pair[int(seed) % 2], int(seed))
    return pair
