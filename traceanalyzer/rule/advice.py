"""What is added to the advice of a rule: what torch it needs, and which library calls the op.

An advice marks a feature in braces, `Put the norm under {torch.compile}.`: `features.toml` has what is known of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from traceanalyzer.model.arrays import Rows, pick
from traceanalyzer.model.containment import nearest_marked
from traceanalyzer.model.finding import NOTHING_TO_DO
from traceanalyzer.model.short_names import function_words
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.units import percent
from traceanalyzer.rule.cpu_gaps import CallsAfterCpuGaps
from traceanalyzer.rule.idioms import idiom_of, toml_table
from traceanalyzer.rule.views import Calls, IdleTime, Work
from traceanalyzer.timeline.user_code import in_its_own, own_frames, package_of

_ERA = regex(r"^torch (\d+)\.(\d+)(?: to \d+\.\d+)?")  # of `Meta.dialect`: the oldest torch that it may be


@dataclass(frozen=True, slots=True)
class Feature:
    """What an advice may take.

    Attributes:
        since: the first torch that has it, by its release notes; empty where all have it.
        on_rocm, on_xpu, on_mtia: what stands in its place on ROCm, on Intel GPUs, and on Meta's accelerators.
        more_on_rocm: a sentence that follows the advice on ROCm.
    """

    since: tuple[int, ...] = ()
    on_rocm: str = ""
    more_on_rocm: str = ""
    on_xpu: str = ""
    on_mtia: str = ""


FEATURES: Mapping[str, Feature] = {
    name: Feature(**{**fields, "since": tuple(fields.get("since", ()))})
    for name, fields in toml_table("features").items()
}

# What a text for CUDA names -> what stands in its place on ROCm, XPU and MTIA; None where it stays.
_CUDA_NAMES = (
    (regex(r"torch\.cuda\b"), None, "torch.xpu", "torch.mtia"),
    (regex(r"\.cuda\((?=\))"), None, ".xpu(", ".to('mtia'"),
    (regex(r"\.cuda\("), None, ".xpu(", ".to('mtia', "),
    (regex(r"""(?<=['"])cuda(?=['"])"""), None, "xpu", "mtia"),
    (regex(r"\b([Aa]) (?=CUDA (graph|tensor))"), None, r"\1n ", r"\1n "),
    (regex(r"\bCUDA(?= ?[Gg]raph| events?\b| tensor\b| is not used)"), None, "XPU", "MTIA"),
    (regex(r"\bCUDA block"), None, "work-group", "block"),
    (regex(r"nvidia-smi nvlink \S+ nvidia-smi topo -m"), "amd-smi topology", "xpu-smi topology -m", None),
    (regex(r"nvidia-smi( -[a-z]+( [A-Z]+)?)*"), "amd-smi", "xpu-smi", "the device's monitor"),
    (regex(r" \(on CUDA, CUDA_LAUNCH_BLOCKING=1\)"), " (HIP_LAUNCH_BLOCKING=1)", "", ""),
    (regex(r" If [^.]* CUDA_MODULE_LOADING[^.]*\."), "", "", ""),
)
_PLATFORMS = (" on ROCm", " on XPU", " on MTIA")

# With its arguments, and nothing else: names in a trace have braces, too.
_MARK = regex(rf"\{{({'|'.join(map(re.escape, FEATURES))})\}}(\([^()]*\))?")


def adapt_to_recording(advice: str, dialect: str) -> str:
    """The advice for torch and platform of the trace, `Meta.dialect`: what that torch may lack says what it needs."""
    marked = {mark[1]: FEATURES[mark[1]] for mark in _MARK.finditer(advice)}
    on_rocm, on_xpu, on_mtia = (dialect.endswith(platform) for platform in _PLATFORMS)
    era = _ERA.match(dialect)
    needs = {
        name: f" (needs torch {'.'.join(map(str, feature.since))} or later)"
        for name, feature in marked.items()
        if era is not None and feature.since > (int(era[1]), int(era[2]))
    }

    def named(mark: re.Match[str]) -> str:
        feature = marked[mark[1]]
        other = on_rocm * feature.on_rocm or on_xpu * feature.on_xpu or on_mtia * feature.on_mtia
        name = other or mark[1]
        return f"{name}{mark[2] or ''}{needs.get(mark[1], '')}"

    recorded = f" This was recorded with {era[0]}." if era is not None and needs else ""
    more = "".join(feature.more_on_rocm for feature in marked.values() if on_rocm)
    return named_for_platform(_MARK.sub(named, advice) + more + recorded, dialect)


def named_for_platform(text: str, dialect: str) -> str:
    """The text or code with the platform's modules, tools and words in place of CUDA's."""
    for place, platform in enumerate(_PLATFORMS):
        for pattern, *names in _CUDA_NAMES if dialect.endswith(platform) else ():
            name = names[place]
            text = text if name is None else pattern.sub(name, text)
    return text


