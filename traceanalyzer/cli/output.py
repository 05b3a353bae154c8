"""Where text and data go: standard output as it can show them, or a file, always the same bytes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from traceanalyzer.cli.exits import emit
from traceanalyzer.cli.files import written


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
    """What standard output is encoded in."""
    return getattr(sys.stdout, "encoding", None) or "ascii"


def ascii_only(output: Path | None = None) -> bool:
    """Whether the text goes to a stream that cannot show block characters."""
    return output is None and stream_encoding().lower().replace("-", "") not in ("utf8", "utf8sig")


def width(output: Path | None = None) -> int:
    """Columns of the terminal; of files and pipes always the same."""
    from traceanalyzer.render.text.page import FILE_WIDTH, stream_width

    return FILE_WIDTH if output else stream_width()


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
    """Put what `render` makes of the width and of `ascii_only`."""
    put_text(render(width=width(output), ascii_only=ascii_only(output)), output)


def tell(text: str, path: str | None = None) -> None:
    """Say on standard error: on a terminal wrapped to its width, elsewhere one line for each, which tools look for.

    `path`, where it is in the text, stays on one line.
    """
    print(_fitted(text, path) if sys.stderr.isatty() else text, file=sys.stderr)


def _fitted(text: str, path: str | None) -> str:
    from traceanalyzer.render.text.page import Page, stream_width
    from traceanalyzer.render.words.escape import JOINED

    page = Page(width=stream_width())
    for line in (text.replace(path, path.replace(" ", JOINED)) if path else text).split("\n"):
        said = line.lstrip(" ")
        indent = len(line) - len(said)
        page.put(said, indent=indent, hang=0 if indent else 2)
    return page.text().rstrip("\n")
