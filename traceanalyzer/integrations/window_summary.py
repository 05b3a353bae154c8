"""What one rank says of one recorded window, in at most `MAX_BYTES`; a program of its own beside the training."""

import os
import sys
from pathlib import Path
from typing import Any

MAX_BYTES = 50_000
"""Of a summary: 512 ranks send 25 MB."""

_MOST_FINDINGS = 200
_LONGEST = 1_000  # characters of a line of the verdict


def summary_of(path: Path) -> dict[str, Any]:
    """Verdict, recorded step in ns, share of the window in collectives, and findings above `info`, by fingerprint."""
    from traceanalyzer import diagnose
    from traceanalyzer.model.finding import Severity
    from traceanalyzer.read.load import load
    from traceanalyzer.render.data.ci import fingerprint
    from traceanalyzer.render.words.phrases import titled

    report = diagnose(load(path, jobs=1))
    trace = report.traces[0]
    told = [one for one in report.findings if one.severity is not Severity.INFO][:_MOST_FINDINGS]
    parts = [part for device in trace.accounting for part in device.parts_ns.items()]
    waiting = sum(ns for name, ns in parts if name.startswith("communication"))
    return {
        "lines": {label: text[:_LONGEST] for label, text in trace.summary.lines.items()},
        "step_ns": None if trace.step is None else trace.step.traced_ns,
        "communication": waiting / max(sum(ns for _, ns in parts), 1),
        "findings": {fingerprint(one): titled(one) for one in told},
    }


def encoded(summary: dict[str, Any]) -> bytes:
    """The summary as JSON, without its last findings where it is too long."""
    from traceanalyzer.render.data.encode import to_json

    while len(text := to_json(summary)) > MAX_BYTES and summary["findings"]:
        kept = list(summary["findings"].items())[: len(summary["findings"]) // 2]
        summary = {**summary, "findings": dict(kept)}
    return text


def main() -> int:
    """Summarise the trace that the command line names; what is wrong with it goes to standard error."""
    from traceanalyzer.model.errors import TraceAnalyzerError

    if hasattr(os, "nice"):
        os.nice(10)  # the training comes first
    try:
        sys.stdout.buffer.write(encoded(summary_of(Path(sys.argv[1]))))
    except TraceAnalyzerError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
