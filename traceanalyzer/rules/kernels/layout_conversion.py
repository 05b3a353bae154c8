"""Images in a layout that convolutions convert, or that norms and depthwise convolutions are slow in."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceanalyzer.model.arrays import Floats, Mask
from traceanalyzer.roofline.gpus import Gpus
from traceanalyzer.rule import Claims, Confidence, Hits, Work, gpu_time_evidence, reduce_to, rule
from traceanalyzer.timeline import kernel_families as families

# The first input has four or five dimensions.
_IMAGE = r"^\[\[\d+,\d+,\d+,\d+(,\d+)?\]"
_VOLUME = r"^\[\[\d+,\d+,\d+,\d+,\d+\]"
# torch has no other layout for one dimension after batch and channels.
_SIGNAL = r"^\[\[\d+,\d+,(1,)?\d+\]"
# What is affected -> (its kernels, what becomes of it with channels last).
_PARTS = {
    "layout conversions": (families.LAYOUT, "conversions are not needed"),
    "batch norms": (families.NCHW_BATCH_NORM, "batch norms are faster"),
    "depthwise convolutions": (families.DEPTHWISE, "depthwise convolutions are faster"),
}
_ADVICE = (
    "Use {{channels_last}}: model.to(memory_format=torch.channels_last{0}), and convert the images in the same way."
)
_BY_IMAGE = "Measure before you change the layout: instance norms copy images back to channels first."


class Limits:
    depthwise_share: float = 0.25
    """for the saving: in channels_last a depthwise convolution takes this share of its time in NCHW; measured
    with EfficientNet, H200"""
    transform_share: float = 0.6
    """for the saving: in channels_last the last pass of a batch norm takes this share of its time in NCHW;
    measured on an H200"""
    statistics_least_share: float = 0.26
    """for the saving: in channels_last a batch norm's statistics are predicted to keep at least this share of
    their time in NCHW; best case measured: 16 to 32 channels, H200"""
    backward_least_share: float = 0.14
    """for the saving: in channels_last a batch norm's backward pass is predicted to keep at least this share
    of its time in NCHW; best case measured: 16 to 32 channels, H200"""
    statistics_blocks: float = 2.0
    """with at least this many CUDA blocks per SM, a batch norm's statistics are equally fast in both layouts;
    measured on an H200"""
    backward_blocks: float = 4.0
    """with at least this many CUDA blocks per SM, a batch norm's backward pass is equally fast in both
    layouts; measured on an H200"""
    unknown_sms: int = 108
    """if the trace does not record the number of SMs, the rule assumes this number, which is an A100's"""


@rule(since="0.1", claims=Claims.WORK, limits=Limits)
def layout_conversion(work: Work, gpus: Gpus, limits: Limits) -> Iterator[Hits]:
    """Convolutions convert NCHW tensors, or batch norm runs in NCHW.

    What it looks for: kernels that convert the layout around convolutions (nchwToNhwc, nhwcToNchw and
    similar). The rule also reports batch norms in NCHW, and half-precision depthwise convolutions in NCHW.
    Why it costs: tensor cores need channels last (NHWC), so cuDNN converts images before and after each convolution.
    torch's batch norm for NCHW has only one CUDA block per channel, so most SMs are unused.
    Bad: a convolutional model in the default layout. Good: model.to(memory_format=torch.channels_last), and
    the same for its input images.
    How sure: kernel names show the layouts.
    When it is wrong: an op between two convolutions has no kernel for channels last and returns to NCHW. Then
    conversions remain. An example is torch's instance norm: with instance norms, the severity is info.
    Saving: the whole time of the conversions, and a part of the time of batch norms and depthwise
    convolutions, which are faster in channels last.
    Source: "Channels Last Memory Format in PyTorch"; measured on an H200 with torch 2.11.
    """
    name = work.name
    norms, depthwise = name.matches(families.NCHW_BATCH_NORM), name.matches(families.DEPTHWISE)
    if norms.any():
        norms &= work.dims.matches(_IMAGE) | (work.dims.code < 0)
        norms &= name.matches(families.CONVOLUTION).any()
    chosen = work[name.matches(families.LAYOUT) | norms | (depthwise & name.matches("BFloat16|Half"))]
    by_image = work.outer_op.name.one_of("aten::instance_norm")
    for device, pieces in chosen[~_of_signals(chosen)].by_device():
        hits = _hits(pieces, gpus[device].sms or limits.unknown_sms, limits)
        if (by_image & (work.device == device)).any():
            hits = replace(hits, info=True, advice=_BY_IMAGE)
        yield hits


def _of_signals(pieces: Work) -> Mask:
    """Pieces with one dimension after batch and channels."""
    op, unknown = pieces.outer_op.name, pieces.dims.code < 0
    signals = pieces.dims.matches(_SIGNAL) | (unknown & op.matches(r"conv(_transpose)?1d$"))
    # Work of backward, or without an op, is of a signal if all convolutions of forward are.
    unsure = unknown & (op.matches(r"Backward\d*$") | ~op.there)
    return signals | (unsure & (signals.any() and (signals | unsure).all()))


def _hits(pieces: Work, sms: int, limits: Limits) -> Hits:
    moved, evidence = pieces.name.matches(families.LAYOUT), gpu_time_evidence(pieces)
    parts = {part: pieces[pieces.name.matches(pattern)].total_ns for part, (pattern, _) in _PARTS.items()}
    parts = {part: ns for part, ns in parts.items() if ns}
    return Hits(
        **reduce_to(pieces, np.where(moved, 0.0, pieces.dur_ns * _shares(pieces, sms, limits))),
        message="images are channels first (NCHW): {affected} take {spent_a_step}, in {ops}; with channels last, "
        + _listed([_PARTS[part][1] for part in parts])
        + ("; most time for inputs of shapes {shapes}" if evidence["shapes"] else "")
        + (", from {lines}" if evidence["lines"] else ""),
        advice=_ADVICE.format("_3d" if pieces.dims.matches(_VOLUME).any() else ""),
        confidence=Confidence.HIGH if moved.any() else Confidence.MEDIUM,
        evidence={
            **evidence,
            "spent_ns": pieces.total_ns,
            "affected": _listed(list(parts)),
            "conversions": int(moved.sum()),
            "parts": dict(sorted(parts.items(), key=lambda part: -part[1])),
        },
    )


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _shares(pieces: Work, sms: int, limits: Limits) -> Floats:
    """What part of its time each norm and depthwise convolution takes in channels last."""
    name, blocks = pieces.name, pieces.blocks / sms
    statistics = np.clip(blocks / limits.statistics_blocks, limits.statistics_least_share, 1.0)
    backward = np.clip(blocks / limits.backward_blocks, limits.backward_least_share, 1.0)
    patterns = (families.DEPTHWISE, "batch_norm_transform_input", "batch_norm_collect_statistics")
    shares = (limits.depthwise_share, limits.transform_share, statistics)
    return np.select([name.matches(pattern) for pattern in patterns], shares, backward)
