"""Traces with their overlays in one archive, the manifest that puts them on one timeline, and where to open it.

The manifest is as https://perfetto.dev/docs/reference/perfetto-manifest has it (version 1, read from Perfetto v58 on).
A trace in JSON has no clock that Perfetto knows, so each is pinned to its overlay's, and the overlays of a job's ranks
to the earliest of them; a clock that drifts is evened in the trace itself. The archives keep to what Perfetto reads:
member names in ASCII, no zip64, no long names. Parameters and commands of addresses are those of
https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui and .../commands-automation-reference; the viewer
leaves out commands that it does not know.
"""

import errno
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import PurePath
from typing import Any, BinaryIO
from urllib.parse import quote, urlencode

from traceanalyzer.model.finding import Finding
from traceanalyzer.model.overlay import Drift, Overlay
from traceanalyzer.model.text_queries import regex
from traceanalyzer.read.text.source import Source
from traceanalyzer.render.data.encode import indented_json, json_text
from traceanalyzer.render.perfetto.chrome import us
from traceanalyzer.render.perfetto.track_events import shown_name, to_track_events

_NUMBER = rb'"?(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"?'
# A quote within a text has a backslash before it: no text holds these. Begin and duration mostly stand together.
_TIMES = regex(rb'(?<!\\)"ts"\s*:\s*%b(\s*,\s*"dur"\s*:\s*)?(?(2)%b)|(?<!\\)"dur"\s*:\s*%b' % ((_NUMBER,) * 3))
_FAR_NS = 86_400_000_000_000  # a day from where the drift was measured: no time of an event, as 0 of a process' name
Read = Callable[[Overlay], Iterator[bytes]]
MANIFEST = "perfetto_manifest.json"
# Of a member: zipfile writes larger ones as zip64, which Perfetto does not read.
MOST_ZIP_BYTES = (1 << 31) - 1
_CLOCK = "BOOTTIME"  # what Perfetto takes packets without a clock for
_LEVEL = 1  # of compression: a trace shrinks to a tenth with any
_ODD = regex(r"[^A-Za-z0-9._-]+")
_MOST_NAME = 60
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # the same trace always gives the same bytes
ORIGIN = "https://ui.perfetto.dev"
_ROOM = 2.0  # of the occurrence's length, shown on each side of it
_LEAST_NS = 20_000  # shown on each side: some launches


def evened(blocks: Callable[[], Iterable[bytes]], drift: Drift) -> Iterator[bytes]:
    """The JSON, block by block; byte for byte where the clock does not drift.

    What ended together still does: begins and ends are moved, and durations are what lies between. A duration that
    does not follow its begin shrinks or grows by the drift.
    """
    if not drift.ppm:
        yield from blocks()
        return
    left = b""
    for block in blocks():
        whole, brace, left = (left + block).rpartition(b"}")  # no event's times hold one
        yield _TIMES.sub(lambda found: _moved(found, drift), whole) + brace
    yield left


def _moved(found: re.Match[bytes], drift: Drift) -> bytes:
    begin, comma, took, alone = found.groups()
    if begin is None:
        ns = _ns(alone)
        return b'"dur":' + us(ns - round(ns * drift.ppm * 1e-6))
    start = _ns(begin)
    if abs(start - drift.at_ns) > _FAR_NS:
        return found[0]
    shown = drift.evened(start)
    if comma is None:
        return b'"ts":' + us(shown)
    return b'"ts":' + us(shown) + comma + us(drift.evened(start + _ns(took)) - shown)


def _ns(us: bytes) -> int:
    return round(Decimal(us.decode()) * 1_000)


class TooLarge(Exception):
    """A trace does not fit into this kind of archive."""


def recorded(overlay: Overlay) -> Iterator[bytes]:
    """The JSON of its trace, block by block."""
    return Source(overlay.source).blocks()


