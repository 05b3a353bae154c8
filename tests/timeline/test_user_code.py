"""Whose code a frame of Python is, and the user's own call of a library."""

import numpy as np
import pytest

from tests.rules.launches import Shared
from tests.rules.loops import Loop, loop_of
from tests.support.cached_reports import reported
from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.advice import caller_of, library_advice, library_caller, own_code_advice, user_frame_hint
from traceanalyzer.rule.cpu_gaps import CallsAfterCpuGaps
from traceanalyzer.rule.views import Calls, Work
from traceanalyzer.timeline.user_code import UserCode, is_user_code, package_of


@pytest.mark.parametrize(
    ("frame", "own"),
    [
        ("train.py(12): step", True),
        ("/home/me/src/train.py(12): step", True),
        ("train.py(1): <module>", False),  # all that runs is in it
        ("train.py(9): <listcomp>", False),  # as is what its function does
        ("train.py(9): <genexpr>", False),
        ("train.py(9): <lambda>", True),
        ("torch/nn/modules/linear.py(120): forward", False),
        ("/opt/venv/lib/python3.12/site-packages/torch/_ops.py(9): __call__", False),
        ("mytorch/model.py(3): forward", True),
        ("/opt/venv/lib/python3.12/site-packages/timm/models.py(3): forward", True),  # neither torch nor Python
        ("/usr/local/lib/python3.12/dist-packages/numpy/core.py(3): dot", True),
        ("/usr/lib/python3.12/threading.py(3): run", False),
        ("threading.py(1012): run", False),
        ("json/decoder.py(3): decode", False),
        ("jsonish/decoder.py(3): decode", True),
        ("<built-in method mm of type object at 0x7f>", False),
        ("<string>(1): f", False),
        ("nn.Module: Linear_0", False),
    ],
)
def test_code_is_the_user_s_that_is_neither_torch_s_nor_python_s(frame: str, own: bool) -> None:
    assert is_user_code(frame) is own


def test_functions_are_whole_where_all_that_starts_in_them_is_chosen() -> None:
    """f makes the chosen op; the second f another one, as does main."""
    code = recorded()
    starts, chosen = np.array([130, 510, 700]), np.array([True, False, False])
    assert [each.tolist() for each in code.whole(starts, np.full(3, TID), chosen)] == [[100], [300]]
    assert [each.tolist() for each in code.whole(starts, np.full(3, TID), chosen | True)] == [[0], [1_000]]


def recorded() -> UserCode:
    """main calls f twice with torch between; another thread runs g meanwhile."""
    trace = TraceBuilder()
    trace.python("train.py(1): main", 0, 1_000, python_id=1)
    trace.python("train.py(5): f", 100, 200, python_id=2, parent=1)
    trace.python("torch/_ops.py(9): call", 120, 50, python_id=3, parent=2)
    trace.python("train.py(5): f", 500, 100, python_id=4, parent=1)
    trace.python("data.py(7): g", 50, 100, python_id=5, tid=TID + 1)
    trace.op("aten::mm", 130, 10)
    return Analysis(trace.load()).index(UserCode)


@pytest.mark.parametrize(
    ("at", "frame"),
    [
        (99, "train.py(1): main"),
        (100, "train.py(5): f"),
        (130, "train.py(5): f"),  # torch is called by it
        (300, "train.py(5): f"),  # both ends are inside
        (301, "train.py(1): main"),
        (1_000, "train.py(1): main"),
        (1_001, None),
    ],
)
def test_the_innermost_frame_that_is_open_on_its_thread(at: int, frame: str | None) -> None:
    code = recorded()
    assert code.stack_at(at, TID) == (
        [] if frame is None else ["train.py(5): f", "train.py(1): main"]["main" in frame :]
    )
    found = int(code.open_at(np.array([at]), np.array([TID]))[0])
    assert (None if found < 0 else code.names[code.code[found]]) == frame


