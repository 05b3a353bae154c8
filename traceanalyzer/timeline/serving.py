"""What the step marks of serving engines say: phase and batch size."""

from __future__ import annotations

import re

# vLLM: requests in prefill and in decode, as execute_context_2(6144)_generation_3(3) or execute_32_context_0(..)_...
_CONTEXT = re.compile(r"^execute_.*?context_(\d+)\(.*?\)_generation_(\d+)\(")
# vLLM before it counted so: requests that are new, and others, which may still be in prefill: execute_new_2_cached_3
_NEW = re.compile(r"^execute_new_(\d+)_cached_(\d+)$")
# SGLang: step[DECODE bs=64 ..], step[EXTEND bs=2 toks=14721 ..]; ATOM: prefill[..], decode[bs=117/128 ..]
_BRACKETS = re.compile(r"^(?:step\[(\w+)|(prefill|decode)\[)")
_BATCH = re.compile(r"\bbs=(\d+)")
_PHASES = {"extend": "prefill"}


def phase_and_batch(name: str) -> tuple[str | None, int]:
    """("prefill", "decode", "mixed" or what the engine calls it; batch size); None and -1 where the name is silent."""
    cached = _NEW.match(name)
    if cached:
        new, old = int(cached[1]), int(cached[2])
        return "new and cached" if new and old else "new" if new else "cached", new + old
    context = _CONTEXT.match(name)
    if context:
        prefills, decodes = int(context[1]), int(context[2])
        phase = "mixed" if prefills and decodes else "prefill" if prefills else "decode"
        return phase, prefills + decodes
    brackets = _BRACKETS.match(name)
    if not brackets:
        return None, -1
    phase = (brackets[1] or brackets[2]).lower()
    batch = _BATCH.search(name)
    return _PHASES.get(phase, phase), int(batch[1]) if batch else -1
