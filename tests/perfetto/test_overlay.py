"""The overlay says what the report says; the archive has the originals byte for byte."""

import io
import json
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.cases import case
from tests.perfetto.drawn import BASE, TRACE, drawing_of, in_blocks, overlay, overlay_of, unpacked
from tests.perfetto.merging import placed
from tests.perfetto.reader import Drawing, read
from tests.support.cached_reports import analysed, reported
from tests.support.fixtures import FIXTURES, SHOWING, name_of
from tests.support.trace_builder import TraceBuilder
from tests.support.trace_selection import ALL
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.read.load import load_file
from traceanalyzer.render.perfetto.archive import manifest, member_names, write_tar, write_zip
from traceanalyzer.render.perfetto.chrome import to_chrome_events
from traceanalyzer.render.perfetto.finding_tracks import numbered
from traceanalyzer.render.perfetto.overlay import MOST_SAMPLES, overlays_of
from traceanalyzer.render.perfetto.track_events import shown_name, to_track_events
from traceanalyzer.report.diagnosis import analyses_of, report_of
from traceanalyzer.report.words import in_words

MS = 1_000_000


def one_of_many(name: str) -> bool:
    """A tenth of the shared traces, always the same; all where TRACEANALYZER_ALL asks for them."""
    return ALL or zlib.crc32(name.encode()) % 10 == 3


def traced(path: Path) -> object:
    """Rules are covered where they find something; of the others nothing new is seen."""
    return pytest.param(path, marks=() if path.name == "bad.json.gz" else pytest.mark.no_cover)


@pytest.mark.parametrize("path", [*map(traced, SHOWING)], ids=[*map(name_of, SHOWING)])
def test_slices_are_the_occurrences(path: Path) -> None:
    check(path)


@pytest.mark.of_shared(wanted=one_of_many)
def test_slices_are_the_occurrences_in_shared_traces(shared_trace: Path) -> None:
    check(shared_trace)


def check(path: Path) -> None:
    """Findings, idle time and arrows of one trace."""
    drawing = drawing_of(path)
    (group,) = drawing.groups
    assert group.startswith("traceanalyzer")
    check_findings(path, drawing)
    check_idle(path, drawing)
    check_arrows(path, drawing)
    check_counters(drawing)


def check_findings(path: Path, drawing: Drawing) -> None:
    said = Counter(
        (f"Findings: {one.finding.severity}", shown_name(one.label), at.start_ns, at.end_ns, at.cost_ns, at.event_ids)
        for one in numbered(reported(path))
        for at in one.finding.occurrences
        if at.start_ns >= 0  # one that is nowhere cannot be drawn
    )
    drawn = Counter(
        (track, one.name, one.start_ns, one.end_ns, one.args["cost_ns"], one.args["event_ids"])
        for track, slices in drawing.slices.items()
        if track.startswith("Findings")
        for one in slices
    )
    assert drawn == said


def check_idle(path: Path, drawing: Drawing) -> None:
    """Every idle nanosecond once, under its cause."""
    drawn: Counter[tuple[str, str]] = Counter()
    for track, slices in drawing.slices.items():
        for one in slices if track.startswith("Idle") else ():
            drawn[track, one.name] += one.end_ns - one.start_ns
    said = {
        (f"Idle: device {time.device}", in_words(cause)): ns
        for trace in reported(path).traces
        for time in trace.accounting
        for cause, ns in time.idle_ns.items()
        if ns
    }
    assert +drawn == said


def check_arrows(path: Path, drawing: Drawing) -> None:
    """Each arrow joins two events of the trace and goes forward in time: launch, work, wait."""
    trace = analysed(path).trace
    ends: dict[int, list[tuple[int, str]]] = {}
    for track in drawing.order:
        if not track.startswith("Evidence"):
            continue
        frame = trace.gpu if "work" in track else trace.cpu
        starts = dict(zip(frame["event_id"].tolist(), frame["start_ns"].tolist(), strict=True))
        for one in drawing.slices[track]:
            began = starts[one.args["event_id"]]
            assert began <= one.start_ns if "waits" in track else began == one.start_ns
            for arrow in one.arrows:
                ends.setdefault(arrow, []).append((one.start_ns, track.split()[1].strip(",")))
    for both in ends.values():
        (start, sender), (end, receiver) = sorted(both, key=lambda side: side[0])
        assert (sender, receiver) in {("launches", "work"), ("work", "waits")} or start == end


def check_counters(drawing: Drawing) -> None:
    for name, samples in drawing.counters.items():
        times = [at for at, _ in samples]
        assert times == sorted(set(times)), name
        assert len(samples) <= MOST_SAMPLES + 1
        assert all(value >= 0 for _, value in samples), name
        if drawing.units[name] == "%":
            assert all(value <= 100 for _, value in samples), name


def test_the_same_trace_gives_the_same_bytes() -> None:
    path = FIXTURES / "implicit-sync" / "bad.json.gz"
    first, again = (b"".join(to_track_events(overlay_of(path))) for _ in range(2))
    assert first == again


def test_a_trace_without_a_gpu_has_an_overlay() -> None:
    made = TraceBuilder(devices=())
    made.op("aten::mm", 0, 50_000)
    analysed_ = analyses_of(made.load())
    (overlay,) = overlays_of(report_of(analysed_), analysed_)
    assert read(b"".join(to_track_events(overlay))).groups == ["traceanalyzer"]
    assert overlay.counters == ()


