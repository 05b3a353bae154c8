"""Ledger rows: the predicted saving of a fix and the measured one."""

from __future__ import annotations

import csv
import io

from traceanalyzer.comparison.result import Comparison, FaultChange, StepAxis
from traceanalyzer.version import __version__

COLUMNS = (
    *("program", "source", "gpu", "rule", "fault", "bound", "kind", "said", "low", "high", "true", "spread"),
    *("stacks", "fitted", "commit"),
)
_EXPLAINED = 0.5  # of the step's difference that is GPU time, for the fix to be one of work; half


def ledger_rows(found: Comparison, spread: float | None) -> list[dict[str, str]]:
    """One row per fault that alone is gone, as benchmarks/truth/*.csv has them.

    The truth is the step's: where the user has not timed it, it is predicted, and the row is `fitted`, so that it
    calibrates nothing.

    Args:
        spread: of the timed steps of BASE, longest over shortest less 1; None where nobody timed them.
    """
    step = found.axes.step
    measured = [
        fault for fault in found.faults if fault.got_share is not None and fault.said_share is not None
    ]
    return [] if step is None else [_row(found, step, fault, spread) for fault in measured]


def _row(found: Comparison, step: StepAxis, fault: FaultChange, spread: float | None) -> dict[str, str]:
    device = found.axes.device
    change_ns = step.new_ns - step.base_ns
    on_device = device is not None and change_ns != 0 and device.real_ns / change_ns >= _EXPLAINED
    shares = (fault.said_share, fault.low_share, fault.high_share, fault.got_share)
    said, low, high, true = (f"{share or 0.0:.4f}" for share in shares)
    return {
        "program": found.base.names[0].partition(".")[0],
        "source": "compare",
        "gpu": ", ".join(found.base.gpus),
        "rule": fault.rules[0],
        "fault": fault.title,
        "bound": step.base_bound or "",
        "kind": "work" if on_device else "host",
        "said": said,
        "low": low,
        "high": high,
        "true": true,
        "spread": "" if spread is None else f"{spread:.4f}",
        "stacks": "yes" if "stacks" in found.base.recorded else "no",
        "fitted": "no" if step.measured else "yes",
        "commit": __version__,
    }


def ledger_text(rows: list[dict[str, str]], before: str) -> str:
    """The ledger with the rows added; `before` is what the file holds, nothing for a new one."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    if not before:
        writer.writeheader()
    writer.writerows(rows)
    return before + ("\n" if before and not before.endswith("\n") else "") + stream.getvalue()
