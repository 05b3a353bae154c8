"""Where a finding names a library's line, the call of it in the user's own code is named, too."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builder import TraceBuilder
from tests.loaded import reported
from tests.rules.launches import Shared
from tests.rules.loops import Loop, loop_of
from traceanalyzer import diagnose
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.rule.own_code import package_of
from traceanalyzer.timeline.user_code import UserCode

MS = 1_000_000
SITE = "/usr/lib/python3.12/site-packages/"


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (["train.py(30): step"], None),
        (["train.py(30): step", "geometric/utils.py(5): loops"], ("geometric", "train.py(30): step")),
        (["train.py(30): step", f"{SITE}geometric/utils.py(5): loops"], ("geometric", "train.py(30): step")),
        (
            ["/home/me/train.py(30): step", "geometric/utils.py(5): loops"],
            ("geometric", "/home/me/train.py(30): step"),
        ),
        (
            ["train.py(3): main", "train.py(30): step", "/tmp/made.py(1): f", "geometric/a.py(5): g"],
            ("geometric", "train.py(30): step"),
        ),
        (["mine/train.py(30): step", "mine/model.py(5): forward"], None),
        (["mine/train.py(30): step", "geometric/a.py(5): g"], ("geometric", "mine/train.py(30): step")),
    ],
)  # fmt: skip
def test_the_call_of_a_library_is_named(frames: list[str], said: tuple[str, str] | None) -> None:
    def body(loop: Loop, number: int) -> None:
        for depth, frame in enumerate(frames):
            loop.python(frame, loop.now + depth, 5 * MS - 2 * depth, python_id=10 * number + depth + 1)
        loop.host_op("aten::sort", 4 * MS)
        loop.now += MS

    (found,) = [
        one for one in diagnose(loop_of(body), select=["host-hotspot"]).findings if one.by == "aten::sort"
    ]
    assert next(iter(found.evidence["lines"])) == frames[-1]
    _, _, added = found.advice.partition(" The op is called by the package ")
    avoided = "Look for an argument that avoids this, or call it less often"
    assert added == ("" if said is None else f"{said[0]}, which your code calls in {said[1]}. {avoided}.")


def test_packages_are_told_by_the_folder() -> None:
    assert package_of("geometric/utils.py(5): f") == "geometric"
    assert package_of(f"{SITE}geometric/utils.py(5): f") == "geometric"
    assert package_of("train.py(5): f(a/b)") is None
    assert package_of("/home/me/train.py(5): f") is None


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
