"""Calls remembered in place of what they do."""

from pathlib import Path

from tests.support.trace_builder import TraceBuilder


def remembering(path: Path) -> Path:
    """A trace of three allocations."""
    made = TraceBuilder(profile_memory=1)
    made.op("aten::empty", 0, 9_000)
    for number in range(3):
        made.memory(1_000 * number, 4_096, allocated=4_096 * (number + 1), reserved=1 << 21)
    return made.write(path)
