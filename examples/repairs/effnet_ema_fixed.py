"""Fine-tune a timm EfficientNet-B0 with an exponential moving average of its weights.

Mixed-precision training at 160 pixels with label smoothing; the gradient norm is recorded every step, and the
averaged
model is what is exported at the end.  The uint8 images live on the device and are normalised there.
"""

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import param_groups_weight_decay
from timm.utils import ModelEmaV3

STEPS = 4
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def gradient_norm(parameters):
    """Global L2 norm of the gradients."""
    return torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None], norm_type=2.0)


class Trainer:
    def __init__(self, model, device, lr=1e-4, decay=0.999):
        self.model = model
        self.device = device
        self.ema = ModelEmaV3(model, decay=decay)
        self.criterion = LabelSmoothingCrossEntropy(0.1)
        groups = param_groups_weight_decay(model, weight_decay=0.05)
        self.optimizer = torch.optim.AdamW(groups, lr=lr, fused=True)
        self.mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1) * 255
        self.std = torch.tensor(STD, device=device).view(1, 3, 1, 1) * 255

    def train_step(self, images, labels):
        images = (images - self.mean) / self.std
        with torch.autocast(self.device, dtype=torch.bfloat16):
            loss = self.criterion(self.model(images).float(), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = gradient_norm(self.model.parameters())
        self.optimizer.step()
        self.ema.update(self.model)
        return loss.detach(), norm


def make(device, small):
    batch, side, classes = (4, 32, 10) if small else (32, 160, 1000)
    model = timm.create_model("efficientnet_b0", pretrained=False, num_classes=classes)
    model = model.to(device, memory_format=torch.channels_last).train()
    trainer = Trainer(model, device)
    images = torch.randint(0, 256, (4 * batch, 3, side, side), dtype=torch.uint8, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (4 * batch,), device=device)
    batches = list(zip(images.split(batch), labels.split(batch), strict=False))
    state = {"index": 0}

    def step():
        batch_images, batch_labels = batches[state["index"] % len(batches)]
        state["index"] += 1
        loss, norm = trainer.train_step(batch_images, batch_labels)
        return loss, norm, trainer.ema.module.classifier.weight.detach().norm()

    return step
