"""Steps of inference servers, as vLLM and SGLang mark them: what kind of step, and how many requests."""

from __future__ import annotations

import re
from dataclasses import dataclass

# vLLM: execute_context_2(6144)_generation_3(3), execute_32_context_0(..)_generation_32(..): requests in either phase.
_EXECUTE = re.compile(r"^execute_(?:\d+_)?context_(?P<prefill>\d+).*?_generation_(?P<decode>\d+)")
# SGLang: step[DECODE bs=64 ..], step[EXTEND bs=2 toks=4096]; also prefill[bs=2 ..], decode[bs=117/128 ..] of 128 slots.
_STEP = re.compile(
    r"^(?:step\[\s*(?P<mode>\w+)|(?P<phase>prefill|decode)\[)(?:.*?\bbs=(?P<batch>\d+))?", re.IGNORECASE
)
_PHASES = {"extend": "prefill", "decode": "decode", "prefill": "prefill", "mixed": "mixed"}


@dataclass(frozen=True, slots=True, order=True)
class ServingStep:
    """Phase ("prefill", "decode", "mixed", or the server's own word) and requests in the batch, None if not said."""

    phase: str
    batch: int | None

    @classmethod
    def parsed(cls, name: str) -> ServingStep | None:
        """From the mark's name; None where it is no server's."""
        executed = _EXECUTE.match(name)
        if executed:
            prefill, decode = int(executed["prefill"]), int(executed["decode"])
            phase = "mixed" if prefill and decode else "prefill" if prefill else "decode"
            return cls(phase, prefill + decode)
        step = _STEP.match(name)
        if not step:
            return None
        word = (step["mode"] or step["phase"]).lower()
        return cls(_PHASES.get(word, word), int(step["batch"]) if step["batch"] else None)
