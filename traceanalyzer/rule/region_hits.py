"""Findings about the region of code that is responsible for idle time, and its remedy."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.finding import Confidence
from traceanalyzer.model.short_names import marked_functions
from traceanalyzer.model.text_queries import regex
from traceanalyzer.regions.responsible import MIN_CALLS, ON_HOST, Leading, Responsible
from traceanalyzer.rule.claims import REGION
from traceanalyzer.rule.hits import Hits
from traceanalyzer.rule.idioms import toml_table
from traceanalyzer.rule.views import IdleTime

_SEVERAL = 2
_ADVICE: Mapping[str, str] = toml_table("idioms")["regions"]
_NEARLY_ALWAYS = 0.9  # share of an op's gaps that are in a block, from which on all are; chosen
_ITEMS = regex(r"\b(?:select|slice|index_select|unbind)\b")  # ops that take one item of a tensor
_MASKS = regex(r"\beq\b.*\b(?:any|sum|count_nonzero)\b")  # ops that count the elements that equal a value
_AT_ONCE = ("one-call", "loop")  # remedies of repeats that may be one call

LAUNCHING = ("loop", *(remedy for remedy in _ADVICE if remedy not in ON_HOST))  # remedies of regions that launch work


def region_hits(
    gaps: IdleTime, leading: Leading, min_sure_share: float, remedies: Collection[str] = LAUNCHING
) -> Iterator[tuple[Hits, Rows]]:
    """(hits, positions of its idle time in `gaps`) of each responsible region that surely saves `min_sure_share`."""
    inside = _regions_around(gaps, leading)
    for place, (region, saving) in enumerate(leading.each):
        members = np.flatnonzero(inside == place)
        sure = saving.low_share >= min_sure_share
        if region.remedy in remedies and sure and len(members):
            yield _hits(gaps[members], region, leading), members


def _regions_around(gaps: IdleTime, leading: Leading) -> Rows:
    """Position in `leading.each` of the region of each gap, -1 for none; outside of replayed steps by its op."""
    middle = (gaps.start_ns + gaps.end_ns) // 2
    place, known = leading.around(middle), leading.is_replayed(middle)
    op = gaps.launch.outer_op.name.code + 1  # 0 for none
    everywhere = np.bincount(op[known], minlength=op.max(initial=0) + 1)
    for number, (region, _) in enumerate(leading.each):
        if region.repeats:
            here = np.bincount(op[known & (place == number)], minlength=len(everywhere))
            own = (here > 0) & (here >= _NEARLY_ALWAYS * everywhere)
            place[~known & (place < 0) & own[op] & (op > 0)] = number
    return place


def _hits(gaps: IdleTime, region: Responsible, leading: Leading) -> Hits:
    launches, syncs = (column / leading.regions.steps for column in (leading.regions.launches, leading.regions.syncs))
    below = leading.regions.below(region.nodes)
    inside = round(launches[below].sum())
    around = region.remedy == "wrapper"
    waits = round(syncs[below].sum())
    of_all = f"{{region_launches}} of {round(launches.sum()):,} launches" if inside else "no launches"
    calls = f" ({region.calls:,.0f} calls a step)" if not region.repeats and region.calls >= _SEVERAL else ""
    return Hits(
        occurrences=gaps,
        cause=REGION,
        named_by=_name(region),
        fix=region.edit,
        confidence=Confidence.MEDIUM,
        message=f"{{part}} of the predicted step is in {{region}}{' itself' * around}{region.within}{calls}, "
        f"{'around' if around else 'with'} {of_all}; the GPU waits for this code",
        advice=_advice(region, waits),
        evidence={
            "region": _name(region),
            **({"within": region.within} if region.within else {}),
            "part_share": region.share,
            "region_launches": inside,
            # Calls with a wait between them cannot be batched.
            "region_syncs": waits if region.repeats else 0,
        },
    )


def _advice(region: Responsible, waits: int) -> str:
    if region.remedy not in _AT_ONCE:
        return _ADVICE[region.remedy]
    ops = region.words + region.within
    kind = "items" if _ITEMS.search(ops) else "masks" if _MASKS.search(ops) else "one-call"
    often = f" Read nothing back in the loop: it waits for the GPU {waits:,} times a step."
    return _ADVICE[kind] + often * (waits >= MIN_CALLS)


def with_region(hits: Hits, region: Responsible | None) -> Hits:
    """The hits with the share of the function that they name, whose ops go as well if it goes."""
    if region is None:
        return hits
    return replace(
        hits,
        fix=region.edit,
        message=f"{{part}} of the predicted step is in {{by}}; {hits.message}",
        evidence={**hits.evidence, "part_share": region.share},
    )


def _name(region: Responsible) -> str:
    return region.words if region.repeats else marked_functions(region.words)
