"""The distinct ops of a trace with their inputs."""

from __future__ import annotations

from traceanalyzer.model.arrays import Rows, grouped
from traceanalyzer.model.trace import Trace, codes_at, texts_of
from traceanalyzer.roofline.op_model import Signature

NO_OP = "(no op)"
_COLUMNS = ("name", "input_dims", "input_type", "concrete_inputs", "input_strides")


def signatures_of(trace: Trace, rows: Rows) -> tuple[Rows, list[Signature]]:
    """Number of each row's name and inputs, int64 of shape (rows,), and what the numbers stand for.

    Args:
        rows: of `trace.cpu`, int64; -1 stands for no op.
    """
    keys = [codes_at(trace.cpu, column, rows) for column in _COLUMNS]
    number, first = grouped(keys)
    columns = [[*texts_of(trace.cpu, column), None] for column in _COLUMNS]  # the last one for code -1
    texts = [[table[key[row]] for table, key in zip(columns, keys, strict=True)] for row in first.tolist()]
    return number, [Signature.parsed(name or NO_OP, *inputs) for name, *inputs in texts]
