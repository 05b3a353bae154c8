"""Why a file that was read is no trace of torch.profiler, and what to do instead."""

from __future__ import annotations

from traceanalyzer.model.errors import NotATrace, TraceAnalyzerError, UnreadableTrace
from traceanalyzer.model.schema import CATEGORIES
from traceanalyzer.read.columns.collector import Collector
from traceanalyzer.read.columns.quirks import AUTOGRAD_PID
from traceanalyzer.read.exporters import EXPECTED, exporter_of
from traceanalyzer.read.text.batches import Batches

_RECORD = "Record it again with torch.profiler and export it with prof.export_chrome_trace(...)."
_SHOWN = 5  # categories in a message


def refusal_of(batches: Batches, collector: Collector) -> TraceAnalyzerError | None:
    """Why the events are no trace of torch.profiler, None where they are one."""
    groups = [group for group in collector.groups.values() if group.rows]
    known = {category for _, category in CATEGORIES.values()}
    if any(group.category in known for group in groups):
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
    if not has_rows:
        return NotATrace(f"none of its {count} has a duration", where=name, remedy=EXPECTED)
    foreign = [category for category, _ in collector.foreign.most_common()]
    shown = ", ".join(foreign[:_SHOWN]) + (", ..." if len(foreign) > _SHOWN else "")
    problem = f"is a Chrome trace, but none of its {count} has a category of torch.profiler"
    theirs = f"; its categories are {shown}" if foreign else "; they have no category"
    remedy = f"{EXPECTED} A merged timeline needs the original categories (cpu_op, kernel, ...)."
    return NotATrace(problem + theirs, where=name, remedy=remedy)
