"""What rules say of one device, beside another that does something else, and beside one that does the same."""

import gzip
import json
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.rules.recordings import RECORDINGS
from tests.support.trace_builder import H200, TraceBuilder, load_bytes
from traceanalyzer import Finding, Trace, diagnose

Events = list[dict[str, Any]]
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
LARGE_BYTES = 70_000
OTHER, FAR = 77_777, 1_000_000  # another thread, and correlations that nothing has


def document_of(recording: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(gzip.decompress(recording.read_bytes()))
    document["deviceProperties"] += [{**document["deviceProperties"][0], "id": 1}]
    return document


def with_other_work(events: Events) -> Events:
    """Whenever a thread launches work, another launches some on device 1, by an op that no rule knows."""
    shortest = min(one["dur"] for one in events if one.get("cat") in ON_GPU)
    calls = {one["args"]["correlation"]: one for one in events if str(one.get("cat")).startswith("cuda_")}
    more: Events = []
    for one in events:
        call = calls.get(one.get("args", {}).get("correlation"))
        if one.get("cat") not in ON_GPU or call is None:
            continue
        number = FAR + one["args"]["correlation"]
        lane = {"ph": "X", "pid": call["pid"], "tid": OTHER, "ts": call["ts"], "dur": call["dur"]}
        shapes = {"Input Dims": [[7, 11]], "Input type": ["float"], "External id": number}
        more.append({**lane, "cat": "cpu_op", "name": "other::work", "args": shapes})
        linked = {**call["args"], "correlation": number, "External id": number}
        more.append({**call, **lane, "name": "cudaLaunchKernel", "args": linked})
        work = {**one["args"], "correlation": number, "External id": number, "device": 1}
        lane = {"cat": "kernel", "name": "void other_work(int)", "pid": 1, "dur": shortest}
        more.append({**one, **lane, "args": work})
    return [*events, *more]


def twice(events: Events) -> Events:
    """Another thread calls the same, on device 1."""
    more = deepcopy([one for one in events if not str(one.get("name")).startswith("ProfilerStep")])
    for one in more:
        args = one.get("args", {})
        for key in {"correlation", "External id", "Sequence number"} & args.keys():
            args[key] += FAR
        if args.get("Fwd thread id"):
            args["Fwd thread id"] += FAR
        if one.get("cat") in ON_GPU:
            one["pid"] = args["device"] = 1
        elif isinstance(one.get("tid"), int):
            one["tid"] += OTHER
    return [*events, *more]


def found(document: dict[str, Any], slug: str) -> list[Finding]:
    trace: Trace = load_bytes(json.dumps(document).encode())
    return list(diagnose(trace, select=[slug]).findings)


def said(findings: list[Finding], device: int) -> list[tuple[Any, ...]]:
    own = [one for one in findings if one.device == device]
    return sorted((one.cause, one.cost_ns, one.count, one.confidence, str(one.evidence)) for one in own)


def shares(findings: list[Finding], device: int) -> list[tuple[Any, ...]]:
    own = [one for one in findings if one.device == device]
    return sorted((one.cause, one.cost_ns, one.count, str(one.evidence.get("gpu_share"))) for one in own)


# Reports about all devices: the op of the other one, and a share of the work of both.
OF_ALL_DEVICES = {"hotspot", "recomputation"}


def _parameters(slugs: Iterable[str]) -> list[Any]:
    """Rules by slug; those with a large recording are slow."""
    large = {slug for slug in slugs if RECORDINGS[slug].stat().st_size > LARGE_BYTES}
    return [pytest.param(slug, marks=[pytest.mark.slow] * (slug in large)) for slug in slugs]


@pytest.mark.parametrize("slug", _parameters(sorted(RECORDINGS.keys() - OF_ALL_DEVICES)))
def test_another_device_with_other_work_changes_nothing(slug: str) -> None:
    document = document_of(RECORDINGS[slug])
    alone = found(document, slug)
    document["traceEvents"] = with_other_work(document["traceEvents"])
    beside = found(document, slug)
    assert said(beside, 0) == said(alone, 0)
    assert said(beside, 1) == []


@pytest.mark.parametrize("slug", _parameters(RECORDINGS))
def test_a_second_device_that_does_the_same_has_the_same_finding(slug: str) -> None:
    document = document_of(RECORDINGS[slug])
    alone = shares(found(document, slug), 0)
    document["traceEvents"] = twice(document["traceEvents"])
    both = found(document, slug)
    assert (shares(both, 0), shares(both, 1)) == (alone, alone)


@pytest.mark.parametrize("known", [0, 1])
def test_unknown_device_does_not_hide_the_other(known: int) -> None:
    document = document_of(RECORDINGS["far-from-bound"])
    document["traceEvents"] = twice(document["traceEvents"])
    document["deviceProperties"][1 - known]["name"] = "A GPU that is in no table"
    both = found(document, "far-from-bound")
    assert shares(both, known)
    assert not shares(both, 1 - known)


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize(("slow_us", "said"), [(3_500, True), (1_900, False)])
def test_what_a_slow_call_costs_is_held_against_its_own_device(device: int, slow_us: int, said: bool) -> None:
    """Of 100 ms of work a step: 3.5 % of one device's are 1.75 % of both devices'. Its bytes need 7 us."""
    trace = TraceBuilder(devices=[H200, {**H200, "id": 1}], record_shapes=1)
    shapes: dict[str, Any] = {"Input Dims": [[4096, 1024], [], []], "Input type": ["float", "", ""]}
    for step in range(3):
        begin = step * 101_000_000
        trace.step(step, begin, 100_900_000)
        calls: list[tuple[str, int, int, dict[str, Any]]]
        calls = [("aten::roll", slow_us, device, shapes), ("other::work", 100_000 - slow_us, device, {})]
        for at, (name, dur, own, args) in enumerate([*calls, ("other::work", 100_000, 1 - device, {})]):
            start, number = begin + 50_000 * at, 10 * step + at
            trace.op(name, start, 40_000, **args)
            trace.launch("cudaLaunchKernel", start + 10_000, 10_000, number)
            late = 1_000 * slow_us if at == 1 else 0
            trace.kernel(start + 30_000 + late, 1_000 * dur, number, name=f"void {name}(int)", device=own)
    findings = list(diagnose(trace.load(), select=["far-from-bound"]).findings)
    assert [(one.by, one.device, one.count) for one in findings] == [("aten::roll", device, 3)] * said
