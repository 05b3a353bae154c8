"""What a workload is, and how the modules in `capture/workloads` are found."""

from __future__ import annotations

import importlib
import pkgutil
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from capture.device import Device
from capture.errors import CaptureError


@dataclass(frozen=True, slots=True)
class Window:
    """How many steps the profiler skips, runs without keeping, and keeps."""

    wait: int = 1
    warmup: int = 2
    active: int = 4

    @property
    def steps(self) -> int:
        """All steps that run under the profiler's schedule."""
        return self.wait + self.warmup + self.active

    def check(self) -> Window:
        """The window itself, or an error where no step would be kept."""
        if self.active < 1 or self.wait < 0 or self.warmup < 0:
            raise CaptureError("--active must be at least 1, --wait and --warmup at least 0")
        return self


@dataclass(frozen=True, slots=True)
class Plan:
    """A workload made ready: call `step` as often as you like.

    `warm_steps` and `warm_seconds` are the least that runs before the profiler starts (the
    seconds on a GPU only, so that its clocks have settled); a cold plan has 0 steps.
    `company` is entered around everything that is timed: another process, say.
    `arm` is called once with the window, right before the profiler starts: for what happens at one step.
    """

    step: Callable[[], object]
    window: Window = field(default_factory=Window)
    warm_steps: int = 20
    warm_seconds: float = 0.5
    company: Callable[[], AbstractContextManager[object]] = nullcontext
    arm: Callable[[Window], object] = lambda window: None


def no_options(parser: ArgumentParser) -> None:
    """For workloads without options of their own."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One module in `capture/workloads`: its name, its variants and how to make it ready.

    `shows` says, per variant, what its fixture holds; a variant without a line has no fixture.
    `tabled` names the variants whose fixture keeps the tables of `key_averages()` beside it.
    `switches` are those of the command line with which its fixtures are recorded, such as shapes.
    """

    name: str
    summary: str
    build: Callable[[Namespace, Device], Plan]
    variants: tuple[str, ...] = ()
    add_options: Callable[[ArgumentParser], None] = no_options
    examples: tuple[str, ...] = ()
    shows: Mapping[str, str] = field(default_factory=dict)
    tabled: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()

    @property
    def dashed(self) -> str:
        """The name as the rule's slug and the fixture's folder have it."""
        return self.name.replace("_", "-")


def pair(
    name: str,
    summary: str,
    make: Callable[[Device, bool], Callable[[], object]],
    *,
    bad: str,
    good: str,
    switches: tuple[str, ...] = ("shapes",),
    **window: Any,
) -> Workload:
    """A workload with the variants bad and good, which differ in one thing.

    Args:
        make: given the device and whether it is the bad one, makes the step.
        bad, good: what each fixture shows.
        window: fields of `Plan` and of `Window` that differ from their defaults.
    """
    sizes = {key: window.pop(key) for key in ("wait", "warmup", "active") if key in window}

    def build(args: Namespace, device: Device) -> Plan:
        return Plan(make(device, args.variant == "bad"), Window(**sizes), **window)

    shows = {"bad": bad, "good": good}
    examples = (f"{name} --variant bad --out traces",)
    return Workload(name, summary, build, ("bad", "good"), shows=shows, examples=examples, switches=switches)


def discover() -> dict[str, Workload]:
    """All workloads by name, sorted; a new module needs no entry in any list."""
    package = importlib.import_module("capture.workloads")
    found: dict[str, Workload] = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        one = getattr(module, "WORKLOAD", None)
        several = getattr(module, "WORKLOADS", ())
        found |= {w.name: w for w in (one, *several) if isinstance(w, Workload)}
    return dict(sorted(found.items()))
