"""From hits to findings: what belongs together, what it costs, and the numbers that its message may name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise
from statistics import median
from typing import Any

import numpy as np

from traceanalyzer.model import intervals, units
from traceanalyzer.model.finding import Confidence, Finding, Hit, Occurrence, Severity, Span

_FORMS = {"ns": units.format_ns, "bytes": units.format_bytes, "share": units.format_share}
_PARTS_NAMED = 3  # of a mapping in a message
_SPAN_FIELDS = tuple(field.name for field in fields(Span))


@dataclass(frozen=True, slots=True)
class Scope:
    """What the hits of one trace are measured against: rank, analysed window and number of steps in it."""

    rank: int | None
    start_ns: int
    end_ns: int
    steps: int = 0

    @property
    def length_ns(self) -> int:
        """Length of the analysed window."""
        return max(0, self.end_ns - self.start_ns)


def findings_of(rule: str, hits: Iterable[Hit], scope: Scope) -> list[Finding]:
    """One finding per cause and device.

    Raises:
        KeyError: a message names a field that is not in its evidence.
    """
    groups: dict[tuple[str, int | None], list[Hit]] = {}
    for hit in map(_plainly_typed, hits):
        groups.setdefault((hit.cause, hit.span.device), []).append(hit)
    return [_finding(rule, sorted(group, key=_when), scope) for group in groups.values()]


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Costliest first, what is nobody's loss last; ties by rule, cause, rank, device and start."""
    return tuple(sorted(findings, key=_place))


def _plainly_typed(hit: Hit) -> Hit:
    """The hit without numpy's scalars: what a report holds compares and prints as Python's own."""
    span = Span(*(_native(getattr(hit.span, name)) for name in _SPAN_FIELDS))
    evidence = {name: _native(value) for name, value in hit.evidence.items()}
    events = tuple(map(int, hit.events))
    return replace(hit, span=span, evidence=evidence, events=events, cost_ns=int(hit.cost_ns))


