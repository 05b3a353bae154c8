"""What the diagnosis says of pairs whose truth is measured, and of programs in which little is wrong.

A part of docs/accuracy.md; `python -m benchmarks.accuracy TRACES --write` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.replay_truth import truth_ms
from traceanalyzer import Finding, Report, Severity, diagnose

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
JUDGEMENTS = Path(__file__).resolve().parent.parent / "docs" / "findings.md"
ENDING = ".json.gz"
_CELLS = 5  # of a row of docs/findings.md: trace, finding, worth, verdict, evidence

# Which rules may name the fault of a pair: what is wrong in it is known by construction.
FAULTS: dict[str, tuple[str, ...]] = {
    "pairs/addmm_copy": ("hidden-dtod-copy",),
    "pairs/contended": ("kernel-variance",),
    "pairs/cpu_roundtrip": (
        "host-round-trip",
        "exposed-copy",
        "implicit-sync",
    ),
    "pairs/dataloader": ("dataloader-stall",),
    "pairs/device_sync": ("long-device-sync",),
    "pairs/fp32_gemm": ("no-tensor-cores",),
    "pairs/gc_pause": ("host-gap",),
    "pairs/graph_break": ("compile",),
    "pairs/h2d_in_compute": ("exposed-copy",),
    "pairs/item_sync": ("implicit-sync",),
    "pairs/launch_bound": (
        "launch-bound",
        "repeated-calls",
    ),
    "pairs/low_occupancy": ("low-occupancy",),
    "pairs/malloc_thrash": ("allocator-thrash",),
    "pairs/nchw_conv": ("layout-conversion",),
    "pairs/nonzero": ("implicit-sync",),
    "pairs/optimizer_loop": ("unfused-optimizer",),
    "pairs/pageable_h2d": ("exposed-copy",),
    "pairs/python_between": ("host-gap",),
    "pairs/recompile": ("compile",),
    "pairs/unfused_pointwise": ("unfused-pointwise",),
    "pairs4/amp_scaler": (
        "implicit-sync",
        "gradient-scaling",
    ),
    "pairs4/anomaly_mode": (
        "recomputation",
        "anomaly-mode",
    ),
    "pairs4/checkpointing": ("recomputation",),
    "pairs4/cpu_index": (
        "exposed-copy",
        "implicit-sync",
    ),
    "pairs4/dense_embedding": ("dense-gradient",),
    "pairs4/effnet_nchw": ("layout-conversion",),
    "pairs4/float64_leak": ("float64-math",),
    "pairs4/gpt2_attn_eager": ("hand-written-attention",),
    "pairs4/logits_cpu": (
        "host-round-trip",
        "exposed-copy",
        "implicit-sync",
    ),
    "pairs4/metric_checks": ("implicit-sync",),
    "pairs4/moe_loop": (
        "implicit-sync",
        "repeated-calls",
        "launch-bound",
    ),
    "pairs4/norm_upcast": ("unfused-pointwise",),
    "pairs4/sample_loop": (
        "repeated-calls",
        "launch-bound",
    ),
    "pairs4/small_h2d": (
        "repeated-calls",
        "launch-bound",
    ),
    "pairs4/unbatched_generate": (
        "repeated-calls",
        "launch-bound",
    ),
    "pairs4/zero_grad": (
        "zeroed-gradients",
        "unfused-optimizer",
        "repeated-calls",
    ),
    "third/attention_math": ("hand-written-attention",),
    "third/bert_fp32": ("no-tensor-cores",),
    "third/clip_loop": (
        "implicit-sync",
        "repeated-calls",
    ),
    "third/decode_sync": ("implicit-sync",),
    "third/kv_cat": ("strided-copy",),
    "third/numpy_metric": (
        "host-round-trip",
        "exposed-copy",
        "implicit-sync",
    ),
    "third/print_loss": ("implicit-sync",),
    "third/resnet18": ("dataloader-stall",),
    "third/tiny_batch": (
        "repeated-calls",
        "launch-bound",
    ),
    "third/transpose_copies": (
        "strided-copy",
        "layout-conversion",
    ),
    "third/weight_cast": ("dtype-casts",),
    "round1/arm_swing_ppo": ("implicit-sync",),
    "round1/ctr_click_model": ("dense-gradient",),
    "round1/draft_and_verify": ("full-sort",),
    "round1/face_attributes": ("repeated-backward",),
    "round1/keyword_spotter": (
        "host-hotspot",
        "exposed-copy",
        "implicit-sync",
    ),
    "round1/pixel_diffusion": (
        "host-hotspot",
        "exposed-copy",
    ),
    "round1/road_graph_sage": ("deterministic-algorithms",),
    "round1/seismic_long_filter": ("fft-length",),
    "round1/vorticity_spectral": ("float64-math",),
    "round1/window_decode_server": ("strided-copy",),
    "fixtures/activity-buffer-request": ("activity-buffer-request",),
    "fixtures/allocator-thrash": ("allocator-thrash",),
    "fixtures/cold-start": ("cold-start",),
    "fixtures/compile": ("compile",),
    "fixtures/data-movement": ("data-movement",),
    "fixtures/dataloader-stall": ("dataloader-stall",),
    "fixtures/dense-gradient": ("dense-gradient",),
    "fixtures/deterministic-algorithms": ("deterministic-algorithms",),
    "fixtures/dtype-casts": ("dtype-casts",),
    "fixtures/exposed-communication": ("exposed-communication",),
    "fixtures/exposed-copy": ("exposed-copy",),
    "fixtures/far-from-bound": ("far-from-bound",),
    "fixtures/fft-length": ("fft-length",),
    "fixtures/float64-math": ("float64-math",),
    "fixtures/full-sort": ("full-sort",),
    "fixtures/gradient-scaling": ("gradient-scaling",),
    "fixtures/hand-written-attention": ("hand-written-attention",),
    "fixtures/hidden-dtod-copy": ("hidden-dtod-copy",),
    "fixtures/host-gap": ("host-gap",),
    "fixtures/host-hotspot": ("host-hotspot",),
    "fixtures/host-round-trip": ("host-round-trip",),
    "fixtures/implicit-sync": ("implicit-sync",),
    "fixtures/kernel-variance": ("kernel-variance",),
    "fixtures/lane-offset": ("lane-offset",),
    "fixtures/launch-bound": ("launch-bound",),
    "fixtures/layout-conversion": ("layout-conversion",),
    "fixtures/long-device-sync": ("long-device-sync",),
    "fixtures/low-occupancy": ("low-occupancy",),
    "fixtures/misaligned-gemm": ("misaligned-gemm",),
    "fixtures/needless-collectives": ("needless-collectives",),
    "fixtures/no-tensor-cores": ("no-tensor-cores",),
    "fixtures/one-hot": ("one-hot",),
    "fixtures/outside-autocast": ("outside-autocast",),
    "fixtures/recomputation": ("recomputation",),
    "fixtures/repeated-backward": ("repeated-backward",),
    "fixtures/repeated-calls": ("repeated-calls",),
    "fixtures/scheduler-gap": ("scheduler-gap",),
    "fixtures/strided-copy": ("strided-copy",),
    "fixtures/trace-health": ("trace-health",),
    "fixtures/unfused-optimizer": ("unfused-optimizer",),
    "fixtures/unfused-pointwise": ("unfused-pointwise",),
    "fixtures/unused-gradient": ("unused-gradient",),
}
QUIET = ("pairs/clean_*", "noise/*", "real/*", "public/*")  # and fixtures/healthy

TITLE = "\n## What the diagnosis says\n"
_HEAD = """
Every recorded pair by the rule that names its fault: the measured saving, what the report says of the bad one, the
place of the finding there (the report's order), and how severe the same rule's findings are in the fixed one. Pairs
of `fixtures/` are in this repository; the replay was not fitted on their times. "Not found" is right where
the fix saves nothing; "no replay" where the fault is of the recording or of no known remedy. Severities are of the
saving.

| rule | pair | true | said | interval | place | severity | when fixed |
|---|---|---|---|---|---|---|---|
"""
_OTHERS = """
### Programs that nobody broke

All that is above `info` there. Clean programs and `fixtures/healthy` were written to have no fault; `noise` is one
program four times and with known changes; `real` and `public` are models and other people's traces: what is found
there may be true, and is judged against the raw events, finding by finding, in [findings.md](findings.md). Savings are
shares of the step without the profiler, costs shares of the window.

"""


@dataclass(frozen=True)
class Pair:
    """One fault: the traces with and without it, and the rules that may name it."""

    name: str
    bad: Path
    fixed: Path
    rules: tuple[str, ...]


@dataclass(frozen=True)
class Said:
    """What the report says of a pair; `finding` and `place` (from 1) are None where no rule names the fault."""

    pair: Pair
    rule: str
    true: float
    finding: Finding | None
    place: int | None
    when_fixed: str

    @property
    def row(self) -> str:
        """A row of the table."""
        start = f"| `{self.rule}` | {self.pair.name} | {self.true:.1%} | "
        if self.finding is None:
            return f"{start}not found | | | | {self.when_fixed} |"
        s = self.finding.saving
        worth = f"{s.share:.1%} | {s.low_share:.0%} to {s.high_share:.0%}" if s else "no replay | "
        return f"{start}{worth} | {self.place} | {self.finding.severity} | {self.when_fixed} |"


def all_pairs(traces: Path) -> list[Pair]:
    """Of the shared traces and of the fixtures, where both halves are there and were timed."""
    shared = [
        Pair(name, traces / f"{name}.bad{ENDING}", traces / f"{name}.fixed{ENDING}", rules)
        for name, rules in FAULTS.items()
    ]
    own = [
        Pair(f"fixtures/{folder.name}", folder / f"bad{ENDING}", folder / f"good{ENDING}", (folder.name,))
        for folder in sorted(FIXTURES.iterdir())
    ]
    return [pair for pair in (*shared, *own) if _timed(pair.bad) and _timed(pair.fixed)]


def _timed(trace: Path) -> bool:
    return trace.exists() and Path(str(trace).replace(ENDING, ".meta.json")).exists()


def said_of(pair: Pair) -> Said:
    """Diagnoses both halves."""
    findings = diagnose(pair.bad).findings
    places = [place for place, finding in enumerate(findings) if finding.rule in pair.rules]
    finding = findings[places[0]] if places else None
    rule = finding.rule if finding else pair.rules[0]
    true = 1 - truth_ms(pair.fixed) / truth_ms(pair.bad)
    return Said(
        pair, rule, true, finding, places[0] + 1 if places else None, _worst(diagnose(pair.fixed), rule)
    )


def _worst(report: Report, rule: str) -> str:
    severities = [finding.severity for finding in report.findings if finding.rule == rule]
    return min(severities, key=lambda severity: severity.rank).value if severities else "no finding"


def quiet_traces(traces: Path) -> list[Path]:
    """Traces in which little should be found."""
    shared = [path for pattern in QUIET for path in sorted(traces.glob(f"{pattern}{ENDING}"))]
    found = [*sorted((FIXTURES / "healthy").glob(f"*{ENDING}")), *shared]
    return [path for path in found if not path.name.endswith(f".table{ENDING}")]


def alarms(path: Path) -> list[str]:
    """Rows of one trace, without the judgement's cell."""
    name = f"{path.parent.name}/{path.name.removesuffix(ENDING)}"
    found = [finding for finding in diagnose(path).findings if finding.severity is not Severity.INFO]
    return [f"| {name} | {_label(one)} | {one.severity} | {_worth(one)} |" for one in found]


def _label(finding: Finding) -> str:
    cause, by = finding.cause and f": {finding.cause}", finding.by and f", {finding.by}"
    return f"`{finding.rule}`{cause}{by or ''}".replace("|", "/")[:110]


def _worth(finding: Finding) -> str:
    saved = finding.saving
    return f"saves {saved.share:.1%}" if saved else f"costs {finding.cost_share:.1%}"


def judgement(row: str, known: str) -> str:
    """The verdict of docs/findings.md on that trace and finding, or nothing."""
    trace, finding = (cell.strip() for cell in row.split("|")[1:3])
    label = finding.replace("`", "")
    same = [(name, said) for name, said in _judged(known).get(trace, ()) if label.startswith(_rule(name))]
    words = set(label.split())
    return max(same, key=lambda one: len(words & set(one[0].split())), default=("", ""))[1]


def _judged(known: str) -> dict[str, list[tuple[str, str]]]:
    """Findings and verdicts by folder/trace; a row without a trace is about the trace of the row before."""
    found: dict[str, list[tuple[str, str]]] = {}
    folder = trace = ""
    for line in known.splitlines():
        if line.startswith("## "):
            folder = line[3:].strip()
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == _CELLS:
            trace = cells[0] or trace
            found.setdefault(f"{folder}{trace}", []).append((cells[1], cells[3]))
    return found


def _rule(finding: str) -> str:
    return finding.partition(":")[0]


def part(pairs: Iterable[Said], found: Sequence[Sequence[str]]) -> str:
    """The text of this part of the page; `found` holds the rows of each quiet trace."""
    by_rule = sorted(pairs, key=lambda one: (one.rule, one.pair.name))
    quiet = sum(not rows for rows in found)
    return "".join(
        (
            TITLE,
            _HEAD,
            *(f"{one.row}\n" for one in by_rule),
            _summary(by_rule),
            _OTHERS,
            _alarm_table([row for rows in found for row in rows]),
            f"\nIn {quiet} of {len(found)} traces nothing is above `info`.\n",
        )
    )


def _alarm_table(rows: Sequence[str]) -> str:
    """The rows, with what docs/findings.md judges of them where there is such a page."""
    head, line = "| trace | finding | severity | worth |", "|---|---|---|---|"
    if JUDGEMENTS.exists():
        known = JUDGEMENTS.read_text(encoding="utf-8")
        head, line = f"{head} judgement |", f"{line}---|"
        rows = [f"{row} {judgement(row, known)} |" for row in rows]
    return "\n".join((head, line, *rows)) + "\n"


def _summary(pairs: Sequence[Said]) -> str:
    known = [(one.true, one.finding.saving) for one in pairs if one.finding and one.finding.saving]
    errors = [abs(saving.share - true) * 100 for true, saving in known]
    held = np.mean([saving.low_share <= true <= saving.high_share for true, saving in known])
    return (
        f"\nOf {len(known)} savings: mean error {np.mean(errors):.1f} points, median {np.median(errors):.1f};"
        f" {held:.0%} lie within the interval.\n"
    )


def measured(traces: Path) -> str:
    """Diagnoses everything, on two processes; takes minutes."""
    with ProcessPoolExecutor(2) as pool:
        pairs = list(pool.map(said_of, all_pairs(traces)))
        found = list(pool.map(alarms, quiet_traces(traces)))
    return part(pairs, found)
