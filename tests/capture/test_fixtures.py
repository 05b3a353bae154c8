"""The fixtures are what their page says, and the broken ones are made as they were."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from capture.damage import KINDS, SOURCE, Kind, damaged
from capture.fixtures import FOLDER, Fixture, all_fixtures, main, readme, shown_in
from capture.measure import read_events
from tests.support.xdist_groups import with_torch

FIXTURES = list(all_fixtures())
LIMIT_BYTES = 400_000


def measured(test: Callable[..., None]) -> Callable[..., None]:
    """Each fixture once, in one process."""
    return pytest.mark.slow(pytest.mark.xdist_group("fixtures")(test))


def test_page_and_folder_agree() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./-]+\.(?:json|json\.gz|txt))`", page)) - {"unrecorded.txt", ".meta.json"}
    there = {p.relative_to(FOLDER).as_posix() for p in FOLDER.rglob("*") if p.is_file()}
    ours = {path for path in there if Path(path).name not in {"README.md", "unrecorded.txt"}}
    assert named == ours


@measured
def test_page_is_current() -> None:
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == readme(), "run: python -m capture.fixtures --readme"


@measured
@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda f: f"{f.folder}/{f.name}")
def test_recorded_as_listed(fixture: Fixture) -> None:
    trace = FOLDER / f"{fixture.folder}/{fixture.name}.json.gz"
    assert trace.stat().st_size < LIMIT_BYTES
    meta = json.loads((FOLDER / f"{fixture.folder}/{fixture.name}.meta.json").read_text())
    assert (meta["workload"], meta["variant"], meta["device"]) == (fixture.workload, fixture.name, "cuda")
    assert meta["notes"] == []
    assert len(meta["unprofiled_step_ms"]) == 3
    found = shown_in(f"{fixture.folder}/{fixture.name}")
    assert found.kernels > 0
    assert found.steps == meta["window"]["active"]


@measured
def test_rule_patterns_are_in_bad_and_not_in_good() -> None:
    assert shown_in("activity-buffer-request/bad").buffer_requests == 2
    assert shown_in("activity-buffer-request/good").overheads == {}
    assert shown_in("hidden-dtod-copy/bad").seed_copies == 8
    assert shown_in("hidden-dtod-copy/good").seed_copies == 0
    assert shown_in("long-device-sync/bad").syncs_in_steps == 40
    assert shown_in("long-device-sync/bad").idle_share > 0.2
    assert shown_in("long-device-sync/good").syncs_in_steps == 0
    assert shown_in("kernel-variance/bad").spread > 5
    assert shown_in("kernel-variance/good").spread < 1.05
    assert shown_in("lane-offset/bad").buffer_requests == 1
    assert shown_in("lane-offset/bad").longest_gap_us > 5_000
    assert shown_in("lane-offset/good").overheads == {}
    assert shown_in("scheduler-gap/bad").idle_share > 0.5
    assert shown_in("scheduler-gap/good").idle_share < 0.03
    assert shown_in("scheduler-gap/once").longest_gap_us > 4_000


def collectives(path: str) -> int:
    """NCCL kernels that the marked steps launched; the device also runs those of the warm-up's last step."""
    events = read_events(FOLDER / f"{path}.json.gz")
    launches = ("cuda_runtime", "cuda_driver")
    launched = {event["args"].get("correlation") for event in events if event.get("cat") in launches}
    kernels = [event for event in events if event.get("cat") == "kernel"]
    return sum(e["name"].startswith("nccl") and e["args"]["correlation"] in launched for e in kernels)


def test_two_ranks_reduce_as_often_as_their_fixtures_say() -> None:
    steps, layers, buckets = 4, 9, 2
    assert collectives("exposed-communication/bad") == steps * layers
    assert collectives("exposed-communication/good") == steps * buckets
    assert collectives("needless-collectives/bad") == steps * 8
    assert collectives("needless-collectives/good") == steps


@pytest.mark.parametrize("fixture", [f for f in FIXTURES if f.folder == "healthy"], ids=lambda f: f.name)
def test_healthy_traces_keep_the_device_busy(fixture: Fixture) -> None:
    found = shown_in(f"healthy/{fixture.name}")
    assert found.idle_share < 0.03
    assert found.syncs_in_steps == 0
    assert found.overheads == {}


def test_broken_files_are_reproduced() -> None:
    made = damaged((FOLDER / SOURCE).read_bytes())
    assert made == {path.name: path.read_bytes() for path in (FOLDER / "broken").iterdir() if path.name in made}
    assert set(made) == {kind.file for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.file)
def test_broken_files_are_broken(kind: Kind) -> None:
    name = kind.file
    path = FOLDER / "broken" / name
    if name in {"not-finite.json", "beyond-64-bit.json"}:
        text = path.read_text()
        assert re.search(r"NaN|36893488147419103232", text)
        if name == "beyond-64-bit.json":
            assert len(json.loads(text)["traceEvents"]) == len(read_events(FOLDER / SOURCE))
    elif name == "not-a-trace.json":
        assert "traceEvents" not in json.loads(path.read_text())
    else:
        with pytest.raises((ValueError, EOFError)):
            read_events(path)


@with_torch
def test_recording_fixtures_needs_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU and would record")
    assert main([]) == 2
    assert "no GPU" in capsys.readouterr().err
