"""Whose file it is, where it is not torch.profiler's: told by keys, categories and names of processes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

EXPECTED = "Expected the file that prof.export_chrome_trace(...) or tensorboard_trace_handler(...) writes."
_OF_KEY = {
    "rocprofiler-sdk-tool": "This is rocprofv3's own JSON; record with torch.profiler instead.",
    "nodes": "This looks like an execution trace (ET), which has no timeline; pass the profiler's trace.",
    "viztracer_metadata": "This is VizTracer's file; record with torch.profiler instead.",
}


class Exporter(NamedTuple):
    """A program that writes Chrome traces of its own, and what its files are known by."""

    name: str
    categories: str = "(?!)"
    processes: str = "(?!)"
    keys: frozenset[str] = frozenset()
    remedy: str = "Run the program under torch.profiler and pass the file that it exports."


_EXPORTERS = (
    Exporter(
        "Chrome DevTools",
        categories=r"(disabled-by-default-)?(devtools|blink|v8|cc|benchmark)\b|__metadata$|loading$",
        processes=r"Renderer$|Browser$",
        remedy="Open it in the Performance panel of Chrome DevTools; it holds a browser's work, no GPU kernels.",
    ),
    Exporter("VizTracer", categories=r"FEE$", keys=frozenset({"viztracer_metadata"})),
    Exporter(
        "msprof (Ascend)",
        processes=r"Ascend Hardware|CANN$|HCCL$|Overlap Analysis|AI Core Freq",
        remedy="Record with torch_npu.profiler and pass its trace_view.json: its CPU ops are read. For the "
        "device, use MindStudio Insight.",
    ),
    Exporter(
        "TensorFlow, JAX or PyTorch/XLA",
        categories=r"Op$|DataFlow$|Tensor$",
        processes=r"/(host|device|job):|TFStreamz",
        remedy="Open it in TensorBoard's profile plugin or in xprof: its rows name neither PyTorch ops nor launches.",
    ),
    Exporter(
        "Nsight Systems", categories=r"cuda_api|nvtx", remedy="Open the report in Nsight Systems itself."
    ),
    Exporter(
        "Triton's Proton",
        processes=r"\bCore\d+ CTA\d+$",
        remedy="It shows what happens inside a kernel; record the program around it with torch.profiler.",
    ),
    Exporter("rocprof", processes=r"CPU H(IP|SA) API|Markers and Ranges|COPY$"),
    Exporter(
        "torch.autograd.profiler",
        categories=r"cpu_to_cuda$",
        processes=r"(CPU|CUDA) functions",
        remedy="Record with torch.profiler.profile(...) instead, which writes device, stream and launches.",
    ),
)


def remedy_for_keys(keys: Iterable[str]) -> str:
    """What to do with JSON that has these top-level keys and no events."""
    there = set(keys)
    return next((remedy for key, remedy in _OF_KEY.items() if key in there), EXPECTED)


def exporter_of(
    header: Mapping[str, Any], categories: Iterable[str], processes: Iterable[str]
) -> Exporter | None:
    """The program that wrote a Chrome trace, None where it is not known.

    Args:
        header: top-level keys other than traceEvents.
        categories: of its events, as exported.
        processes: names of processes, and pids that are names.
    """
    if "DevTools" in str(header.get("metadata"))[:1000]:
        return _EXPORTERS[0]
    categories, processes = list(categories), list(processes)
    for exporter in _EXPORTERS:
        by_category = any(re.match(exporter.categories, category) for category in categories)
        by_process = any(re.search(exporter.processes, process) for process in processes)
        if by_category or by_process or exporter.keys & header.keys():
            return exporter
    return None
