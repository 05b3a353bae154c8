"""Files that are no trace of torch.profiler: what they are, by bytes, keys and categories, and what to do instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from traceanalyzer.model.errors import NotATrace, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.schema import CATEGORIES
from traceanalyzer.read.columns.quirks import AUTOGRAD_PID

if TYPE_CHECKING:
    from traceanalyzer.read.columns.collector import Collector
    from traceanalyzer.read.text.batches import Batches

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


LOOKED_AT_BYTES = 512  # beyond the longest of these marks

_UNPACK = "Unpack it and pass the .json in it."
_EXPORT = "Pass the .json or .json.gz that prof.export_chrome_trace(...) writes."


class Format(NamedTuple):
    """What begins like this, what that is, and what to do about it."""

    begins: bytes
    name: str
    remedy: str = _EXPORT


# Regular expressions, of the file's very first bytes; the first that fits. Each from the format's own specification.
_FORMATS = (
    Format(rb"PAR1", "a Parquet table"),
    Format(rb"ARROW1|FEA1", "an Arrow or Feather table"),
    Format(rb"PK\x03\x04[\s\S]{26}[^\0]*data\.pkl", "a file of torch.save"),
    Format(rb"PK(\x03\x04|\x05\x06|\x07\x08)", "a zip archive", _UNPACK),
    Format(rb"BZh[1-9]1AY&SY", "compressed with bzip2", _UNPACK),
    Format(rb"\xfd7zXZ\0", "compressed with xz", _UNPACK),
    Format(rb"\x04\x22\x4d\x18", "compressed with lz4", _UNPACK),
    Format(rb"7z\xbc\xaf\x27\x1c|Rar!\x1a\x07", "an archive of 7-Zip or RAR", _UNPACK),
    Format(
        rb"SQLite format 3\0",
        "an SQLite database, such as Nsight Systems exports",
        "Record with torch.profiler, and pass the .json or .json.gz that it exports.",
    ),
    Format(
        rb"\x80[\x02-\x05][\s\S]",
        "a Python pickle, such as a snapshot of the CUDA allocator",
        "Open a snapshot in https://pytorch.org/memory_viz; here, pass what torch.profiler exports.",
    ),
    Format(
        rb"version https://git-lfs\.github\.com/spec/",
        "a pointer of Git LFS, not the file",
        "Run `git lfs pull` first.",
    ),
    Format(
        rb"\xff\xfe|\xfe\xff|(\s\0)*[\[{]\0|(\0\s)*\0[\[{]",
        "text in UTF-16",
        "Save it as UTF-8: a shell that redirects may have converted it.",
    ),
    Format(
        rb"(\xef\xbb\xbf)?\s*<",
        "HTML or XML",
        "A download may have brought an error page or a viewer: pass the trace's .json or .json.gz.",
    ),
    Format(rb"\x89PNG|\xff\xd8\xff|GIF8", "a picture"),
    Format(rb"%PDF-", "a PDF document"),
    Format(rb"\x7fELF", "a program or a library"),
    Format(  # field 1, sized: a packet of Perfetto's Trace, a plane of an XSpace
        rb"\x0a(?!\s*[\[{])[\s\S]{0,62}[\x00-\x08\x0e-\x1f]",
        "binary, and looks like a protobuf: Perfetto's own format, or an .xplane.pb",
    ),
)


def format_of(content: bytes) -> Format | None:
    """What a file is that begins with these bytes; None where it may be JSON, or is not known."""
    first = content[:LOOKED_AT_BYTES]
    if first[:1] in (b"{", b"[") and first[1:2] != b"\0":  # as nearly all: no expression need be compiled
        return None
    return next((entry for entry in _FORMATS if re.match(entry.begins, first)), None)


_RECORD = "Record it again with torch.profiler and export it with prof.export_chrome_trace(...)."
_EMPTY = (
    "Run work while the profiler is active: the profiled block was empty, or its schedule was never active. Call "
    "prof.step() after each step, at least wait + warmup + active times."
)
_SHOWN = 5  # categories in a message


def refusal_of(batches: Batches, collector: Collector) -> TraceAnalyzerError | None:
    """Why the events are no trace of torch.profiler, None where they are one."""
    groups = [group for group in collector.groups.values() if group.rows]
    torch_categories = {category for _, category in CATEGORIES.values()}
    timed = sum(group.rows for (frame, *_), group in collector.groups.items() if frame != "memory")
    impossible = collector.impossible_durations
    if impossible and impossible == timed:
        problem = f"all {impossible:,} durations are negative or longer than any recording"
        return UnreadableTrace(problem, where=batches.source.name, remedy=_RECORD)
    if any(group.category in torch_categories for group in groups):
        return _without_devices(batches, collector)
    damage, name = batches.damage, batches.source.name
    if damage and not groups:
        return UnreadableTrace(f"nothing readable: {damage[0].message}", where=name, remedy=_RECORD)
    if batches.events == 0:
        return NotATrace("the list of events is empty", where=name, remedy=_RECORD)
    return _not_ours(batches, collector, bool(groups))


def _without_devices(batches: Batches, collector: Collector) -> NotATrace | None:
    """Why a trace of torch.autograd.profiler with GPU work is refused, None for others: it writes kernels as ops."""
    theirs = {head[1] for head in collector.heads}
    moved = sum(count for category, count in collector.foreign.items() if category.startswith("cpu_to_"))
    if AUTOGRAD_PID not in theirs or not (moved or "CUDA functions" in theirs):
        return None
    problem = "is a trace of torch.autograd.profiler with GPU work, whose rows have neither device, stream nor launch"
    remedy = (
        "Record with torch.profiler.profile(...) instead; its ops alone are read where no GPU was profiled."
    )
    return NotATrace(problem, where=batches.source.name, remedy=remedy)


def _not_ours(batches: Batches, collector: Collector, has_rows: bool) -> NotATrace | None:
    name, header = batches.source.name, batches.envelope.header
    exporter = exporter_of(header, collector.foreign, collector.names_of_processes())
    count = f"{batches.events:,} events"
    if exporter:
        problem = (
            f"is a trace of {exporter.name}, not of torch.profiler: none of its {count} is of a category"
        )
        return NotATrace(f"{problem} that torch.profiler writes", where=name, remedy=exporter.remedy)
    if not has_rows and ("schemaVersion" in header or collector.counted["window mark"]):
        return NotATrace(
            "is a trace of torch.profiler in which nothing was recorded", where=name, remedy=_EMPTY
        )
    if not has_rows:
        return NotATrace(f"none of its {count} has a duration", where=name, remedy=EXPECTED)
    foreign = [category for category, _ in collector.foreign.most_common()]
    shown = ", ".join(foreign[:_SHOWN]) + (", ..." if len(foreign) > _SHOWN else "")
    problem = f"is a Chrome trace, but none of its {count} has a category of torch.profiler"
    theirs = f"; its categories are {shown}" if foreign else "; they have no category"
    remedy = f"{EXPECTED} A merged timeline needs the original categories (cpu_op, kernel, ...)."
    return NotATrace(problem + theirs, where=name, remedy=remedy)
