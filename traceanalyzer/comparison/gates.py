"""Limits that a pipeline sets on a comparison: `step=5%`, `launches=0`, `synchronisations=0`."""

from collections.abc import Mapping, Sequence

from traceanalyzer.comparison.result import Comparison, Word
from traceanalyzer.model.errors import BadOption
from traceanalyzer.model.text_queries import regex

STEP, DEVICE = "step", "gpu"
_SHORT = {"syncs": "synchronisations", "allocations": "driver allocations", "regions": "compiled regions"}
_LIMIT = regex(r"^(?P<value>\d+(\.\d+)?)(?P<percent> ?%)?$")


def gates_of(texts: Sequence[str]) -> dict[str, tuple[float, bool]]:
    """Name -> (most that it may grow, whether as a share).

    Raises BadOption: a text is not NAME=NUMBER or NAME=NUMBER%.
    """
    result = {}
    for text in texts:
        name, equals, limit = text.partition("=")
        told = _LIMIT.match(limit.strip())
        if not equals or told is None:
            problem = f"gate {text!r} is not NAME=NUMBER or NAME=NUMBER%"
            raise BadOption(problem, remedy="For example: --gate step=5% --gate launches=0")
        share = bool(told["percent"])
        result[name.strip()] = (float(told["value"]) / (100 if share else 1), share)
    return result


def broken(found: Comparison, gates: Mapping[str, tuple[float, bool]]) -> list[str]:
    """Gates that the comparison breaks, one sentence each.

    The step and GPU time break theirs where they are slower by more, and only where that is more than noise.

    Raises BadOption: there is no counter of that name, or a step's limit is no share.
    """
    counters = {one.counter: one for one in found.axes.exact}
    told = []
    for name, (limit, share) in gates.items():
        if name in (STEP, DEVICE):
            told += _by_time(found, name, limit, share)
            continue
        one = counters.get(_SHORT.get(name, name))
        if one is None:
            remedy = f"Choose among step, gpu, {', '.join(sorted(counters))}."
            raise BadOption(f"gate {name!r}: no such counter", remedy=remedy)
        allowed = one.base * limit if share else limit
        if one.word is Word.MORE and one.new_range[0] - one.base_range[1] > allowed:
            told.append(f"{one.counter}: {one.base:g} -> {one.new:g} a step, {allowed:g} more are allowed")
    return told


def _by_time(found: Comparison, name: str, limit: float, share: bool) -> list[str]:
    if not share:
        raise BadOption(f"gate {name!r} needs a share", remedy=f"For example: --gate {name}=5%")
    axis = found.axes.step if name == STEP else found.axes.device
    if axis is None or axis.word != "slower" or axis.new_ns <= axis.base_ns * (1 + limit):
        return []
    text = f"{name}: {axis.new_ns / axis.base_ns - 1:+.1%} slower, {limit:.1%} are allowed"
    return [text.replace("%", " %")]
