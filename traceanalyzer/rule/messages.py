"""The fields that a message may name, as people read them; CONTRIBUTING.md lists them for authors of rules."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from traceanalyzer.model import units
from traceanalyzer.model.short_names import short_ops
from traceanalyzer.model.text_queries import regex

FORMS = {"ns": units.format_ns, "bytes": units.format_bytes, "share": units.format_share}
_PARTS_NAMED = 3  # of a mapping in a message
_NEARLY = 0.8  # of the lost time: a finding that owns less says so; chosen
_OF_WHAT = "of this time"
IN_OTHERS = "counts here, the rest in other findings"
"""What a message says where other findings have much of the lost time."""
_OF_UNIT = {"bytes": "of these bytes", "share": ""}
_IN_TOTAL = "in total"  # what too few steps have to tell it of a step
_OF_EACH_STEP = regex(r"\{per_step\} (?:of each step|a step)")
_ANY_WHAT = regex("of this time|of these bytes")
_FACTORS = ("times", "speedup")  # of which no part is a share
_MOST_STEPS = 0.75  # of the steps: one at an edge of the window may lack it
_ABOUT = 0.15  # of the times in a step, that the whole number may be off: steps at the edges are cut


def message_fields(
    evidence: Mapping[str, Any],
    counts: tuple[int, int],
    in_steps: int,
    steps: int,
    within: float = 1.0,
    lost_ns: int = 0,
    part: float = 1.0,
    of_window: Collection[str] = (),
) -> dict[str, str]:
    """Every field that a message may name, as text.

    Args:
        evidence: what the rule says and the totals; `delay_ns` also gives `{delay}`, a mapping its largest parts;
            a total as `{delay_a_step}`, `2.00 ms a step`, and `{delay_of_step}`, `2.00 ms`: where not nearly all steps
            have it, the total; `{delay_on_average}` also says that it is a mean of the steps; `lines`, the user's code,
            also give `{at_lines}`, empty where there are none.
        counts: occurrences, and those within steps: of work what a step launched.
        in_steps: in how many of the steps they are, 0 where nothing marks steps.
        within: the share of totals that is within steps.
        lost_ns: what the occurrences lost; `{elsewhere}` says how much of it counts here, where others have much of it.
        part: of the rule's totals that the finding has, less than all where the user chose a window, but for those
            `of_window`.
    """
    recurs = in_steps > 1 and in_steps >= _MOST_STEPS * steps
    factor, suffix = (within / steps, "a step") if recurs else (1.0, _IN_TOTAL)
    shown = {name: _plain(value) for name, value in evidence.items()}
    for name, value in evidence.items():
        stem, _, unit = name.rpartition("_")
        if isinstance(value, Mapping):
            shown[name] = _leading(value, unit)
        elif unit in FORMS and value is None:
            shown[stem or unit] = _Unknown(name)
        elif unit in FORMS:
            shown[stem or unit] = FORMS[unit](value)
            if unit == "share" or name == "per_step_ns":  # these are no totals
                continue
            scale = factor if name == "total_ns" or name in of_window else factor * part
            shown[f"{stem}_of_step"] = each = FORMS[unit](value * scale)
            shown[f"{stem}_a_step"] = f"{each} {suffix}"
            shown[f"{stem}_on_average"] = f"{each} {suffix}{' on average' if recurs else ''}"
    shown = {name: type(text)(short_ops(text)) for name, text in shown.items()}
    shared = evidence.get("total_ns", 0) < _NEARLY * lost_ns
    lines = shown.get("lines") if evidence.get("lines") else None
    return {
        "at_lines": _Shares(f", at {lines}" if lines else ""),
        "elsewhere": _Shares(f"; {shown['total_a_step']} {_OF_WHAT} {IN_OTHERS}" if shared else ""),
        "times": times(counts[0]),
        "times_a_step": _often_a_step(times, counts[1], in_steps, steps),
        "number_a_step": _often_a_step("{:,}".format, counts[1], in_steps, steps),
        "in_steps": _in_steps(in_steps, steps),
    } | shown


def filled(message: str, fields: Mapping[str, str]) -> str:
    """The message with its fields; what it says of each step is told in total where few steps have it.

    Raises ValueError: it names or formats no field, a brace has no partner, or nothing is left.
    """
    if fields.get("total_a_step", "").endswith(_IN_TOTAL):
        message = _OF_EACH_STEP.sub(f"{{total}} {_IN_TOTAL}", message)
    try:
        text = singular(message.format_map(fields))
    except KeyError as error:
        what = f"message names {{{error.args[0]}}}" + ": give named_by" * (error.args[0] == "by")
        raise ValueError(f"{what}; its fields are {', '.join(sorted(fields))}") from None
    except NotKnown:
        raise
    except (ValueError, IndexError, AttributeError) as error:
        raise ValueError(f"message {message!r}: {error}; its fields are texts") from None
    if not text.strip():
        raise ValueError(f"message {message!r} says nothing: its fields are empty")
    return text


class _Shares(str):
    """Parts with their shares; `{ops:of these waits}` in a message says of what, where it is not the finding's time."""

    __slots__ = ()

    def __format__(self, of_what: str) -> str:
        return _ANY_WHAT.sub(of_what, self) if of_what else str(self)


