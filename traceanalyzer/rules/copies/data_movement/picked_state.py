"""State in another order where no shapes are recorded: rows of several tensors, picked by one index after a choice."""

from __future__ import annotations

import re

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.rule.views import Calls, Work

_CHOICES = r"^aten::(topk|sort|argsort)$"
# torch's kernel for rows: a block in x for each row, in y for each `threads` pieces of so many bytes of it.
_ROWS = re.compile(r"vectorized_gather_kernel<(\d+)")


def picked_state(work: Work, calls: Calls, min_row_bytes: int, min_tensors: int) -> Mask:
    """Gathers of large rows, right after each other, of as many rows each, with a topk or sort since the last of them.

    A beam search picks all tensors of its cache so. Of a batch from a data set, there are few tensors, and nothing is
    chosen before. Embeddings, edges of graphs and tokens of experts have small rows.

    Args:
        min_row_bytes: what a row has at least to be one of a state.
        min_tensors: how many such gathers follow each other at least.
    """
    order = np.lexsort((work.start_ns, work.stream, work.device))
    own = work[order]
    rows, row_bytes = _sizes(own)
    picks = (own.op.text("input_dims").code < 0) & (rows > 0)
    follows = picks[1:] & picks[:-1] & (rows[1:] == rows[:-1])
    follows &= (own.stream[1:] == own.stream[:-1]) & (own.device[1:] == own.device[:-1])
    run = np.cumsum(~np.append(False, follows)[: len(own)]) - 1
    large = picks & (row_bytes >= min_row_bytes)
    chosen = own.op.inside(calls[calls.name.matches(_CHOICES)])
    before = np.cumsum(chosen)
    kept, last = np.zeros(len(run), bool), 0
    for one in np.flatnonzero(np.bincount(run, large) >= min_tensors).tolist():
        begin = int(np.searchsorted(run, one))
        kept[one], last = before[begin] > last, int(before[begin])
    found = np.zeros(len(work), bool)
    found[order] = picks & kept[run]
    return found


def _sizes(work: Work) -> tuple[Rows, Rows]:
    """(rows, least bytes of a row) of each gather of rows; 0 of all other work."""
    grid = work.text("grid")
    pieces = np.array([_piece(str(one)) for one in work.name.names] + [0], np.int64)[work.name.code]
    blocks = np.array([_grid(str(one)) for one in grid.names] + [(0, 0)], np.int64)[grid.code]
    least = (blocks[:, 1] - 1) * work.threads * pieces + 1
    return np.where(pieces > 0, blocks[:, 0], 0), np.where(pieces > 0, least, 0)


def _piece(kernel: str) -> int:
    found = _ROWS.search(kernel)
    return int(found[1]) if found else 0


def _grid(text: str) -> tuple[int, int]:
    numbers = [int(one) for one in re.findall(r"\d+", text)[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (0, 0)
