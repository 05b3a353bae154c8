"""Texts and limits of launch-bound and the optimizer."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.rules.hosts import said_by
from tests.rules.launches import US, of_rule
from tests.rules.loops import Loop, loop_of
from tests.support.launching_programs import layers, stepped
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.finding import Severity
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.rule.registry import find_rule
from traceanalyzer.rules.gpu_idle.launch_bound import (
    EVERYWHERE,
    OF_ONE_OP,
    Limits,
    doubt_text,
    full_advice,
    launch_message,
    least_explained,
    may_save_nothing,
)
from traceanalyzer.rules.gpu_idle.unfused_optimizer import Implementation

MS = 1_000 * US


def forecast(*, busy: float = 0.5, measured: bool = False, open_: bool = False) -> Forecast:
    """Of a step of 100 us, in which the device works for this share."""
    step = SimpleNamespace(gpu_ns=busy * 100_000, ns=100_000.0)
    replays = SimpleNamespace(steps=lambda edits: (step,) * 3)
    estimate = SimpleNamespace(measured=measured, open=open_)
    return Forecast(replays, estimate)  # type: ignore[arg-type]


PART: Any = SimpleNamespace(launches=20, placed=False)


@pytest.mark.parametrize(
    ("count", "pace", "part", "how", "words"),
    [
        (1, 0, None, {}, "launches {kernels} kernel a step (it takes {kernel}); the GPU waits"),
        (2, 0, None, {}, "launches {kernels} kernels a step (a kernel takes {kernel}; medians); the GPU"),
        (2, 9, None, {}, "(a kernel takes {kernel}, a launch comes every {launch}; medians)"),
        (1, 9, None, {}, "a step (it takes {kernel}, a launch comes every {launch}); the GPU"),
        (20, 9, PART, {}, "medians), all from {loop}; the GPU"),
        (21, 9, PART, {}, "medians), {loop_launches} of them from {loop}; the GPU"),
        (20, 9, None, {"profiled": True}, "; in this recording the GPU waits for"),
        (20, 9, None, {}, "for launches in all parts of the step{elsewhere"),
        (20, 9, None, {"awaits": OF_ONE_OP}, "for the launches of {ops:of this waiting}{elsewhere"),
        *(
            (20, 9, part, {"placed": False}, "all parts of the step; it waits longest at {lines:of")
            for part in (None, PART)
        ),
    ],
)
def test_launch_message_of_one_kernel_is_singular(
    count: int, pace: int, part: Any, how: dict[str, Any], words: str
) -> None:
    plain = {"awaits": EVERYWHERE, "placed": True, "profiled": False}
    message = launch_message(count, pace, part, **{**plain, **how})
    assert words in message
    assert message.count("{lines") == (not {**plain, **how}["placed"])


def test_a_part_that_says_where_it_is_leaves_out_the_lines() -> None:
    placed: Any = SimpleNamespace(launches=20, placed=True)
    said = launch_message(20, 9, placed, EVERYWHERE, placed=False, profiled=False)
    assert "{lines" not in said


@pytest.mark.parametrize(
    ("idle_ns", "whole", "least_ns"), [(100, "window", 50.0), (166, "window", 50.0), (170, "window's idle time", 51.0)]
)
def test_launching_must_explain_window_and_idle_shares(idle_ns: int, whole: str, least_ns: float) -> None:
    """5 % of a window of 1,000 ns, and 30 % of what is idle: the more of both."""
    idle, steps = SimpleNamespace(total_ns=idle_ns), SimpleNamespace(window_ns=1_000)
    name, least = least_explained(idle, steps, Limits())  # type: ignore[arg-type]
    assert (name, least) == (whole, pytest.approx(least_ns))


@pytest.mark.parametrize(
    ("low", "share", "idle", "fix", "doubtful"),
    [
        (0.01, 0.02, 0.01, True, True),
        (0.02, 0.02, 0.01, True, False),  # reaches 2 % for sure
        (0.01, 0.04, 0.01, True, False),  # medium, and half of the idle time
        (0.01, 0.04, 0.10, True, True),  # less than half of the idle time
        (0.01, 0.05, 0.10, True, False),
        (0.01, 0.90, 0.10, False, True),  # nothing that a fix would do: a graph may save nothing
    ],
)
def test_small_saving_that_may_be_zero_is_unsure(
    low: float, share: float, idle: float, fix: bool, doubtful: bool
) -> None:
    saved = SimpleNamespace(low_share=low, share=share)
    remedy: Any = SimpleNamespace(saved=saved, fix=("a fix",) if fix else ())
    assert may_save_nothing(remedy, forecast(busy=1 - idle), Limits()) is doubtful
    assert not may_save_nothing(remedy, None, Limits())


@pytest.mark.parametrize(
    ("cause", "known", "doubt"),
    [
        ("graph", forecast(), ""),
        ("profiled-only", forecast(), ""),
        ("small-part", forecast(), "; these waits, with short pauses between ops, are {share} of the window"),
        ("unsure", forecast(busy=1.0), "; without the profiler the GPU may be busy all the time"),
        ("unsure", None, "; without the profiler the GPU may be busy all the time"),
        ("unsure", forecast(busy=0.5), "; other work of the CPU may be the reason"),
    ],
)
def test_why_it_may_be_no_fault_is_reported(cause: str, known: Any, doubt: str) -> None:
    assert doubt_text(cause, known) == doubt


@pytest.mark.parametrize(
    ("cause", "known", "words"),
    [
        ("graph", forecast(), "Capture it."),
        ("unsure", forecast(busy=1.0), "Measure the step without the profiler in milliseconds"),
        ("unsure", forecast(busy=1.0, measured=True), "Capture it."),  # it was measured
        ("unsure", forecast(busy=0.5), "Capture it."),
        ("unsure", None, "Capture it."),
        ("profiled-only", forecast(busy=1.0), "Nothing to do: without the profiler the GPU is probably busy"),
        ("small-part", forecast(), "Nothing to do here: launching explains too little of the window."),
    ],
)
def test_first_comes_what_shows_whether_the_gpu_is_idle(cause: str, known: Any, words: str) -> None:
    advice = full_advice("Capture it.", cause, known, "window")
    assert advice.startswith(words)
    assert advice == "Capture it." or advice.endswith("apture it.")
    assert ("capture it." in advice) is not (advice == "Capture it.")


@pytest.mark.parametrize(
    ("kind", "passes", "tensors", "best"),
    [
        ("AdamW", 8.0, 36.0, (1, 0)),
        ("AdamW", 8.0, 37.0, (2, 0)),
        ("RMSprop", 4.0, 36.0, (4, 4)),
        ("RMSprop", 3.2, 72.0, (8, 4)),
        ("RMSprop", 3.2, 73.0, (12, 4)),
    ],
)
def test_fused_step_is_one_pass_foreach_several(
    kind: str, passes: float, tensors: float, best: tuple[int, int]
) -> None:
    assert Implementation(False, passes, tensors).best_launches(kind, 36) == best


def test_steps_of_which_half_are_alike_may_become_a_graph() -> None:
    """Of four steps of 40, 40, 41 and 42 layers half launch the same."""
    (one,) = of_rule(layers(40, 40, 41, 42), "launch-bound")
    assert one.cause == "graph"


@pytest.mark.parametrize(
    ("op", "line", "said"),
    [
        ("vllm::unified_attention", "", True),
        ("", "/env/vllm/worker.py(3): run", True),
        ("", "vllm/worker.py(3): run", True),
        ("", "/home/my_vllm/worker.py(3): run", False),
        ("my_vllm::gemm", "", False),
        ("", "", False),
    ],
)
def test_vllm_is_advised_to_use_its_switch(op: str, line: str, said: bool) -> None:
    trace = stepped(grows=1)
    if op:
        trace.op(op, 2 * US, 5 * US)
    if line:
        trace.python(line, 0, 5 * 600 * US, python_id=1)
    (one,) = of_rule(trace, "launch-bound")
    assert one.cause == "batch"
    assert ("remove enforce_eager=True" in one.advice) is said


@pytest.mark.parametrize(("graph_us", "said"), [(900, True), (300, False)])
def test_late_graph_launch_is_advised_to_launch_earlier(graph_us: int, said: bool) -> None:
    """Pauses before a graph of two kernels, and of 600 us before another kernel."""

    def body(loop: Loop, _: int) -> None:
        loop.pause(graph_us * US)
        loop.launches += 1
        loop.launch("cudaGraphLaunch", loop.now, 5 * US, loop.launches)
        for node in range(2):
            loop.kernel(loop.now + (10 + 30 * node) * US, 29 * US, loop.launches)
        loop.now += 10 * US
        loop.pause(600 * US + 60 * US)

    (one,) = (one for one in said_by(loop_of(body), "scheduler-gap") if one.cause == "host-code")
    assert one.advice.startswith("Launch the graph while the GPU still runs") is said


def _pauses(loop: Loop, _: int) -> None:
    """Python, an op on the CPU, one on the autograd engine's thread, and a launch that takes long."""
    loop.pause(MS)
    loop.launched()
    loop.host_op("aten::sort", MS)
    loop.launched()
    loop.pause(50 * US)
    node = "autograd::engine::evaluate_function: MulBackward0"
    loop.launched(node, tid=1001)
    loop.pause(MS)
    loop.launched(node, tid=1001)
    loop.annotation("load_batch", loop.now, MS)
    loop.pause(MS)


@pytest.mark.parametrize("stacks", [False, True])
def test_time_between_ops_severity_depends_on_share_and_stacks(stacks: bool) -> None:
    def body(loop: Loop, number: int) -> None:
        begin = loop.now
        _pauses(loop, number)
        if stacks:
            loop.python("train.py(3): step", begin, loop.now - begin, python_id=number + 1)

    said = {one.cause: one for one in find_rule("scheduler-gap").hits(Analysis(loop_of(body)))}
    own = "python" if stacks else "host-code"
    usual = {cause: one.normal_share for cause, one in said.items() if cause}
    assert {own, "host-work", "engine", "data-loading"} <= usual.keys()
    for cause, share in usual.items():
        assert share == (0.03 if cause in (own, "host-work", "engine", "long-call") else 0.0)
    for cause, one in said.items():
        assert one.max_severity is (Severity.MEDIUM if cause == "python" else Severity.HIGH)
        assert one.recurring_share == (0.0 if cause == "start" else 0.5)
