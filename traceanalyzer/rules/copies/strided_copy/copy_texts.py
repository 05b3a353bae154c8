"""What is said of copies within the device, by cause."""

from __future__ import annotations

# What is advised where an op has no channels-last kernel.
KERNELLESS = (
    "Replace this op, or put it under {torch.compile}: it writes channels first whatever it reads. Or measure the "
    "whole model channels first: one layout throughout needs no copies."
)

# cause -> (message, advice)
TEXTS = {
    "growing-buffer": (
        "torch.cat copies a whole buffer to append {new} to it, {times_a_step}",
        "Allocate the whole buffer once, and write only the new rows: cache[:, :, n:n + 1] = new.",
    ),
    "concatenation": (
        "torch.cat copies all of its inputs into its output {times_a_step}",
        "Compute each part directly into one common buffer (out=, or slices of an existing tensor).",
    ),
    "repetition": (
        "{times_a_step}, the same data is written {often} in one op ({ops})",
        "Let the next op broadcast: expand() without contiguous(), instead of repeat. For attention with fewer key "
        "heads than query heads: {F.scaled_dot_product_attention}(enable_gqa=True), or reshape the "
        "queries of a group to rows of one product.",
    ),
    "single-frames": (
        (
            "conv3d with a kernel of one frame needs channels before frames, so tensors are rewritten in that "
            "order and back {times_a_step}, in {ops}"
        ),
        "Fold the frames into the batch: conv2d of (batch x frames, channels, height, width), with weight.squeeze(2), "
        "gives the same without a copy.",
    ),
    "lost-layout": (
        "{breaker} turns channels-last images into channels first{where}; copies between the layouts, and ops that "
        "read both, run {times_a_step}, in {ops}",
        "Stay channels last there: .contiguous(memory_format=torch.channels_last); mean((2, 3)) in place of a "
        "view that needs contiguous(); a channel shuffle on the view x.permute(0, 2, 3, 1).",
    ),
    "transposition": (
        "copies that change the order of dimensions run {times_a_step}, in {ops}",
        "Keep the layout that the next op reads: drop .contiguous() and .clone() where a view is enough, or create "
        "the tensor with its dimensions in the order that the next op reads.",
    ),
}
# Instead of that of a repetition, where multinomial makes it.
DRAWN = (
    "multinomial copies a row that is expanded, then scales and cumulates each copy. With replacement, draw all "
    "samples from the one row: torch.multinomial(weights, rows * n, replacement=True).view(rows, n). Or keep the "
    "cumulated weights, and look up random numbers in them with torch.searchsorted."
)
# Instead of that of a transposition, where norms make most of the copies.
KEPT_ORDER = (
    "Call .contiguous() once, where the other order begins (x.transpose(1, 2).contiguous() before the first layer): "
    "additions keep the order of their first input, so every norm copies the tensor again."
)
