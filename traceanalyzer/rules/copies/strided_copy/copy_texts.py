"""What is said of copies within the device, by cause."""

from __future__ import annotations

# cause -> (message, advice)
TEXTS = {
    "growing-buffer": (
        "torch.cat copies a whole buffer to append {new} to it, {times_a_step}",
        "Allocate the whole buffer once and write the new rows into it: cache[:, :, n:n + 1] = new.",
    ),
    "concatenation": (
        "torch.cat copies its inputs side by side {times_a_step}",
        "Write the parts into one buffer where they are computed (out=, or slices of an existing tensor).",
    ),
    "repetition": (
        "the same data is written {often}, {times_a_step} ({ops})",
        "Let the next op broadcast: expand() without contiguous(), instead of repeat. For attention with fewer key "
        "heads than query heads: {F.scaled_dot_product_attention}(enable_gqa=True), or the queries of a group as rows.",
    ),
    "single-frames": (
        "conv3d with a kernel of one frame reads channels before frames, and tensors are rewritten in that order "
        "and back {times_a_step} ({ops})",
        "Fold the frames into the batch: conv2d of (batch x frames, channels, height, width), with weight.squeeze(2), "
        "gives the same without a copy.",
    ),
    "transposition": (
        "tensors are rewritten with their dimensions in another order {times_a_step} ({ops})",
        "Keep the layout that the next op reads: drop .contiguous() and .clone() where a view is enough, or create "
        "the tensor in that order.",
    ),
}
