"""Copies of items: where a network begins to work on them, and what ops read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from traceanalyzer.tensors.signatures import Shape, Signature, tensors

LAYERS = re.compile(r"^aten::(linear|addmm|mm|conv\w*|cudnn_convolution\w*|embedding|lstm|gru|\w*_norm)$")
LOOK_UP = "aten::embedding"
AHEAD, FAR = 8, 200  # ops between the copies and the network, and between two ops of a network; chosen


class Copied(NamedTuple):
    """Where a network begins, and on how many copies of how many items."""

    begin: int
    copies: int
    items: int
    shape: Shape


def read_by(op: Signature) -> Sequence[Shape]:
    """Shapes of what it works on: of a layer its input, not its weight; of a look-up the indices."""
    if not LAYERS.search(op.name):
        return tensors(op)
    first = op.name in ("aten::addmm", LOOK_UP)  # behind the bias, or the table
    return tensors(op)[first : first + 1]
