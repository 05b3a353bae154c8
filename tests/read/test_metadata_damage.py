"""Metadata beside the events that is no JSON: what is said of it, and what of it is kept."""

from __future__ import annotations

import json

import pytest

from tests.read.raw_events import op
from tests.support.trace_builder import load_bytes


@pytest.mark.parametrize(
    ("metadata", "became", "base"),
    [
        (b'"path": "C:\\models", "baseTimeNanoseconds": 5', "mended", 5),
        (b'"path": NaN, "baseTimeNanoseconds": 5', "mended", 5),
        (b'"path": @@, "baseTimeNanoseconds": 5', "skipped", 5),
        (b'"path": @@', "skipped", 0),
    ],
)
def test_malformed_metadata_is_mended_or_skipped(metadata: bytes, became: str, base: int) -> None:
    """The time that all others count from is found in any case."""
    events = b'"traceEvents": [' + json.dumps(op()).encode() + b"]"
    for content, where in (
        (b"{%b, %b}" % (events, metadata), "after"),
        (b"{%b, %b}" % (metadata, events), "before"),
    ):
        trace = load_bytes(content)
        (damage,) = trace.meta.damage
        assert f"the metadata {where} the events are not valid JSON and were {became}" in damage.message
        assert trace.meta.base_time_ns == base
