"""Classes of time and causes of idle time as people say them."""

from __future__ import annotations

_WORDS = {
    "copy_h2d": "copy to the device",
    "copy_d2h": "copy to the host",
    "copy_d2d": "copy on the device",
    "copy_p2p": "copy between devices",
    "copy_other": "other copies",
    "dispatching": "launch-bound",
    "in-graph": "inside a CUDA graph",
    "tail": "after the last launch",
}
_PREFIX = "idle:"


def in_words(name: str) -> str:
    """`idle:host-code` as `host code`, `copy_h2d` as `copy to the device`."""
    name = name.removeprefix(_PREFIX)
    return _WORDS.get(name, name.replace("_", " ").replace("-", " ").replace(":", ": "))