def _native(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value


def _when(hit: Hit) -> tuple[int, int, tuple[int, ...]]:
    return hit.span.start_ns, hit.span.end_ns, hit.events


def _place(found: Finding) -> tuple[Any, ...]:
    nobodys_loss = found.severity is Severity.INFO
    device = -1 if found.device is None else found.device
    rank = -1 if found.rank is None else found.rank
    return nobodys_loss, -found.cost_ns, found.rule, found.cause, rank, device, found.start_ns


def _finding(rule: str, hits: Sequence[Hit], scope: Scope) -> Finding:
    spans = [_cost_spans(hit, scope) for hit in hits]
    held = [sum(end - start for start, end in mine) for mine in spans]
    costs = [min(max(hit.cost_ns, 0), most) for hit, most in zip(hits, held, strict=True)]
    cost_ns = _union_cost(spans, costs)
    share = cost_ns / scope.length_ns if scope.length_ns else 0.0
    worst = max(range(len(hits)), key=lambda i: (costs[i], hits[i].cost_ns, -i))
    hit = hits[worst]
    evidence = _evidence(hits, costs, worst, cost_ns, share)
    return Finding(
        rule=rule,
        cause=hit.cause,
        severity=Severity.INFO if all(h.info for h in hits) else Severity.of(share),
        confidence=_confidence(hits, costs),
        message=hit.message.format_map(message_fields(hits, evidence, costs, scope)),
        advice=hit.advice,
        rank=scope.rank,
        device=hit.span.device,
        stream=hit.span.stream,
        thread=hit.span.thread,
        step=hit.span.step,
        start_ns=hit.span.start_ns,
        end_ns=hit.span.end_ns,
        cost_ns=cost_ns,
        cost_share=share,
        count=len(hits),
        occurrences=tuple(map(_occurrence, hits, costs)),
        event_ids=hit.events,
        evidence=evidence,
    )


def _occurrence(hit: Hit, cost_ns: int) -> Occurrence:
    span = hit.span
    return Occurrence(
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        cost_ns=cost_ns,
        device=span.device,
        stream=span.stream,
        thread=span.thread,
        step=span.step,
        event_ids=hit.events,
        evidence=hit.evidence,
    )


def _cost_spans(hit: Hit, scope: Scope) -> list[tuple[int, int]]:
    """When the hit's cost was incurred within the analysed window: sorted, disjoint, not empty."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(hit.cost_spans or [(hit.span.start_ns, hit.span.end_ns)]):
        start, end = max(int(start), scope.start_ns), min(int(end), scope.end_ns)
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        elif start < end:
            merged.append((start, end))
    return merged


def _union_cost(spans: Sequence[Sequence[tuple[int, int]]], costs: Sequence[int]) -> int:
    """Time lost to any of the hits: the union of their spans, capped by what they claim.

    A hit may claim less than its span. Places spans run together, the claim of that run is the smaller of its
    length and the sum of the claims in it, so that neither an overlap nor a wide span is counted as loss.
    """
    edges = np.array([span for mine in spans for span in mine], np.int64).reshape(-1, 2)
    claims = np.array(
        [ns for mine, cost in zip(spans, costs, strict=True) for ns in _spread(cost, mine)], np.int64
    )
    runs = intervals.union(edges[claims > 0, 0], edges[claims > 0, 1])
    claimed = np.zeros(len(runs[0]), np.int64)
    np.add.at(claimed, np.searchsorted(runs[0], edges[claims > 0, 0], side="right") - 1, claims[claims > 0])
    return int(np.minimum(claimed, runs[1] - runs[0]).sum())


def _spread(cost: int, spans: Sequence[tuple[int, int]]) -> list[int]:
    """The cost over its spans by length, exact in the sum."""
    upto = list(accumulate(end - start for start, end in spans))
    shares = [cost * length // upto[-1] for length in upto]
    return [after - before for before, after in pairwise([0, *shares])]


def _confidence(hits: Sequence[Hit], costs: Sequence[int]) -> Confidence:
    """The lowest confidence that covers most of the cost (of the hits, where nothing was lost)."""
    weights = costs if any(costs) else [1] * len(hits)
    covered = 0
    for level in Confidence:
        covered += sum(weight for hit, weight in zip(hits, weights, strict=True) if hit.confidence is level)
        if covered * 2 > sum(weights):
            return level
    raise AssertionError("every hit has a confidence")


def _evidence(
    hits: Sequence[Hit], costs: Sequence[int], worst: int, cost_ns: int, share: float
) -> dict[str, Any]:
    """Numbers of the costliest occurrence, the prevailing texts, and totals; what the rule names wins."""
    totals = {
        "count": len(hits),
        "total_ns": cost_ns,
        "share": share,
        "median_ns": int(median(costs)),
        "worst_ns": max(costs),
        "steps": len({hit.span.step for hit in hits if hit.span.step is not None}),
    }
    own = dict(hits[worst].evidence)
    prevailing = {name: _weigh(hits, costs, name).most_common(1)[0][0] for name in own if _is_text(own[name])}
    summed = {name: _summed(hits, name) for name in own if isinstance(own[name], Mapping)}
    first = {name[:-1]: next(iter(sums)) for name, sums in summed.items() if name[:-1] in own and sums}
    return totals | own | prevailing | summed | first


def _summed(hits: Sequence[Hit], name: str) -> dict[str, int]:
    """What each hit lists by name, such as ns by op, added up; largest first."""
    sums: Counter[str] = Counter()
    for hit in hits:
        sums.update(hit.evidence.get(name, {}))
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _weigh(hits: Sequence[Hit], costs: Sequence[int], name: str) -> Counter[str]:
    """How much was lost under each text of one name, in order of first occurrence."""
    weights: Counter[str] = Counter()
    for hit, cost in zip(hits, costs, strict=True):
        if name in hit.evidence:
            weights[hit.evidence[name]] += cost + 1  # the 1 decides where nothing was lost
    return weights


def message_fields(
    hits: Sequence[Hit], evidence: Mapping[str, Any], costs: Sequence[int], scope: Scope
) -> dict[str, str]:
    """Every field that a message may name, as text; CONTRIBUTING.md lists them for authors of rules."""
    shown = {name: _plain(value) for name, value in evidence.items()}
    for name, value in evidence.items():
        stem, _, unit = name.rpartition("_")
        if unit in _FORMS and value is not None:
            shown[stem or unit] = _FORMS[unit](value)
        if isinstance(value, Mapping):
            shown[name] = _leading(value, sum(costs))
        if _is_text(value) and (others := len(_weigh(hits, costs, name)) - 1) > 0:
            shown[name] = f"{value} and {others:,} other{'s' if others > 1 else ''}"
    return {"times": _times(len(hits)), "in_steps": _in_steps(hits, scope.steps)} | shown


def _leading(sums: Mapping[str, int], total: int) -> str:
    """The largest parts with their shares: `aten::mm (24 %), aten::add_ (20 %)`."""
    parts = list(sums.items())[:_PARTS_NAMED]
    return ", ".join(f"{name} ({round(100 * part / total) if total else 0} %)" for name, part in parts)


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


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _in_steps(hits: Sequence[Hit], steps: int) -> str:
    """In which steps, as people say it."""
    hit_steps = {hit.span.step for hit in hits if hit.span.step is not None}
    if not hit_steps:
        return "over the window"
    if len(hit_steps) == 1 and steps != 1:
        return f"in step {min(hit_steps)}"
    if len(hit_steps) >= steps:
        return "in every step" if steps > 1 else "in the only step"
    return f"in {len(hit_steps):,} of {steps:,} steps"
