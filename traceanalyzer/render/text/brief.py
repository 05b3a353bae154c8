"""Report -> a brief for somebody who repairs the program without this tool: what, where, how, and how to verify it."""

import ast
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.finding import Finding, Severity
from traceanalyzer.model.report import Fault, Report, TraceReport
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.step_times import RECORDING, Saving, StepEstimate
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.units import format_ns, format_share
from traceanalyzer.render.words.escape import printable, shortened
from traceanalyzer.render.words.phrases import OF_SAVINGS, may_help, short_amounts, titled
from traceanalyzer.report.finding_order import triage
from traceanalyzer.report.profiler_commands import program_command
from traceanalyzer.report.words import format_span, listed
from traceanalyzer.rule.advice import named_for_platform
from traceanalyzer.rule.claims import REGION
from traceanalyzer.rule.idioms import Repair, lines_with, repair_of
from traceanalyzer.rule.registry import Kind, all_rules, kind_of
from traceanalyzer.version import __version__

MAX_LINES = 150
_CHANGES = 6  # findings that are described at most
_MAYBE = 2  # findings of severity info that may help
_QUOTES = (12, 6, 0)  # lines of the program that a change quotes, the first that has room
_PLACES = 3  # places of a finding that are named
_NAME = 60  # characters of a region
_CAPTURED = 0.9  # of the step: of less GPU work, the brief says what CUDA graphs leave; chosen
_CODE = regex(r"([^\s(`,;]+\.pyx?)\((\d+)\): ([\w.<>]+)")
_WRONG, _BAD = "When it is wrong:", "Bad:"  # paragraphs of a rule's page
_Changes = list[tuple[int, Finding, Fault | None]]
_NOT_FOUND = (
    "The causes are what the trace supports best. If the code of a change is not as described, go on with the region "
    "that has the most GPU idle time (the CPU is too slow there) or GPU time (the kernels are)."
)
_COMPARE_RESULTS = "Check the results: with one seed, compare the losses or outputs of 20 steps before and after."


def render_brief(report: Report, script: Path | None = None) -> str:
    """Markdown of at most `MAX_LINES` lines, which quotes what the program's main file has of the findings' code.

    Raises BadOption: the script cannot be read.
    """
    program, faults = _Program(script), _faults(report)
    pages = (
        list(_lines(report, faults[:count], faults[count:], program, quoted))
        for count in range(min(len(faults), _CHANGES), -1, -1)
        for quoted in _QUOTES
    )
    lines = next(page for page in pages if len(page) <= MAX_LINES)
    return "\n".join(map(printable, lines)) + "\n"


