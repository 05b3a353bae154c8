"""Files of the user's cache: nobody else reads them, and what somebody else may have written is not read."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def make_private(folder: Path) -> bool:
    """Create the folder for the user alone; whether it is the user's own, and no link to another one.

    Raises OSError: the operating system refuses.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or not _is_own(state):
        return False
    if stat.S_IMODE(state.st_mode) & ~0o700:
        folder.chmod(0o700)
    return not state.st_mode & _WRITABLE_BY_OTHERS


def open_private(path: Path) -> BinaryIO | None:
    """The file to read; None if it is absent, or another user owns it, may write it, or owns its folder."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_LINK)
    except OSError:
        return None
    file = os.fdopen(descriptor, "rb")
    states = os.fstat(descriptor), path.parent.lstat()
    if all(_is_own(state) and not state.st_mode & _WRITABLE_BY_OTHERS for state in states):
        return file
    file.close()
    return None


def create_private(path: Path, *, append: bool = False) -> BinaryIO:
    """The file to write, readable by the user alone.

    Raises OSError: it exists and `append` is not given, or the operating system refuses.
    """
    flags = os.O_WRONLY | os.O_CREAT | _NO_LINK | (os.O_APPEND if append else os.O_EXCL)
    return os.fdopen(os.open(path, flags, 0o600), "ab" if append else "wb")


def _is_own(state: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or state.st_uid == os.getuid()
