"""Everything that may go wrong for a user: what is wrong, where, and what to do about it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

_CREDENTIALS = re.compile(r"(\w[\w+.-]*://)(?:[^/\s@]*@)?([^\s?#\"'<>]*)(?:[?#][^\s\"'<>]*)?")


def without_credentials(text: str) -> str:
    """The text in which addresses have neither a login nor a query, where presigned URLs carry their signature."""
    return _CREDENTIALS.sub(r"\1\2", text) if "://" in text else text


class TraceAnalyzerError(Exception):
    """Base of all errors that a user is meant to read; the command line prints it and exits with 2."""

    def __init__(self, problem: str, *, where: str | Path | None = None, remedy: str | None = None) -> None:
        self.problem = without_credentials(problem)
        self.where = without_credentials(str(where)) if where is not None else None
        self.remedy = without_credentials(remedy) if remedy is not None else None
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.problem}" + (f"\n  {self.remedy}" if self.remedy else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.problem, where=self.where, remedy=self.remedy), ()


class UnreadableTrace(TraceAnalyzerError):
    """The file is missing, is not JSON, or nothing in it can be salvaged."""


class NotATrace(TraceAnalyzerError):
    """The file is readable, but holds no events of torch.profiler."""


class OutputExists(TraceAnalyzerError):
    """An output file is already there and --force was not given."""


class BadOption(TraceAnalyzerError):
    """An option names an unknown rule or limit, or its value does not fit."""


class Unavailable(Exception):
    """An index cannot be built from this trace; the rules that need it are not applicable.

    Attributes:
        problem, remedy: completes the sentence "not applicable: ..."; what would make it available, in the imperative.
    """

    def __init__(self, problem: str, remedy: str | None = None) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(problem if remedy is None else f"{problem}: {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.problem, self.remedy)


@contextmanager
def asked_of(where: str | Path) -> Iterator[None]:
    """What is unavailable within ends the command, as an error of this file."""
    try:
        yield
    except Unavailable as reason:
        remedy = f"{reason.remedy[:1].upper()}{reason.remedy[1:]}." if reason.remedy else None
        raise TraceAnalyzerError(reason.problem, where=where, remedy=remedy) from reason
