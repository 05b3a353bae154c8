"""Collectives as NCCL and RCCL name them in kernels, and as torch names them in ops."""

from __future__ import annotations

import re

_KERNEL = re.compile(
    r"(?:nccl|rccl)\w*?(?P<what>AllReduce|AllGather|ReduceScatter|SendRecv|Broadcast|AllToAll|Reduce)(?:_\w+?)?_?"
    r"(?P<type>bf16|f16|f32|f64|half|float|double|u?int8_t|i8|u8|int32_t|i32|u32|i64|u64)?\b",
    re.IGNORECASE,
)
_OP = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|send|recv|barrier)", re.IGNORECASE
)


def collective_of(kernel: str, op: str | None = None) -> str:
    """What is done, in the words of torch.distributed where the op tells: all_to_all, which NCCL does as SendRecv."""
    asked = _OP.search(op or "")
    if asked:
        return asked[1].lower().replace("_", "")
    found = _KERNEL.search(kernel)
    return found["what"].lower() if found else kernel.split("(")[0][:40]
