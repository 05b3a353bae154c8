"""Training steps of networks that are tuned in part."""

from __future__ import annotations

from typing import Any

from tests.rules.programs import US
from tests.support.recommenders import Training

HEAD, LAYER = [100, 512], [512, 512]


class FineTuning(Training):
    """A head that is trained on top of ten layers."""

    def layer(self, shape: list[int], *, added: bool = False) -> None:
        """Backward of a layer, and the gradient of its weight: kept, or added to what is there."""
        start = self.now
        self.now += 2 * US
        self.op("aten::mm", [64, 512], shape)
        self.trace.op("autograd::engine::evaluate_function: MmBackward0", start, self.now - start)
        self.gradient(shape, added=added)

    def convolution(self, weight: list[int], *, first: bool) -> None:
        """Backward of a convolution: of its input, unless it is the first, for 30 us, and of its weight for 20 us."""
        start, makes = self.now, f"[{not first}, True, False]"
        data = [8, weight[1], 9, 9]
        self.args("aten::convolution_backward", start + US, 50 * US, [data, data, weight], [makes])
        for name, dur in (("dgrad_kernel", 30), ("wgrad_kernel", 50 if first else 20))[first:]:
            self.correlation += 1
            self.trace.launch("cudaLaunchKernel", self.now + 2 * US, 5 * US, self.correlation)
            self.device = max(self.device, self.now + 10 * US)
            self.trace.kernel(self.device, dur * US, self.correlation, name=name)
            self.device, self.now = self.device + dur * US, self.now + 20 * US
        self.now = start + 60 * US
        self.trace.op("autograd::engine::evaluate_function: ConvolutionBackward0", start, 55 * US)

    def gradient(self, shape: list[int], *, added: bool) -> None:
        start = self.now
        self.now += 4 * US
        if added:
            self.op("aten::add_", shape, shape, [], kernels=(5 * US,))
        self.now += 4 * US
        self.args("torch::autograd::AccumulateGrad", start + US, self.now - start - 2 * US, [shape])
        self.trace.op(
            "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", start, self.now - start
        )

    def optimizer(self, *shapes: list[int], name: str = "aten::_fused_adamw_", more: bool = False) -> None:
        start = self.now
        self.now += 2 * US
        lists = [list(shapes)] if any(shapes) else [[]] * len(shapes)
        self.op(name, *lists, kernels=(5 * US,))
        if more:  # another group, whose list is too long to be recorded
            self.op(name, [], [], kernels=(5 * US,))
        self.trace.annotation("Optimizer.step#AdamW.step", start, self.now - start)

    def long_list(self, name: str, blocks: int) -> None:
        """An op over a list that is too long for its shapes to be recorded: a block for each 65,536 elements."""
        self.correlation += 1
        recorded: dict[str, Any] = {"Input Dims": [[]], "Input type": ["TensorList"]}
        self.trace.op(name, self.now, 20 * US, **recorded)
        self.trace.launch("cudaLaunchKernel", self.now + 5 * US, 5 * US, self.correlation)
        self.device = max(self.device, self.now + 15 * US)
        kernel = (
            "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>>()"
        )
        self.trace.kernel(self.device, 5 * US, self.correlation, name=kernel, grid=(blocks, 1, 1))
        self.device, self.now = self.device + 5 * US, self.now + 25 * US


def tuned(*, counted: bool = False, loading: bool = False, own_counter: bool = False) -> FineTuning:
    """Four steps in which an optimizer has the head alone, of eleven layers.

    Args:
        counted: whether it counts its steps first, by a list of numbers.
        loading: whether another thread calls an op amid each backward pass.
        own_counter: whether the program counts its steps by a tensor of its own.
    """
    run = FineTuning(900 * US)
    for number in range(4):
        run.step(number)
        run.layer(HEAD)
        for layer in range(10):
            run.layer(LAYER)
            if loading and layer == 3:
                run.trace.op("aten::stack", run.now, US, tid=77)
                run.now += 2 * US
        start = run.now
        run.now += 2 * US
        if counted:
            run.op("aten::_foreach_add_", [[]], kernels=(5 * US,))
        run.op("aten::_fused_adamw_", [HEAD], kernels=(5 * US,))
        run.trace.annotation("Optimizer.step#AdamW.step", start, run.now - start)
        if own_counter:
            run.op("aten::add_", [], [], [])
    return run
