"""Classes that `records.dataclass` declares behave as those of the standard library."""

from __future__ import annotations

import dataclasses
import pickle
from functools import cached_property
from typing import Any, ClassVar

import pytest

from traceanalyzer.model.records import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time."""

    start_ns: int
    end_ns: int = 7
    names: list[str] = dataclasses.field(default_factory=list)
    note: str = dataclasses.field(default="", repr=False, compare=False)
    unit: ClassVar[str] = "ns"

    def __post_init__(self) -> None:
        if self.end_ns < self.start_ns:
            raise ValueError("ends before it starts")


@dataclass(frozen=True, slots=True, eq=False)
class ById:
    value: int


@dataclass(slots=True)
class Counter:
    count: int = 0
    names: list[str] = dataclasses.field(default_factory=list)


@dataclass(frozen=True)
class Cached:
    value: int

    @cached_property
    def double(self) -> int:
        return 2 * self.value


def test_fields_have_the_values_and_defaults_given() -> None:
    span = Span(1, names=["a"])
    assert (span.start_ns, span.end_ns, span.names, span.unit) == (1, 7, ["a"], "ns")
    assert Span(1).names is not Span(1).names


def test_post_init_checks_the_values() -> None:
    with pytest.raises(ValueError, match="ends before"):
        Span(9)


@pytest.mark.parametrize("arguments", [(), (1, 2, [], "", 5)])
def test_a_wrong_number_of_arguments_is_a_type_error(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="__init__"):
        Span(*arguments)


def test_a_field_without_default_cannot_follow_a_default() -> None:
    with pytest.raises(TypeError, match="without a default"):

        @dataclass(frozen=True, slots=True)
        class Wrong:
            first: int = 1
            second: int  # type: ignore[misc]


def test_repr_shows_the_fields_in_order() -> None:
    assert repr(Span(1, 2, note="x")) == "Span(start_ns=1, end_ns=2, names=[])"


def test_records_are_equal_by_class_and_compared_fields() -> None:
    assert Span(1, note="x") == Span(1)
    assert Span(1) != Span(2)
    assert Span(1) != (1, 7, [])
    assert ById(1) != ById(1)
    assert len({ById(1), ById(1)}) == 2


def test_equal_records_have_equal_hashes() -> None:
    @dataclass(frozen=True, slots=True)
    class Key:
        name: str

    assert {Key("a"): 1}[Key("a")] == 1


def test_frozen_records_refuse_assignment_and_deletion() -> None:
    span: Any = Span(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'end_ns'"):
        span.end_ns = 9
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'end_ns'"):
        del span.end_ns


def test_records_that_are_not_frozen_change_and_have_no_hash() -> None:
    counter = Counter()
    counter.count += 1
    assert counter == Counter(1)
    assert repr(counter) == "Counter(count=1, names=[])"
    assert pickle.loads(pickle.dumps(counter)) == counter
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_records_without_slots_have_cached_properties() -> None:
    cached = Cached(2)
    assert (cached.double, cached) == (4, Cached(2))
    assert pickle.loads(pickle.dumps(cached)).double == 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        cached.value = 3  # type: ignore[misc]


def test_the_types_of_fields_are_as_they_are_written() -> None:
    kinds = {field.name: field.type for field in dataclasses.fields(Span)}
    assert kinds == {"start_ns": "int", "end_ns": "int", "names": "list[str]", "note": "str"}
    assert Span.__annotations__ == kinds | {"unit": "ClassVar[str]"}


def test_the_tools_of_dataclasses_work() -> None:
    span = Span(1, 2)
    assert [field.name for field in dataclasses.fields(span)] == ["start_ns", "end_ns", "names", "note"]
    assert dataclasses.replace(span, end_ns=5) == Span(1, 5)
    assert dataclasses.asdict(span) == {"start_ns": 1, "end_ns": 2, "names": [], "note": ""}
    assert pickle.loads(pickle.dumps(span)) == span
    match span:
        case Span(start, end):
            assert (start, end) == (1, 2)


def test_a_frozen_dataclass_may_extend_a_record() -> None:
    @dataclasses.dataclass(frozen=True)
    class Named(Span):
        name: str = "n"

    assert Named(1, name="m") == Named(1, name="m")
    assert not hasattr(Span(1), "__dict__")
