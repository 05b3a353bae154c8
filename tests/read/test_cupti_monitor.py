"""The layout of torch 2.14's cupti_monitor: the same rows, and what it says in args is in columns."""

from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from tests.support.cupti_monitor import FIRST_NODE_FLOW, GRAPH_LANE, converted
from tests.support.paths import REPOSITORY
from tests.support.trace_builder import load_bytes
from traceanalyzer.read.load import load_file

COPIES = REPOSITORY / "fixtures/hidden-dtod-copy/bad.json.gz"
GRAPHS = REPOSITORY / "fixtures/healthy/cuda_graphs.json.gz"
SAME = ["category", "start_ns", "dur_ns", "device", "correlation", "bytes", "grid", "block", "registers"]


@pytest.mark.parametrize("path", [COPIES, GRAPHS])
def test_the_rows_are_the_same(path: Path) -> None:
    plain, other = load_file(path), load_bytes(converted(path))
    work = other.gpu[other.gpu["category"] != "graph_event_node"]
    expected, got = (gpu[SAME].astype(object).reset_index(drop=True) for gpu in (plain.gpu, work))
    assert_frame_equal(got, expected)
    assert work["external_id"][work["category"] != "gpu_user_annotation"].isna().all()
    assert other.meta.unknown_categories == {}
    assert other.meta.anomalies == {}


def test_copies_say_their_direction_in_columns() -> None:
    copies = load_bytes(converted(COPIES)).gpu
    copies = copies[copies["category"] == "gpu_memcpy"]
    assert set(copies["name"]) == {"Memcpy"}
    said = copies[["copy_kind", "src_kind", "dst_kind"]].drop_duplicates().astype(str).values.tolist()
    assert ["DtoD", "device", "device"] in said
    assert load_file(COPIES).gpu["copy_kind"].isna().all()


def test_graph_work_keeps_its_stream() -> None:
    plain, other = load_file(GRAPHS).gpu, load_bytes(converted(GRAPHS)).gpu
    moved = other[(other["category"] != "graph_event_node") & other["original_stream"].notna()]
    assert len(moved) > 100
    assert set(moved["stream"]) == {GRAPH_LANE}
    assert set(moved["original_stream"]) <= set(plain["stream"])
    assert set(moved["graph_id"]) == {5}
    assert moved["graph_node_id"].notna().all()
    assert (other["category"] == "graph_event_node").any()
    assert set(other.loc[other["category"] == "kernel", "priority"]) == {0}


def test_flows_between_nodes_are_counted() -> None:
    plain, other = load_file(GRAPHS).meta, load_bytes(converted(GRAPHS)).meta
    added = other.counted["flow:ac2g"] - plain.counted["flow:ac2g"]
    assert added > 200
    assert added % 2 == 0
    assert str(FIRST_NODE_FLOW).encode() in converted(GRAPHS)


def test_clocks_are_counters() -> None:
    trace = load_bytes(converted(COPIES, clock_mhz=1980))
    assert trace.counters["value"].tolist() == [1980.0] * 10
    assert set(trace.counters["name"]) == {"SM Clock (MHz)"}
    assert trace.counters["device"].tolist() == [0] * 10
    assert set(trace.counters["key"]) == {""}
    assert trace.counters["start_ns"].is_monotonic_increasing


def test_new_args_have_columns() -> None:
    from tests.read.raw_events import kernel, of, op

    limits = {"limitingFactors": 2, "blockLimitRegs": 4}
    args = {"device": 0, "stream": 7, "priority": -5, "occupancy": limits, "Seq": 12, "Comms Id": "0x7f"}
    gpu = of(op(), kernel(args={**args, "graph id": 3, "graph node id": 2**40 + 1, "original_stream": 20})).gpu
    row = gpu.iloc[0]
    assert (row["priority"], row["comm_seq"], row["comm_id"]) == (-5, 12, "0x7f")
    assert (row["graph_id"], row["graph_node_id"], row["original_stream"]) == (3, 2**40 + 1, 20)
    assert row["occupancy"] == '{"limitingFactors":2,"blockLimitRegs":4}'
    assert gpu["other_args"].isna().all()
