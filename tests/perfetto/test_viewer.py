"""What Perfetto's own viewer makes of the files: our slices where the trace's are, and the first finding in view."""

import gzip
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.perfetto.drawn import drawing_of, evil_overlay, overlay_of
from tests.perfetto.reader import Drawing, read
from tests.perfetto.viewer import Viewer, viewer
from tests.support.fixtures import FIXTURES
from tests.support.paths import REPOSITORY
from traceanalyzer import diagnose
from traceanalyzer.cli.app import cli
from traceanalyzer.cli.file_server import OneFile
from traceanalyzer.cli.open import carried_viewer
from traceanalyzer.render.perfetto.archive import viewer_address
from traceanalyzer.render.perfetto.track_events import to_track_events

TRACE = FIXTURES / "implicit-sync" / "bad.json.gz"
PICTURE = REPOSITORY / "docs" / "images" / "perfetto.png"
MOST_PICTURE_BYTES = 200_000

_SLICES = "select track.name, slice.name, ts, dur from slice join track on slice.track_id = track.id"
_DROPPED = "select name, value from stats where severity = 'error' and value > 0 order by 1"
_KERNELS = "select ts, name from slice where category in ('kernel', 'gpu_memcpy', 'gpu_memset') order by ts"
_OWN_DROPPED = 8  # slices of the trace itself that Perfetto v52 drops, since they overlap
# What the viewer says of them hides a part of the picture; the mark that it points at stays.
_NO_BUBBLE = ".pf-popup-portal:has(.pf-topbar__error-popup) { display: none }"

pytestmark = [pytest.mark.xdist_group("perfetto-viewer"), pytest.mark.slow]


@pytest.fixture(scope="module")
def page() -> Iterator[Viewer]:
    """The viewer, with files instead of a server."""
    with viewer() as made:
        yield made


@pytest.fixture(scope="module")
def drawing() -> Drawing:
    """What is drawn beside the trace."""
    return drawing_of(TRACE)


def annotated(folder: Path, name: str) -> bytes:
    """The file that `annotate` writes."""
    result = CliRunner().invoke(cli, ["annotate", str(TRACE), "-o", str(folder / name)])
    assert result.exception is None, result.exception
    return (folder / name).read_bytes()


def drawn(drawing: Drawing) -> Counter[tuple[str, str, str, str]]:
    """Our slices as the viewer's tables say them."""
    return Counter(
        (track, one.name, str(one.start_ns), str(one.end_ns - one.start_ns))
        for track, slices in drawing.slices.items()
        for one in slices
    )


