"""Takes paths, host names and user names out of a trace without touching anything else.

The trace's text is edited inside its string literals only, and only inside those that change,
so every number keeps its digits and the JSON its structure.
"""

from __future__ import annotations

import getpass
import json
import re
import socket
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
# Keys whose whole value tells where the trace was made (the last three come from the environment).
NAMED_VALUE = re.compile(
    r'("(?:traceName|host_name|PT_PROFILER_JOB_NAME|PT_PROFILER_JOB_VERSION'
    r'|PT_PROFILER_JOB_ATTEMPT_INDEX)"\s*:\s*)("(?:[^"\\\n]|\\.)*"|[0-9]+)'
)
# Everything up to the root of an installed package or of the standard library.
LIBRARY = re.compile(
    r"""(?<![\w.:/~-])(?:[A-Za-z]:)?(?:[/\\][^"()<>;,\n]*?)?[/\\]"""
    r"""(?:lib[/\\]+python3\.\d+[/\\]+(?:site|dist)-packages|(?:site|dist)-packages|lib[/\\]+python3\.\d+)"""
    r"""[/\\]+"""
)
POSIX = re.compile(r"""(?<![\w.:/~)-])/(?:[^\s/"'()<>,;:*?|&\\]+/)+""")
WINDOWS = re.compile(r"""(?<!\w)[A-Za-z]:[/\\](?:[^\s/\\"'()<>,;:*?|&]+[/\\])+""")
TOO_COMMON = frozenset({"root", "user", "admin", "home", "host", "localhost", "python", "torch", "cuda"})


def _this_host() -> set[str]:
    name = socket.gethostname()
    return {name, name.split(".")[0]}


def _this_user() -> set[str]:
    try:
        return {getpass.getuser()}
    except (OSError, KeyError):
        return set()


def _private_folders() -> tuple[str, ...]:
    """Folders whose names may hold blanks, which no pattern would see as one path."""
    folders = {str(Path.cwd()), str(Path.home()), tempfile.gettempdir()}
    return tuple(sorted((f for f in folders if len(f) > 1), key=len, reverse=True))


def _words(names: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern for whole names; `_` separates too, since worker names are `<host>_<pid>`."""
    usable = sorted((n for n in names if len(n) > 3 and n.lower() not in TOO_COMMON), key=len, reverse=True)
    if not usable:
        return None
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, usable))})(?![A-Za-z0-9])")


@dataclass(frozen=True, slots=True)
class Scrubber:
    """Knows what this machine is called; `trace_name` replaces the exporter's file name."""

    trace_name: str
    hosts: frozenset[str] = field(default_factory=lambda: frozenset(_this_host()))
    users: frozenset[str] = field(default_factory=lambda: frozenset(_this_user()))
    project: str = str(Path(__file__).resolve().parent.parent)
    folders: tuple[str, ...] = field(default_factory=_private_folders)

    def text(self, text: str) -> str:
        """A name without folders, host and user: paths in packages and here keep the part inside."""
        text = LIBRARY.sub("", text).replace(self.project + "/", "")
        for folder in self.folders:
            text = text.replace(folder + "/", "/-/").replace(folder + "\\", "/-/")
        text = WINDOWS.sub("", POSIX.sub("", text))
        for pattern, word in ((_words(self.hosts), "host"), (_words(self.users), "user")):
            text = pattern.sub(word, text) if pattern else text
        return text

    def trace(self, text: str) -> str:
        """The whole trace; each distinct string literal is looked at once."""
        seen: dict[str, str] = {}

        def literal(match: re.Match[str]) -> str:
            old = match.group()
            if old not in seen:
                seen[old] = self._literal(old)
            return seen[old]

        return LITERAL.sub(literal, NAMED_VALUE.sub(self._named_value, text))

    def _literal(self, old: str) -> str:
        """A JSON string literal, scrubbed; as it was where nothing had to go."""
        try:
            plain = json.loads(old, strict=False)
        except ValueError:  # a bad escape: the exporter does not always escape backslashes
            return f'"{self.text(old[1:-1])}"'
        new = self.text(plain)
        return old if new == plain else json.dumps(new, ensure_ascii=False)

    def _named_value(self, match: re.Match[str]) -> str:
        value = self.trace_name if '"traceName"' in match.group(1) else "scrubbed"
        return f'{match.group(1)}"{value}"'
