"""Where text and data go: standard output as it can show them, or files that are checked first and written whole."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from traceanalyzer.cli.exits import emit
from traceanalyzer.model.errors import BadOption, OutputExists, TraceAnalyzerError


def put(content: bytes, output: Path | None) -> None:
    """Write to the file, or to standard output where none is named."""
    if output is None:
        emit(content)
        return
    with written(output) as stream:
        stream.write(content)


def put_text(text: str, output: Path | None = None) -> None:
    """The same for text: UTF-8 in a file, on standard output in its own encoding."""
    encoding = "utf-8" if output else stream_encoding()
    put(text.encode(encoding, "backslashreplace"), output)


def stream_encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "ascii"


def ascii_only(output: Path | None = None) -> bool:
    """Whether the text goes to a stream that cannot show block characters."""
    return output is None and stream_encoding().lower().replace("-", "") not in ("utf8", "utf8sig")


def width(output: Path | None = None) -> int:
    """Columns of the terminal; of files and pipes always the same."""
    from traceanalyzer.render.text.page import FILE_WIDTH, stream_width

    return FILE_WIDTH if output else stream_width()


def look(output: Path | None = None) -> dict[str, Any]:
    """`width`, `colour` and `ascii_only` of text that goes there."""
    return {"width": width(output), "colour": output is None and colourful(), "ascii_only": ascii_only(output)}


def height(output: Path | None = None) -> int:
    """Lines of the terminal; of files and pipes always the same."""
    from traceanalyzer.render.text.page import stream_height
    from traceanalyzer.render.text.screen import LINES

    return LINES if output else stream_height()


def colourful() -> bool:
    """Colour on a terminal that can show it, as the user's environment says.

    NO_COLOR forbids it (no-color.org), FORCE_COLOR and CLICOLOR_FORCE demand it, in pipes too (bixense.com/clicolors,
    force-color.org), CLICOLOR=0 and a dumb terminal do without.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return sys.stdout.isatty() and os.environ.get("CLICOLOR") != "0" and not dumb()


def dumb() -> bool:
    """Whether the terminal takes no escape sequences."""
    return os.environ.get("TERM") == "dumb"


def put_page(render: Callable[..., str], output: Path | None) -> None:
    put_text(render(width=width(output), ascii_only=ascii_only(output)), output)


def tell(text: str, path: str | None = None) -> None:
    """Say on standard error: on a terminal wrapped to its width, elsewhere one line for each, which tools look for.

    `path`, where it is in the text, stays on one line. Control characters of names are escaped.
    """
    from traceanalyzer.render.words.escape import JOINED, printable

    shown = printable(path or "")
    lines = "\n".join(map(printable, text.replace(path or "\0", shown).split("\n")))
    if sys.stderr.isatty():
        from traceanalyzer.render.text.page import Page, stream_width

        page = Page(width=stream_width())
        for line in (lines.replace(shown, shown.replace(" ", JOINED)) if shown else lines).split("\n"):
            content = line.lstrip(" ")
            indent = len(line) - len(content)
            page.put(content, indent=indent, hang=0 if indent else 2)
        lines = page.text().rstrip("\n")
    print(lines, file=sys.stderr)


def check_outputs(paths: Sequence[Path], *, inputs: Sequence[Path] = (), force: bool = False) -> None:
    """Refuse now what could not be written later."""
    for position, path in enumerate(paths):
        if path.resolve() in [other.resolve() for other in paths[:position]]:
            raise BadOption("two outputs go to one file", where=path, remedy="Give each a name of its own.")
        if path.resolve() in [trace.resolve() for trace in inputs]:
            raise BadOption("would overwrite the trace", where=path, remedy="Choose another name.")
        if path.is_dir():
            raise TraceAnalyzerError("is a folder", where=path, remedy="Name a file in it.")
        if _is_device(path):
            continue
        if path.exists() and not force:
            raise OutputExists("already exists", where=path, remedy="Pass --force to replace it.")
        if not path.resolve().parent.is_dir():
            raise TraceAnalyzerError("its folder does not exist", where=path, remedy="Create the folder first.")
        if not os.access(path.resolve().parent, os.W_OK):
            problem = "its folder cannot be written to"
            raise TraceAnalyzerError(problem, where=path, remedy="Choose another folder.")


def _is_device(path: Path) -> bool:
    """Pipes, terminals, /dev/null: there is nothing to replace in them."""
    return path.exists() and not path.is_file()


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content takes the file's place once all of it is there."""
    try:
        if _is_device(path):
            with path.open("wb") as stream:
                yield stream
            return
        with _replacing(path.resolve()) as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise TraceAnalyzerError(problem, where=path, remedy="Write it to another place.") from error


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file beside the wanted one, renamed over it at the end and removed on any failure."""
    # Containers share numbers of processes.
    partial = path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")
    try:
        with partial.open("xb") as stream:
            yield stream
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"cannot be created: {error.strerror}"
        raise TraceAnalyzerError(problem, where=folder, remedy="Name another folder.") from error
    return folder


def check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise TraceAnalyzerError("is a file, not a folder", where=folder, remedy="Name another folder.")
