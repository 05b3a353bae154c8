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
# What extensions call their own kernels: cross_device_reduce_2stage, _mxfp8_all_to_all_expert_major_kernel.
_EXTENSION = re.compile(r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)", re.IGNORECASE)


def collective_of(kernel: str, op: str | None = None) -> str:
    """What is done, in the words of torch.distributed where the op tells: all_to_all, which NCCL does as SendRecv."""
    asked = _OP.search(op or "")
    if asked:
        return asked[1].lower().replace("_", "")
    found = _KERNEL.search(kernel)
    if found:
        return found["what"].lower()
    named = _EXTENSION.search(kernel)
    return named[1].lower().replace("_", "") if named else _plain(kernel)


def _plain(kernel: str) -> str:
    """The last part of a C++ name, without types and arguments."""
    return kernel.removeprefix("void ").partition("(")[0].partition("<")[0].rpartition("::")[2][:40]
