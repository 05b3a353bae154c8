"""How the C library's allocator treats large blocks, for a process that does nothing but analyse."""

from __future__ import annotations

import ctypes

# glibc's own names, from malloc.h, and the largest block that it will keep.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_KEPT_BYTES = 32 << 20
_KEPT_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Let freed columns be used again instead of being given back and fetched anew; whether that could be set.

    By default glibc maps every large block afresh, and the kernel then clears each of its pages at first touch.
    Indexes are a sequence of short-lived columns of some megabytes: where page faults are slow, as in virtual
    machines, half of their time went there. For commands only: a library leaves its caller's allocator alone.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # Windows has no CDLL(None), macOS and musl have no mallopt
        return False
    kept = mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
    return bool(kept and mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES))
