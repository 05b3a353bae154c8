"""Evaluate a torchvision FCN-ResNet50 on 150-class semantic segmentation with torchmetrics' mean IoU and
Dice.

The network is built as it was trained (with its auxiliary head), runs with bf16 weights in channels_last, and
both
metrics accumulate per image over the evaluation set.  The images live on the device.
"""

import torch
from torchmetrics.segmentation import DiceScore, MeanIoU
from torchvision.models.segmentation import fcn_resnet50

STEPS = 5
CLASSES = 150


class Evaluator:
    """Runs the network on batches and keeps the metrics of the evaluation so far."""

    def __init__(self, model, classes, device):
        self.model = model
        self.iou = MeanIoU(num_classes=classes, input_format="index").to(device)
        self.dice = DiceScore(num_classes=classes, average="macro", input_format="index").to(device)

    def predict(self, images):
        logits = self.model(images)["out"]
        return logits.argmax(dim=1)

    def update(self, images, masks):
        predictions = self.predict(images)
        self.iou.update(predictions, masks)
        self.dice.update(predictions, masks)

    def compute(self):
        return self.iou.compute(), self.dice.compute()


def build_model(device, classes):
    model = fcn_resnet50(weights=None, weights_backbone=None, num_classes=classes, aux_loss=True)
    model = model.eval().requires_grad_(False)
    return model.to(device, dtype=torch.bfloat16, memory_format=torch.channels_last)


def make(device, small):
    batch, side, classes = (2, 32, 8) if small else (4, 512, CLASSES)
    model = build_model(device, classes)
    images = torch.randn(3 * batch, 3, side, side, device=device, dtype=torch.bfloat16)
    images = images.contiguous(memory_format=torch.channels_last)
    masks = torch.randint(0, classes, (3 * batch, side // 16, side // 16), device=device)
    masks = masks.repeat_interleave(16, 1).repeat_interleave(16, 2)
    evaluator = Evaluator(model, classes, device)
    state = {"index": 0}

    @torch.inference_mode()
    def step():
        start = state["index"] % 3 * batch
        state["index"] += 1
        evaluator.update(images[start : start + batch], masks[start : start + batch])
        iou, dice = evaluator.compute()
        return iou.float(), dice.float()

    return step
