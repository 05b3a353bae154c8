"""Blocks of ranks that meet in collectives."""

import numpy as np

from traceanalyzer.replay.schedule import Block, Layout, Schedule


def rank_of(computes: list[float], first: int = 0) -> Block:
    """Kernels, each before a collective of 10 ns; these are numbered from `first`."""
    size = 2 * len(computes)
    none = np.empty(0, np.int64)
    dur = np.array([value for compute in computes for value in (compute, 10.0)])
    meet = np.array([value for at in range(len(computes)) for value in (-1, first + at)])
    schedule = Schedule(
        1.0, np.zeros(size), np.zeros(size, np.int64), dur, np.zeros(size), np.zeros(size), np.array([size]),
        np.array([1.0]), np.zeros(1), np.ones((1, 1), bool), none, none, 1, meet,
    )  # fmt: skip
    return block_of(schedule, meeting=True)


def block_of(schedule: Schedule, *, meeting: bool = False) -> Block:
    """The schedule cut into stretches."""
    return Layout(schedule, meeting=meeting).block(schedule)
