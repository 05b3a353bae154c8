"""The distinct ops of a trace with their inputs."""

from __future__ import annotations

from traceanalyzer.indexes.arrays import Rows, grouped, pick
from traceanalyzer.indexes.op_model import Signature
from traceanalyzer.trace import Trace, codes

NO_OP = "(no op)"
_COLUMNS = ("name", "input_dims", "input_type", "concrete_inputs")


def signatures_of(trace: Trace, rows: Rows) -> tuple[Rows, list[Signature]]:
    """Number of each row's name and inputs, int64 of shape (rows,), and what the numbers stand for.

    Args:
        rows: of `trace.cpu`, int64; -1 stands for no op.
    """
    number, first = grouped([pick(codes(trace.cpu, column), rows) for column in _COLUMNS])
    examples = trace.cpu[list(_COLUMNS)].iloc[rows[first]]
    texts = [
        [str(text) if isinstance(text, str) else None for text in row]
        for row in examples.itertuples(index=False)
    ]
    nothing = rows[first] < 0
    return number, [
        Signature(NO_OP, (), (), ()) if none else Signature.parsed(name or "", *inputs)
        for none, (name, *inputs) in zip(nothing.tolist(), texts, strict=True)
    ]
