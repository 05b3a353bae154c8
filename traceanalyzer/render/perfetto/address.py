"""Addresses that open Perfetto's viewer at a finding.

Parameters and commands are those of https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui and
.../commands-automation-reference; the viewer leaves out commands that it does not know.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from traceanalyzer.model.finding import Finding
from traceanalyzer.render.data.encode import json_text
from traceanalyzer.render.perfetto.track_events import shown_name

ORIGIN = "https://ui.perfetto.dev"
_ROOM = 2.0  # of the occurrence's length, shown on each side of it
_LEAST_NS = 20_000  # shown on each side: some launches


@dataclass(frozen=True, slots=True)
class View:
    """What the viewer shows first: a finding, noted by its title, within the trace, with some tracks on top.

    `offset_ns` is added to the trace's times on the file's timeline.
    """

    finding: Finding
    title: str
    within_ns: tuple[int, int]
    pins: Sequence[str]
    offset_ns: int = 0

    @property
    def bounds_ns(self) -> tuple[int, int]:
        """The occurrence with some room around it, on the file's timeline."""
        start, end = self.finding.start_ns, self.finding.end_ns
        room = max(round(_ROOM * (end - start)), _LEAST_NS)
        low, high = max(start - room, self.within_ns[0]), min(end + room, self.within_ns[1])
        return low + self.offset_ns, high + self.offset_ns

    def commands(self) -> list[dict[str, Any]]:
        """What the viewer does once the trace is open."""
        names = (re.escape(name).replace("\\ ", " ") for name in self.pins)  # an address with these is easy to read
        pinned = f"^({'|'.join(names)})$"
        note = [str(self.finding.start_ns + self.offset_ns), shown_name(self.title)]
        return [
            *([{"id": "dev.perfetto.PinTracksByRegex", "args": [pinned]}] if self.pins else []),
            {"id": "dev.perfetto.AddNoteAtTimestamp", "args": note},
        ]


def viewer_address(file: str, view: View | None = None, viewer: str = ORIGIN) -> str:
    """The viewer with the trace that it fetches from the address `file`, at a finding's typical occurrence."""
    parts = {"url": file}
    if view is not None:
        finding, (low, high) = view.finding, view.bounds_ns
        parts |= {"visStart": str(low), "visEnd": str(high)}
        parts |= {"ts": str(finding.start_ns + view.offset_ns), "dur": str(finding.end_ns - finding.start_ns)}
        parts["startupCommands"] = json_text(view.commands())
    return f"{viewer.rstrip('/')}/#!/?{urlencode(parts, safe='', quote_via=quote)}"
