"""Tests that record what they run and fail beyond limits; importing this imports pytest and nothing heavy.

@pytest.mark.limit_syncs(0)
@pytest.mark.limit_launches(per_step=120)
def test_training(gpu_trace):
    with gpu_trace() as recording:
        for _ in range(4):
            train_step()
            recording.step()
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

_MARKS = (
    "limit_launches(per_step): a step of gpu_trace launches at most so many kernels, copies and memsets",
    "limit_syncs(per_step): a step of gpu_trace waits for the device at most so often",
    'limit_copies(per_step): a step of gpu_trace copies at most so much between host and device, such as "1 MB"',
    'limit_idle(share): the device is idle for at most this share of the steps of gpu_trace, such as "20 %"',
    "no_findings(severity): gpu_trace has no finding that is at least this severe",
    "not_slower_than(baseline): gpu_trace is not slower than this trace or baseline, beyond noise",
)
NAMES = tuple(mark.partition("(")[0] for mark in _MARKS)


def pytest_configure(config: pytest.Config) -> None:
    for mark in _MARKS:
        config.addinivalue_line("markers", mark)


@pytest.fixture
def gpu_trace(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], AbstractContextManager[Any]]:
    """A context that records what runs in it, `step()` of which ends a step; at its end the limits are checked."""
    marks = [mark for mark in request.node.iter_markers() if mark.name in NAMES]

    @contextmanager
    def recording() -> Iterator[Any]:
        torch = pytest.importorskip("torch", reason="gpu_trace needs torch")
        path = tmp_path / "gpu_trace.json"
        record = torch.profiler.ProfilerAction.RECORD  # of each step: without a schedule no step is marked
        with torch.profiler.profile(schedule=lambda _: record, record_shapes=True, with_stack=True) as profiler:
            yield profiler
        profiler.export_chrome_trace(str(path))
        if marks:
            _check(path, marks)

    return recording


def _check(path: Path, marks: list[pytest.Mark]) -> None:
    """Fail with all that is beyond a limit; skip where nothing failed and some could not be counted."""
    from traceanalyzer.integrations.trace_limits import Uncounted, broken

    failures, uncounted = [], []
    for mark in marks:
        try:
            failures += broken(path, mark.name, mark.args, mark.kwargs)
        except Uncounted as error:
            uncounted.append(str(error))
    if failures:
        pytest.fail("\n".join([*failures, f"the trace: {path}"]), pytrace=False)
    if uncounted:
        pytest.skip("; ".join(uncounted))
