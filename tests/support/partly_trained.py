"""Training steps of networks that are tuned in part."""

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

    def gradient(self, shape: list[int], *, added: bool) -> None:
        start = self.now
        self.now += 4 * US
        if added:
            self.op("aten::add_", shape, shape, [], kernels=(5 * US,))
        self.now += 4 * US
        self.args("torch::autograd::AccumulateGrad", start + US, self.now - start - 2 * US, [shape])
        self.trace.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", start, self.now - start)

    def optimizer(self, blocks: int) -> None:
        """A fused step whose kernel has so many blocks: its list of tensors is too long for shapes to be recorded."""
        start = self.now
        self.now += 2 * US
        self.correlation += 1
        recorded: dict[str, Any] = {"Input Dims": [[]], "Input type": ["TensorList"]}
        self.trace.op("aten::_fused_adamw_", self.now, 20 * US, **recorded)
        self.trace.launch("cudaLaunchKernel", self.now + 5 * US, 5 * US, self.correlation)
        self.device = max(self.device, self.now + 15 * US)
        kernel = "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>>()"
        self.trace.kernel(self.device, 5 * US, self.correlation, name=kernel, grid=(blocks, 1, 1))
        self.device, self.now = self.device + 5 * US, self.now + 25 * US
        self.trace.annotation("Optimizer.step#AdamW.step", start, self.now - start)
