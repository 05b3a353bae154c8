"""Recordings whose calls and copies are renamed as those of other vendors' profilers: the findings stay the same."""

import gzip
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.paths import REPOSITORY
from tests.support.trace_builder import load_bytes
from traceanalyzer import diagnose
from traceanalyzer.model.trace import Trace

Event = dict[str, Any]

# Unified Runtime's names, as torch's XPU profiler has them.
_XPU = (
    (r"^(cudaLaunchKernel|cuLaunchKernel)\w*$", "urEnqueueKernelLaunch"),
    (r"^cudaMemcpyAsync$", "urEnqueueUSMMemcpy"),
    (r"^cudaMemsetAsync$", "urEnqueueUSMFill"),
    (r"^cuda(Stream|Event)Synchronize$", "urEventWait"),
    (r"^cudaGraphLaunch$", "urEnqueueGraphExp"),
    (r"^cudaMalloc$", "urUSMDeviceAlloc"),
    (r"^cudaFree$", "urUSMFree"),
    (r"^Memcpy HtoD \(\w+ -> Device\)$", "Memcpy H2D (HOST -> DEVICE)"),
    (r"^Memcpy DtoH \(Device -> \w+\)$", "Memcpy D2H (DEVICE -> HOST)"),
    (r"^Memcpy DtoD \(Device -> Device\)$", "Memcpy D2D (DEVICE -> DEVICE)"),
    (r"^Memset \(Device\)$", "Memset (0 -> DEVICE)"),
)
_ROCM = (
    (r"^(cudaLaunchKernel|cuLaunchKernel)\w*$", "hipExtModuleLaunchKernel"),
    (r"^cudaMemcpyAsync$", "hipMemcpyWithStream"),
    (r"^cuda([A-Z]\w*)$", r"hip\1"),
    (r"^Memcpy HtoD \(\w+ -> Device\)$", "Memcpy HtoD (Host -> Device)"),
    (r"^Memcpy DtoH \(Device -> \w+\)$", "Memcpy DtoH (Device -> Host)"),
)
# But not in names of calls and kernels.
CUDA_ONLY = r"torch\.cuda|\bCUDA\b|CUDA_|nvidia-smi|\.cuda\(|[\"']cuda[\"']"


def xpu(event: Event) -> None:
    args = event.get("args", {})
    if event.get("cat") in ("cuda_runtime", "cuda_driver"):
        event["cat"] = event["cat"].replace("cuda", "xpu")
        args.pop("cbid", None)
    elif event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
        kept = {key: args[key] for key in ("External id", "device", "correlation", "bytes") if key in args}
        queue = {"sycl queue": args["stream"], "l0 queue": "0x000055d08b8fc138", "context": "0x000055d08918fc78"}
        times = {"appended": "1790952812114.058", "appended_rel_to_start": "-0.336"}
        event["args"] = {**kept, **queue, **times, "kernel_id": event["ts"]}
    _renamed(event, _XPU)


def rocm(event: Event) -> None:
    args = event.get("args", {})
    if event.get("cat") in ("cuda_runtime", "cuda_driver"):
        event["cat"] = "cuda_runtime"
        args["cid"] = args.pop("cbid", 0)
    elif event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
        kept = ("External id", "device", "stream", "correlation", "bytes", "grid", "block")
        kernel = {"kind": "Dispatch Kernel", "hsa_queue": 2}
        event["args"] = {key: args[key] for key in kept if key in args} | kernel
    _renamed(event, _ROCM)


def _renamed(event: Event, names: tuple[tuple[str, str], ...]) -> None:
    for pattern, name in names:
        event["name"], changed = re.subn(pattern, name, event["name"])
        if changed:
            return


def read(fixture: str, rewrite: Callable[[Event], None] | None) -> Trace:
    content = json.loads(gzip.decompress((REPOSITORY / "fixtures" / f"{fixture}.json.gz").read_bytes()))
    for event in content["traceEvents"] if rewrite else ():
        rewrite(event)
    return load_bytes(json.dumps(content).encode())


def costs(trace: Trace) -> dict[str, int]:
    return {f"{one.rule} {one.cause or ''}": one.cost_ns for one in diagnose(trace).findings if one.cost_ns}


@pytest.mark.parametrize(("rewrite", "dialect"), [(xpu, " on XPU"), (rocm, " on ROCm")])
@pytest.mark.parametrize(
    "fixture",
    ["implicit-sync/bad", "launch-bound/bad", "hidden-dtod-copy/bad", "allocator-thrash/bad", "healthy/cuda_graphs"],
)
def test_the_names_of_a_vendor_change_no_cost(fixture: str, rewrite: Callable[[Event], None], dialect: str) -> None:
    trace = read(fixture, rewrite)
    assert trace.meta.dialect.endswith(dialect)
    assert trace.meta.anomalies == {}
    assert trace.meta.unknown_categories == {}
    assert costs(trace) == costs(read(fixture, None))


@pytest.mark.parametrize(
    ("fixture", "named"),
    [
        ("allocator-thrash/bad", "Remove torch.xpu.empty_cache() from the loop"),
        ("launch-bound/bad", "Capture the step in an XPU graph (torch.xpu.graph"),
        ("long-device-sync/bad", "XPU events measure time"),
        ("kernel-variance/bad", "another process on the GPU (xpu-smi)"),
        ("host-round-trip/bad", "with torch ops on the XPU tensor"),
        ("lane-offset/bad", "Warm up before measuring"),
        ("healthy/cuda_graphs", "between nodes of an XPU graph"),
    ],
)
def test_texts_for_an_xpu_name_no_cuda(fixture: str, named: str) -> None:
    report = diagnose(read(fixture, xpu))
    texts = [text for one in report.findings for text in (one.title, one.message, one.advice)]
    assert any(named in text for text in texts)
    assert [text for text in [*texts, report.brief()] if re.search(CUDA_ONLY, text)] == []


def test_advice_on_rocm_names_amds_tools() -> None:
    advice = [one.advice for one in diagnose(read("kernel-variance/bad", rocm)).findings]
    assert any("another process on the GPU (amd-smi)" in text for text in advice)
    assert not any("nvidia-smi" in text for text in advice)
