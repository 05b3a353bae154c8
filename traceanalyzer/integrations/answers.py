"""What agents ask about traces, as texts of a limited length. Only files under given folders are read."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from traceanalyzer.model.errors import BadOption, asked_of
from traceanalyzer.model.interpreter import pd
from traceanalyzer.model.units import format_bytes
from traceanalyzer.render.words.escape import printable, shortened

MAX_BYTES = 20_000
"""Of an answer: what an agent's context bears."""

MAX_FILE_BYTES = 4 << 30
"""Of the files of one question, as they are stored: a gigabyte takes about 15 s."""

_MAX_ECHO = 200  # characters of a path or name that an error repeats
_KERNEL_NAME = 2_000  # characters; C++ names are long
_ROWS = 60  # events of a window that are listed
_WIDTH = 100

UNITS = """\
Times are int64 nanoseconds in tables and JSON; texts carry their unit. Times of a window count from the first op,
annotation, call or kernel of the trace. Shares in JSON are 0 to 1, percentages in texts.
Busy: the union of kernels, copies and memsets of a device. Idle: the rest of its window.
Cost: time lost in the recorded trace, measured. Saving: what a fix takes off the step without the profiler, predicted,
with an interval. If it begins at 0, the saving is not sure.
Severity: high from 10 % of the step, medium from 3 %, low from 0.5 %, else info.
A rule that is not applicable has not been cleared: the trace does not hold its evidence.
"""


@dataclass(frozen=True, slots=True)
class Roots:
    """The folders under which files may be read."""

    folders: tuple[Path, ...]

    def path(self, text: str) -> Path:
        """The file or folder, links followed, under the first folder that has it. Raises BadOption: none has it."""
        for folder in self.folders:
            root = folder.resolve()
            with suppress(OSError, ValueError):  # too long, or with a NUL
                path = (root / text).resolve()
                if path.is_relative_to(root) and path.exists():
                    return self._checked(path)
        problem = f"{shortened(printable(text), _MAX_ECHO)}: no such file under {', '.join(map(str, self.folders))}"
        raise BadOption(problem, remedy="Name a trace under one of these folders.")

    def _checked(self, path: Path) -> Path:
        """The path, if all that is read of it lies under the folders and is not too large."""
        from traceanalyzer.read.folders import layout_of

        files = [file.resolve() for file in layout_of([path]).files] if path.is_dir() else [path]
        roots = [folder.resolve() for folder in self.folders]
        if not all(any(file.is_relative_to(root) for root in roots) for file in files):
            problem = "a link in it leads out of the folders"
            raise BadOption(problem, where=path, remedy="Name a single trace.")
        if sum(file.stat().st_size for file in files) > MAX_FILE_BYTES:
            problem = f"its files have more than {format_bytes(MAX_FILE_BYTES)}"
            raise BadOption(problem, where=path, remedy="Use the traceanalyzer command.")
        return path


def capped(text: str, remedy: str) -> str:
    """The text, cut at the end of a line where it is too long, with what to ask instead."""
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= MAX_BYTES:
        return encoded.decode("utf-8")
    note = f"\n[cut: {len(encoded):,} bytes in all. {remedy}]\n"
    kept = encoded[: MAX_BYTES - len(note.encode())].decode("utf-8", "ignore")
    return kept.rpartition("\n")[0] + note


def diagnosed(roots: Roots, trace: str, verbose: bool = False) -> str:
    """The report on a trace or on a folder of ranks."""
    from traceanalyzer import diagnose
    from traceanalyzer.render.text.report import render_text

    text = render_text(diagnose(roots.path(trace)), width=_WIDTH, verbose=verbose)
    return capped(text, "Ask without verbose.")


def briefed(roots: Roots, trace: str, script: str = "") -> str:
    """What to change in the program, and how to verify it; the script, if given, is quoted."""
    from traceanalyzer import diagnose

    report = diagnose(roots.path(trace))
    return capped(report.brief(roots.path(script) if script else None), "Ask without a script.")


