"""Rows of a lane as columns and as a frame, and texts of rows."""

import copy
import operator
import pickle
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cached_reports import loaded
from tests.support.fixtures import FIXTURES
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.lanes import NULL_INT, NULL_INT32, Coded, Columns, Narrow, Table
from traceanalyzer.model.text_queries import cached_predicate, regex, rows_with_codes
from traceanalyzer.model.texts import ClosedTexts, Texts
from traceanalyzer.model.trace import Trace, codes, codes_at, floats, ints, ints_at, matching, texts_of
from traceanalyzer.rule.views import Calls

CODED = Coded(np.array([0, -1, 1], np.int8), np.array(["a", "b", "never"], object))


def columns() -> Columns:
    """Numbers that recur, that fit 32 bits with and without null, and others; and texts."""
    made: dict[str, Any] = {
        "table": Table(np.array([1, 0, 2], np.uint8), np.array([7, 3, NULL_INT])),
        "spare": Table(np.array([1, 1, 3], np.uint8), np.array([7, 3, 5, NULL_INT])),
        "narrow": Narrow(np.array([5, NULL_INT32, -5], np.int32)),
        "wide": Narrow(np.array([5, 2**32 - 1, 2**31], np.uint32)),
        "plain": np.array([4, NULL_INT, 6]),
        "text": CODED,
    }
    return Columns.of(made, 3)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("table", [3, 7, NULL_INT]),
        ("spare", [3, 3, NULL_INT]),
        ("narrow", [5, NULL_INT, -5]),
        ("wide", [5, 2**32 - 1, 2**31]),
        ("plain", [4, NULL_INT, 6]),
    ],
)
def test_a_column_is_the_same_however_it_is_kept(name: str, values: list[int]) -> None:
    """As a whole, and at some rows."""
    kept = columns()
    assert np.asarray(kept.column(name)).tolist() == values
    assert kept.at(name, np.array([2, -1, 0])).tolist() == [values[2], -1, values[0]]
    assert len(kept) == 3


def test_another_column_takes_the_place_of_one_alone() -> None:
    other = columns().but("plain", np.array([1, 2, 3]))
    assert np.asarray(other.column("plain")).tolist() == [1, 2, 3]
    assert np.asarray(other.column("narrow")).tolist() == [5, NULL_INT, -5]
    assert len(other) == 3
    for column in (other.column("plain"), columns().column("plain")):
        assert isinstance(column, np.ndarray)
        assert not column.flags.writeable


def test_a_frame_has_nulls_texts_and_floats_as_columns() -> None:
    frame = pd.DataFrame(
        {
            "number": pd.array([1, None, 3], "Int64"),
            "plain": np.array([1, 2, 3], np.int32),
            "share": np.array([0.5, np.nan, 1], np.float32),
            "text": pd.Categorical(["b", None, "a"]),
        }
    )
    assert ints(frame, "number").tolist() == [1, NULL_INT, 3]
    assert ints(frame, "plain").tolist() == [1, 2, 3]
    assert ints_at(frame, "number", np.array([2, -1])).tolist() == [3, -1]
    assert ints_at(frame[:0], "number", np.array([-1, -1])).tolist() == [-1, -1]
    assert floats(frame, "share").tolist()[::2] == [0.5, 1.0]
    text: Any = Columns.of_frame(frame).column("text")
    assert (text.codes.tolist(), text.texts.tolist()) == ([1, -1, 0], ["a", "b"])


@pytest.fixture
def trace() -> Trace:
    """An op with a number of its own, one without, and a kernel."""
    made = TraceBuilder()
    made.op("aten::mm", 0, 1_000, **{"Sequence number": 7})
    made.op("aten::add", 2_000, 1_000)
    made.kernel(500, 1_000, 1)
    return made.load()


def test_a_lane_and_its_frame_say_the_same(trace: Trace) -> None:
    before = {name: np.asarray(trace.lanes.cpu.column(name)).tolist() for name in ("start_ns", "sequence")}
    assert before["sequence"] == [7, NULL_INT]
    assert trace.cpu["sequence"].isna().tolist() == [False, True]
    assert trace.cpu["sequence"][0] == 7
    after = {name: np.asarray(trace.lanes.cpu.column(name)).tolist() for name in before}
    assert after == before
    assert trace.cpu is trace.cpu


def test_what_was_written_to_a_frame_goes_along_with_the_trace(trace: Trace) -> None:
    """To another process, to a copy, and to the next analysis; not from a copy back."""
    changed = trace.with_frames(cpu=trace.cpu.assign(dur_ns=np.array([5, 6])))
    assert ints(changed.lanes.cpu, "dur_ns").tolist() == [5, 6]
    assert ints(trace.lanes.cpu, "dur_ns").tolist() == [1_000, 1_000]
    assert len(changed.lanes.gpu) == 1
    assert ints(changed.lanes.gpu, "dur_ns").tolist() == [1_000]
    changed.cpu["dur_ns"] = np.array([8, 9])
    for same in (pickle.loads(pickle.dumps(changed)), copy.deepcopy(changed)):
        assert ints(same.lanes.cpu, "dur_ns").tolist() == [8, 9]
        same.cpu["dur_ns"] = np.array([0, 0])
    Analysis(changed)
    assert ints(changed.lanes.cpu, "dur_ns").tolist() == [8, 9]


