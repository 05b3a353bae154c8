"""What the server offers and answers, without a client."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.fixtures import FIXTURES
from traceanalyzer.integrations import answers, server
from traceanalyzer.integrations.answers import Roots
from traceanalyzer.model.errors import BadOption, TraceAnalyzerError
from traceanalyzer.runtime.processes import ProcessEnded, Worker


class Offered:
    """Stands for the server of the mcp package."""

    last: Offered

    def __init__(self, name: str, **about: Any) -> None:
        self.name, self.about = name, about
        self.tools: dict[str, Callable[..., str]] = {}
        self.resources: dict[str, Callable[..., str]] = {}
        self.ran: list[str] = []
        Offered.last = self

    def tool(self, structured_output: bool, annotations: Any) -> Callable[[Callable[..., str]], None]:
        assert structured_output is False  # else each answer is sent twice
        assert (annotations.read_only_hint, annotations.open_world_hint) == (True, False)
        return lambda function: self.tools.update({function.__name__: function})

    def resource(self, address: str, mime_type: str) -> Callable[[Callable[..., str]], None]:
        assert mime_type == "text/plain"
        return lambda function: self.resources.update({address: function})

    def run(self, way: str) -> None:
        self.ran.append(way)


class ToolError(Exception):
    """Stands for the error of the mcp package that a client sees as `isError`."""


class Process:
    """Stands for the process that answers; with a `failure` there is no answer."""

    failure: Exception | None = None
    ended = 0

    def __init__(self, states: str, most_bytes: int | None) -> None:
        assert resolve_name(states) is server.limited
        assert most_bytes is not None
        assert 0 < most_bytes <= 8 << 30

    def submit(self, tasks: Sequence[Any]) -> None:
        self.tasks = tasks

    def answers(self, most_s: float) -> list[Any]:
        if Process.failure is not None:
            raise Process.failure
        return [task.run(None) for task in self.tasks]

    def end(self) -> None:
        Process.ended += 1


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Offered:
    for name, members in {
        "mcp.server": {"MCPServer": Offered},
        "mcp.types": {"ToolAnnotations": SimpleNamespace},
        "mcp.server.mcpserver.exceptions": {"ToolError": ToolError},
    }.items():
        module = ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(server, "Worker", Process)
    monkeypatch.setattr(Process, "failure", None)
    monkeypatch.setattr(Process, "ended", 0)
    server.serve(Roots((FIXTURES,)))
    return Offered.last


def test_six_tools_and_the_units_are_offered_on_stdin(offered: Offered) -> None:
    assert list(offered.tools) == ["diagnose", "brief", "explain", "events", "list_events", "compare"]
    assert offered.resources["traceanalyzer://units"]() == answers.UNITS
    assert offered.ran == ["stdio"]


def test_arguments_arrive_as_they_are_named(offered: Offered, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("diagnosed", "briefed", "explained", "events", "listed", "compared"):
        monkeypatch.setattr(answers, name, lambda *given, name=name: f"{name} {given[-2:]}")
    tools = offered.tools
    assert tools["diagnose"]("t", verbose=True) == "diagnosed ('t', True)"
    assert tools["diagnose"]("t") == "diagnosed ('t', False)"
    assert tools["brief"]("t", script="s.py") == "briefed ('t', 's.py')"
    assert tools["explain"]("r") == "explained ('r',)"
    assert tools["events"]("t", "0ms:") == "events ('t', '0ms:')"
    assert tools["list_events"]("t", "gaps", step=3) == "listed ('gaps', 3)"
    assert tools["compare"](base="b", new="n") == "compared ('b', 'n')"


def test_what_cannot_be_answered_is_said(offered: Offered) -> None:
    with pytest.raises(ToolError, match=r"^error: missing\.json: no such file under "):
        offered.tools["diagnose"]("missing.json")
    assert Process.ended == 1


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (TimeoutError(), "error: no answer within 300 s: ask about a smaller trace or window"),
        (ProcessEnded(), "error: the process ended, perhaps out of memory: ask about a smaller trace"),
        (SystemError(), "error: the process ended, perhaps out of memory: ask about a smaller trace"),
    ],
)
def test_process_that_fails_is_ended_with_a_reason(
    failure: Exception, reason: str, offered: Offered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Process, "failure", failure)
    with pytest.raises(ToolError) as error:
        offered.tools["diagnose"]("trace.json")
    assert (str(error.value), Process.ended) == (reason, 1)


def test_an_answer_takes_no_more_memory_than_it_may(
    offered: Offered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = b'{"ph": "X", "cat": "kernel", "name": "k", "ts": %d, "dur": 1, "args": {"device": 0, "stream": 7}},\n'
    events = b"".join(event % (number * 5) for number in range(200_000))
    (tmp_path / "t.json").write_bytes(b'{"traceEvents": [%b{}]}' % events)
    monkeypatch.setattr(server, "Worker", Worker)
    for most_bytes in (8 << 30, 64 << 20):
        monkeypatch.setattr(server, "_MOST_BYTES", most_bytes)
        if most_bytes > 1 << 30:
            assert "200,000" in server._answer(answers.diagnosed, Roots((tmp_path,)), "t.json", True)
        else:
            with pytest.raises(ToolError, match="memory"):
                server._answer(answers.diagnosed, Roots((tmp_path,)), "t.json", True)


def test_without_the_package_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(TraceAnalyzerError, match="is not installed"):
        server.serve(Roots(()))


def test_a_verbose_report_says_more(tmp_path: Path) -> None:
    roots = Roots((FIXTURES,))
    trace = "implicit-sync/bad.json.gz"
    plain, verbose = (answers.diagnosed(roots, trace, more) for more in (False, True))
    assert len(verbose) > len(plain)
    assert answers.diagnosed(roots, trace) == plain
    with pytest.raises(BadOption):
        answers.diagnosed(Roots((tmp_path,)), trace)
