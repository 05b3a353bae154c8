"""One step of a recording as what its device ran, to be drawn above another's."""

from __future__ import annotations

import numpy as np

from traceanalyzer.comparison.snapshot import Piece, StepStrip
from traceanalyzer.comparison.tables import Chosen
from traceanalyzer.model.short_names import short_kernel
from traceanalyzer.model.trace import Trace, codes_at, texts_of
from traceanalyzer.timeline.device_work import KINDS, DeviceWork
from traceanalyzer.timeline.steps import Steps

_MOST = 300  # pieces: more are not seen on a page


def strip_of(trace: Trace, work: DeviceWork, steps: Steps, chosen: Chosen) -> StepStrip:
    """The chosen step of median length on the main device."""
    own = np.flatnonzero(chosen.place[:-1] >= 0)
    lengths = steps.durations_ns(chosen.device)[own]
    step = int(own[np.argsort(lengths, kind="stable")[(len(own) - 1) // 2]])
    begin = int(steps.bounds_ns[chosen.device][step])
    mine = np.flatnonzero((steps.of_work == step) & (work.device == chosen.device))
    longest = mine[np.argsort(work.start_ns[mine] - work.end_ns[mine], kind="stable")[:_MOST]]
    shown = np.sort(longest)
    streams = {stream: at for at, stream in enumerate(np.unique(work.stream[mine]).tolist())}
    names = texts_of(trace.gpu, "name")[codes_at(trace.gpu, "name", work.row[shown])]
    pieces = tuple(
        Piece(streams[stream], start - begin, end - start, KINDS[kind], short_kernel(str(name)))
        for stream, start, end, kind, name in zip(
            work.stream[shown].tolist(),
            work.start_ns[shown].tolist(),
            work.end_ns[shown].tolist(),
            work.kind[shown].tolist(),
            names,
            strict=True,
        )
    )
    return StepStrip(int(steps.durations_ns(chosen.device)[step]), pieces, len(mine) - len(shown))
