"""What is wrong and what to do about it, apart."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from traceanalyzer.model.errors import BadOption, TraceAnalyzerError, Unavailable


def test_what_is_unavailable_says_problem_and_remedy() -> None:
    both = Unavailable("no memory events", "record with profile_memory=True")
    assert str(both) == "no memory events: record with profile_memory=True"
    assert (both.problem, both.remedy) == ("no memory events", "record with profile_memory=True")
    assert str(Unavailable("no step: marks")) == "no step: marks"


def test_it_becomes_an_error_that_names_the_file() -> None:
    error = Unavailable("no memory events", "record with profile_memory=True").for_user("trace.json")
    assert isinstance(error, TraceAnalyzerError)
    assert str(error) == "trace.json: no memory events\n  Record with profile_memory=True."
    assert str(Unavailable("nothing here").for_user("trace.json")) == "trace.json: nothing here"


@pytest.mark.parametrize(
    "error",
    [
        BadOption("no rule is called 'x'", where=Path("t.json"), remedy="Did you mean y?"),
        BadOption("no rule is called 'x'"),
        Unavailable("no memory events", "record with profile_memory=True"),
        Unavailable("no step: marks"),
    ],
)
def test_an_error_is_the_same_after_its_way_from_another_process(error: BadOption | Unavailable) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_a_remedy_keeps_the_capitals_of_its_names() -> None:
    error = Unavailable("no memory", "record with CUDA and pass profile_memory=True").for_user("t.json")
    assert error.remedy == "Record with CUDA and pass profile_memory=True."
