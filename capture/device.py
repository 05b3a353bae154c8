"""The device that a workload runs on, and what there is to say about the machine."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from typing import Any, TypeVar

from capture.errors import CaptureError

Value = TypeVar("Value")

NO_GPU_NOTE = "note: recorded on the CPU; the trace has no GPU lane, so it shows nothing of a GPU's idle time"


@dataclass(frozen=True, slots=True)
class Device:
    """Where tensors live: `kind` is "cuda" or "cpu", as torch names it (ROCm is "cuda" too)."""

    kind: str

    @property
    def is_gpu(self) -> bool:
        """Whether the trace will have a GPU lane."""
        return self.kind == "cuda"

    def pick(self, gpu: Value, cpu: Value) -> Value:
        """The first value on a GPU, the second (a size that a CPU finishes soon) on a CPU."""
        return gpu if self.is_gpu else cpu

    def synchronize(self) -> None:
        """Wait until all queued work is done; on a CPU nothing is ever queued."""
        if self.is_gpu:
            import torch

            torch.cuda.synchronize()


def choose_device(wanted: str) -> Device:
    """The device for "auto", "cuda" or "cpu"; asking for a GPU that is not there is an error."""
    try:
        import torch
    except ImportError as error:
        raise CaptureError("torch is not installed: pip install torch (2.4 or later)") from error
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise CaptureError("no GPU: torch.cuda.is_available() is False; use --device cpu")
    return Device("cuda" if available and wanted != "cpu" else "cpu")


def describe_environment(device: Device) -> dict[str, Any]:
    """Versions and the GPU's name, without anything that tells whose machine it is."""
    import torch

    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cuda": None,
        "gpu": None,
        "sms": None,
        "driver": None,
    }
    if device.is_gpu:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        facts["cuda"] = torch.version.cuda or torch.version.hip
        facts["gpu"] = properties.name
        facts["sms"] = properties.multi_processor_count
        facts["driver"] = _driver_version()
    return facts


def _driver_version() -> str | None:
    """The NVIDIA driver's version, or None where nvidia-smi does not answer."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = answer.stdout.split()
    return lines[0] if lines else None
