"""The checks of anomaly mode, which nodes of backward hold beside the gradients that they compute."""

from __future__ import annotations

from traceanalyzer.model.short_names import ENGINE
from traceanalyzer.rule.recomputed_ops import right_in
from traceanalyzer.rule.views import Calls

_EVALUATION = f"^{ENGINE}"
_CHECKS = ("aten::ne", "aten::isnan", "aten::any", "aten::_is_any_true", "aten::item", "aten::is_nonzero")
_ASKS = ("aten::item", "aten::is_nonzero")
_NOTHING_TO_CHECK = r"AccumulateGrad|View|Expand|Transpose|Permute|^.*: T+Backward"


def gradient_checks(calls: Calls) -> tuple[Calls, int, float]:
    """(checks for NaN right in the engine's nodes, how many ask for the answer, the same for each node to check)."""
    name = calls.name
    nodes = name.matches(_EVALUATION)
    checks = calls[calls.is_op & name.one_of(*_CHECKS) & right_in(calls, nodes)]
    asks = int(checks.name.one_of(*_ASKS).sum())
    return checks, asks, asks / max(int((nodes & ~name.matches(_NOTHING_TO_CHECK)).sum()), 1)