class NotKnown(ValueError):
    """A message names a number that is not known."""


class _Unknown(str):
    """Stands for a number that is not known: a message that names it says nothing there."""

    __slots__ = ()

    def __format__(self, _: str) -> str:
        raise NotKnown(f"evidence {self!s} is None here: leave its field out where it is not known")


def _leading(sums: Mapping[str, int], unit: str = "") -> _Shares:
    """The largest parts, `aten::mm (24 % of this time), aten::add_ (20 %)`; one that has all without its share."""
    if unit in _FACTORS:
        texts = [f"{name.strip()} ({_plain(part)})" for name, part in sums.items()]
        return _Shares(", ".join(texts[:_PARTS_NAMED]))
    total = 1 if unit == "share" else sum(sums.values())
    shares = [(name, round(100 * part / total) if total else 0) for name, part in sums.items()]
    if shares and unit != "share" and (len(shares) == 1 or shares[0][1] == 100):
        return _Shares(shares[0][0].strip())
    parts = [
        f"{name.strip()} ({share} %{f' {_OF_UNIT.get(unit, _OF_WHAT)}'.rstrip() * (not place)})"
        for place, (name, share) in enumerate(shares[:_PARTS_NAMED])
        if share or not place
    ]
    return _Shares(", ".join(parts))


def _plain(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return str(value)


def times(count: int) -> str:
    """`once`, `twice`, `12 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


# What a number names is no count: `rank 1 launches kernels`.
_COUNTED = regex(
    r"(?<![.,\d])(?<!\b(?:rank|step) )(?<!\b(?:stream|device) )\b1 ((?:other |different |autograd |pointwise )?"
    r"(?:op|launch(?=es)|kernel|call|repetition|parameter|tensor|node|gradient|row|block|weight|check|wait|pass(?=es)|"
    r"class(?=es)|position|all-reduce|SM|GEMM|stage|layer))(?:e?s)\b"
)
_TIMES = regex(r"(?<![.,\d])\b([12]) times(?! (?:as|the|longer|narrower)\b)")


def singular(text: str) -> str:
    """The text with `1 launch` for `1 launches`, and `twice` for `2 times`."""
    return _TIMES.sub(lambda count: times(int(count[1])), _COUNTED.sub(r"1 \1", text))


def _often_a_step(text_of: Callable[[int], str], count: int, in_steps: int, steps: int) -> str:
    """How often in a step, where nearly all have it about as often; else in how many; over the window without steps."""
    if in_steps <= 1:
        return text_of(count)
    per_step, whole = count / in_steps, max(round(count / in_steps), 1)
    if in_steps < _MOST_STEPS * steps:
        few = f"in {in_steps:,} of {steps:,} steps"
        return f"{few}, {text_of(1)} each" if count == in_steps else f"{text_of(count)} in total, {few}"
    if abs(per_step - whole) <= _ABOUT * per_step:
        return f"{text_of(whole)} a step"
    return f"{per_step:.1f}{text_of(0).removeprefix('0')} a step"


def _in_steps(in_steps: int, steps: int) -> str:
    if in_steps == 0:
        return "over the window"
    if in_steps >= steps:
        return "in every step" if steps > 1 else "in the one recorded step"
    return f"in {in_steps:,} of {steps:,} steps"
