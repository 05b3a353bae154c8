"""Which rules name the fault of a measured pair, and what the diagnosis says of programs in which little is wrong.

A part of docs/accuracy.md; `python -m benchmarks.accuracy TRACES --write` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from traceanalyzer import Finding, Severity, diagnose

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
    "round2/accumulate_lm": (
        "repeated-calls",
        "launch-bound",
    ),
    "round2/click_model": ("dense-gradient",),
    "round2/distill_vocab": ("float64-math",),
    "round2/expert_dispatch": (
        "implicit-sync",
        "repeated-calls",
    ),
    "round2/flow_density": (
        "repeated-backward",
        "repeated-calls",
    ),
    "round2/gan_rounds": ("unused-gradient",),
    "round2/latent_denoiser": (
        "host-hotspot",
        "exposed-copy",
    ),
    "round2/long_filter": ("fft-length",),
    "round2/packed_documents": ("implicit-sync",),
    "round2/plasma_push": (
        "deterministic-algorithms",
        "full-sort",
    ),
    "round2/seg_scoring": ("repeated-calls",),
    "round2/superpixel_net": ("deterministic-algorithms",),
    "round2/token_picker": ("full-sort",),
    "round2/weight_uncertainty": ("implicit-sync",),
    "round3/asr_train": (
        "host-gap",
        "exposed-copy",
    ),
    "round3/bert_train": ("allocator-thrash",),
    "round3/caption_decode": ("dtype-casts",),
    "round3/cluster_fit": ("unfused-pointwise",),
    "round3/ctr_train": ("dense-gradient",),
    "round3/ddpm_train": ("repeated-calls",),
    "round3/effnet_train": ("unfused-pointwise",),
    "round3/gan_train": ("unused-gradient",),
    "round3/graph_train": ("product-of-copies",),
    "round3/lbm_compiled": ("implicit-sync",),
    "round3/moe_train": ("dense-dispatch",),
    "round3/nerf_train": ("unused-gradient",),
    "round3/ppo_train": ("repeated-calls",),
    "round3/rank_serve": ("padded-replay",),
    "round3/seg3d_train": ("one-hot",),
    "round3/ssl_train": (
        "unfused-optimizer",
        "implicit-sync",
    ),
    "round3/turbulence": ("full-spectrum",),
    "round3/worldmodel_train": ("implicit-sync",),
    "round4/asr_frontend": ("host-gap",),
    "round4/colbert_rerank": (
        "host-hotspot",
        "exposed-copy",
    ),
    "round4/detector_fastnms": (
        "implicit-sync",
        "repeated-calls",
    ),
    "round4/dit_autocast_sampler": ("dtype-casts",),
    "round4/dlrm_adagrad": ("dense-gradient",),
    "round4/gmm_em": ("materialised-pairs",),
    "round4/lbm_d3q19": ("float64-math",),
    "round4/lm_rmsnorm_fn": ("unfused-pointwise",),
    "round4/md_lennard_jones": ("materialised-pairs",),
    "round4/moe_serving": (
        "repeated-calls",
        "implicit-sync",
    ),
    "round4/prefill_scoring": ("dtype-casts",),
    "round4/seg_server": ("allocator-thrash",),
    "round4/unet3d_checkpoint": ("recomputation",),
    "round4/vocoder_compiled": ("unfused-pointwise",),
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

TITLE = "\n## Programs that nobody broke\n"
_HEAD = """
All that is above `info` there. Clean programs and `fixtures/healthy` were written to have no fault; `noise` is one
program four times and with known changes; `real` and `public` are models and other people's traces: what is found
there may be true, and is judged against the raw events, finding by finding, in [findings.md](findings.md). Savings are
shares of the step without the profiler, costs shares of the window.

"""


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


def part(found: Sequence[Sequence[str]]) -> str:
    """The text of this part of the page; `found` holds the rows of each quiet trace."""
    quiet = sum(not rows for rows in found)
    table = _alarm_table([row for rows in found for row in rows])
    return f"{TITLE}{_HEAD}{table}\nIn {quiet} of {len(found)} traces nothing is above `info`.\n"


def _alarm_table(rows: Sequence[str]) -> str:
    """The rows, with what docs/findings.md judges of them where there is such a page."""
    head, line = "| trace | finding | severity | worth |", "|---|---|---|---|"
    if JUDGEMENTS.exists():
        known = JUDGEMENTS.read_text(encoding="utf-8")
        head, line = f"{head} judgement |", f"{line}---|"
        rows = [f"{row} {judgement(row, known)} |" for row in rows]
    return "\n".join((head, line, *rows)) + "\n"


def measured(traces: Path) -> str:
    """Diagnoses all quiet traces, on two processes."""
    with ProcessPoolExecutor(2) as pool:
        return part(list(pool.map(alarms, quiet_traces(traces))))
