"""Unread results in recordings that begin within the program, and in which work has no launch."""

from __future__ import annotations

import pytest

from tests.rules.kernel_programs import begun_later, found, program
from tests.rules.test_unread_results import SLUG, SPENT, refined


@pytest.mark.parametrize(("start_us", "said"), [(1, True), (500, False)])
def test_work_launched_before_recording_reads_nothing(start_us: int, said: bool) -> None:
    """The first recorded launch's kernel starts at 6 us: what is not linked later on may read anything."""
    assert bool(found(program(refined(), unlinked_us=start_us), SLUG)) is said


def test_steps_that_were_recorded_whole_are_looked_at() -> None:
    (one,) = found(begun_later(program(refined())), SLUG)
    assert one.cost_ns == 5 * 4 * SPENT * 1_000
