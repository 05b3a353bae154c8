"""Programs that are changed by chance: those of limits, and others of rules whose limits recordings decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.rules import test_actor_critic as actors
from tests.rules import test_copies_and_memory as copies
from tests.rules import test_deterministic as deterministic
from tests.rules import test_generator_step as generators
from tests.rules import test_host_collectives as collectives
from tests.rules import test_hotspots as reached
from tests.rules import test_one_hot as masks
from tests.rules import test_repeated_backward as passes
from tests.rules import test_unused_gradient as gradients
from tests.rules.kernel_programs import BF16, F32, NVJET, Op, program
from tests.rules.limit_programs import MS, PROGRAMS, Made
from tests.rules.loops import Loop, loop_of
from tests.rules.programs import PINNED_TO_DEVICE, TO_DEVICE, US, Program
from tests.rules.test_cold_start import _cold
from tests.rules.test_exchanges import searching
from tests.rules.test_gradient_scaling import scaling
from tests.rules.test_hard_cases import addition
from tests.rules.test_hard_cases import loop as pausing
from tests.rules.test_needless_work import edges
from tests.rules.test_product_order import messages
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis

FLAT: masks.Piece = ("aten::copy_", 700, (masks.MASK, masks.MASK, []), (F32, masks.LONG, "Scalar"))
COUNTS: masks.Piece = (
    "aten::sum",
    300,
    ([masks.ROWS, masks.CLASSES], [], []),
    (F32, "ScalarList", "Scalar"),
)


def synchronising() -> TraceBuilder:
    """Steps in which the user waits for the device, in some twice."""
    made = Program()
    for number in range(5):
        made.step(number)
        for again in range(2 + number % 2):
            made.kernel()
            if again:
                made.now = max(made.now, made.device - 50 * US)
                made.trace.launch("cudaDeviceSynchronize", made.now, 100 * US, 7_000 + 10 * number + again)
                made.now += (100 + 30 * number) * US
        made.kernel()
    return made.trace


def _tuned(loop: Loop, number: int) -> None:
    """The first step tries kernels, allocates and loads; the second allocates, too."""
    start = loop.now
    for _ in range((8, 2, 0, 0, 0, 0)[number % 6]):
        loop.launched("aten::empty")
        loop.launch("cudaEventSynchronize", loop.now, MS, 0)
        loop.now += MS
    loop.op("aten::cudnn_convolution", start - 1_000, loop.now - start + 2_000)


def _sorted(loop: Loop, number: int) -> None:
    """Ops on the CPU in two functions, longer in some steps."""
    for name, ops in (("metric.py(3): ndcg", ("argsort", "sort")), ("data.py(9): mix", ("add", "index"))):
        start = loop.now
        for place, op in enumerate(ops):
            loop.host_op(f"aten::{op}", (2 + place + number % 3) * MS // 2)
        loop.python(name, start, loop.now - start, python_id=2 * number + len(name) % 2 + 1)


MORE: Mapping[str, Sequence[Callable[[], Made]]] = {
    "cold-start": [lambda: loop_of(_cold), lambda: loop_of(_tuned)],
    "deterministic-algorithms": [deterministic.training],
    "exposed-copy": [
        lambda: copies.copying(TO_DEVICE).trace,
        lambda: copies.copying(PINNED_TO_DEVICE, sync=False).trace,
    ],
    "find-unused-parameters": [
        lambda: searching(
            "DistributedDataParallel.forward", "torch::distributed::reducer::search_unused_parameters"
        )
    ],
    "gradient-scaling": [lambda: scaling(between=2).trace],
    "hidden-dtod-copy": [
        lambda: addition("aten::addmm"),
        lambda: addition("aten::baddbmm", copy_op="aten::copy_"),
    ],
    "host-collectives": [collectives.program, lambda: collectives.program(copied=False)],
    "host-hotspot": [lambda: loop_of(_sorted)],
    "hotspot": [
        lambda: program(
            [
                Op("aten::add", reached.ADD, 400, [[8192, 8192], [8192, 8192]], [F32, F32]),
                Op("aten::mm", NVJET, 300, [[4096, 4096], [4096, 4096]], [BF16, BF16]),
                Op("aten::copy_", reached.CAST, 300, [[4096, 4096], [4096, 4096], []], [BF16, F32, "Scalar"]),
            ]
        )
    ],
    "long-device-sync": [synchronising],
    "one-hot": [
        lambda: masks.training(masks.CONVERTED, masks.PRODUCT),
        lambda: masks.training(FLAT, masks.HALF, masks.TABLE, masks.LOOKUP, masks=2),
        lambda: masks.training(FLAT, COUNTS, masks.PRODUCT, numbers=("", "[0]"), kernels=2),
    ],
    "product-of-copies": [lambda: program(edges(0)), lambda: program(messages())],
    "repeated-backward": [
        lambda: passes.backward([3, 2, 1], [5, 2, 1]),
        lambda: passes.derivatives(*[passes.ONES] * 3, sums=True),
    ],
    "scheduler-gap": [lambda: pausing(dict.fromkeys(range(9), 500 * US)), lambda: pausing({5: 50_000 * US})],
    "unused-gradient": [
        lambda: gradients.fine_tuning().trace,
        lambda: gradients.adversaries().trace,
        lambda: gradients.loss_network().trace,
        lambda: actors.actor_critic().trace,
        lambda: generators.adversaries().trace,
    ],
}
VARIED: Mapping[str, Sequence[Callable[[], Made]]] = {**PROGRAMS, **MORE}


def analysis_of(rule: str, number: int) -> Analysis:
    """The program of this number."""
    made = VARIED[rule][number]()
    made = made.load() if isinstance(made, TraceBuilder) else made
    return made if isinstance(made, Analysis) else Analysis(made)
