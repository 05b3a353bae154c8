"""Collectives on the CPU while the GPU waits."""

from collections.abc import Iterator

import numpy as np

from traceanalyzer.model.arrays import distinct
from traceanalyzer.model.units import format_bytes
from traceanalyzer.rule import Calls, Claims, Hits, IdleTime, LostTime, Work, rule
from traceanalyzer.timeline.names import HOST_COLLECTIVE

_COPIED = (
    "Use NCCL, with one GPU for each rank: init_process_group('nccl'). Gloo copies each tensor to the "
    "host, reduces it there and copies it back."
)
_ON_HOST = (
    "Keep these tensors on the GPU and use NCCL for them: init_process_group('cpu:gloo,cuda:nccl'). Or call it in "
    "fewer steps, or with async_op=True and wait() where the result is needed."
)
# Ops that copy a tensor to the host for a collective.
_CALL = "^c10d::"


@rule(since="0.2", claims=Claims.EVENT)
def host_collectives(calls: Calls, work: Work, idle: IdleTime) -> Iterator[Hits]:
    """The CPU carries out a collective, and the GPU waits.

    What it looks for: idle time of the GPU during a Gloo collective. torch.distributed marks these
    collectives with annotations such as gloo:all_reduce.
    Why it costs: Gloo copies each tensor to the host, reduces it there, and copies it back. Gloo reaches a
    few GB/s; NCCL over NVLink reaches hundreds of GB/s.
    Bad: init_process_group("gloo") for gradients on the GPU. Good: init_process_group("nccl").
    How sure: the GPU's idle time is measured. The time of NCCL depends on the links, so no saving is predicted.
    When it is wrong: several ranks share one GPU. NCCL needs one GPU for each rank.
    Source: PyTorch's distributed documentation, "Which backend to use?"; measured with torch 2.11 and two
    ranks: Gloo took 48 ms of a step of 55 ms.
    """
    waited = idle.charged_to("host-collective")
    every = calls[calls.name.matches(HOST_COLLECTIVE.pattern) & ~calls.is_call]
    every = every[np.argsort(every.start_ns, kind="stable")]
    # They overlap on several threads: a moment of idle time is the last one's that began before it.
    owner = np.searchsorted(every.start_ns, waited.start_ns, side="right") - 1
    asked = calls[calls.name.matches(_CALL)]
    to_host = work.of_kind("copy_d2h")
    for name, collectives in every.by(every.name):
        named = every.name.one_of(name)
        members = (owner >= 0) & named[owner]
        called = asked[asked.name.matches(_CALL + name.partition(":")[2].replace("_", "_?"))]
        copied = int(to_host.bytes[to_host.launch.index_of_enclosing(called) >= 0].sum())
        steps = len(distinct(collectives.step))
        size = format_bytes(copied // steps)
        what = f"with {size} copied to the host and back" if copied else "of tensors on the CPU"
        yield Hits(
            occurrences=every[named],
            named_by=name,
            lost=LostTime.all_of(waited[members], (np.cumsum(named) - 1)[owner[members]]),
            message=f"{len(collectives) / steps:.3g} {{by}} a step run on the CPU, {what}: "
            "the GPU is idle for {per_step} of each step meanwhile",
            advice=_COPIED if copied else _ON_HOST,
            evidence={"collective_ns": int(collectives.dur_ns.sum()), "copied_bytes": copied},
        )
