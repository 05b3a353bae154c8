"""`benchmarks.shorten`: a recording cut to its first steps."""

from __future__ import annotations

import gzip
import json

from benchmarks.shorten import shortened
from tests.support.paths import REPOSITORY

LAUNCHES = ("cuda_runtime", "cuda_driver")
EXPOSED = REPOSITORY / "fixtures/exposed-copy/bad.json.gz"


def test_shortened_recording_keeps_first_steps_and_launches() -> None:
    whole = json.loads(gzip.decompress(EXPOSED.read_bytes()))["traceEvents"]
    kept = shortened(whole, 2)
    assert kept is not None

    def marks(events: list[dict[str, object]]) -> set[object]:
        return {one["name"] for one in events if str(one.get("name")).startswith("ProfilerStep") and one["ph"] == "X"}

    def launched(events: list[dict[str, object]], *kinds: str) -> set[int]:
        return {
            one["args"]["correlation"]  # type: ignore[index]
            for one in events
            if one.get("cat") in kinds and "correlation" in one.get("args", {})  # type: ignore[operator]
        }

    assert len(marks(whole)) > len(marks(kept)) == 2
    last = max(float(one["ts"]) for one in kept if one.get("cat") == "kernel")
    assert all(float(one["ts"]) <= last for one in kept if one.get("cat") == "gpu_user_annotation")
    later = launched(whole, *LAUNCHES) - launched(kept, *LAUNCHES)
    assert launched(kept, "kernel") == launched(whole, "kernel") - later
    assert later & launched(whole, "kernel")
    assert shortened(whole, len(marks(whole))) is None
