"""torch.compile compiles again while the loop runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traceanalyzer.model.finding import Confidence
from traceanalyzer.replay.edits import DropSpans
from traceanalyzer.rule.claims import Claims
from traceanalyzer.rule.hits import Hits, Lost
from traceanalyzer.rule.limits import limit
from traceanalyzer.rule.registry import rule
from traceanalyzer.rule.views import Calls, IdleTime
from traceanalyzer.timeline.names import is_compilation


@dataclass(frozen=True, slots=True)
class Limits:
    give_up: int = limit(8, "versions of one frame: torch._dynamo.config.recompile_limit, torch 2.11")


_REGION = re.compile(r"^Torch-Compiled Region: (\d+)/(\d+)")


@rule(since="0.2", claims=Claims.EVENT, limits=Limits)
def recompilation(calls: Calls, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """Compiled code is compiled again in the middle of the loop.

    What it looks for: rows of the compiler (dynamo, inductor, Triton) in a step that is not the first, or in several
    steps, and compiled regions whose version grows: `Torch-Compiled Region: 0/18` is the nineteenth of frame 0.
    Why it costs: tracing and compiling take seconds, in which nothing runs. After 8 versions of a frame dynamo gives
    up and runs it eagerly.
    Bad: a compiled function called with another length every step. Good: torch.compile(dynamic=True),
    torch._dynamo.mark_dynamic, lengths padded to a few sizes, a Python number passed as a tensor.
    How sure: the compiler's rows are in the trace. Compilation in the first step alone is a cold start and no fault.
    When it is wrong: a shape that comes once, as in the last batch of an epoch, is compiled once.
    Source: PyTorch's torch.compile troubleshooting ("Dealing with Recompilations").
    """
    rows = calls[calls.name.meets(is_compilation)]
    found = rows[~rows.parent.inside(rows) & (rows.step >= 0)]
    steps = np.unique(found.step)
    if len(steps) == 0 or (len(steps) == 1 and steps[0] == 0):
        return
    versions = _versions(calls)
    late = found[found.step > 0] if len(steps) == 1 else found
    yield Hits(
        at=late,
        lost=Lost.idle_within(idle, late.start_ns, late.end_ns),
        fix=DropSpans(late.start_ns, late.end_ns),
        confidence=Confidence.HIGH if len(steps) > 1 else Confidence.MEDIUM,
        message="compiled again {in_steps}: {compiling} on the CPU, {each} each time"
        + ("; frame {frame} is at version {version}" if versions else ""),
        advice="See which guard fails with TORCH_LOGS=recompiles; then dynamic=True or mark_dynamic for a size that "
        "changes, padding to a few sizes, or a tensor in place of a Python number.",
        evidence={
            "compiling_ns": late.total_ns,
            "each_ns": int(np.median(late.dur_ns)),
            "frame": versions[0] if versions else None,
            "version": versions[1] + 1 if versions else None,
            "over_limit": bool(versions and versions[1] + 1 >= limits.give_up),
        },
    )


def _versions(calls: Calls) -> tuple[int, int] | None:
    """(frame, version) of the compiled region with the highest version, where one is above 0."""
    names = calls.name.meets(_REGION.match)
    found = [_REGION.match(name) for name in calls[names].name.distinct()]
    pairs = [(int(one[2]), int(one[1])) for one in found if one]
    version, frame = max(pairs, default=(0, 0))
    return (frame, version) if version else None
