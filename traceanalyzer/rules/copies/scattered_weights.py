"""A recurrent layer copies its weights in each call, because they are not one buffer."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import median
from traceanalyzer.replay.edits import DropSpans
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, rule

_RECURRENT = "aten::_cudnn_rnn"
_FLATTEN = (
    "Keep the weights in cuDNN's buffer: put new values in with p.data.copy_(values), not with p.data = values, and "
    "call rnn.flatten_parameters() after the weights were replaced, copied or loaded."
)
# torch 2.11 and 2.13: torch.backends.cudnn.is_acceptable() leaves bfloat16 out.
_BFLOAT16 = (
    "In bfloat16, flatten_parameters() does nothing (torch 2.11): use float16 for this layer if its range is enough. "
    "Or run torch.backends.cudnn.CUDNN_TENSOR_DTYPES.add(torch.bfloat16), and then rnn.flatten_parameters()."
)


class Limits:
    min_weights: int = 2
    """reported only if a call copies at least this many weights; a layer has at least two, one for its input
    and one for its state (biases are additional); torch 2.11"""


@rule(since="0.2", claims=Claims.EVENT, min_share=0.01, limits=Limits)
def scattered_weights(calls: Calls, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """A recurrent layer copies all of its weights in each call.

    What it looks for: a call of cuDNN's LSTM, GRU or RNN that first copies all weights into a new buffer.
    cuDNN needs the weights in one buffer.
    Why it costs: each call launches a copy of each weight. In a loop over time steps the copies take longer
    than the layer.
    flatten_parameters() leaves weights in bfloat16 as they are: these are copied in each call.
    Bad: p.data = averaged[name], copy.deepcopy or weight norm, which move weights out of the buffer. Good:
    p.data.copy_(averaged[name]), which writes into the buffer. Or rnn.flatten_parameters() after the weights
    were replaced.
    How sure: torch copies weights inside the call only if they are not in one buffer. Then torch also warns:
    "RNN module weights are not part of single contiguous chunk of memory".
    When it is wrong: no such case is known.
    Source: torch.nn.LSTM.flatten_parameters; measured on an H100 with torch 2.11.
    """
    recurrent = calls[calls.name.one_of(_RECURRENT) & (calls.step >= 0)]
    inside = calls[np.isin(calls.parent.rows, recurrent.rows)]
    # copies by which autocast casts weights are not counted
    cleared, copied = (inside[inside.name.one_of(name)] for name in ("aten::zero_", "aten::copy_"))
    begin = np.full(len(recurrent), np.iinfo(np.int64).max)
    np.minimum.at(begin, cleared.index_of_enclosing(recurrent), cleared.start_ns)
    layer = copied.index_of_enclosing(recurrent)
    copied, layer = copied[copied.start_ns > begin[layer]], layer[copied.start_ns > begin[layer]]
    end, weights = np.zeros(len(recurrent), np.int64), np.bincount(layer, minlength=len(recurrent))
    np.maximum.at(end, layer, copied.end_ns)
    spread = np.flatnonzero(weights >= limits.min_weights)
    for op, copies in recurrent[spread].by(recurrent[spread].outer_op.name):
        place = np.searchsorted(recurrent.rows, copies.rows)
        spent, owner = copies.launched()
        gathering = (spent.launch.start_ns >= begin[place][owner]) & (spent.launch.start_ns < end[place][owner])
        yield Hits(
            occurrences=copies,
            named_by=op,
            lost=LostTime.joined(
                [
                    LostTime.all_of(spent[gathering], owner[gathering]),
                    # 0.1 ms of CPU time per weight under the profiler, H100 host
                    LostTime.launched_within(idle, begin[place], end[place]),
                ]
            ),
            fix=DropSpans(begin[place], end[place], stall=False),
            message="{by} copies its {weights} weights into one buffer before it computes, {times_a_step}, because "
            "the weights lie apart in memory: {gathering} each time{at_lines}",
            advice=_BFLOAT16 if copies.text("input_type").matches("BFloat16").all() else _FLATTEN,
            evidence={
                "weights": int(median(weights[place])),
                "gathering_ns": int(median(end[place] - begin[place])),
                "lines": copies.line.sums(copies.dur_ns),
            },
        )