def test_open_shows_the_first_finding(page: Viewer) -> None:
    """The real server, the viewer's real content policy, and what its address asks for; and a picture of that."""
    program = [sys.executable, "-m", "traceanalyzer", "open", str(TRACE), "--print-url"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip()
            assert address, "port 9001 is taken"
            page.visit(address.replace("/#!", "/?fresh=open#!"))
            assert server.wait(60) == 0
        finally:
            server.kill()
    check_view(page)
    picture(page)


def test_trace_and_overlay_stand_on_one_timeline(page: Viewer, drawing: Drawing, tmp_path: Path) -> None:
    page.open("trace.tar", annotated(tmp_path, "trace.tar"))
    check_timeline(page, drawing)


def check_timeline(page: Viewer, drawing: Drawing) -> None:
    """To the nanosecond ours; the trace's own within the one that Perfetto v52 loses by doubles of microseconds."""
    rows = Counter(row for row in page.query(_SLICES) if row[0] in drawing.slices)
    assert rows == drawn(drawing)
    assert dict(page.query(_DROPPED)).keys() <= {"slice_drop_overlapping_complete_event"}
    kernels = {(int(ts) + off, name) for ts, name in page.query(_KERNELS) for off in (-1, 0, 1)}
    work = [one for track, slices in drawing.slices.items() if "work" in track for one in slices]
    assert work
    assert all((one.start_ns, one.name) in kernels for one in work if len(one.name) < 100)
    assert page.errors == []


def test_arrows_and_counters(page: Viewer, drawing: Drawing, tmp_path: Path) -> None:
    page.open("findings.pftrace", annotated(tmp_path, "findings.pftrace"))
    arrows = {arrow for slices in drawing.slices.values() for one in slices for arrow in one.arrows}
    assert page.query("select count(*) from flow where slice_in is not null") == [(str(len(arrows)),)]
    waited = page.query(
        "select count(*) from flow join slice a on a.id = slice_out join slice b on b.id = slice_in "
        "where a.name like 'Memcpy DtoH%' and b.name = 'cudaStreamSynchronize'"
    )
    assert int(waited[0][0]) == 40
    samples = dict(page.query("select name, count(*) from counter join counter_track t on t.id = track_id group by 1"))
    assert samples == {name: str(len(values)) for name, values in drawing.counters.items()}
    assert page.query(_DROPPED) == []


def test_one_json_for_older_viewers(page: Viewer, drawing: Drawing, tmp_path: Path) -> None:
    """No slice of ours is dropped."""
    page.open("merged.json", annotated(tmp_path, "merged.json"))
    count = page.query(
        "select count(*) from slice join thread_track t on t.id = track_id join thread using (utid) "
        "join process using (upid) where process.name = 'traceanalyzer'"
    )
    assert count == [(str(sum(drawn(drawing).values())),)]
    assert page.query(_DROPPED) == [("slice_drop_overlapping_complete_event", str(_OWN_DROPPED))]
    arrows = page.query(
        "select count(*) from flow join slice on slice.id = slice_out where slice.category = 'traceanalyzer'"
    )
    assert int(arrows[0][0]) > 0


def test_the_trace_alone_loses_the_same(page: Viewer) -> None:
    """The viewer's "Data-loss/import error" is about the profiler's own slices, not about what is drawn beside them."""
    page.open("alone.json", gzip.decompress(TRACE.read_bytes()))
    assert page.query(_DROPPED) == [("slice_drop_overlapping_complete_event", str(_OWN_DROPPED))]


def check_view(page: Viewer) -> None:
    """The finding's occurrence is selected and in view, its track is pinned.

    An address selects by time and length, and the event that the occurrence is has the same: the viewer takes either.
    """
    overlay = overlay_of(TRACE)
    page.wait("app.trace.selection.selection.kind === 'track_event'")
    page.wait("app.trace.workspaces.currentWorkspace.pinnedTracks.length >= 2")
    selected = page.tell("(({ts, dur, name}) => [String(ts), String(dur), name])(app.trace.selection.selection)")
    findings = overlay.slices[0]
    names = [findings.names[kind] for kind in findings.kind.tolist()]
    lengths = (findings.end_ns - findings.start_ns).tolist()
    first = diagnose(TRACE).findings[0]
    assert selected[:2] == [str(first.start_ns), str(first.end_ns - first.start_ns)]
    (name,) = {
        name
        for at, length, name in zip(findings.start_ns.tolist(), lengths, names, strict=True)
        if [str(at), str(length)] == selected[:2]
    }
    assert name.startswith("1 ")
    assert selected[2] in (name, first.by)
    pinned = page.tell("app.trace.workspaces.currentWorkspace.pinnedTracks.map((track) => track.name)")
    assert {*pinned} == {findings.name, "Idle: device 0"}  # no empty tracks
    low, length = page.tell(
        "((window) => [String(window.start.integral), String(window.duration)])(app.trace.timeline.visibleWindow)"
    )
    start = int(selected[0])
    assert int(low) < start < start + int(selected[1]) < int(low) + float(length)


def picture(page: Viewer) -> None:
    """What a person sees is small; it is drawn where UPDATE_SNAPSHOTS asks for it."""
    if os.environ.get("UPDATE_SNAPSHOTS"):
        draw(page)
    assert PICTURE.stat().st_size < MOST_PICTURE_BYTES


def draw(page: Viewer) -> None:
    """Into docs/, without the bars on its sides."""
    for command in ("ToggleLeftSidebar", "ToggleDrawer"):
        page.tell(f"app.commands.runCommand('dev.perfetto.{command}')")
    page.page.add_style_tag(content=_NO_BUBBLE)
    page.page.wait_for_timeout(3_000)
    shown = page.page.screenshot()
    assert re.match(rb"\x89PNG", shown)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_bytes(shown)


def test_hostile_names_are_characters_in_the_viewer(page: Viewer) -> None:
    """They are in its tables as they were written, and nothing runs."""
    overlay, _ = evil_overlay()
    content = b"".join(to_track_events(overlay))
    page.open("evil.pftrace", content)
    expected = Counter(one.name for slices in read(content).slices.values() for one in slices)
    names = page.query("select name, count(*) from slice group by 1")
    assert {name: int(count) for name, count in names} == expected
    assert page.errors == []


def test_carried_viewer_opens_traces_offline(page: Viewer, drawing: Drawing, tmp_path: Path) -> None:
    """As `open --offline` serves it: the page may fetch from nowhere else. The trace and its overlay are a zip."""
    annotated(tmp_path, "trace.zip")
    with OneFile(None, port=0, viewer=carried_viewer()) as server:
        address = viewer_address(server.give(tmp_path / "trace.zip"), viewer=f"http://{server.host}")
        context = page.page.context.browser.new_context()
        context.route("**/*", lambda route: route.abort())
        context.route(f"http://{server.host}/**", lambda route: route.continue_())
        shown = Viewer(context.new_page(), {})
        shown.visit(address)
        assert server.served.is_set()
        check_timeline(shown, drawing)
