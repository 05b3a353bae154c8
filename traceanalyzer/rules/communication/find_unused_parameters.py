"""DistributedDataParallel searches for unused parameters in every step."""

from collections.abc import Iterator

from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Confidence, Hits, Unavailable, rule

_SEARCH = r"search_unused_parameters$"
_DDP = r"^DistributedDataParallel\.forward"


@rule(since="0.2", claims=Claims.EVENT, min_share=0.001)
def find_unused_parameters(calls: Calls) -> Iterator[Hits]:
    """In every step, DistributedDataParallel searches for parameters without a gradient.

    What it looks for: the reducer's search_unused_parameters, which runs if find_unused_parameters=True.
    Why it costs: before each backward pass, DistributedDataParallel walks through the whole autograd graph.
    An additional all-reduce tells all ranks which parameters were used.
    Bad: find_unused_parameters=True to be safe. Good: False if every parameter gets a gradient in every step.
    How sure: the trace does not show whether any parameter was unused, so confidence is medium. To find out,
    set find_unused_parameters=False. If a parameter then gets no gradient, the next forward pass raises an
    error. With TORCH_DISTRIBUTED_DEBUG=DETAIL, the error shows the names of such parameters.
    When it is wrong: the unused parameters change from step to step. If the same parameters are unused in
    every step, use static_graph=True instead.
    Source: PyTorch's DDP notes; measured on two H200 with torch 2.11.
    """
    if not calls.name.matches(_DDP).any():
        raise Unavailable("no DistributedDataParallel in the trace")
    searches = calls[calls.name.matches(_SEARCH)]
    yield Hits(
        occurrences=searches,
        fix=Drop(searches.rows),
        confidence=Confidence.MEDIUM,
        info=True,
        message="DistributedDataParallel searches for unused parameters {times_a_step} (find_unused_parameters=True)",
        advice="Set find_unused_parameters=False if every parameter gets a gradient in each step; "
        "static_graph=True if in all steps the same parameters get no gradient.",
    )
