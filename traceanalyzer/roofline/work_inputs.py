"""The op and inputs that each piece of GPU work was launched by, asked once per distinct op and inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from traceanalyzer.model.arrays import Mask, Rows
from traceanalyzer.model.trace import Trace
from traceanalyzer.roofline.indexed import Indexed
from traceanalyzer.tensors.signatures import Signature, signatures_of
from traceanalyzer.timeline.device_work import DeviceWork


@dataclass(frozen=True, slots=True, eq=False)
class WorkInputs:
    """Signatures of the ops around launches.

    Attributes:
        number: int64 (work,), position in `signatures` of each entry of `DeviceWork`.
        indexed: what calls of each signature index, by the grids of their kernels.
        signatures: the distinct ops with their inputs; one without a name stands for no op.
    """

    number: Rows
    signatures: list[Signature]
    indexed: Indexed

    @classmethod
    def build(cls, trace: Trace, work: DeviceWork) -> Self:
        number, signatures = signatures_of(trace, work.op)
        return cls(number, signatures, Indexed.of(trace, work.row, number, len(signatures)))

    def meets(self, wanted: Callable[[Signature], object]) -> Mask:
        """Which entries of `DeviceWork` were launched by such an op; bool (work,)."""
        return np.array([bool(wanted(one)) for one in self.signatures], bool)[self.number]
