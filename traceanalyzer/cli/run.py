"""What the commands do: options in, files and text out. Imported when a command runs, not for --help."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from traceanalyzer.cli.exits import emit
from traceanalyzer.cli.files import check_outputs, made, written
from traceanalyzer.cli.heap import keep_freed_memory
from traceanalyzer.cli.progress import told_progress
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.finding import Report, Severity, Status
from traceanalyzer.model.offsets import parse_window
from traceanalyzer.model.trace import Job, Trace
from traceanalyzer.read.load import load, load_job
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.rule import registry as rules


@dataclass(frozen=True, slots=True)
class Request:
    """The options of `diagnose`, as the command line gives them."""

    traces: tuple[Path, ...]
    form: str = "text"
    output: Path | None = None
    parquet: Path | None = None
    accounting: Path | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    settings: Mapping[str, str] | None = None
    window: str | None = None
    fail_on: str = "never"
    quiet: bool = False
    force: bool = False
    jobs: int | None = None
    cache: bool = False


def run_diagnose(request: Request) -> bool:
    """Read, analyse, write; whether --fail-on was met. All that can be refused is refused before reading."""
    window = parse_window(request.window) if request.window else None
    settings = request.settings or {}
    for slug in (*request.select, *request.ignore, *(key.partition(".")[0] for key in settings)):
        known_rule(slug)
    rules.configured(rules.select_rules(request.select, request.ignore), settings)
    outputs = [path for path in (request.output, request.parquet, request.accounting) if path]
    check_outputs(outputs, inputs=request.traces, force=request.force)
    loaded = load_all(request.traces, quiet=request.quiet, jobs=request.jobs, cache=request.cache)
    analysed = analyses_of(loaded, window)
    report = report_of(analysed, select=request.select, ignore=request.ignore, settings=settings)
    _write_tables(request, report, analysed)
    _write_report(request, report)
    if all(outcome.status is Status.NOT_APPLICABLE for outcome in report.outcomes):
        print(f"warning: no rule applies: {report.outcomes[0].why}", file=sys.stderr)
    return _met(request.fail_on, report)


def load_all(
    paths: Sequence[Path], *, quiet: bool = False, jobs: int | None = None, cache: bool = False
) -> Trace | Job:
    """One trace, or the traces of one job by rank; those that declare no rank are numbered as given.

    Raises:
        UnreadableTrace, NotATrace: as `read.load.load_job` says.
    """
    keep_freed_memory()
    with told_progress(quiet) as progress:
        if len(paths) == 1 and not paths[0].is_dir():
            return load(paths[0], jobs=jobs, cache=cache, progress=progress)
        job = load_job(*paths, jobs=jobs, cache=cache, progress=progress)
    unranked = sum(trace.meta.rank is None for trace in job.values())
    if unranked and len(job) > 1:
        what = f"{unranked} of the {len(job)} traces declare no rank"
        print(f"warning: {what} and are numbered in the order given, as if of one job", file=sys.stderr)
    return job


def _write_tables(request: Request, report: Report, analysed: Sequence[tuple[int | None, Analysis]]) -> None:
    if request.parquet is not None:
        from traceanalyzer.render.data.parquet import write_findings

        with written(request.parquet) as stream:
            write_findings(report, stream)
    if request.accounting is not None:
        from traceanalyzer.render.data.parquet import write_accounting
        from traceanalyzer.report.summary import accounting_frame

        frame = accounting_frame(analysed)
        with written(request.accounting) as stream:
            write_accounting(frame, [meta.source for meta in report.metas], stream)


def _write_report(request: Request, report: Report) -> None:
    if request.output is None:
        emit(_rendered(request, report, to_terminal=True))
        return
    with written(request.output) as stream:
        stream.write(_rendered(request, report, to_terminal=False))


def _rendered(request: Request, report: Report, *, to_terminal: bool) -> bytes:
    if request.form == "text":
        return _text(report, request.quiet, to_terminal)
    from traceanalyzer.render.data import json

    return {"json": json.render_json, "jsonl": json.render_jsonl}[request.form](report)


def _text(report: Report, quiet: bool, to_terminal: bool) -> bytes:
    """For a terminal, as wide and colourful as it is; for a file, always the same bytes."""
    from traceanalyzer.render.text.page import FILE_WIDTH, stream_width
    from traceanalyzer.render.text.report import render_text

    if not to_terminal:
        return render_text(report, width=FILE_WIDTH, quiet=quiet).encode()
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    plain = encoding.lower().replace("-", "") not in ("utf8", "utf8sig")
    text = render_text(report, width=stream_width(), colour=_colourful(), ascii_only=plain, quiet=quiet)
    return text.encode(encoding, "backslashreplace")


def _colourful() -> bool:
    """Colour on a terminal only, and not where the user asked for none (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _met(fail_on: str, report: Report) -> bool:
    if fail_on == "never":
        return False
    return any(finding.severity.rank <= Severity(fail_on).rank for finding in report.findings)


def known_rule(slug: str) -> rules.Rule:
    """The rule of that slug.

    Raises:
        BadOption: there is none; says which names come close.
    """
    try:
        return rules.find_rule(slug)
    except BadOption as error:
        close = get_close_matches(slug, [rule.slug for rule in rules.all_rules()])
        if not close:
            raise
        raise BadOption(error.problem, remedy=f"Did you mean {' or '.join(close)}?") from None


def list_rules() -> None:
    """One line per rule: slug, group, title."""
    from traceanalyzer.render.text.page import Page, stream_width

    page = Page(stream_width(), colour=_colourful())
    known = rules.all_rules()
    width = max((len(rule.slug) for rule in known), default=0)
    for rule in known:
        page.pair(rule.slug, f"{rule.title} ({rule.group})", width=width + 1)
    emit(page.text().encode(sys.stdout.encoding or "utf-8", "backslashreplace"))


def explain_rule(slug: str) -> None:
    """The rule's page and its limits."""
    from traceanalyzer.render.text.page import stream_width
    from traceanalyzer.render.text.rules import rule_page

    emit(
        rule_page(known_rule(slug), stream_width()).encode(sys.stdout.encoding or "utf-8", "backslashreplace")
    )


def export_frames(trace: Path, folder: Path, *, force: bool = False) -> None:
    """Every frame as Parquet and the metadata as JSON; several ranks in a folder each."""
    from traceanalyzer.render.data.frames import write_frame, write_meta

    names = {name: f"{name}.parquet" for name in Trace.FRAMES}
    for place in (folder, *folder.glob("rank*")):
        _refuse_existing([place / name for name in (*names.values(), "meta.json")], force)
    loaded = load_all([trace])
    ranks = (
        {f"rank{rank}": one for rank, one in loaded.items()} if isinstance(loaded, Job) else {"": loaded}
    )
    for rank, one in ranks.items():
        place = made(folder / rank)
        with written(place / "meta.json") as stream:
            write_meta(one.meta, stream)
        for name, file in names.items():
            with written(place / file) as stream:
                rows = write_frame(one, name, stream)
            emit(f"{place / file}: {rows:,} rows\n".encode())


def _refuse_existing(paths: Sequence[Path], force: bool) -> None:
    check_outputs([path for path in paths if path.exists()], force=force)
