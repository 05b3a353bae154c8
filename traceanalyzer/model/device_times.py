"""Where the time of a device, and of a step's code, went: classes of time, causes of idle time, regions."""

from collections.abc import Mapping
from dataclasses import dataclass

IDLE = "idle"  # class of time; its causes are `idle:<cause>`


@dataclass(frozen=True, slots=True)
class DeviceBusy:
    """How long anything ran on a device within the window, and its share of the window (0 to 1)."""

    device: int
    busy_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class IdleCause:
    """Idle time of one cause and op, None where there is none to name.

    Of launching, queued launches, synchronisation and blocking copies it is the outermost op, which the user called.
    """

    cause: str
    op: str | None
    ns: int


@dataclass(frozen=True, slots=True)
class DeviceTime:
    """Where one device's window went: every ns in one class.

    Attributes:
        parts_ns: class -> ns, idle time as `idle:<cause>`; they sum to the window.
        idle_causes: idle time by cause and op, largest first.
    """

    device: int
    start_ns: int
    end_ns: int
    parts_ns: Mapping[str, int]
    idle_causes: tuple[IdleCause, ...] = ()

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def idle_ns(self) -> Mapping[str, int]:
        """Cause -> ns, without the `idle:` before it."""
        parts = ((name.partition(":"), ns) for name, ns in self.parts_ns.items())
        return {cause: ns for (kind, colon, cause), ns in parts if kind == IDLE and colon}

    @property
    def classes_ns(self) -> Mapping[str, int]:
        """Class -> ns, all idle time as one class, the last."""
        busy = {name: ns for name, ns in self.parts_ns.items() if name.partition(":")[0] != IDLE}
        return busy | {IDLE: sum(self.parts_ns.values()) - sum(busy.values())}


@dataclass(frozen=True, slots=True)
class RegionCost:
    """One line of the tree of regions, costs per step with all below it.

    Attributes:
        share: of the predicted step (0 to 1), the CPU's time.
        cpu_ns, gpu_ns, idle_ns: CPU time without the profiler, work of the GPU, time in which the GPU waits for it.
        calls: per step; 0 where they are not counted.
    """

    name: str
    level: int
    share: float
    cpu_ns: int
    gpu_ns: int
    idle_ns: int
    calls: float
