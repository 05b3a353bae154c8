"""What `benchmarks.changes` compares: each number of each finding of two versions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from benchmarks.changes import differences, findings_of, traces_of
from benchmarks.shorten import shortened
from tests.conftest import REPOSITORY

LAUNCHES = ("cuda_runtime", "cuda_driver")
EXPOSED = REPOSITORY / "fixtures/exposed-copy/bad.json.gz"


def test_each_number_of_a_finding_is_compared() -> None:
    said = findings_of(EXPOSED)
    assert not list(differences(said, findings_of(EXPOSED)))
    key = next(one for one in said if one.startswith("exposed-copy"))
    other = {**said, key: {**said[key], "cost": said[key]["cost"] + 1}}
    assert list(differences(said, other)) == [
        f"  {key}: cost {said[key]['cost']} -> {said[key]['cost'] + 1}",
    ]
    del other[key]
    assert list(differences(said, other)) == [f"- {key} (high)"]
    assert list(differences(other, said)) == [f"+ {key} (high)"]


def test_folders_are_searched_and_tables_left_out(tmp_path: Path) -> None:
    for name in ("b.json.gz", "a.json.gz", "a.table.json.gz", "note.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in traces_of([tmp_path], 1)] == ["a.json.gz", "b.json.gz"]
    assert [path.name for path in traces_of([tmp_path], 2)] == ["a.json.gz"]


def test_a_shortened_recording_holds_its_first_steps_and_what_they_launched() -> None:
    whole = json.loads(gzip.decompress(EXPOSED.read_bytes()))["traceEvents"]
    kept = shortened(whole, 2)
    assert kept is not None

    def marks(events: list[dict[str, object]]) -> set[object]:
        return {
            one["name"]
            for one in events
            if str(one.get("name")).startswith("ProfilerStep") and one["ph"] == "X"
        }

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