def test_the_caller_of_a_function() -> None:
    assert [recorded().caller_of(name) for name in ("train.py(5): f", "train.py(1): main", "other")] == [
        "train.py(1): main",
        "",
        "",
    ]


def test_threads_have_frames_of_their_own() -> None:
    code = recorded()
    assert [code.stack_at(at, TID + 1) for at in (49, 50, 150, 151)] == [[], ["data.py(7): g"], ["data.py(7): g"], []]
    assert code.stack_at(130, TID + 2) == []
    assert code.around(np.array([0, -1])).values().tolist() == ["train.py(5): f", None]


MS, US = 1_000_000, 1_000
SITE = "/usr/lib/python3.12/site-packages/"


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (["train.py(30): step"], None),
        (["train.py(30): step", "torch_geometric/utils.py(5): loops"], ("torch_geometric", "train.py(30): step")),
        (["train.py(30): step", f"{SITE}sparse/utils.py(5): f"], ("sparse", "train.py(30): step")),
        (
            ["/home/me/train.py(30): step", "torch_geometric/utils.py(5): loops"],
            ("torch_geometric", "/home/me/train.py(30): step"),
        ),
        (
            ["train.py(3): main", "train.py(30): step", "/tmp/made.py(1): f", "torch_geometric/a.py(5): g"],
            ("torch_geometric", "train.py(30): step"),
        ),
        (["mine/train.py(30): step", "mine/model.py(5): forward"], None),
        (["train.py(30): step", "models/net.py(5): forward"], None),
        (["mine/train.py(30): step", "torch_geometric/a.py(5): g"], ("torch_geometric", "mine/train.py(30): step")),
    ],
)  # fmt: skip
def test_the_call_of_a_library_is_named(frames: list[str], said: tuple[str, str] | None) -> None:
    def body(loop: Loop, number: int) -> None:
        for depth, frame in enumerate(frames):
            loop.python(frame, loop.now + depth, 5 * MS - 2 * depth, python_id=10 * number + depth + 1)
        loop.host_op("aten::sort", 4 * MS)
        loop.now += MS

    (found,) = [one for one in diagnose(loop_of(body), select=["host-hotspot"]).findings if one.by == "aten::sort"]
    assert next(iter(found.evidence["lines"])) == frames[-1]
    _, _, added = found.advice.partition(" The op is called by the package ")
    avoided = "Look for an argument that avoids this, or call it less often"
    assert added == ("" if said is None else f"{said[0]}, which your code calls in {said[1]}. {avoided}.")


def test_packages_are_told_by_the_folder() -> None:
    assert package_of("torch_geometric/utils.py(5): f") == "torch_geometric"
    assert package_of("models/utils.py(5): f") is None  # a folder of the program
    assert package_of(f"{SITE}geometric/utils.py(5): f") == "geometric"
    assert package_of("/usr/lib/python3/dist-packages/geometric/utils.py(5): f") == "geometric"
    generated = "/tmp/torch_geometric.nn.conv.gcn_conv_GCNConv_propagate_7f.py(112): propagate"
    assert package_of(generated) == "torch_geometric"
    assert package_of("train.py(5): f(a/b)") is None
    assert package_of("/home/me/train.py(5): f") is None
    assert package_of(f"train.py(5): f({SITE}geometric/utils.py)") is None  # of the file alone


def test_a_layout_is_chosen_outside_of_the_library(shared: Shared) -> None:
    """What runs in a graph is the whole step, whoever wrote it; how images lie is the caller's choice."""
    said = {one.rule: one.advice for one in reported(shared("slowdown/cnn.stack")).findings}
    assert said["layout-conversion"].endswith(
        " The op is called by the package torchvision, which your code calls in corpus5.py(39): step."
    )
    assert "torchvision" not in said["launch-bound"]


