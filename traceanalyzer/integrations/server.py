"""A server of the Model Context Protocol over standard input and output: six tools that only read."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from traceanalyzer.integrations import answers
from traceanalyzer.integrations.answers import Roots
from traceanalyzer.model.errors import TraceAnalyzerError
from traceanalyzer.model.interpreter import free_bytes
from traceanalyzer.render.words.escape import shortened
from traceanalyzer.runtime.processes import ProcessEnded, Worker
from traceanalyzer.version import __version__, install_command

_MOST_S = 300  # for one answer; a trace of 5 GB takes a minute
_MOST_BYTES = 8 << 30  # of memory for one answer; a trace of 5 GB takes 2.7 GB
_SHARE = 0.8  # of the memory that is free, for one answer; chosen
_MAX_ERROR = 2_000  # characters
_INSTRUCTIONS = (
    "Says why a GPU is idle or slow, from traces of torch.profiler. Begin with diagnose. Explain the rules that it "
    "names. Look at events only where a finding gives their time. Read traceanalyzer://units before comparing numbers."
)


def serve(roots: Roots) -> None:
    """Answer until standard input ends. Raises TraceAnalyzerError: the `mcp` package is not installed."""
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError:
        remedy = f"Install it: {install_command('mcp')}."
        raise TraceAnalyzerError("the mcp package, 2.0 or later, is not installed", remedy=remedy) from None
    server = MCPServer("traceanalyzer", instructions=_INSTRUCTIONS, version=__version__, log_level="ERROR")
    reading = server.tool(
        structured_output=False, annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False)
    )

    def diagnose(trace: str, verbose: bool = False) -> str:
        """What cost GPU time in a trace, or in a folder with a trace per rank: the verdict, then findings by saving."""
        return _answer(answers.diagnosed, roots, trace, verbose)

    def brief(trace: str, script: str = "") -> str:
        """What to change in the program: place, code before and after, preconditions, commands; quotes `script`."""
        return _answer(answers.briefed, roots, trace, script)

    def explain(rule: str) -> str:
        """What a rule looks for, why it costs, how sure it is, and its limits; or what the name of a kernel says."""
        return _answer(answers.explained, rule)

    def events(trace: str, window: str) -> str:
        """The longest events of a window of one trace, such as 12.5ms:80ms from its first event."""
        return _answer(answers.events, roots, trace, window)

    def list_events(trace: str, what: str, step: int | None = None) -> str:
        """Events by name with count, times, op, region and line; what: kernels, copies, syncs, gaps or annotations."""
        return _answer(answers.listed, roots, trace, what, step)

    def compare(base: str, new: str) -> str:
        """What got slower or faster from one trace to another, and whether it is more than noise."""
        return _answer(answers.compared, roots, base, new)

    def units() -> str:
        """Units, and what the words of the reports mean."""
        return answers.UNITS

    for tool in (diagnose, brief, explain, events, list_events, compare):
        reading(tool)
    server.resource("traceanalyzer://units", mime_type="text/plain")(units)
    server.run("stdio")


def _answer(question: Callable[..., str], *arguments: Any) -> str:
    """The answer of a process that ends when it takes too long, or too much memory."""
    from mcp.server.mcpserver.exceptions import ToolError

    worker = Worker(f"{__name__}:limited", min(_MOST_BYTES, int(_SHARE * (free_bytes() or _MOST_BYTES))))
    try:
        worker.submit((_Question(question, arguments),))
        (answer,) = worker.answers(_MOST_S)
    except TimeoutError:
        raise ToolError(f"error: no answer within {_MOST_S} s: ask about a smaller trace or window") from None
    # Extensions without memory raise any of these.
    except (ProcessEnded, MemoryError, ImportError, OSError, SystemError):
        why = "the process ended, perhaps out of memory"
        raise ToolError(f"error: {why}: ask about a smaller trace") from None
    finally:
        worker.end()
    if isinstance(answer, Exception):
        raise ToolError(f"error: {shortened(str(answer), _MAX_ERROR)}")
    text: str = answer
    return text


def limited(most_bytes: int) -> None:
    """Let this process, and those that it begins, hold so much memory each; on Windows there is no such limit."""
    with suppress(ImportError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


class _Question(NamedTuple):
    """A task for a process: a function of `answers` and its arguments."""

    function: Callable[..., str]
    arguments: tuple[Any, ...]
    key: str = ""
    once: bool = True

    def run(self, _: object) -> str | Exception:
        """The answer, or the error that explains why there is none."""
        try:
            return self.function(*self.arguments)
        except MemoryError:
            return TraceAnalyzerError("takes more memory than one answer may: ask about a smaller trace")
        except TraceAnalyzerError as error:
            return error

    def questions(self) -> bytes:
        """Answers are not stored."""
        return b""
