"""A recording on which each rule about kernels, tensors and facts reports something."""

from pathlib import Path

from tests.support.expected import programs

# Rules whose fixture shows them are not listed; shared traces may be absent.
_OTHER_PROGRAMS = {
    "computed-again": "fifth/gcn_uncached.bad",
    "computed-on-copies": "programs/action_windows",
    "full-spectrum": "programs/simulation_vorticity_spectral",
    "hotspot": "fixtures/unfused-pointwise/good",
    "late-projection": "programs/seg_fpn_train",
    "loss-head": "programs/llm_sft_masked_loss",
    "partly-used": "programs/vision_instance_masks",
    "product-order": "fifth/linattn_order.bad",
}
_FIXTURES = (
    *("deterministic-algorithms", "dtype-casts", "far-from-bound", "fft-length", "float64-math", "full-sort"),
    *("hand-written-attention", "kernel-variance", "layout-conversion", "low-occupancy", "misaligned-gemm"),
    *("no-tensor-cores", "one-hot", "outside-autocast", "recomputation", "repeated-backward"),
    *("unfused-pointwise", "unmerged-adapter", "unused-gradient"),
)


def recordings() -> dict[str, Path]:
    """Slug of a rule -> path of a trace."""
    names = {slug: f"fixtures/{slug}/bad" for slug in _FIXTURES} | _OTHER_PROGRAMS
    paths = {program.name: program.paths[0] for program in programs()}
    return {slug: paths[name] for slug, name in sorted(names.items()) if name in paths}


RECORDINGS = recordings()
