"""Edits in their general form, on real traces: what a fix takes along, and what stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cached_reports import reported
from traceanalyzer import Saving

# pair -> (rule, true saving, points that are allowed); these pairs are fitted: they keep the edits as they are
KNOWN = {
    "third/clip_loop": ("repeated-calls", 0.86, 8),  # small grids side by side
    "third/tiny_batch": ("repeated-calls", 0.97, 3),  # a whole model, image by image
    "third/attention_math": ("hand-written-attention", 0.93, 3),  # without shapes
    "third/kv_cat": ("strided-copy", 0.71, 8),  # writing in place is not free
    "pairs4/anomaly_mode": ("recomputation", 0.75, 9),  # a mode that slows every op
    "pairs4/cpu_index": ("exposed-copy", 0.44, 9),  # a copy that another op makes of its input
    "third/numpy_metric": ("exposed-copy", 0.99, 3),
}


@pytest.mark.parametrize("pair", KNOWN)
def test_a_fault_saves_what_was_measured(pair: str, shared: Callable[[str], Path]) -> None:
    rule, true, points = KNOWN[pair]
    saving = joint(shared(f"{pair}.bad"), rule)
    assert abs(saving.share - true) * 100 <= points


def test_what_only_makes_a_read_value_goes_with_it(shared: Callable[[str], Path]) -> None:
    """eq, any and is_nonzero per token: the read-back alone gives 10 %."""
    assert joint(shared("third/decode_sync.bad"), "implicit-sync").share > 0.15


def joint(path: Path, rule: str) -> Saving:
    """Of the fault that the rule's finding belongs to."""
    report = reported(path)
    named = {found.fault for found in report.findings if found.rule == rule}
    said = [fault.saving for fault in report.traces[0].faults if fault.id in named and fault.saving]
    return max(said, key=lambda one: one.share)
