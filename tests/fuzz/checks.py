"""What the analyzer must not do with a broken trace."""

import time
from pathlib import Path

import orjson
import pyarrow as pa

from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.finding import Status
from traceanalyzer.model.trace import Job, Trace
from traceanalyzer.read.load import load_file
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.page_data import page_of
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.rule.consistency import BOUNDS

MAX_SECONDS = 10.0  # for a file of at most a few MB; most take 0.01


def check(path: Path, *, batch_bytes: int, diagnosed: bool) -> None:
    """
    Raises:
        Exception: anything that is no refusal in our own words is a find.
    """
    begun = time.process_time()  # not of the clock: the machine may be busy
    try:
        trace = load_file(path, jobs=1, batch_bytes=batch_bytes)
    except TraceAnalyzerError as error:
        str(error).encode()
    else:
        check_frames(trace)
        if diagnosed:
            check_report(trace)
    spent = time.process_time() - begun
    assert spent < MAX_SECONDS, f"{spent:.1f} s for {path.stat().st_size:,} bytes"


def check_frames(trace: Trace) -> None:
    """Every event is in a frame or counted, and all can be written."""
    rows = {name: getattr(trace, name) for name in Trace.FRAMES}
    in_frames = sum(sum(by_category.values()) for by_category in trace.meta.rows.values())
    assert in_frames == sum(map(len, rows.values())), "rows of frames and of meta differ"
    assert in_frames + sum(trace.meta.counted.values()) == trace.meta.events, "events are missing"
    for frame in rows.values():
        assert pa.Table.from_pandas(frame, preserve_index=False).num_rows == len(frame)
    orjson.dumps(trace.meta, option=orjson.OPT_NON_STR_KEYS)


def check_report(trace: Trace | Job) -> None:
    """Every rule runs, and the page can be written."""
    try:
        analyses = analyses_of(trace)
        report = report_of(analyses)
    except TraceAnalyzerError:
        return
    failed = [f"{one.rule}: {one.why}" for one in report.outcomes if one.status is Status.FAILED]
    failed += [one for one in report.failures if f"left out, {BOUNDS}" in one]
    assert not failed, failed
    render_html(page_of(report, analyses))
