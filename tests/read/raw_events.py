"""Events as an exporter writes them, field by field."""

import json
from typing import Any

from tests.support.trace_builder import load_bytes
from traceanalyzer.model.trace import Trace

LATE_US = 4_337_381_005_249.697


def of(*events: Any, **header: Any) -> Trace:
    """A trace of these raw events."""
    return load_bytes(json.dumps({**header, "traceEvents": list(events)}).encode())


def op(**changes: Any) -> dict[str, Any]:
    """A plain operator with some fields changed; None takes a field away."""
    plain = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": LATE_US, "dur": 5.25}
    return {key: value for key, value in {**plain, **changes}.items() if value is not None}


def kernel(**changes: Any) -> dict[str, Any]:
    """A plain kernel with some fields changed."""
    args = {"device": 0, "stream": 7, "correlation": 3, "External id": 9}
    return {**op(cat="kernel", name="k", pid=0, tid=7), "args": args, **changes}