# Of stretches, and of all time of the function: in its own code, short calls and calls of NumPy; chosen.
_MOST_OWN = 0.5
# Time of a function for each call that it makes, below which it is a loop; a recorded call takes 0.2 to 1 us (H200).
_SHORT_NS = 5_000
# Time of a stretch: to free 10 MiB of a replaced batch takes 0.4 ms of a function's own time (H200 host).
_MIN_OWN_NS = 1_000_000
_BACKWARD = r"^autograd::engine|Backward\d*$"
_PAUSES: Mapping[str, str] = toml_table("idioms")["pauses"]
TORCH_CODE_ADVICE = _PAUSES["torch"]


def library_caller(stretches: CallsAfterCpuGaps, function: str) -> str | None:
    """The program's function that calls a package's in most such stretches, "" if unknown; None of its own function."""
    of_function = stretches[stretches.line.one_of(function)]
    if not len(of_function):
        return None
    code, instants = of_function.events.user_code, of_function.start_ns + of_function.dur_ns // 2
    frames = code.stack_at(int(instants[0]), int(of_function.thread[0]))
    if function not in frames or in_its_own(frames[frames.index(function) :]):
        return None
    own = np.array([next(own_frames([str(name), frames[-1]])) == name for name in code.names])
    caller = nearest_marked(code.caller, own[code.code], code.open_at(instants, of_function.thread))
    return next(iter(Texts(pick(code.code, caller), code.names).sums(of_function.dur_ns)), "")


def library_advice(stretches: CallsAfterCpuGaps, function: str, caller: str) -> str:
    """What to do about stretches of a package's function, with its `library_caller`."""
    package, called = package_of(function), f", which your code calls in {caller}" if caller else ""
    if idiom_of("calls", [function]) is not None:
        return f"This code is in the package {package}{called}."
    # A request has no other steps.
    trains = Calls.build(stretches.events).name.matches(_BACKWARD).any()
    kind = "model" if function.endswith(": forward") else "library-in-training" if trains else "library"
    return _PAUSES[kind].format(package=package, called=called)


def own_code_advice(stretches: CallsAfterCpuGaps, function: str) -> str:
    """What to do about time that a function spends in its own code, not in a long call; empty of other functions."""
    (own_ns, all_ns, arrays_ns, calls), total_ns = stretches.own_code(function), stretches.total_ns
    least_ns = max(_MOST_OWN * max(total_ns, all_ns), _MIN_OWN_NS * len(stretches))
    if package_of(function) is not None or own_ns + arrays_ns < least_ns:
        return ""
    kind = "arrays" if arrays_ns else "loop" if calls * _SHORT_NS >= own_ns else "code"
    return _PAUSES[kind].format(name=function_words(function), share=percent(own_ns / max(total_ns, 1)))


def caller_of(calls: Calls, line: str) -> str | None:
    """The user's own frame that calls the package of `line`; None where that is where the program began."""
    found = calls[calls.line.one_of(line)]
    if len(found) == 0:
        return None
    frames = found.events.user_code.stack_at(int(found.start_ns[0]), int(found.thread[0]))
    if not frames or frames[0] != line or in_its_own(frames):
        return None
    return next(own_frames(frames), frames[-1])


def user_frame_hint(at: Calls | Work | IdleTime, rows: Rows, evidence: Mapping[str, Any], *, done_there: bool) -> str:
    """A sentence for the advice where the first of `lines` is a package's: what the program calls it in.

    Args:
        rows: which of the occurrences the finding has.
        done_there: whether what the library does is to be changed, not only how it runs.
    """
    lines = evidence.get("lines")
    line = next(iter(lines), "") if isinstance(lines, Mapping) else ""
    calls = at[rows] if isinstance(at, Calls) else at[rows].launch
    caller = caller_of(calls, line) if package_of(line) else None
    if caller is None:
        return ""
    avoid = " Look for an argument that avoids this, or call it less often." * done_there
    return f" The op is called by the package {package_of(line)}, which your code calls in {caller}.{avoid}"


def own_callee(at: Calls | Work | IdleTime, evidence: Mapping[str, Any]) -> str:
    """The program's function that a library's, the first of `lines`, calls: a hook or a callback; empty of none."""
    lines = evidence.get("lines")
    line = next(iter(lines), "") if isinstance(lines, Mapping) else ""
    if package_of(line) is None:
        return ""
    return next((one for one in at.events.user_code.called_from(line) if package_of(one) is None), "")


def busy_advice(advice: str) -> str:
    """Where the device is busy without the profiler: nothing to do, and what to do if that turns out wrong."""
    return (
        f"{NOTHING_TO_DO}: without the profiler the GPU is probably busy all the time. If you measure that it is not, "
        f"{advice[0].lower()}{advice[1:]}"
    )
