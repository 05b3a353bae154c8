"""Several processes that take every step together, on the CPU."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from capture.device import Device
from capture.errors import CaptureError
from capture.ranks import Ranks
from tests.support.xdist_groups import with_torch

pytestmark = with_torch
CPU = Device("cpu")


def counting(folder: Path) -> Callable[[], object]:
    """A step that sums the ranks' seeds and writes the sum so far to a file of its rank."""
    import torch
    from torch import distributed

    total = torch.zeros(())
    drawn = torch.rand(())

    def step() -> None:
        value = torch.ones(()) * (distributed.get_rank() + 1)
        distributed.all_reduce(value)
        total.add_(value)
        file = folder / f"rank{distributed.get_rank()}"
        file.write_text(f"{total.item():.0f} {drawn.item():.6f}")

    return step


def ending(_folder: Path) -> Callable[[], object]:
    """A step in which every rank but the first one ends its process."""
    from torch import distributed

    def step() -> None:
        if distributed.get_rank():
            os._exit(1)

    return step


def test_every_rank_takes_every_step(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(7)
    ranks = Ranks(partial(counting, tmp_path), CPU, 2)
    _take(ranks, 5)
    first, second = ((tmp_path / f"rank{rank}").read_text() for rank in (0, 1))
    assert first == second, "another number of steps, or another seed"
    assert first.split()[0] == "15"
    assert not torch.distributed.is_initialized()


@pytest.mark.slow
def test_a_step_after_another_rank_ended_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    ranks = Ranks(partial(ending, tmp_path), CPU, 2)
    with pytest.raises(CaptureError, match="another rank ended"):
        _take(ranks, 100_000)


def _take(ranks: Ranks, steps: int) -> None:
    with ranks.together():
        for _ in range(steps):
            ranks.step()


def test_a_step_outside_of_the_job_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="together"):
        Ranks(partial(counting, tmp_path), CPU, 1).step()
