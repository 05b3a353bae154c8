"""The experts of one rank get more tokens than the rank sends."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows, distinct
from traceanalyzer.rule import Claims, Hits, Kind, LostTime, Unavailable, Work, rule

_EXCHANGE = r"(?i)^all_?to_?all"
_BACKWARD = r"^autograd::engine::evaluate_function"


class Limits:
    min_times: float = 1.25
    """reported only if, on average, a rank receives at least this many times as many elements as it sends;
    1.25 is a usual capacity factor: Switch Transformer"""
    min_elements: int = 65_536
    """reported only if an all-to-all brings at least this many elements on average; smaller ones carry only
    the numbers of tokens; chosen"""


@rule(since="0.2", claims=Claims.CATCH_ALL, min_share=0.0, limits=Limits, kind=Kind.FACT)
def uneven_experts(work: Work, limits: Limits) -> Iterator[Hits]:
    """The experts on this rank receive more tokens than this rank sends out.

    What it looks for: two all-to-alls in a row, outside of the backward pass. The first sends tokens to the experts,
    and the second sends them back. The rule reports a rank that receives clearly more elements than it sends.
    Why it matters: the experts of this rank compute for the additional tokens, and all other ranks wait. The
    severity is always info: `load-imbalance` reports the cost, from the traces of several ranks.
    Bad: a router without a balancing loss. Good: a loss or a bias that balances the experts, a capacity per
    expert, or popular experts on several ranks.
    How sure: one trace shows only what its rank sends and receives. The rule assumes that all ranks send as many
    tokens as this rank. If other ranks send more or fewer, the true imbalance differs.
    When it is wrong: the all-to-alls do not serve experts, but embedding tables that are distributed over ranks.
    Source: Fedus et al., Switch Transformers, 2021, section 2.2; measured on two H200.
    """
    every = work.of_kind("communication")
    every = every[every.step >= 0] if (every.step >= 0).any() else every
    named = every.text("collective").or_else(every.op.text("collective"))
    exchanges = every[named.matches(_EXCHANGE) & ~every.outer_op.name.matches(_BACKWARD)].in_order()
    if len(exchanges) == 0:
        raise Unavailable("no all-to-alls whose sizes are recorded")
    sent, received = exchanges.number_or_ops("in_elements"), exchanges.number_or_ops("out_elements")
    for device in distinct(exchanges.device).tolist():
        rows = np.flatnonzero(exchanges.device == device)
        first = rows[:-1][mirrored_exchanges(sent[rows], received[rows])]
        if len(first) == 0 or received[first].mean() < limits.min_elements:
            continue
        times = float(received[first].sum() / sent[first].sum())
        # with seven eighths of all tokens on one of two H200, the step takes 1.7 times as long as with half
        if times >= limits.min_times:
            most = round(float((received[first] / sent[first]).max()), 2)
            yield Hits(
                occurrences=exchanges[first],
                lost=LostTime.none(),
                message="in {count} exchanges this rank receives {times_sent} times the tokens that it sends"
                + ", up to {most} times" * (most > round(times, 2))
                + ": its experts get more than an even share",
                advice="Balance the router, by an auxiliary loss or a bias for each expert; set a capacity; or put "
                "popular experts on several ranks.",
                evidence={
                    "times_sent": round(times, 2),
                    "most": most,
                    "received_elements": int(received[first].sum()),
                    "sent_elements": int(sent[first].sum()),
                },
                info=True,
            )


def mirrored_exchanges(sent: Rows, received: Rows) -> Mask:
    """True for each exchange that the next one reverses. The last one is left out."""
    valid = (sent[:-1] > 0) & (received[:-1] > 0)
    back = (sent[:-1] == received[1:]) & (received[:-1] == sent[1:])
    mirrored = np.asarray(valid & back, np.bool_)
    for place in np.flatnonzero(mirrored[1:] & mirrored[:-1]) + 1:  # a pair's second is no other one's first
        mirrored[place] &= not mirrored[place - 1]
    return mirrored