class _Program:
    """The program's main file, if it is at hand; `quoted` are lines of functions that the brief has already."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        try:
            self.text = "" if path is None else path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise BadOption(f"cannot be read: {error.strerror}", where=path) from error
        self.lines = self.text.splitlines()
        self.quoted: set[range] = set()

    def words(self, trace: TraceReport) -> list[str]:
        recorded = program_command(trace.meta)[1:]
        return recorded if self.path is None else [str(self.path), *recorded[1:]]

    def function_at(self, file: str, line: int) -> range:
        """Line numbers of the function that begins at this line, or the innermost one around it; empty elsewhere."""
        if self.path is None or Path(file).name != self.path.name:
            return range(0)
        try:
            nodes = list(ast.walk(ast.parse(self.text)))
        except (SyntaxError, ValueError):
            return range(0)
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        first = [min([node.lineno, *(one.lineno for one in node.decorator_list)]) for node in functions]
        spans = [range(n, (node.end_lineno or n) + 1) for n, node in zip(first, functions, strict=True)]
        return min((span for span in spans if line in span), key=len, default=range(0))


def _faults(report: Report) -> _Changes:
    """(number, finding, fault) of each change: the first of a fault above `info`, then what to check or may help."""
    others = triage(report).others
    of_number = {n: fault for trace in report.traces for fault in trace.faults for n in fault.findings}
    first = [n for n in others if n not in of_number or n == of_number[n].findings[0]]
    wrong = [n for n in first if others[n].severity is not Severity.INFO]
    asked = [n for n in first if n not in wrong and kind_of(others[n].rule) is Kind.QUESTION]
    maybe = [n for n in first if n not in (*wrong, *asked) and may_help(others[n])][:_MAYBE]
    return [(n, others[n], of_number.get(n)) for n in [*wrong, *asked, *maybe]]


def _lines(report: Report, faults: _Changes, left: _Changes, program: _Program, quoted: int) -> Iterator[str]:
    ranks_of_first = [finding.rank for finding in report.findings[:1]]
    program.quoted.clear()
    trace = next((one for one in report.traces if one.rank in ranks_of_first), report.traces[0])
    name = Path(trace.meta.source).name
    verdict = trace.summary if report.job is None else report.job.summary
    ranks = f" and {len(report.traces) - 1} more ranks" * (len(report.traces) > 1)
    devices = sorted({device.name or "unknown GPU" for device in trace.meta.devices})
    yield from ("# Repair brief", "")
    yield f"{name}{ranks}; {', '.join(devices) or 'no GPU'}; by traceanalyzer {__version__}. {OF_SAVINGS}"
    yield ""
    yield from (f"- {label}: {text}" for label, text in verdict.lines.items())
    if not faults:
        yield "- No change is known that saves time. The regions below show where the time goes."
    for place, change in enumerate(faults, 1):
        yield from ("", f"## Change {place}: {titled(change[1])}", "")
        for line in _change(place, change, trace, program, quoted):
            yield named_for_platform(line, trace.meta.dialect)
    if left:
        yield from ("", "Smaller: " + "; ".join(titled(finding) for _, finding, _ in left[:_PLACES]))
    yield from _regions(trace)
    yield from _verification(trace, len(report.traces), program)


def _change(
    place: int, change: tuple[int, Finding, Fault | None], trace: TraceReport, program: _Program, quoted: int
) -> Iterator[str]:
    """Problem, place, saving, remedy with its code, precondition and effect on results: a line each."""
    number, finding, fault = change
    repair = repair_of(finding)
    places = _places(finding)
    source = f"finding {number}, {finding.rule}, confidence {finding.confidence}"
    yield f"- Problem: {short_ops(finding.message)} ({source})."
    shown = [f"`{function}()` at line {line} of `{file}`" for file, line, function in places]
    name = _code(short_ops(finding.by or finding.rule))
    nowhere = f"`{name}`; no line of Python is known (record --stacks)"
    yield f"- Where: {'; '.join(shown) or nowhere}"
    yield f"- Saving: {_saving(finding, fault, trace.step)}"
    if place > 1 and fault is not None and fault.step_after is not None:
        yield f"- Expect: {_span(fault.step_after)} a step with this change and those before it."
    if fault is not None and len(fault.findings) > 1:
        yield f"- The same change repairs finding{'s' * (len(fault.findings) > 2)} {listed(fault.findings[1:])}."
    yield f"- Change: {short_ops(finding.advice)}"
    if finding.profiler_command:
        known = shlex.join(program_command(trace.meta))
        named = finding.profiler_command.replace(known, shlex.join(["python", *program.words(trace)]))
        yield f"- If the code does not explain it, measure: `{named}`"
    # A region's remedy is another one than its rule's.
    pages = (one.paragraphs for one in all_rules() if one.slug == finding.rule and finding.cause != REGION)
    if repair is not None:
        yield f"- Precondition: {repair.needs}."
        yield f"- Results: {repair.results}."
        if there := lines_with(repair.used, program.text):
            line = program.lines[there[0] - 1].strip()
            yield f"- Line {there[0]} has this already (`{_code(line)}`): look at the precondition first."
    yield from (f"- {one}" for page in pages for one in page if one.startswith(_WRONG if repair else (_WRONG, _BAD)))
    if quote := _quote(repair, places, program, quoted):
        yield from ("", "In the program:", "```python", *quote, "```")
    lacks = repair is not None and repair.code and program.text and not lines_with(repair.code, program.text)
    if repair is not None and quoted and not lacks:
        yield from ("", "As an example:", "```python", "# before", *repair.before.splitlines())
        yield from ("# after", *repair.after.splitlines(), "```")


def _code(text: str) -> str:
    return shortened(text.replace("`", "'"), _NAME)


def _places(finding: Finding) -> list[tuple[str, int, str]]:
    texts = [finding.by or "", finding.message]
    for value in finding.evidence.values():
        texts += [value] if isinstance(value, str) else map(str, value) if isinstance(value, Mapping) else []
    found = [(match[1], int(match[2]), match[3]) for text in texts for match in _CODE.finditer(text)]
    by_name = {(Path(file).name, line): (file, line, name) for file, line, name in reversed(found)}
    return list(reversed(by_name.values()))[:_PLACES]


def _saving(finding: Finding, fault: Fault | None, step: StepEstimate | None) -> str:
    saving: Saving | None = finding.saving if fault is None or fault.saving is None else fault.saving
    if saving is None or step is None:
        return f"{short_amounts(finding) or 'not known'}; what the step gains cannot be predicted"
    before = step.unprofiled_ns
    after = format_span(max(before - saving.high_ns, 0), max(before - saving.low_ns, 0))
    amounts = short_amounts(replace(finding, saving=saving))
    others = ", with the other changes made before" * saving.beyond
    return (
        f"{amounts}: {format_ns(before)} -> {format_ns(max(before - saving.step_ns, 0))} a step "
        f"({after}) without the profiler{others}"
    )


def _quote(repair: Repair | None, places: list[tuple[str, int, str]], program: _Program, most: int) -> list[str]:
    """Numbered lines of the first function that the finding names, first of all those that the repair changes."""
    spans = (program.function_at(file, line) for file, line, _ in places)
    span = next((one for one in spans if one), range(0))
    if not span or not most or span in program.quoted:
        return []
    program.quoted.add(span)
    marked = [line for line in lines_with(repair.code, program.text) if line in span] if repair else []
    chosen = list(span) if len(span) <= most else sorted({span[0], *(marked or span[1:])[: most - 1]})
    return [f"{line:>4}  {shortened(program.lines[line - 1], 2 * _NAME)}" for line in chosen]


def _regions(trace: TraceReport) -> Iterator[str]:
    yield from ("", "## Where the step goes", "")
    if not trace.regions:
        yield f"Not known: {(trace.unavailable or {}).get('step') or 'the trace has no regions'}."
        return
    yield f"CPU time without the profiler and its share of the step, GPU work, GPU idle time as recorded. {_NOT_FOUND}"
    yield from ("", "| of step | CPU | GPU | GPU idle | calls | region |", "| --: | --: | --: | --: | --: | :-- |")
    for one in trace.regions:
        times = " | ".join(map(format_ns, (one.cpu_ns, one.gpu_ns, one.idle_ns)))
        calls = f"{one.calls:,.0f}" if one.calls else ""
        name = f"{'. ' * one.level}{_code(one.name)}"
        yield f"| {format_share(one.share)} | {times} | {calls} | {name} |"


def _verification(trace: TraceReport, ranks: int, program: _Program) -> Iterator[str]:
    single, source = ranks == 1, Path(trace.meta.source)
    recorded = isinstance(trace.meta.extra.get(RECORDING), Mapping) or not single
    before = str(source if single else source.parent) if recorded else "before.json.gz"
    after = "after.json.gz" if single else "after/trace.json.gz"
    yield from ("", "## How to verify", "", "```sh")
    if not recorded:
        yield f"{_record(trace, ranks, program, before)}   # before the change"
    yield _record(trace, ranks, program, after)
    yield shlex.join(["traceanalyzer", "compare", before, after if single else "after"])
    yield from ("```", "")
    step, together = trace.step, trace.together
    if step is not None and together is not None and together.unprofiled_ns < step.unprofiled_ns:
        yield (
            f"Expect {_span(together)} a step with all changes above `info`, instead of {_span(step)}. `compare` "
            "prints the steps without the profiler, and whether the difference is more than noise."
        )
        if together.device_ns < _CAPTURED * together.unprofiled_ns:
            yield (
                "If CUDA graphs make the launches that remain as well, and nothing else keeps the GPU waiting: "
                f"{format_ns(together.device_ns)}, which the remaining GPU work takes."
            )
    yield _COMPARE_RESULTS


def _span(step: StepEstimate) -> str:
    span = f" ({format_span(step.low_ns, step.high_ns)})" * (step.low_ns < step.high_ns)
    return f"{format_ns(step.unprofiled_ns)}{span}"


def _record(trace: TraceReport, ranks: int, program: _Program, output: str) -> str:
    recording = trace.meta.extra.get(RECORDING)
    options: Any = recording.get("options") if isinstance(recording, Mapping) else None
    calls = options.get("every_call_of") if isinstance(options, Mapping) else None
    flags = ["--shapes", "--stacks", *(["--every-call-of", str(calls)] if calls else [])]
    launcher = ["python"] if ranks == 1 else ["torchrun", "--nproc-per-node", str(ranks)]
    words = program.words(trace)
    return shlex.join(["traceanalyzer", "record", *flags, "-o", output, "--", *launcher, *words])
