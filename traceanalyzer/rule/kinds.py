"""What the findings of a rule are, for whoever ranks and sums them up."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """What the findings of a rule are, for whoever ranks and sums them up."""

    FAULT = "fault"
    FACT = "fact"  # worth knowing, and no fault: where the time goes
    QUESTION = (
        "question"  # a fault or not: only whoever wrote the program can look; `gpu_share` in its evidence
    )
    CHOICE = "choice"  # costs time for another gain, such as memory
    ONCE = "once"  # paid once, when the program starts: no step without it is in the trace
    REMAINDER = "remainder"  # time that no other rule claims
