"""torch.amp.GradScaler on devices that have bfloat16."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import distinct, pick
from traceanalyzer.model.trace import Trace
from traceanalyzer.replay.edits import Drop
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, rule


class Limits:
    max_ops_before: int = 12
    """GradScaler first computes the reciprocal of its scale and then checks the gradients; the rule connects
    the two if at most this many ops are between them; with one device there are 6 ops, with each further
    device two more; torch 2.11"""


_CHECKS, _UPDATES = r"^aten::_amp_foreach_non_finite_check_and_unscale_$", r"^aten::_amp_update_scale_$"
# Compute capability of the NVIDIA A100.
_FIRST_WITH_BF16 = (8, 0)


@rule(since="0.1", claims=Claims.PATTERN, min_share=0.01, limits=Limits)
def gradient_scaling(trace: Trace, calls: Calls, idle: IdleTime, limits: Limits) -> Iterator[Hits]:
    """GradScaler unscales and checks every gradient.

    What it looks for: the op that unscales gradients and looks for overflows, and the op that updates the
    scale. The small ops of GradScaler right before unscaling count, too.
    Why it costs: GradScaler passes over all gradients once more. The CPU also launches a dozen ops on single numbers.
    Bad: autocast in float16 with GradScaler on a device that has bfloat16. Good:
    autocast(dtype=torch.bfloat16) without a scaler. bfloat16 has the range of float32.
    How sure: only GradScaler runs these ops. A fused optimizer unscales gradients itself; this is not part of the cost.
    When it is wrong: the model needs the precision of float16, which is higher than that of bfloat16. GPUs
    older than the A100 have no bfloat16 units. On these GPUs the severity is info.
    Source: PyTorch's documentation of torch.amp, "Gradient Scaling"; measured on an H200 with torch 2.11: a
    step was 11 % shorter in bfloat16.
    """
    checks, updates = calls[calls.name.matches(_CHECKS)], calls[calls.name.matches(_UPDATES)]
    if len(checks) == 0:
        return
    checks = checks[np.argsort(checks.start_ns, kind="stable")]
    outer = calls[calls.is_top_op]
    outer = outer[np.argsort(outer.start_ns, kind="stable")]
    # Right before a check a few ops convert the scale and invert it.
    inverse = np.append(-1, np.flatnonzero(outer.name.one_of("aten::reciprocal")))
    place = np.searchsorted(outer.start_ns, checks.start_ns)
    last = inverse[np.searchsorted(inverse, place) - 1]
    near = (last > 0) & (place - last <= limits.max_ops_before)
    start = np.where(near, outer.start_ns[np.maximum(last - 1, 0)], checks.start_ns)
    check = np.searchsorted(start, outer.start_ns, side="right") - 1
    scaling = outer[outer.start_ns < pick(checks.end_ns, check, 0)]
    launched, owner = checks.launched()
    capabilities = [device.compute_capability for device in trace.meta.devices]
    yield Hits(
        occurrences=checks,
        named_by="GradScaler",
        lost=LostTime.joined([LostTime.all_of(launched, owner), LostTime.idle_within(idle, start, checks.end_ns)]),
        fix=Drop(distinct(np.append(scaling.rows, updates.rows))),
        message="{by} unscales and checks the gradients {times_a_step}: this takes {kernels_a_step} in "
        "kernels, and {total_of_step} with the idle time while the CPU computes the scale",
        advice="Train in bfloat16 (autocast(dtype=torch.bfloat16)): it has float32's range and needs no scaler.",
        evidence={"kernels_ns": launched.total_ns},
        info=any(capability is not None and capability < _FIRST_WITH_BF16 for capability in capabilities),
    )