def test_a_trace_is_the_same_after_its_way_to_another_process(trace: Trace) -> None:
    again = pickle.loads(pickle.dumps(trace))
    assert (len(again.lanes.cpu), len(again.lanes.gpu), len(again.lanes.memory)) == (2, 1, 0)
    for lane in Trace.FRAMES:
        pd.testing.assert_frame_equal(getattr(again, lane), getattr(trace, lane))


@given(st.data())
def test_rows_with_codes_equals_indexing(data: st.DataObject) -> None:
    wanted = np.array(data.draw(st.lists(st.booleans(), max_size=30)), bool)
    code: Any = np.array(data.draw(st.lists(st.integers(-1, len(wanted) - 1), max_size=60)), np.int64)
    width = data.draw(st.sampled_from([np.int8, np.int16, np.int64]))
    assert rows_with_codes(wanted, code.astype(width)).tolist() == np.append(wanted, False)[code].tolist()


@pytest.mark.parametrize("wanted", ["101", "1001", "11011", "100000001", "1111101111101"])
@pytest.mark.parametrize("width", [np.int8, np.int64])
def test_codes_between_two_matches_do_not_match(wanted: str, width: type) -> None:
    mask = np.array([digit == "1" for digit in wanted], bool)
    code: Any = np.arange(-1, len(mask)).astype(width)
    assert rows_with_codes(mask, code).tolist() == [False, *mask.tolist()]


def test_columns_equal_those_of_the_frame() -> None:
    cpu = loaded(FIXTURES / "healthy" / "train.json.gz").cpu
    for column in ("name", "category", "input_dims", "call_stack"):
        assert texts_of(cpu, column).tolist() == [str(text) for text in cpu[column].cat.categories]
        assert codes(cpu, column).tolist() == cpu[column].cat.codes.tolist()
        some = np.array([3, -1, 5])
        assert codes_at(cpu, column, some).tolist() == [*codes(cpu, column)[[3]], -1, *codes(cpu, column)[[5]]]
    expected = cpu["name"].astype(object).str.startswith("aten::").to_numpy(bool)
    assert matching(cpu, "name", lambda name: name.startswith("aten::")).tolist() == expected.tolist()


def test_an_analysis_sees_changes_of_a_frame() -> None:
    trace = loaded(FIXTURES / "healthy" / "train.json.gz")
    cpu = trace.cpu.copy()
    changed = trace.with_frames(cpu=cpu)
    before = texts_of(changed.lanes.cpu, "name").tolist()
    cpu["name"] = cpu["name"].cat.rename_categories({before[0]: "renamed"})
    assert texts_of(changed.lanes.cpu, "name").tolist() == before  # until the next analysis
    Analysis(changed)
    assert texts_of(changed.lanes.cpu, "name").tolist() == ["renamed", *before[1:]]
    assert texts_of(trace.lanes.cpu, "name").tolist() == before


def test_properties_of_views_are_cached_and_read_only() -> None:
    calls = Analysis(loaded(FIXTURES / "healthy" / "train.json.gz")).index(Calls)
    assert calls.start_ns is calls.start_ns
    assert calls.name is calls.name
    assert not calls.start_ns.flags.writeable
    assert not calls.name.code.flags.writeable
    some = calls[calls.is_op]
    assert some.start_ns.tolist() == calls.start_ns[calls.is_op].tolist()


def test_a_pattern_searches_each_text_once() -> None:
    pattern = re.compile("once only")
    wanted = cached_predicate(pattern.search)
    assert [wanted(text) for text in ("once only", "never", "once only, too")] == [True, False, True]
    assert cached_predicate(pattern.search)("never") is False
    cache = wanted.__self__  # type: ignore[attr-defined]
    assert cache == {"once only": True, "never": False, "once only, too": True}
    for number in range(20_000):
        wanted(f"text {number}")
    assert len(cache) < 20_000


def test_other_predicates_are_not_cached() -> None:
    for wanted in (str.isupper, "name".__eq__, re.compile("a").match):
        assert cached_predicate(wanted) is wanted


def test_text_in_two_tables_has_one_sum_largest_first() -> None:
    ops = Texts(np.array([0, -1, 1]), np.array(["mm", "add"], object))
    launches = Texts(np.array([0, 0, 0]), np.array(["mm"], object))
    both = ops.or_else(launches)
    assert both.values().tolist() == ["mm", "mm", "add"]
    assert list(both.sums(np.array([20, 40, 50])).items()) == [("mm", 60), ("add", 50)]


NAMES = Texts(np.array([2, -1, 0, 2, 1]), np.array(["mm", "add", "bmm", "never"], object))


