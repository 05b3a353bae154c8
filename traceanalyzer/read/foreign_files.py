"""Files that are no trace of torch.profiler: what they are, by bytes, keys and categories, and what to do instead."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from traceanalyzer.model.errors import NotATrace, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.schema import CATEGORIES
from traceanalyzer.read.columns.quirks import AUTOGRAD_PID

if TYPE_CHECKING:
    from traceanalyzer.read.columns.collector import Collector
    from traceanalyzer.read.text.batches import Batches

EXPECTED = "Expected the file that prof.export_chrome_trace(...) or tensorboard_trace_handler(...) writes."


class Exporter(NamedTuple):
    """A program that writes Chrome traces of its own, and what its files are known by."""

    name: str
    categories: str = "(?!)"
    processes: str = "(?!)"
    keys: Sequence[str] = ()
    remedy: str = "Run the program under torch.profiler and pass the file that it exports."


class Format(NamedTuple):
    """What begins like this, what that is, and what to do about it."""

    begins: str
    name: str
    remedy: str = "Pass the .json or .json.gz that prof.export_chrome_trace(...) writes."


@cache
def _known() -> Mapping[str, Any]:
    """Exporters, keys and formats; `foreign_files.toml` explains them."""
    return tomllib.loads(Path(__file__).with_name("foreign_files.toml").read_text(encoding="utf-8"))


def remedy_for_keys(keys: Iterable[str]) -> str:
    """What to do with JSON that has these top-level keys and no events."""
    there = set(keys)
    return next((remedy for key, remedy in _known()["keys"].items() if key in there), EXPECTED)


def exporter_of(header: Mapping[str, Any], categories: Iterable[str], processes: Iterable[str]) -> Exporter | None:
    """The program that wrote a Chrome trace, by top-level keys, categories and processes; None if it is unknown."""
    exporters = [Exporter(**fields) for fields in _known()["exporter"]]
    if "DevTools" in str(header.get("metadata"))[:1000]:
        return exporters[0]
    categories, processes = list(categories), list(processes)
    for exporter in exporters:
        by_category = any(re.match(exporter.categories, category) for category in categories)
        by_process = any(re.search(exporter.processes, process) for process in processes)
        if by_category or by_process or header.keys() & exporter.keys:
            return exporter
    return None


def format_of(content: bytes) -> Format | None:
    """What a file is that begins with these bytes; None where it may be JSON, or is not known."""
    first = content[:512]  # beyond the longest of these marks
    if first[:1] in (b"{", b"[") and first[1:2] != b"\0":  # as nearly all: no expression need be compiled
        return None
    formats = (Format(**fields) for fields in _known()["format"])
    return next((entry for entry in formats if re.match(entry.begins.encode(), first)), None)


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
    remedy = "Record with torch.profiler.profile(...) instead; its ops alone are read where no GPU was profiled."
    return NotATrace(problem, where=batches.source.name, remedy=remedy)


def _not_ours(batches: Batches, collector: Collector, has_rows: bool) -> NotATrace | None:
    name, header = batches.source.name, batches.envelope.header
    processes = {text for labels in collector.declared.processes.values() for text in labels.values()}
    processes |= {head[1] for head in collector.heads if isinstance(head[1], str)}
    exporter = exporter_of(header, collector.foreign, processes)
    count = f"{batches.events:,} events"
    if exporter:
        none = f"none of its {count} is of a category that torch.profiler writes"
        problem = f"is a trace of {exporter.name}, not of torch.profiler: {none}"
        return NotATrace(problem, where=name, remedy=exporter.remedy)
    if not has_rows and ("schemaVersion" in header or collector.counted["window mark"]):
        problem = "is a trace of torch.profiler in which nothing was recorded"
        return NotATrace(problem, where=name, remedy=_EMPTY)
    if not has_rows:
        return NotATrace(f"none of its {count} has a duration", where=name, remedy=EXPECTED)
    foreign = [category for category, _ in collector.foreign.most_common()]
    shown = ", ".join(foreign[:_SHOWN]) + (", ..." if len(foreign) > _SHOWN else "")
    problem = f"is a Chrome trace, but none of its {count} has a category of torch.profiler"
    theirs = f"; its categories are {shown}" if foreign else "; they have no category"
    remedy = f"{EXPECTED} A merged timeline needs the original categories (cpu_op, kernel, ...)."
    return NotATrace(problem + theirs, where=name, remedy=remedy)