def explained(name: str) -> str:
    """The page of a rule, of all rules of a group, or of a kernel."""
    from traceanalyzer.render.text.explain import kernel_page, rule_page
    from traceanalyzer.rule.registry import all_rules, find_rule

    if page := kernel_page(printable(name)[:_KERNEL_NAME], _WIDTH):
        return page
    name = shortened(printable(name), _MAX_ECHO)
    chosen = [rule for rule in all_rules() if name in (rule.slug, rule.group)] or [find_rule(name)]
    return capped("\n".join(rule_page(rule, _WIDTH, verbose=True) for rule in chosen), "Name a single rule.")


def events(roots: Roots, trace: str, window: str) -> str:
    """The longest events that overlap a window such as `12.5ms:80ms`, of both lanes, in order of time."""
    from traceanalyzer.model.units import parse_window
    from traceanalyzer.read.load import load

    read = load(roots.path(trace))
    start, end = parse_window(shortened(printable(window), _MAX_ECHO))
    origin = read.meta.origin_ns
    lanes = []
    for lane, frame, place in (("CPU", read.cpu, "tid"), ("GPU", read.gpu, "stream")):
        offset = frame["start_ns"] - origin
        inside = (offset + frame["dur_ns"] > (start or 0)) & (offset < (2**62 if end is None else end))
        shown = frame.loc[inside, ["event_id", "name", "category", "dur_ns"]]
        on = frame.loc[inside, place].astype("str")
        lanes.append(shown.assign(lane=lane, offset_ns=offset[inside], on=on))
    rows = pd.concat(lanes, ignore_index=True)
    longest = rows.sort_values(["dur_ns", "event_id"], ascending=[False, True]).head(_ROWS)
    lines = [f"{len(rows):,} events overlap the window; the longest {_ROWS} at most, times in us"]
    lines.append("lane  thread or stream  start  duration  category  name  event_id")
    for row in longest.sort_values(["offset_ns", "event_id"]).to_dict("records"):
        times = f"{row['offset_ns'] / 1e3:.3f}  {row['dur_ns'] / 1e3:.3f}"
        what = f"{row['category']}  {printable(row['name'])[:160]}  {row['event_id']}"
        lines.append(f"{row['lane']}  {row['on']}  {times}  {what}")
    return capped("\n".join(lines) + "\n", "Ask for a shorter window.")


def listed(roots: Roots, trace: str, what: str, step: int | None = None) -> str:
    """The events of one sort by name, as the command `list` prints them."""
    from traceanalyzer.read.load import load
    from traceanalyzer.render.text.views import render_listed
    from traceanalyzer.report.tables import LISTS, listed_events

    if what not in LISTS:
        shown = shortened(printable(what), _MAX_ECHO)
        raise BadOption(f"no list of {shown}", remedy=f"There are {', '.join(LISTS)}.")
    read = load(roots.path(trace))
    with asked_of(read.meta.source):
        rows = listed_events(read, what, step)
    return capped(render_listed(rows, what, top=_ROWS, width=_WIDTH), "Ask for one step.")


def compared(roots: Roots, base: str, new: str) -> str:
    """What changed from one trace, or folder of ranks, to another."""
    from traceanalyzer.comparison.compare import compare
    from traceanalyzer.render.text.comparison import render_comparison

    found = compare([str(roots.path(base))], [str(roots.path(new))])
    return capped(render_comparison(found, width=_WIDTH), "Compare single ranks.")


def roots_of(folders: Sequence[Path]) -> Roots:
    """The folders, or the current one where none is given. Raises BadOption: one is no folder."""
    for folder in folders:
        if not folder.is_dir():
            raise BadOption("is no folder", where=folder, remedy="Name the folder that holds the traces.")
    return Roots(tuple(folders) or (Path.cwd(),))
