"""What a recording says of its program: versions, command, commit, and the environment that matters, never secrets."""

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

_HIDDEN = "***"
_NAMES = {  # words of an option whose value is a secret
    *("key", "apikey", "token", "secret", "password", "passwd", "passphrase", "pwd", "pass", "credential"),
    *("credentials", "auth", "authorization", "bearer", "pat", "cookie"),
}
_HARMLESS = {
    *("max", "min", "num", "n", "new", "value", "head", "heads", "length", "count", "size", "id", "per"),
    "ids",
}
"""Words beside `key` and `token` that speak of lengths and of attention: --max-tokens, --num-key-value-heads."""
_VALUES = re.compile(
    r"hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}|sk-[\w-]{4,}|xox[abprs]-[\w-]{8,}"
    r"|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|-----BEGIN [A-Z ]+-----.*"
    r"|(?<=://)[^/@\s]+(?=@)"  # the login of an address
    r"|(?<=[Bb]earer )\S+|(?<=[Bb]asic )\S+",
    re.DOTALL,
)
_PARAMETER = re.compile(r"([?&;])([^=&#\s]+)=([^&#\s]+)")
_SIGNED = re.compile(r"sig|signature|credential|security|expires|policy|x-amz|x-goog", re.IGNORECASE)
_FIELD = re.compile(r"""(["']?)([\w.-]+)\1(\s*[:=]\s*)("[^"]*"|'[^']*'|[^\s,;}&"']+)""")


def described() -> dict[str, Any]:
    """Versions, command, commit and environment of this process. The values are texts, or None where unknown."""
    import torch

    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "gpu": _gpu(),
        "python": sys.version.split()[0],
        "command": without_secrets(sys.argv),
        "commit": _commit(),
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }


def _gpu() -> str | None:
    """Name of the current GPU; None without one, or where it has failed."""
    import torch

    try:
        return torch.cuda.get_device_name() if torch.cuda.is_available() else None
    except RuntimeError:
        return None


def without_secrets(command: list[str]) -> list[str]:
    """The command with secrets hidden: values that look like keys, logins and parameters of addresses, and the values
    of options and fields whose names speak of keys, tokens and passwords."""
    shown: list[str] = []
    hide = False
    for word in command:
        option, equals, _ = word.partition("=")
        named = word.startswith("-") and _is_secret(option)
        if hide and not word.startswith("--"):
            shown.append(_HIDDEN)
            hide = False
            continue
        masked = _VALUES.sub(_HIDDEN, _FIELD.sub(_field, _PARAMETER.sub(_parameter, word)))
        shown.append(f"{option}={_HIDDEN}" if named and equals else masked)
        hide = named and not equals and not option.startswith("--no-")
    return shown


def _parameter(match: re.Match[str]) -> str:
    secret = _is_secret(match[2]) or _SIGNED.search(match[2])
    return f"{match[1]}{match[2]}={_HIDDEN}" if secret else match[0]


def _field(match: re.Match[str]) -> str:
    if not _is_secret(match[2]) or match[4].startswith("//") or _HIDDEN in match[4]:
        return match[0]
    if match[2].lower().endswith("authorization"):
        return match[0]  # its scheme stays, and its value is hidden by its form
    quote = match[4][0] if match[4][0] in "\"'" else ""
    return f"{match[1]}{match[2]}{match[1]}{match[3]}{quote}{_HIDDEN}{quote}"


def _is_secret(name: str) -> bool:
    spaced = re.sub(r"([a-z])([A-Z])", r"\1 \2", name)
    words = [word.lower() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word]
    return any(word in _NAMES for word in words) and not any(word in _HARMLESS for word in words)


def _commit() -> str | None:
    """The git commit of the folder that the program runs in, with `+` where files were changed."""
    try:
        commit = _git("rev-parse", "HEAD")
        return f"{commit}+" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True, timeout=5).stdout.strip()
