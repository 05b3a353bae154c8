"""Whose code a frame of Python is, and which frame was open at an instant."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.trace_builder import TID, TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.timeline.user_code import UserCode, is_user_code


@pytest.mark.parametrize(
    ("frame", "own"),
    [
        ("train.py(12): step", True),
        ("/home/me/src/train.py(12): step", True),
        ("train.py(1): <module>", False),  # all that runs is in it
        ("torch/nn/modules/linear.py(120): forward", False),
        ("/opt/venv/lib/python3.12/site-packages/torch/_ops.py(9): __call__", False),
        ("mytorch/model.py(3): forward", True),
        (
            "/opt/venv/lib/python3.12/site-packages/timm/models.py(3): forward",
            True,
        ),  # neither torch nor Python
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


def test_threads_have_frames_of_their_own() -> None:
    code = recorded()
    assert [code.stack_at(at, TID + 1) for at in (49, 50, 150, 151)] == [
        [],
        ["data.py(7): g"],
        ["data.py(7): g"],
        [],
    ]
    assert code.stack_at(130, TID + 2) == []
    assert code.around(np.array([0, -1])).values().tolist() == ["train.py(5): f", None]
