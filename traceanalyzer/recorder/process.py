"""The state of the recorded process: its rank, its device, what it compiles and how it ends."""

import os
import sys
import threading

_WORKING_S = 10.0  # for the device to finish at the end of the program


def counted(steps: int) -> str:
    """`1 step`, `2 steps`."""
    return f"{steps} step{'s' * (steps != 1)}"


def rank_and_world() -> tuple[int, int]:
    """As torch.distributed knows them, else as the launcher set them."""
    import torch.distributed as job

    if job.is_available() and job.is_initialized():
        return job.get_rank(), job.get_world_size()
    try:
        return int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
    except ValueError:
        return 0, 1


def capturing() -> bool:
    """Whether a CUDA graph is being captured: nothing may be waited for then, and no step takes place."""
    import torch

    return torch.cuda.is_initialized() and bool(torch.cuda.is_current_stream_capturing())


def compilations() -> int:
    """Frames that torch.compile has compiled so far."""
    module = sys.modules.get("torch._dynamo.utils")
    counters = getattr(module, "counters", None)
    return int(counters["frames"]["total"]) if counters and "frames" in counters else 0


def error_name() -> str | None:
    """Name of the exception that ends this process; None where none does."""
    return getattr(getattr(sys, "last_type", None), "__name__", None)


def device_works() -> bool:
    """Whether the device finishes its work: after a failed assertion it fails, after a lost rank it may wait."""
    import torch

    if not torch.cuda.is_initialized():
        return True
    works: list[bool] = []
    device = torch.cuda.current_device()

    def wait() -> None:
        try:
            torch.cuda.synchronize(device)
        except Exception:
            return
        works.append(True)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(_WORKING_S)
    return bool(works)
