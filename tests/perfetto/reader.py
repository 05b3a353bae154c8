"""Overlay files read back with Perfetto's own messages."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pytest

pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


@dataclass
class Slice:
    """One slice as a viewer shows it."""

    start_ns: int
    end_ns: int
    name: str
    args: dict[str, Any]
    arrows: list[int]


@dataclass
class Drawing:
    """What a file draws: tracks of one name together."""

    groups: list[str]
    slices: dict[str, list[Slice]]
    counters: dict[str, list[tuple[int, float]]]
    order: list[str]
    units: dict[str, str]


def read(content: bytes) -> Drawing:
    """
    Raises:
        AssertionError: slices of one track overlap, or a packet refers to what was not described before it.
    """
    trace = pb.Trace()
    trace.ParseFromString(content)
    texts: dict[tuple[int, int], str] = {}
    tracks: dict[int, Any] = {}
    open_: dict[int, Slice] = {}
    drawing = Drawing([], defaultdict(list), defaultdict(list), [], {})
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id
        if packet.HasField("interned_data"):
            _intern(texts, packet.interned_data)
        if packet.HasField("track_descriptor"):
            _describe(drawing, tracks, packet.track_descriptor)
        if packet.HasField("track_event"):
            _event(drawing, tracks, texts, open_, packet)
    assert not open_
    return drawing


def _intern(texts: dict[tuple[int, int], str], data: Any) -> None:
    for number, entries in ((2, data.event_names), (3, data.debug_annotation_names)):
        texts.update({(number, entry.iid): entry.name for entry in entries})
    strings = data.debug_annotation_string_values
    texts.update({(29, entry.iid): entry.str.decode() for entry in strings})


def _describe(drawing: Drawing, tracks: dict[int, Any], track: Any) -> None:
    assert track.uuid not in tracks
    tracks[track.uuid] = track
    if not track.parent_uuid:
        drawing.groups.append(track.name)
        return
    assert track.parent_uuid in tracks
    if track.name not in drawing.order:
        drawing.order.append(track.name)
    if track.HasField("counter"):
        drawing.units[track.name] = track.counter.unit_name


def _event(
    drawing: Drawing, tracks: dict[int, Any], texts: dict[tuple[int, int], str], open_: dict[int, Slice], packet: Any
) -> None:
    event, at = packet.track_event, packet.timestamp
    name = tracks[event.track_uuid].name
    if event.type == event.TYPE_COUNTER:
        drawing.counters[name].append((at, event.double_counter_value))
        return
    if event.type == event.TYPE_SLICE_BEGIN:
        assert event.track_uuid not in open_, "slices of one track overlap"
        args = {texts[3, one.name_iid]: _value(one, texts) for one in event.debug_annotations}
        open_[event.track_uuid] = Slice(at, at, texts[2, event.name_iid], args, [*event.flow_ids])
        return
    assert event.type == event.TYPE_SLICE_END
    one = open_.pop(event.track_uuid)
    assert at >= one.start_ns
    one.end_ns = at
    drawing.slices[name].append(one)


def _value(annotation: Any, texts: dict[tuple[int, int], str]) -> Any:
    if annotation.array_values:
        return tuple(one.int_value for one in annotation.array_values)
    kind = annotation.WhichOneof("value")
    if kind is None:
        return ()
    value = getattr(annotation, kind)
    return texts[29, value] if kind == "string_value_iid" else value
