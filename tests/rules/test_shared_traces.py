"""What the rules must and must not say of the shared traces, whose truth is known by how they were made."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.rules.shares import excesses
from tests.support.cached_reports import reported as _report
from tests.support.trace_selection import one_of_each_kind
from traceanalyzer import Finding
from traceanalyzer.model.finding import Severity, Status
from traceanalyzer.read.text.source import Source

Shared = Callable[[str], Path]


def _found(path: Path, rule: str) -> list[Finding]:
    return [found for found in _report(path).findings if found.rule == rule]


@pytest.mark.of_shared(wanted=one_of_each_kind)
def test_no_rule_fails(shared_trace: Path) -> None:
    assert [outcome for outcome in _report(shared_trace).outcomes if outcome.status is Status.FAILED] == []


@pytest.mark.of_shared(wanted=one_of_each_kind)
def test_no_share_exceeds_what_it_is_a_share_of(shared_trace: Path) -> None:
    assert excesses(_report(shared_trace)) == []


FOUND = [
    ("hidden-dtod-copy", "pairs/addmm_copy.bad", "aten::addmm"),
    ("hidden-dtod-copy", "seeds/4096_bf16_warm_compile", "aten::addmm"),
    ("hidden-dtod-copy", "seeds/4096_bf16_warm_eager_addmm", "aten::addmm"),
    ("activity-buffer-request", "seeds/2048_bf16_cold_eager_w0u0a10", "Activity Buffer Request"),
    ("activity-buffer-request", "seeds/4096_bf16_warm_eager_w0u0a20", "Activity Buffer Request"),
    ("activity-buffer-request", "seeds/64_bf16_warm_eager_w0u0a20", "Activity Buffer Request"),
    ("activity-buffer-request", "seeds/64_bf16_warm_eager_w0u0a3", "Activity Buffer Request"),
    ("activity-buffer-request", "pairs/optimizer_loop.bad", "Activity Buffer Request"),
    ("long-device-sync", "pairs/device_sync.bad", "cudaDeviceSynchronize"),
    ("kernel-variance", "pairs/contended.bad", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"),
    ("implicit-sync", "pairs/nonzero.bad", "aten::index"),
    (
        "dataloader-stall",
        "pairs/dataloader.bad",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    ),
    ("lane-offset", "seeds/2048_bf16_cold_eager_w0u0a10", None),
]
NOT_FOUND = [
    ("hidden-dtod-copy", "pairs/addmm_copy.fixed"),
    ("hidden-dtod-copy", "seeds/4096_bf16_warm_eager"),
    ("hidden-dtod-copy", "seeds/4096_bf16_warm_compile_max-autotune"),
    ("hidden-dtod-copy", "ddp/fsdp.rank0"),
    ("hidden-dtod-copy", "ddp/fsdp.rank1"),
    ("long-device-sync", "pairs/device_sync.fixed"),
    ("kernel-variance", "pairs/contended.fixed"),
    ("kernel-variance", "pairs/clean_gemm.fixed"),
]


@pytest.mark.parametrize(("rule", "name", "culprit"), FOUND)
def test_found_with_the_right_culprit(rule: str, name: str, culprit: str | None, shared: Shared) -> None:
    assert culprit in [found.by for found in _found(shared(name), rule)]


@pytest.mark.parametrize(("rule", "name"), NOT_FOUND)
def test_not_found(rule: str, name: str, shared: Shared) -> None:
    assert _found(shared(name), rule) == []


@pytest.mark.of_shared(wanted=one_of_each_kind)
def test_buffer_requests_and_lane_offsets_need_profiler_rows(shared_trace: Path) -> None:
    if not _found(shared_trace, "activity-buffer-request") and not _found(shared_trace, "lane-offset"):
        return
    content = b"".join(Source(shared_trace).blocks())
    if b'"Activity Buffer Request"' not in content and b'"Buffer Flush"' not in content:
        assert _found(shared_trace, "activity-buffer-request") == []
        assert [
            found for found in _found(shared_trace, "lane-offset") if found.cause == "buffer-request"
        ] == []
    if b'"cat": "overhead"' not in content:
        assert _found(shared_trace, "lane-offset") == []


@pytest.mark.of_shared(wanted=one_of_each_kind)
def test_the_profilers_own_synchronisation_is_never_blamed(shared_trace: Path) -> None:
    """It is the last whole-device synchronisation, behind every op and annotation."""
    if not _found(shared_trace, "long-device-sync"):
        return
    document = orjson.loads(b"".join(Source(shared_trace).blocks()))
    events = document if isinstance(document, list) else document["traceEvents"]
    cats = ("cpu_op", "user_annotation", "Operator")
    last_op = max((e["ts"] for e in events if e.get("cat") in cats), default=0)
    own = {i for i, e in enumerate(events) if "DeviceSynchronize" in e.get("name", "") and e["ts"] > last_op}
    for found in _found(shared_trace, "long-device-sync"):
        assert own.isdisjoint(i for occurrence in found.occurrences for i in occurrence.event_ids)


def test_gaps_of_a_graph_are_its_own(shared: Shared) -> None:
    found = {gap.cause: gap for gap in _found(shared("pairs/launch_bound.fixed"), "scheduler-gap")}
    assert found["in-graph"].severity is Severity.INFO
    assert "dispatching" not in found


@pytest.mark.parametrize("name", ["pairs/clean_gemm.fixed", "pairs/clean_train.fixed"])
def test_nobody_is_accused_on_a_clean_trace(name: str, shared: Shared) -> None:
    assert [found for found in _report(shared(name)).findings if found.severity is not Severity.INFO] == []


def test_time_and_rate_of_a_hotspot_are_of_the_same_steps(shared: Callable[[str], Path]) -> None:
    """One of the six copies takes 2.5 ms, in a step that is left out; the rate is that of all of them."""
    (copy,) = _found(shared("real/vit_infer.eager"), "hotspot")
    rate = re.search(r"([\d.]+) GB/s \(mean of all its copies\) over the link", copy.message)
    assert rate is not None
    size = 32 * 3 * 224 * 224 * 4
    assert size / copy.evidence["gpu_ns"] == pytest.approx(13.73, rel=0.01)
    assert float(rate[1]) == 12.0
