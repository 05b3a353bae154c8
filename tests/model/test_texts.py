"""Texts of rows: what is summed by text, whatever their codes are."""

from __future__ import annotations

import operator

import numpy as np
import pandas as pd
import pytest

from traceanalyzer.model.texts import ClosedTexts, Texts, shifted


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
    with pytest.raises(ValueError, match="1 weights of 5 texts"):
        NAMES.sums(np.array([1]))
    with pytest.raises(ValueError, match="is no regular expression"):
        NAMES.matches("(")


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
    assert shifted(np.array([0, -1, 2]), 5).tolist() == [5, -1, 7]


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
