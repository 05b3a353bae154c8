"""Evaluate a torchvision FCN-ResNet50 on 150-class semantic segmentation with torchmetrics' mean IoU and
Dice.

The network is built as it was trained (with its auxiliary head), runs with bf16 weights in channels_last, and
both
metrics accumulate per image over the evaluation set.  The images live on the device.
"""

import torch
from torchmetrics.segmentation import DiceScore
from torchvision.models.segmentation import fcn_resnet50

STEPS = 5
CLASSES = 150


def class_counts(predictions, masks, classes):
    """Intersection, prediction and target pixels of every image and class, (images, classes) each."""
    images = predictions.shape[0]
    offset = torch.arange(images, device=masks.device).view(-1, 1, 1) * classes
    size = images * classes
    hits = torch.where(predictions == masks, masks + offset, size).flatten()
    intersection = torch.bincount(hits, minlength=size + 1)[:size]
    predicted = torch.bincount((predictions + offset).flatten(), minlength=size)
    target = torch.bincount((masks + offset).flatten(), minlength=size)
    return tuple(count.view(images, classes) for count in (intersection, predicted, target))


class Evaluator:
    """Runs the network on batches and keeps the metrics of the evaluation so far."""

    def __init__(self, model, classes, device):
        self.model = model
        self.classes = classes
        self.dice = DiceScore(num_classes=classes, average="macro", input_format="index").to(device)
        self.score = torch.zeros((), device=device)
        self.valid = torch.zeros((), device=device)

    def predict(self, images):
        logits = self.model(images)["out"]
        return logits.argmax(dim=1)

    def update(self, images, masks):
        intersection, predicted, target = class_counts(self.predict(images), masks, self.classes)
        union = predicted + target - intersection
        self.score += (intersection / union.clamp(min=1)).sum()
        self.valid += (union > 0).sum()
        self.dice.numerator.append(2 * intersection)
        self.dice.denominator.append(predicted + target)
        self.dice.support.append(target)
        self.dice._update_count += 1
        self.dice._computed = None

    def compute(self):
        return self.score / self.valid, self.dice.compute()


def build_model(device, classes):
    model = fcn_resnet50(weights=None, weights_backbone=None, num_classes=classes, aux_loss=True)
    model.aux_classifier = None  # its output is not used in the evaluation
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