@pytest.mark.parametrize("seed", range(7_000, 7_030))
def test_broken_traces_have_overlays(seed: int, tmp_path: Path) -> None:
    """What can be diagnosed can be drawn, in both formats."""
    path = tmp_path / "case.json"
    path.write_bytes(case(seed))
    try:
        analysed_ = analyses_of(load_file(path))
        report = report_of(analysed_)
    except TraceAnalyzerError:
        return
    (overlay,) = overlays_of(report, analysed_)
    read(b"".join(to_track_events(overlay)))
    for event in to_chrome_events(overlay):
        json.loads(event)


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_originals_are_byte_for_byte(form: str) -> None:
    files = unpacked([overlay()], form)
    assert list(files) == ["perfetto_manifest.json", "trace.json", "trace.findings.pftrace"]
    assert files["trace.json"] == TRACE
    assert [one.start_ns for one in read(files["trace.findings.pftrace"]).slices["track"]] == [1]
    assert json.loads(files["perfetto_manifest.json"]) == manifest([overlay()])


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_the_same_traces_give_the_same_bytes(form: str) -> None:
    write = write_zip if form == "zip" else write_tar
    first, again = io.BytesIO(), io.BytesIO()
    write([overlay()], first, in_blocks)
    write([overlay()], again, in_blocks)
    assert first.getvalue() == again.getvalue()


def test_zip_keeps_to_what_perfetto_reads() -> None:
    """Its reader refuses flags and versions that it does not know; it looks at local headers alone."""
    stream = io.BytesIO()
    write_zip([overlay(source="caf\u00e9 \u202e/b\u00e4d name.json")], stream, in_blocks)
    with zipfile.ZipFile(stream) as packed:
        for entry in packed.infolist():
            assert entry.extract_version <= 20
            assert entry.flag_bits == 0
            assert entry.compress_type == zipfile.ZIP_DEFLATED
            assert entry.filename.isascii()
            assert entry.compress_size < max(entry.file_size, 300)


def test_ranks_stand_on_the_clock_of_the_earliest() -> None:
    """A later base means that the same times are later; none is moved before zero."""
    later = 7_889_238 * 10**9
    said = manifest([overlay(0, base=BASE + later), overlay(1), overlay(2)])["perfetto_manifest"]
    assert said["trace_time"]["file"] == "rank1.findings.pftrace"
    offsets = {entry["path"]: clocks(entry) for entry in said["files"]}
    reference = {"file": "rank1.findings.pftrace", "clock": "BOOTTIME"}
    assert offsets["rank1.findings.pftrace"] is None
    assert offsets["rank0.findings.pftrace"] == {"clock": "BOOTTIME", "sync_to": reference, "offset_ns": later}
    assert offsets["rank2.findings.pftrace"] == {"clock": "BOOTTIME", "sync_to": reference, "offset_ns": 0}
    own = {"file": "rank0.findings.pftrace", "clock": "BOOTTIME"}
    assert offsets["rank0.json"] == {"sync_to": own, "offset_ns": 0}
    machines = {entry["path"]: entry["machine"]["name"] for entry in said["files"]}
    assert machines["rank0.json"] == machines["rank0.findings.pftrace"] == "rank 0"


def clocks(entry: dict[str, Any]) -> dict[str, Any] | None:
    """How the file's clock is related."""
    found: dict[str, Any] | None = entry.get("clocks")
    return found


@settings(max_examples=30)
@given(bases=st.lists(st.integers(0, 2 * 10**18), min_size=1, max_size=12), form=st.sampled_from(["zip", "tar"]))
def test_perfetto_places_every_file_where_it_was_recorded(bases: list[int], form: str) -> None:
    """As the manifest's reference has it: each trace with its overlay, ranks by their clocks, none before zero."""
    ranks = [None] if len(bases) == 1 else range(len(bases))
    overlays = [overlay(rank, base=base) for rank, base in zip(ranks, bases, strict=True)]
    at = placed(unpacked(overlays, form, b'{"traceEvents": []}'))
    for (trace, drawn), base in zip(member_names(overlays), bases, strict=True):
        assert at[trace] == at[drawn] == base - min(bases)
    assert len(at) == 2 * len(bases)
    assert min(at.values()) == 0


@pytest.mark.parametrize(
    ("source", "stem"),
    [
        ("runs/host_12.1700000000.pt.trace.json.gz", "host_12.1700000000.pt.trace"),
        ("a.json.zst", "a"),
        (".json", "trace"),
        ("<standard input>", "standard_input"),
        ("../\u202e\udce9.json", "trace"),
        ("x" * 300 + ".json", "x" * 60),
    ],
)
def test_names_in_the_archive(source: str, stem: str) -> None:
    """Perfetto passes over names that begin with a dot."""
    assert member_names([overlay(source=source)]) == [(f"{stem}.json", f"{stem}.findings.pftrace")]


def test_one_trace_is_pinned_to_its_overlay() -> None:
    said = manifest([overlay()])["perfetto_manifest"]
    assert said["version"] == 1
    assert said["trace_time"] == {"clock": "BOOTTIME", "file": "trace.findings.pftrace"}
    assert said["files"] == [
        {"path": "trace.findings.pftrace"},
        {
            "path": "trace.json",
            "clocks": {"sync_to": {"file": "trace.findings.pftrace", "clock": "BOOTTIME"}, "offset_ns": 0},
        },
    ]