@pytest.mark.parametrize(("stacks", "recorded"), [((), False), ((1,), True), ((0, 1), True)])
def test_python_is_recorded_where_any_row_says_who_called_it(stacks: tuple[int, ...], recorded: bool) -> None:
    trace = TraceBuilder()
    for number in range(2):
        said = {"Call stack": "/home/ann/net.py(3): forward;run.py(9): main"} if number in stacks else {}
        trace.op("aten::mm", 100 * number, 50, **said)
    code = Analysis(trace.load()).index(UserCode)
    assert code.recorded is recorded
    shown = ["/home/ann/net.py(3): forward" if number in stacks else None for number in range(2)]
    assert [*code.around(np.arange(2)).values()] == shown


MAIN, RUN, FORWARD = "train.py(3): main", "lightning/loop.py(5): run", "torchvision/net.py(8): forward"


def paused(*frames: tuple[str, int, int], op: str = "aten::mm", pause_us: int = 200) -> CallsAfterCpuGaps:
    """A pause from 15 us on, and frames by their begin and end in us."""
    trace = TraceBuilder()
    trace.step(0, 0, 10 * MS)
    for number, at in enumerate((5, 15 + pause_us), start=1):
        trace.op(op, at * 1_000, 10_000)
        trace.launched(((at + 2) * 1_000, 4_000), ((at + 8) * 1_000, 30_000), number)
    for number, (name, start, end) in enumerate(frames, start=1):
        trace.python(name, start * 1_000, (end - start) * 1_000, python_id=number)
    found = Analysis(trace.load()).index(CallsAfterCpuGaps)
    assert found.dur_ns.tolist() == [pause_us * US]
    return found


@pytest.mark.parametrize(
    ("frames", "function", "said"),
    [
        (
            [(MAIN, 0, 900), (RUN, 1, 800)],
            RUN,
            f"This code is in the package lightning, which your code calls in {MAIN}: batch its inputs",
        ),
        ([(MAIN, 0, 900), (RUN, 40, 800)], RUN, "This code is in the package lightning"),  # not yet at its begin
        ([(MAIN, 0, 900), (RUN, 1, 800), ("mine.py(1): hook", 110, 120)], RUN, "the package lightning"),
        (
            [(MAIN, 0, 900), (FORWARD, 1, 800)],
            FORWARD,
            "Use {torch.compile} or a CUDA graph: these run the step without",
        ),
        ([(RUN, 0, 900), ("lightning/a.py(1): f", 1, 800)], "lightning/a.py(1): f", ""),  # begun there
        ([(MAIN, 0, 900), (f"{FORWARD}_rows", 1, 800)], f"{FORWARD}_rows", "This code is in the package torchvision"),
        ([(MAIN, 0, 900)], MAIN, ""),
        ([(MAIN, 0, 900), (RUN, 1, 800)], FORWARD, ""),
    ],
)
def test_remedies_of_library_functions(frames: list[tuple[str, int, int]], function: str, said: str) -> None:
    pauses = paused(*frames)
    caller = library_caller(pauses, function)
    assert said in library_advice(pauses, function, caller or "") if said else caller is None


def test_in_training_a_library_may_be_called_every_few_steps() -> None:
    paused_training = paused((MAIN, 0, 900), (RUN, 1, 800), op="MmBackward0")
    assert "call it every few steps" in library_advice(paused_training, RUN, MAIN)


@pytest.mark.parametrize(
    ("inner", "words"),
    [
        ([], "Keep the results of main()"),
        ([("train.py(7): <listcomp>", 20, 2_010)], "Keep the results of main()"),
        (
            [("<built-in method append of list object at 0x1>", at, at + 1) for at in range(20, 2_000, 4)],
            "Replace the Python loop in main()",
        ),
        (
            [("<built-in method astype of numpy.ndarray object at 0x1>", 20, 620)],
            "Do the array work of main() on the GPU",
        ),
        ([("lib.py(9): load", 20, 2_010)], ""),
    ],
)
def test_remedies_of_a_functions_own_code(inner: list[tuple[str, int, int]], words: str) -> None:
    """No calls; a comprehension; 495 short calls; NumPy for a third of the 2 ms; another function for nearly all."""
    text = own_code_advice(paused((MAIN, 0, 2_030), *inner, pause_us=2_000), MAIN)
    assert text.startswith(words) if words else text == ""


