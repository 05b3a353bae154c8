"""`memory`, `ops`, `facts` and `regions`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest

from tests.cli.commands import call, printed, refused
from tests.support.remembered_calls import remembering
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.cli import views
from traceanalyzer.cli.options import settings_of, split_names

TABLE = pd.DataFrame({"op": ["a", "b"], "ns": [3, 4]})


def three_ops(path: Path) -> Path:
    """Of 9, 8 and 7 us on the device; the first event is at 5 ms."""
    made = TraceBuilder(profile_memory=1)
    for at, name in enumerate("abc"):
        begin = 5_000_000 + at * 20_000
        made.op(f"aten::{name}", begin, 9_000)
        made.launch("cudaLaunchKernel", begin + 1_000, 2_000, at + 1)
        made.kernel(begin + 5_000, 9_000 - at * 1_000, at + 1, name=f"kernel_{name}")
        made.memory(begin + 3_000, 4_096, address=at, allocated=4_096 * (at + 1), reserved=1 << 21)
    return made.write(path)


def named(text: str) -> list[str]:
    """Ops in the order in which they come first."""
    return sorted((f"aten::{one}" for one in "abc" if f"aten::{one}" in text), key=text.index)


@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize(("limit", "shown"), [("1", 1), ("2", 2), ("3", 3), (None, 3)])
def test_so_many_ops_are_listed(form: str, limit: str | None, shown: int, tmp_path: Path) -> None:
    given = () if limit is None else ("--limit", limit)
    said = call("ops", three_ops(tmp_path / "t.json"), "--format", form, *given).stdout
    assert named(said) == ["aten::a", "aten::b", "aten::c"][:shown]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_rows_of_ops_are_all_of_them_whatever_the_limit(form: str, tmp_path: Path) -> None:
    said = call("ops", three_ops(tmp_path / "t.json"), "--format", form, "--limit", "1").stdout
    assert named(said) == ["aten::a", "aten::b", "aten::c"]


def test_of_ten_rows_and_no_more_a_list_is_by_default(tmp_path: Path) -> None:
    made = TraceBuilder()
    for at in range(12):
        made.op(f"aten::op{at:02}", at * 20_000, 9_000)
        made.launched((at * 20_000 + 1_000, 2_000), (at * 20_000 + 5_000, 9_000 - at * 100), at + 1)
    said = call("ops", made.write(tmp_path / "t.json")).stdout
    assert "aten::op09 " in said
    assert "aten::op10 " not in said
    assert "other ops (2)" in said


def test_memory_owners_are_limited_and_times_start_at_zero(tmp_path: Path) -> None:
    """The peak is 3 us into the third op."""
    trace = three_ops(tmp_path / "t.json")
    said = call("memory", trace, "--limit", "1").stdout
    assert "peak 12.0 KiB at 0.043 ms" in said
    assert named(said.partition("Net allocation")[0]) == ["aten::a"]
    assert named(call("memory", trace).stdout.partition("Net allocation")[0]) == named("aten::a aten::b aten::c")


def test_the_curve_goes_into_a_file_beside_what_is_printed(tmp_path: Path) -> None:
    trace = remembering(tmp_path / "t.json")
    usual, as_json = call("memory", trace).stdout, call("memory", trace, "--format", "json").stdout
    curve, page = tmp_path / "curve.parquet", tmp_path / "page.txt"
    assert call("memory", trace, "--parquet", curve).stdout == usual
    assert pd.read_parquet(curve)["allocated_bytes"].tolist() == [4_096, 8_192, 12_288]
    assert call("memory", trace, "--parquet", curve, "-o", page, "--force").stdout == ""
    assert page.read_text("utf-8") == usual
    assert len(pd.read_parquet(curve)) == 3
    shown = call("memory", trace, "--parquet", curve, "--format", "json", "--force").stdout
    assert shown == as_json
    assert json.loads(shown)
    assert "already exists" in refused("memory", trace, "--parquet", curve)


@pytest.mark.parametrize("command", ["facts", "memory", "ops", "regions"])
def test_a_view_is_text_unless_another_form_is_asked_for(command: str, tmp_path: Path) -> None:
    trace = three_ops(tmp_path / "t.json")
    assert call(command, trace).stdout == call(command, trace, "--format", "text").stdout


@pytest.mark.parametrize(("form", "content"), [("csv", b"op,ns\na,3\nb,4\n"), ("json", None)])
def test_rows_or_the_document_go_to_the_file(form: str, content: bytes | None, tmp_path: Path) -> None:
    views.put_rows(TABLE, {"rows": 2}, form, tmp_path / "out", "trace.json")
    if content is not None:
        assert (tmp_path / "out").read_bytes() == content
    else:
        assert json.loads((tmp_path / "out").read_bytes())["rows"] == 2


@pytest.mark.parametrize("notes", [(), ("ranks were left out",)])
def test_a_table_has_its_source_and_notes_within(notes: Sequence[str], tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    views.put_rows(TABLE, {}, "parquet", tmp_path / "out", "trace.json", notes)
    told = pq.read_schema(tmp_path / "out").metadata
    assert told[b"traceanalyzer.source"] == b"trace.json"
    assert any(b"ranks were left out" in text for text in told.values()) is bool(notes)


@pytest.mark.parametrize(
    ("given", "names"),
    [((), ()), (("a",), ("a",)), (("a,b", "c"), ("a", "b", "c")), ((" a , b,", ",", ""), ("a", "b"))],
)
def test_names_come_one_by_one_or_with_commas(given: Sequence[str], names: Sequence[str]) -> None:
    assert split_names(*nothing(), given) == tuple(names)


def nothing() -> tuple[click.Context, Any]:
    """What click hands to a callback."""
    return click.Context(click.Command("diagnose")), None


def test_limits_are_set_by_rule_and_name() -> None:
    given = ["a.b=1", " c.d = 2 ", "e.f=x=y", "a.b=3", "g.h="]
    assert settings_of(*nothing(), given) == {"a.b": "3", "c.d": "2", "e.f": "x=y", "g.h": ""}


@pytest.mark.parametrize("wrong", ["a.b", "a=1", "a=1.5", "", "="])
def test_a_limit_without_rule_or_value_is_refused_among_others(wrong: str) -> None:
    with pytest.raises(click.BadParameter, match=f"^'{wrong}' is not rule.limit=value"):
        settings_of(*nothing(), ["a.b=1", wrong])


@pytest.mark.parametrize("command", ["ops", "memory"])
@pytest.mark.parametrize("limit", ["0", "-1", "1.5"])
def test_a_list_has_a_row_at_least(command: str, limit: str, tmp_path: Path) -> None:
    assert call(command, tmp_path / "t.json", "--limit", limit).exit_code == 2


Shared = Callable[[str], Path]


def test_facts_are_told_by_kind(shared: Shared) -> None:
    said = printed("facts", shared("pairs/addmm_copy.bad"))
    assert "\nhotspot\n" in said
    assert "at the dispatcher only" in " ".join(said.split())
    assert all(len(line) <= 80 or "/" in line for line in said.splitlines())


def test_a_trace_without_a_device_may_have_none(shared: Shared) -> None:
    assert printed("facts", shared("public/hta_cpu_only"))


def test_regions_name_annotations_and_repeated_blocks(shared: Shared) -> None:
    text = printed("regions", shared("sixth/lm_small_train.bad"))
    assert "Optimizer.step#Muon.step" in text
    assert "24 x (to, " in text
    assert "6 x (layer_norm, " in text


def test_depth_limits_the_text_only(shared: Shared) -> None:
    path = shared("sixth/lm_small_train.bad")
    assert len(printed("regions", path, "--depth", "1").splitlines()) < len(
        printed("regions", path, "--depth", "3").splitlines()
    )
    whole, flat = (json.loads(printed("regions", path, "--format", "json", "--depth", depth)) for depth in (9, 1))
    assert whole["regions"] == flat["regions"]


def test_order_by_gpu_time_begins_with_most_of_it(shared: Shared) -> None:
    document = json.loads(printed("regions", shared("real/gpt2_train.eager"), "--format", "json"))
    step, *regions = document["regions"]
    assert step["kind"] == "step"
    assert step["gpu_ns"] == max(region["gpu_ns"] for region in document["regions"])
    assert {"phase", "block", "op", "backward"} <= {region["kind"] for region in regions}
    assert "6 x (layer" in printed("regions", shared("real/gpt2_train.eager"), "--by", "gpu").splitlines()[5]
