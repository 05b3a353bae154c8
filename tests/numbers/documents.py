"""What the commands say of a trace, as documents whose numbers are kept."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import orjson
import pyarrow.parquet as pq

from tests.html.pages import parsed
from tests.numbers.programs import (
    CHANGES,
    COPIED_CHANGES,
    COPIED_JOBS,
    JOBS,
    analysis_of,
    changed_pair,
    ranks_of,
)
from tests.perfetto import reader
from tests.support.cached_reports import analysed, reported
from tests.support.fixtures import PROGRAMS, TRACES, name_of
from traceanalyzer.allocator.memory_view import MemoryView, ops_by_memory
from traceanalyzer.comparison.compare import compare
from traceanalyzer.job.cross_rank_indexes import introduce
from traceanalyzer.job.ranks import Here
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import TraceAnalyzerError, Unavailable
from traceanalyzer.model.report import Report
from traceanalyzer.render.data.comparison import comparison_document, comparison_markdown
from traceanalyzer.render.data.facts import facts_fields
from traceanalyzer.render.data.json import document
from traceanalyzer.render.data.markdown import render_markdown
from traceanalyzer.render.data.results import rank_tables
from traceanalyzer.render.data.speedscope import render_speedscope
from traceanalyzer.render.data.views import memory_fields, ops_fields
from traceanalyzer.render.html.comparison import render_comparison_page
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.summary import summary_svg
from traceanalyzer.render.perfetto.chrome import to_chrome_events
from traceanalyzer.render.perfetto.track_events import to_track_events
from traceanalyzer.render.text.collectives import render_collectives
from traceanalyzer.render.text.comparison import render_comparison
from traceanalyzer.render.text.facts import render_facts
from traceanalyzer.render.text.memory import render_memory
from traceanalyzer.render.text.ops import ops_markdown, render_ops
from traceanalyzer.render.text.report import render_text
from traceanalyzer.render.text.table import TableSize, render_table
from traceanalyzer.report.collectives import collectives_of_job
from traceanalyzer.report.diagnosis import diagnose, report_of
from traceanalyzer.report.facts import facts_of
from traceanalyzer.report.overlay.build import overlays_of
from traceanalyzer.report.page.page import page_of
from traceanalyzer.report.tables import idle_gaps, kernels, queue_depth
from traceanalyzer.roofline.op_work import OpWork
from traceanalyzer.torch_table.key_averages import key_averages
from traceanalyzer.torch_table.printed import printed_table, sorted_rows

_PATHS = {name_of(path): path for path in (*TRACES, *PROGRAMS)}
_ROWS = 200  # of a curve
_PATH = re.compile(r"\S*/\S*\.json\S*")
Ranked = Sequence[tuple[int | None, Analysis]]


def one_of(many: int, names: Sequence[str]) -> list[str]:
    """One of so many names, the same whichever others there are."""
    return [name for name in names if zlib.crc32(name.encode()) % many == 0]


def analyses_of_name(name: str) -> Ranked:
    """The trace or the ranks of this name."""
    if name in JOBS or name in COPIED_JOBS:
        return ranks_of(name)
    analysis = analysed(_PATHS[name]) if name in _PATHS else analysis_of(name)
    return [(analysis.trace.meta.rank, analysis)]


@cache
def report_of_name(name: str) -> Report:
    """What is diagnosed."""
    return reported(_PATHS[name]) if name in _PATHS else report_of(analyses_of_name(name))


def _one(name: str) -> Analysis:
    return analyses_of_name(name)[0][1]


def diagnosed(name: str) -> Any:
    """Without limits and rules that found nothing: a new one changes no number of a report."""
    return _without_rules(report_of_name(name))


def _without_rules(report: Report) -> Any:
    left_out = ("schema_version", "tool", "limits", "outcomes")
    whole = document(report)
    kept = {key: value for key, value in whole.items() if key not in left_out}
    for trace in kept["traces"]:
        del trace["source"]
        trace["meta"] = replace(trace["meta"], source="")
    return kept


def _lines(text: str) -> list[str]:
    """Whole lines, words and all: of texts that are tables and no sentences of rules."""
    return [line.strip().replace(" ", "_") for line in text.splitlines()]


def window(name: str) -> Any:
    """The middle of the trace alone, with a step that the user measured."""
    trace, whole = _one(name).trace, report_of_name(name).traces[0].window
    quarter = whole.length_ns // 4
    start, end = (at - trace.meta.origin_ns for at in (whole.start_ns + quarter, whole.end_ns - quarter))
    return _without_rules(diagnose(trace, window=(start, end), step_ms=0.5))


def told(name: str) -> Any:
    return {"diagnosed": diagnosed(name), "ops": ops(name), "facts": facts(name)}


def texts(name: str) -> Any:
    """Without how many rules ran, for the same reason."""
    report = report_of_name(name)
    verbose = render_text(report, width=120, verbose=True).partition("\nrules ")[0]
    screen = [line for line in render_text(report, width=80).splitlines() if " rules ran" not in line]
    return {
        "screen": screen,
        "verbose": verbose.splitlines(),
        "markdown": render_markdown(report).splitlines(),
    }


def ops(name: str) -> Any:
    return ops_fields(_one(name).index(OpWork))


def ops_texts(name: str) -> Any:
    work = _one(name).index(OpWork)
    return {"text": _lines(render_ops(work, width=120)), "markdown": _lines(ops_markdown(work))}


def memory(name: str) -> Any:
    analysis = _one(name)
    view, ops = analysis.index(MemoryView), ops_by_memory(analysis.trace)
    text = render_memory(view, ops, origin_ns=analysis.trace.meta.origin_ns)
    return {
        **memory_fields(view, ops),
        "curve": view.curve[:: 1 + len(view.curve) // _ROWS],
        "text": text.splitlines(),
    }


def facts(name: str) -> Any:
    facts = facts_of(_one(name))
    return {**facts_fields(facts), "text": render_facts(facts, width=120).splitlines()}


def table(name: str) -> Any:
    averages = key_averages(_one(name).trace, by_input_shape=True, by_stack=2)
    text = render_table(printed_table(averages, "cpu_time_total"), TableSize(40, 55))
    return {"rows": sorted_rows(averages.rows, "self_cpu_time_total"), "text": _lines(text)}


def frames(name: str) -> Any:
    analysis = _one(name)
    return {"kernels": kernels(analysis), "queue": queue_depth(analysis), "gaps": idle_gaps(analysis)}


def results(name: str) -> Any:
    analysis = _one(name)
    made = rank_tables(analysis, None, {analysis.trace.meta.source: ""}).tables
    return {table: pq.read_table(io.BytesIO(content)).to_pydict() for table, content in made.items()}


def read(name: str) -> Any:
    """Every column of both lanes, and the account of what was read; or why it cannot be."""
    try:
        trace = _one(name).trace
    except TraceAnalyzerError as problem:
        return {"problem": type(problem).__name__}
    return {"cpu": trace.cpu, "gpu": trace.gpu, "meta": replace(trace.meta, source="")}


def flames(name: str) -> Any:
    return json.loads(render_speedscope({None: _one(name).trace}))["profiles"]


def page(name: str) -> Any:
    report = report_of_name(name)
    whole = _attributes(render_html(page_of(report, analyses_of_name(name))))
    return {"page": whole, "summary": _attributes(str(summary_svg(report)).encode())}


def _attributes(html: bytes) -> Mapping[str, Sequence[str]]:
    """Numbers in the attributes of the elements, where they are drawn and what they are exactly, and in tables."""
    page: dict[str, list[str]] = {}
    for one in parsed(html).elements:
        if one.name == "wbr" or "/outcomes/" in (one.attributes.get("data-path") or ""):
            continue  # where a path may be broken depends on where the file is
        kind = "_".join([one.name, *(one.attributes.get("class") or "").split()[:1]]).replace("-", "_")
        page.setdefault(kind, []).append("")
        told = {"text": one.text} if one.name in ("td", "text") else {}
        if "d" in one.attributes:
            told["d"] = re.sub(r"[A-Za-z,]", " ", one.attributes["d"] or "")
        for attribute, value in (one.attributes | told).items():
            if attribute not in ("id", "class", "content", "href"):
                page.setdefault(f"{kind}_{attribute}".replace("-", "_"), []).append(
                    f"{_PATH.sub('', value or '')} ."
                )
    return page


def overlay(name: str) -> Any:
    """The overlay as Perfetto's messages and as events of JSON."""
    found = {}
    for number, overlay in enumerate(overlays_of(report_of_name(name), analyses_of_name(name))):
        drawn = reader.read(b"".join(to_track_events(overlay)))
        slices = [one for track in drawn.order for one in drawn.slices.get(track, ())]
        counters = [drawn.counters[track] for track in drawn.order if track in drawn.counters]
        events = [orjson.loads(one.strip(b",\n ")) for one in to_chrome_events(overlay)]
        found[f"rank{number}"] = {"slices": slices, "counters": counters, "events": events}
    return found


def compared(name: str) -> Any:
    if name in CHANGES or name in COPIED_CHANGES:
        found = compare(*changed_pair(name))
    else:
        base = _PATHS[name]
        found = compare(analysed(base).trace, analysed(base.with_name("good.json.gz")).trace)
    text = [*_lines(render_comparison(found, width=120))[1:], *_lines(comparison_markdown(found))]
    page = _attributes(render_comparison_page(found))
    kept = {
        key: one for key, one in comparison_document(found).items() if key not in ("schema_version", "tool")
    }
    return {**kept, "text": text, "page": page}


def collectives(name: str) -> Any:
    ranked = dict(ranks_of(name))
    found = collectives_of_job(Here(ranked), introduce(Here(ranked)))
    return {"found": found, "text": _lines(render_collectives(found))}


def views(name: str) -> Any:
    """All that other commands say of it."""
    made = (ops, facts, frames, memory, table, results, read, flames)
    return {of.__name__: _attempted(of, name) for of in made}


def _attempted(of: Callable[[str], Any], name: str) -> Any:
    with suppress(TraceAnalyzerError, Unavailable):
        return of(name)
    return None


def drawn(name: str) -> Any:
    return {"page": page(name), "overlay": overlay(name)}