@pytest.mark.parametrize(("end_us", "pause_us"), [(230, 200), (9_000, 2_000)])
def test_own_code_has_no_remedy_in_short_pauses_and_large_functions(end_us: int, pause_us: int) -> None:
    assert own_code_advice(paused((MAIN, 0, end_us), pause_us=pause_us), MAIN) == ""


def test_the_caller_is_the_function_with_most_of_the_pauses() -> None:
    """A library's function runs for 200 us in one function of the program, and for 600 us in another."""
    trace = TraceBuilder()
    trace.step(0, 0, MS)
    for number, at in enumerate((5, 215, 825), start=1):
        trace.op("aten::mm", at * US, 10 * US)
        trace.launched(((at + 2) * US, 4 * US), ((at + 8) * US, 30 * US), number)
    frames = (
        (MAIN, 0, 900),
        ("train.py(5): first", 2, 218),
        (RUN, 4, 216),
        ("train.py(9): main", 220, 880),
        (RUN, 222, 870),
    )
    for number, (name, start, end) in enumerate(frames, start=1):
        trace.python(name, start * US, (end - start) * US, python_id=number)
    assert library_caller(Analysis(trace.load()).index(CallsAfterCpuGaps), RUN) == "train.py(9): main"


@pytest.mark.parametrize(
    ("frames", "line", "caller"),
    [
        ([(MAIN, 0, 900), (RUN, 1, 800)], RUN, MAIN),
        ([(MAIN, 0, 900), ("train.py(9): step", 1, 850), (RUN, 2, 800)], RUN, "train.py(9): step"),
        ([(MAIN, 0, 900), (FORWARD, 1, 850), (RUN, 2, 800)], RUN, MAIN),  # through another library
        ([(RUN, 0, 900), ("lightning/a.py(1): f", 1, 800)], "lightning/a.py(1): f", None),
        ([("mine/a.py(1): main", 0, 900), ("mine/b.py(2): f", 1, 890), (RUN, 2, 800)], RUN, "mine/b.py(2): f"),
        ([(MAIN, 0, 900)], MAIN, None),
        ([(MAIN, 0, 900), (RUN, 1, 800)], FORWARD, None),
    ],
)
def test_innermost_library_caller(frames: list[tuple[str, int, int]], line: str, caller: str | None) -> None:
    calls = paused(*frames).after
    assert caller_of(calls, line) == caller


@pytest.mark.parametrize("done_there", [True, False])
def test_only_what_a_library_does_is_to_be_avoided(done_there: bool) -> None:
    """By the first of the lines, of the occurrences that the finding has."""
    found = paused((MAIN, 0, 900), (RUN, 100, 800))
    calls = Calls.build(found.events)
    ops = calls[calls.is_op]
    given = {"lines": {RUN: 3, MAIN: 1}}
    said = user_frame_hint(ops, np.array([1]), given, done_there=done_there)
    assert said == f" The op is called by the package lightning, which your code calls in {MAIN}." + (
        " Look for an argument that avoids this, or call it less often." if done_there else ""
    )
    assert user_frame_hint(ops, np.array([0]), given, done_there=True) == ""
    assert user_frame_hint(ops, np.array([1]), {"lines": {MAIN: 1, RUN: 3}}, done_there=True) == ""
    assert user_frame_hint(ops, np.array([1]), {}, done_there=True) == ""
    work = Work.build(found.events)
    assert user_frame_hint(work, np.array([1]), given, done_there=False) == said.partition(" Look")[0]
