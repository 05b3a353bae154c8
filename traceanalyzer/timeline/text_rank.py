"""Texts in an order that does not depend on the order of the file."""

from __future__ import annotations

import numpy as np

from traceanalyzer.model.arrays import Rows
from traceanalyzer.model.lanes import Columns
from traceanalyzer.model.trace import narrow_codes, texts_of


def text_rank(lane: Columns, column: str, rows: Rows) -> Rows:
    """Rank of the text of each of `rows` among all texts of the column, -1 for null; int64 of shape (rows,).

    Codes of categories count up as the file brings them; these break ties by what events say.
    """
    texts = texts_of(lane, column)
    rank = np.full(len(texts) + 1, -1)
    rank[np.argsort(texts)] = np.arange(len(texts))
    ranks: Rows = rank[narrow_codes(lane, column)[rows]]
    return ranks
