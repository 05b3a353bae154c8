"""What is wrong and what to do about it, apart."""

from __future__ import annotations

from traceanalyzer.model.errors import TraceAnalyzerError, Unavailable


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
