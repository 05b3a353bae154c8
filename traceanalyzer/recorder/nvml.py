"""What the driver says of one GPU: busy share, clocks, reasons for lower clocks, processes. Needs libnvidia-ml."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_PROCESSES = 64  # asked for; more on one GPU are cut
_THROTTLING = {  # bits of nvmlDeviceGetCurrentClocksEventReasons that mean less than the usual speed
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_SM, _LATEST = 1, 0


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong)]
    _fields_ += [(name, ctypes.c_uint) for name in ("instance", "compute_instance")]


class _Use(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("at_us", ctypes.c_ulonglong)]
    _fields_ += [(name, ctypes.c_uint) for name in ("sm", "memory", "encoder", "decoder")]


class Gpu:
    """One GPU of this process, by its UUID. Raises OSError: there is no NVML, or it does not know the GPU."""

    def __init__(self, uuid: str) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._call("nvmlInit_v2")
        self._handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self._handle))

    @staticmethod
    def current() -> Gpu | None:
        """The current CUDA device; None where the driver cannot be asked for it."""
        import torch

        if not torch.cuda.is_initialized() or torch.version.cuda is None:
            return None
        try:
            uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
            return Gpu(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        except (AttributeError, OSError, RuntimeError):
            return None

    def sample(self) -> dict[str, Any]:
        """Now: `busy_percent` of the driver's last sample period, `sm_mhz`, and the `slower` bits of clock reasons."""
        usage, clock, reasons = _Utilization(), ctypes.c_uint(), ctypes.c_ulonglong()
        self._call("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(usage))
        self._call("nvmlDeviceGetClock", self._handle, _SM, _LATEST, ctypes.byref(clock))
        self._call("nvmlDeviceGetCurrentClocksThrottleReasons", self._handle, ctypes.byref(reasons))
        return {"busy_percent": usage.gpu, "sm_mhz": clock.value, "slower": reasons.value}

    def processes(self) -> list[dict[str, int]]:
        """`pid` and `bytes` of all processes that compute on the GPU, as the driver's host numbers them."""
        count = ctypes.c_uint(_PROCESSES)
        entries = (_Process * _PROCESSES)()
        pointers = ctypes.byref(count), ctypes.byref(entries)
        self._call("nvmlDeviceGetComputeRunningProcesses_v3", self._handle, *pointers)
        return [{"pid": entry.pid, "bytes": entry.bytes} for entry in entries[: count.value]]

    def sm_percent(self, since_us: int) -> dict[int, float]:
        """Mean use of the SMs by each process since `since_us` of the epoch, in percent. Empty where unsupported."""
        count = ctypes.c_uint(_PROCESSES)
        entries = (_Use * _PROCESSES)()
        try:
            pointers = ctypes.byref(entries), ctypes.byref(count)
            since = ctypes.c_ulonglong(since_us)
            self._call("nvmlDeviceGetProcessUtilization", self._handle, *pointers, since)
        except OSError:
            return {}
        samples: dict[int, list[int]] = {}
        for entry in entries[: min(count.value, _PROCESSES)]:
            if entry.at_us > since_us and entry.sm <= 100:
                samples.setdefault(entry.pid, []).append(entry.sm)
        return {pid: sum(values) / len(values) for pid, values in samples.items()}

    def close(self) -> None:
        self._library.nvmlShutdown()

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        code = function(*arguments) if function is not None else -1
        if code:
            raise OSError(f"{name}: {code}")


def reasons_of(bits: int) -> list[str]:
    return [text for bit, text in _THROTTLING.items() if bits & bit]


def others(processes: list[dict[str, int]], root: int) -> list[dict[str, int]]:
    """Processes that do not descend from process `root`.

    In a container the driver may number processes differently. The largest is taken for this one then.
    """
    if any(entry["pid"] == os.getpid() for entry in processes):
        return [entry for entry in processes if not _descends(entry["pid"], root)]
    return sorted(processes, key=lambda entry: entry["bytes"])[: max(len(processes) - 1, 0)]


def _descends(pid: int, root: int) -> bool:
    """Whether `root` is the process or one of its ancestors."""
    seen = 0
    while pid > 1 and seen < _PROCESSES:
        if pid in (root, os.getpid()):
            return True
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
                pid = int(stream.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            return False
        seen += 1
    return False