def test_texts_are_met_looked_up_and_summed_by_what_they_say() -> None:
    assert NAMES.values().tolist() == ["bmm", None, "mm", "bmm", "add"]
    assert (NAMES.distinct(), NAMES.occurring()) == (["add", "bmm", "mm"], [0, 1, 2])
    assert NAMES.matches("^mm|add").tolist() == [False, False, True, False, True]
    assert NAMES.one_of("bmm", "never").tolist() == [True, False, False, True, False]
    assert not NAMES.one_of().any()
    assert list(NAMES.sums(np.array([1, 9, 3, 2, 3])).items()) == [("add", 3), ("bmm", 3), ("mm", 3)]


def test_an_expression_is_compiled_when_it_is_first_used() -> None:
    expression = regex("^AB$", re.IGNORECASE)
    assert set(vars(expression)) == {"pattern", "flags"}
    assert expression.pattern == "^AB$"
    texts = Texts(np.array([0, 1, -1]), np.array(["ab", "abc"], object))
    assert texts.matches(expression).tolist() == [True, False, False]
    assert "search" in vars(expression)
    assert not hasattr(expression, "__rule__")


def test_many_rows_are_selected_as_few_are() -> None:
    names = np.array([f"op {number}" for number in range(9)], object)
    code = np.arange(40_000) % 10 - 1
    wanted = {"op 1", "op 2", "op 3", "op 4", "op 7"}
    many = Texts(code.astype(np.int16), names).one_of(*wanted)
    few = Texts(code[:40].astype(np.int16), names).one_of(*wanted)
    assert many[:40].tolist() == few.tolist() == [f"op {one}" in wanted for one in code[:40].tolist()]


def test_ranks_sort_like_the_texts_and_what_has_none_first() -> None:
    ranks = NAMES.ranks()
    assert ranks.tolist() == [1, -1, 2, 1, 0]


def test_names_are_asked_whether_they_occur_or_not() -> None:
    many = Texts(np.tile([0, -1, 2], 1_000), NAMES.names)
    asked: list[str] = []
    found = many.meets(lambda text: asked.append(text) or text == "bmm")
    assert found.tolist() == [False, False, True] * 1_000
    assert sorted(asked) == sorted(NAMES.names)
    asked.clear()
    few = NAMES.meets(lambda text: asked.append(text) or text == "bmm")
    assert (few.tolist(), sorted(asked)) == ([True, False, False, True, False], ["add", "bmm", "mm"])


def test_a_text_of_another_table_stands_where_there_is_none() -> None:
    other = Texts(np.array([-1, 0, 0, -1, 1]), np.array(["call", "launch"], object))
    assert NAMES.or_else(other).values().tolist() == ["bmm", "call", "mm", "bmm", "add"]
    assert other.or_else(NAMES).values().tolist() == ["bmm", "call", "call", "bmm", "launch"]
    assert Texts.none(2).or_else(Texts.none(2)).values().tolist() == [None, None]


def test_texts_are_selected_by_positions_and_masks() -> None:
    assert (NAMES[0], NAMES[1], NAMES[-1], NAMES[np.int64(2)]) == ("bmm", None, "add", "mm")
    assert NAMES[np.array([4, 1])].values().tolist() == ["add", None]
    assert NAMES[NAMES.code >= 1].values().tolist() == ["bmm", "bmm", "add"]
    with pytest.raises(IndexError, match="-1 stands for none"):
        NAMES[np.array([0, -1])]


def test_texts_are_of_their_own() -> None:
    """What gave them may go on writing to its array, and nobody writes to theirs."""
    code = np.array([0, 1])
    made = Texts(code, np.array(["a", "b"], object))
    assert not made.code.flags.writeable
    assert code.flags.writeable
    with pytest.raises(ValueError, match="none is called c; there are a, b"):
        ClosedTexts(code, np.array(["a", "b"], object)).one_of("a", "c")


def test_texts_are_not_compared_as_one_nor_hashed() -> None:
    """It would be False of all rows at once, in silence."""
    for compared in (operator.eq, operator.ne):
        with pytest.raises(TypeError, match="texts are no array"):
            compared(NAMES, "mm")
    with pytest.raises(TypeError, match="unhashable"):
        dict.fromkeys([NAMES])


def test_several_unknown_names_are_told_in_order() -> None:
    closed = ClosedTexts(np.array([0, 1]), np.array(["b", "a"], object))
    assert closed.one_of("a").tolist() == [False, True]
    with pytest.raises(ValueError, match="none is called c, d, z; there are b, a"):
        closed.one_of("z", "d", "a", "c")


def test_texts_of_a_column_are_those_of_its_rows_in_any_order() -> None:
    frame = pd.DataFrame({"name": pd.Categorical(["b", None, "a", "b"])})
    found = Texts.column(frame, "name", np.array([3, -1, 2, 1, 2]))
    assert found.values().tolist() == ["b", None, "a", None, "a"]
    assert (found.distinct(), len(found)) == (["a", "b"], 5)
    assert type(ClosedTexts.column(frame, "name", np.array([0]))) is ClosedTexts