def write_zip(overlays: Sequence[Overlay], stream: BinaryIO, read: Read = recorded) -> None:
    """A zip archive; the traces are copied block by block. Raises TooLarge: a trace has 2 GiB or more."""
    with zipfile.ZipFile(stream, "w") as archive:
        for name, make in _contents(overlays, read):
            entry = zipfile.ZipInfo(name, _FIRST_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry._compresslevel = _LEVEL  # type: ignore[attr-defined]  # has a public name from Python 3.13 on
            size = 0
            with archive.open(entry, "w") as file:
                for block in make():
                    size += len(block)
                    if size > MOST_ZIP_BYTES:
                        raise TooLarge
                    file.write(block)


def write_tar(overlays: Sequence[Overlay], stream: BinaryIO, read: Read = recorded) -> None:
    """A tar archive. It says each size before the content, so every trace is read twice.

    Raises OSError: a trace changed meanwhile.
    """
    for name, make in _contents(overlays, read):
        entry = tarfile.TarInfo(name)
        entry.size = sum(len(block) for block in make())
        stream.write(entry.tobuf(tarfile.GNU_FORMAT, "ascii", "strict"))
        written = sum(stream.write(block) for block in make())
        if written != entry.size:
            raise OSError(errno.ESTALE, "a trace changed while it was copied")
        stream.write(bytes(-written % tarfile.BLOCKSIZE))
    stream.write(bytes(2 * tarfile.BLOCKSIZE))


def _contents(overlays: Sequence[Overlay], read: Read) -> Iterator[tuple[str, Callable[[], Iterable[bytes]]]]:
    """Names of the files, and what gives their content each time that it is called."""
    names, said = member_names(overlays), indented_json(manifest(overlays))
    yield MANIFEST, lambda: [said]
    for position, (overlay, (trace, drawing)) in enumerate(zip(overlays, names, strict=True)):
        drawn = [*to_track_events(overlay, position)]
        yield trace, partial(evened, partial(read, overlay), overlay.drift)
        yield drawing, partial(iter, drawn)


def member_names(overlays: Sequence[Overlay]) -> list[tuple[str, str]]:
    """Names of each trace and its overlay in the archive: by the file where there is one, else by the rank."""
    stems = [f"rank{overlay.rank}" for overlay in overlays]
    if len(overlays) == 1:
        plain = re.sub(r"(\.json)?(\.gz|\.zst)?$", "", PurePath(overlays[0].source).name)
        stems = [_ODD.sub("_", plain).strip("._")[:_MOST_NAME] or "trace"]
    return [(f"{stem}.json", f"{stem}.findings.pftrace") for stem in stems]


def manifest(overlays: Sequence[Overlay]) -> dict[str, Any]:
    """What Perfetto is told of the archive's files."""
    names = member_names(overlays)
    first = earliest(overlays)
    time = {"file": names[first][1], "clock": _CLOCK}
    files = []
    for overlay, (trace, drawn) in zip(overlays, names, strict=True):
        machine = {"machine": {"name": f"rank {overlay.rank}"}} if len(overlays) > 1 else {}
        related = {"clock": _CLOCK, "sync_to": time, "offset_ns": offset_ns(overlays, overlay)}
        own = {} if overlay is overlays[first] else {"clocks": related}
        pinned = {"sync_to": {"file": drawn, "clock": _CLOCK}, "offset_ns": 0}
        files += [{"path": drawn, **machine, **own}, {"path": trace, **machine, "clocks": pinned}]
    return {"perfetto_manifest": {"version": 1, "trace_time": time, "files": files}}


def earliest(overlays: Sequence[Overlay]) -> int:
    """Position of the trace whose clock is the timeline: none is moved before its beginning."""
    return min(range(len(overlays)), key=lambda at: overlays[at].base_time_ns)


def offset_ns(overlays: Sequence[Overlay], overlay: Overlay) -> int:
    """What is added to a trace's times on the archive's timeline."""
    return overlay.base_time_ns - overlays[earliest(overlays)].base_time_ns


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


def viewer_address(file: str, view: View | None = None, viewer: str = ORIGIN) -> str:
    """The viewer with the trace that it fetches from the address `file`, at a finding's typical occurrence."""
    parts = {"url": file}
    if view is not None:
        start, end, offset = view.finding.start_ns, view.finding.end_ns, view.offset_ns
        room = max(round(_ROOM * (end - start)), _LEAST_NS)
        low, high = max(start - room, view.within_ns[0]), min(end + room, view.within_ns[1])
        parts |= {"visStart": str(low + offset), "visEnd": str(high + offset)}
        parts |= {"ts": str(start + offset), "dur": str(end - start)}
        names = "|".join(re.escape(name).replace("\\ ", " ") for name in view.pins)  # so the address is easy to read
        commands = [{"id": "dev.perfetto.PinTracksByRegex", "args": [f"^({names})$"]}] * bool(view.pins)
        note = [str(start + offset), shown_name(view.title)]
        commands += [{"id": "dev.perfetto.AddNoteAtTimestamp", "args": note}]
        parts["startupCommands"] = json_text(commands)
    return f"{viewer.rstrip('/')}/#!/?{urlencode(parts, safe='', quote_via=quote)}"
