"""The command line: arguments, files and exit codes."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capture.device import NO_GPU_NOTE, choose_device, describe_environment
from capture.errors import CaptureError
from capture.output import Output
from capture.session import Recording, Session, Switches
from capture.workload import Plan, Window, Workload, discover

EXAMPLES = """\
examples:
  python -m capture --list
  python -m capture matmul --size 4096 --out traces
  python -m capture matmul --cold --wait 0 --warmup 0 --active 10 --out traces
  python -m capture training --model cnn --memory --stacks --out traces
  python -m capture long_device_sync --variant bad --out traces
  python -m capture WORKLOAD --help

exit codes: 0 recorded, 2 could not run
"""
# Where the files go and how loudly: no part of what was recorded.
NOT_RECORDED = frozenset({"workload", "out", "name", "force", "debug", "list"})


def build_parser(workloads: dict[str, Workload]) -> argparse.ArgumentParser:
    """One subcommand per workload; a name may be written with dashes or underscores."""
    parser = argparse.ArgumentParser(
        prog="python -m capture",
        description="Record a trace with torch.profiler: on a GPU, or on the CPU without a GPU lane.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="list the workloads and their variants")
    commands = parser.add_subparsers(dest="workload", metavar="WORKLOAD")
    for workload in workloads.values():
        command = commands.add_parser(
            workload.name,
            aliases=[workload.dashed] if workload.dashed != workload.name else [],
            help=workload.summary,
            description=workload.summary,
            epilog="\n".join(["examples:", *(f"  python -m capture {e}" for e in workload.examples)]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        _add_arguments(command, workload)
    return parser


def _add_arguments(parser: argparse.ArgumentParser, workload: Workload) -> None:
    if workload.variants:
        parser.add_argument(
            "--variant", choices=workload.variants, default=workload.variants[0], help="default: %(default)s"
        )
    own = parser.add_argument_group("workload")
    workload.add_options(own)  # type: ignore[arg-type]  # a group adds arguments as a parser does
    files = parser.add_argument_group("files")
    files.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
    files.add_argument("--name", help="name of the files (default: the workload and its variant)")
    files.add_argument("--no-table", action="store_true", help="write the trace and its meta.json only")
    files.add_argument("--force", action="store_true", help="overwrite files that exist")
    window = parser.add_argument_group("window (defaults: the workload's)")
    window.add_argument("--wait", type=int, metavar="N", help="steps without the profiler")
    window.add_argument("--warmup", type=int, metavar="N", help="steps that the profiler runs and drops")
    window.add_argument("--active", type=int, metavar="N", help="steps that it keeps")
    window.add_argument("--no-schedule", action="store_true", help="no steps: profile the active ones as one")
    window.add_argument("--warm-steps", type=int, metavar="N", help="steps before the profiler; 0 is cold")
    window.add_argument("--timed-steps", type=int, default=10, metavar="N", help="per unprofiled repeat (10)")
    window.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="default: auto")
    window.add_argument("--seed", type=int, default=0, help="for torch.manual_seed (0)")
    window.add_argument("--debug", action="store_true", help="show the traceback when the workload fails")
    switches = parser.add_argument_group("what the profiler records beside times")
    for name, text in (
        ("memory", "allocations"),
        ("shapes", "shapes of inputs"),
        ("stacks", "Python call stacks"),
        ("flops", "estimated floating-point operations"),
        ("modules", "module hierarchy (TorchScript)"),
    ):
        switches.add_argument(f"--{name}", action="store_true", help=text)


def describe_workloads(workloads: dict[str, Workload]) -> str:
    """The text of `--list`."""
    lines = []
    for workload in workloads.values():
        variants = f" [{'|'.join(workload.variants)}]" if workload.variants else ""
        lines += [f"{workload.name}{variants}", f"    {workload.summary}"]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when everything was written, 2 when not."""
    workloads = discover()
    parser = build_parser(workloads)
    args = parser.parse_args(argv)
    if args.list:
        print(describe_workloads(workloads))
        return 0
    if args.workload is None:
        parser.error("which workload? See --list")
    try:
        run(workloads[args.workload.replace("-", "_")], args)
    except CaptureError as error:
        return _fail(str(error))
    except RuntimeError as error:  # torch's own errors: out of memory, no kernel for this GPU, ...
        if args.debug:
            raise
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        return _fail(f"{args.workload} failed: {first} (--debug shows where)")
    except KeyboardInterrupt:
        return _fail("interrupted; nothing was written")
    return 0


def _fail(message: str) -> int:
    print(f"capture: error: {message}", file=sys.stderr)
    return 2


def run(workload: Workload, args: argparse.Namespace) -> list[Path]:
    """Record one workload and say what was written."""
    variant = getattr(args, "variant", None)
    name = args.name or ".".join(filter(None, (workload.name, variant)))
    output = Output(args.out, name, with_table=not args.no_table)
    output.refuse_overwrite(args.force)
    device = choose_device(args.device)
    import torch

    torch.manual_seed(args.seed)
    plan = _with_overrides(workload.build(args, device), args)
    session = Session(
        device=device,
        window=plan.window,
        switches=Switches(args.memory, args.shapes, args.stacks, args.flops, args.modules),
        scheduled=not args.no_schedule,
        timed_steps=max(1, args.timed_steps),
    )
    recording = session.record(plan)
    notes = [] if device.is_gpu else [NO_GPU_NOTE]
    paths = output.write(recording, _meta(workload, args, session, plan, recording, notes))
    for line in notes:
        print(line)
    for path in paths:
        print(f"wrote {path} ({path.stat().st_size:,} bytes)")
    return paths


def _with_overrides(plan: Plan, args: argparse.Namespace) -> Plan:
    """The plan with --wait, --warmup, --active and --warm-steps in place of its own."""
    window = Window(
        plan.window.wait if args.wait is None else args.wait,
        plan.window.warmup if args.warmup is None else args.warmup,
        plan.window.active if args.active is None else args.active,
    ).check()
    warm_steps = plan.warm_steps if args.warm_steps is None else max(0, args.warm_steps)
    return dataclasses.replace(plan, window=window, warm_steps=warm_steps)


def _meta(
    workload: Workload, args: argparse.Namespace, session: Session, plan: Plan, recording: Recording, notes: list[str]
) -> dict[str, Any]:
    """What `.meta.json` says; times in ms per step, three repeats, sorted."""
    window = session.window
    return {
        "workload": workload.name,
        "variant": getattr(args, "variant", None),
        "env": describe_environment(session.device),
        "device": session.device.kind,
        "arguments": {key: value for key, value in sorted(vars(args).items()) if key not in NOT_RECORDED},
        "window": {"wait": window.wait, "warmup": window.warmup, "active": window.active},
        "scheduled": session.scheduled,
        "warm_steps": plan.warm_steps,
        "unprofiled_step_ms": recording.unprofiled_step_ms,
        "unprofiled_timed": recording.timed,
        "notes": notes,
    }
