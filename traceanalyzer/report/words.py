"""Classes of time, causes of idle time and spans as people say them."""

from collections.abc import Sequence
from itertools import groupby

from traceanalyzer.idle.causes import TEXTS
from traceanalyzer.model.units import format_ns

_CLASSES = {
    "compute_over_communication": "compute and communication at once",
    "compute_over_copy": "compute and copy at once",
    "communication_waiting": "waiting for other ranks",
    "communication_transfer": "transfer between ranks",
    "copy_h2d": "copy to the device",
    "copy_d2h": "copy to the host",
    "copy_d2d": "copy on the device",
    "copy_p2p": "copy between devices",
    "copy_other": "other copies",
}
_PREFIX = "idle:"


def in_words(name: str) -> str:
    """`idle:host-code` as `host code between ops`, `copy_h2d` as `copy to the device`."""
    name = name.removeprefix(_PREFIX)
    if name in TEXTS:
        return TEXTS[name].name
    return _CLASSES.get(name, name.replace("_", " ").replace("-", " ").replace(":", ": "))


def format_span(low_ns: float, high_ns: float, word: str = "to") -> str:
    """`2.97 to 3.73 ms`, `821 µs to 1.02 ms`: the unit once where both have the same."""
    low, high = format_ns(low_ns), format_ns(high_ns)
    number, _, unit = low.rpartition(" ")
    return f"{number if high.endswith(f' {unit}') else low} {word} {high}"


def listed(numbers: Sequence[int]) -> str:
    """`1 to 3`, `1, 3 and 5`, `1 and 2`."""
    texts = [
        text
        for run in runs_of(numbers)
        for text in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(number) for number in run])
    ]
    return "".join(texts) if len(texts) < 2 else ", ".join(texts[:-1]) + f" and {texts[-1]}"


def runs_of(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers that follow each other, together."""
    runs = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    return [[number for _, number in run] for _, run in runs]
