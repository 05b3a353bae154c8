"""What process groups are for, where their description, their kernels or the ops that call them show it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traceanalyzer.job.runs import CollectiveRuns, is_pair
from traceanalyzer.model.arrays import Rows, pick
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import Trace
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.nesting import Nesting

_DESCRIBED = (
    ("tensor", r"(?i)(?:^|[^a-z])(?:tp|tensor)(?:[^a-z]|$)|tensor_(?:model_)?parallel"),
    ("pipeline", r"(?i)(?:^|[^a-z])(?:pp|pipeline)(?:[^a-z]|$)|pipeline_(?:model_)?parallel"),
    ("data", r"(?i)(?:^|[^a-z])(?:dp|fsdp|ddp|data|hsdp)(?:[^a-z]|$)|data_parallel|dp_(?:shard|replicate)"),
    ("expert", r"(?i)(?:^|[^a-z])(?:ep|expert)(?:[^a-z]|$)|expert_(?:model_)?parallel"),
    ("context", r"(?i)(?:^|[^a-z])(?:cp|context)(?:[^a-z]|$)|context_parallel"),
)
"""What torch's meshes (mesh_tp), Megatron (TENSOR_MODEL_PARALLEL_GROUP) and DeepSpeed call groups; the first counts:
gradients of experts and of ranks that share a context are reduced over DATA_PARALLEL_GROUP_WITH_CP and dp_shard_cp."""
_EXPERTS = frozenset({"dispatch", "combine"})  # DeepEP's
_GRADIENTS = r"AccumulateGrad|FSDP::"  # DistributedDataParallel's hooks, and what FSDP calls its collectives


def roles(trace: Trace, work: DeviceWork, runs: CollectiveRuns, nesting: Nesting) -> NDArray[np.object_]:
    """What each group serves: tensor, pipeline, expert, context or data parallelism, or None; object (runs,)."""
    found = np.full(len(runs), None, object)
    row, op = work.row[runs.entry], work.op[runs.entry]
    described = Texts.column(trace.lanes.gpu, "group_desc", row).or_else(
        Texts.column(trace.lanes.cpu, "group_desc", op)
    )
    around = Texts.column(trace.lanes.cpu, "name", _outermost(nesting, op))
    shown = (
        ("data", around.matches(_GRADIENTS)),
        ("expert", np.isin(runs.what, list(_EXPERTS))),
        ("pipeline", np.array([is_pair(group) for group in runs.group], np.bool_)),
        *((role, described.matches(pattern)) for role, pattern in reversed(_DESCRIBED)),
    )
    for role, chosen in shown:
        found[chosen] = role
    return found


def _outermost(nesting: Nesting, op: Rows) -> Rows:
    """Nearest row around each op that names its caller: its outermost op, or the annotation around that."""
    top = nesting.top_op(op)
    around = pick(nesting.parent, top)
    return np.where((around >= 0) & pick(nesting.annotation, around), around, top)
