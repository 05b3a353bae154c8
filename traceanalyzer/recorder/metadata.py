"""What a recording says of its program: versions, command, commit, and the environment that matters, never secrets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

ENVIRONMENT = (
    *("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS"),
    *("HIP_VISIBLE_DEVICES", "HIP_LAUNCH_BLOCKING", "OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG"),
    *("TORCH_NCCL_BLOCKING_WAIT", "NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_NVLS_ENABLE"),
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
)
"""The only variables that are read: switches that change how fast a program runs. None can hold a secret."""

_SECRET = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_HIDDEN = "***"


def described() -> dict[str, Any]:
    """Versions, command, commit and environment of this process. The values are texts, or None where unknown."""
    import torch

    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": sys.version.split()[0],
        "command": without_secrets(sys.argv),
        "commit": _commit(),
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }


def without_secrets(command: list[str]) -> list[str]:
    """The command with logins of addresses hidden, and values of options whose names speak of keys or passwords."""
    shown, hide = [], False
    for word in (_LOGIN.sub(f"{_HIDDEN}@", word) for word in command):
        option, equals, _ = word.partition("=")
        secret = bool(_SECRET.search(option)) and (word.startswith("-") or bool(equals))
        shown.append(
            _HIDDEN
            if hide and not word.startswith("-")
            else f"{option}={_HIDDEN}"
            if secret and equals
            else word
        )
        hide = secret and not equals
    return shown


def _commit() -> str | None:
    """The git commit of the folder that the program runs in, with `+` where files were changed."""
    try:
        commit = _git("rev-parse", "HEAD")
        return f"{commit}+" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    told = subprocess.run(["git", *words], capture_output=True, text=True, check=True, timeout=5)
    return told.stdout.strip()
