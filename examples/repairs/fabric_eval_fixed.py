"""Validation of a torchvision MobileNetV3 with Lightning Fabric and a collection of torchmetrics.

One step validates one shard of the data (three batches) and returns the metrics of that shard; the metrics
are reset
between shards.  The labelled images live on the device.
"""

import torch
from lightning.fabric import Fabric
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassCohenKappa,
    MulticlassF1Score,
    MulticlassJaccardIndex,
    MulticlassMatthewsCorrCoef,
    MulticlassPrecision,
    MulticlassRecall,
    MulticlassSpecificity,
)
from torchvision.models import mobilenet_v3_small

STEPS = 4
BATCHES_PER_SHARD = 3


def build_metrics(classes):
    options = {"num_classes": classes, "validate_args": False}
    return MetricCollection(
        {
            "accuracy": MulticlassAccuracy(average="macro", **options),
            "accuracy_top5": MulticlassAccuracy(average="macro", top_k=5, **options),
            "f1": MulticlassF1Score(average="macro", **options),
            "precision": MulticlassPrecision(average="macro", **options),
            "recall": MulticlassRecall(average="macro", **options),
            "specificity": MulticlassSpecificity(average="macro", **options),
            "jaccard": MulticlassJaccardIndex(average="macro", **options),
            "kappa": MulticlassCohenKappa(**options),
            "mcc": MulticlassMatthewsCorrCoef(**options),
        }
    )


@torch.no_grad()
def validate(model, batches, metrics):
    """Metrics of the model over the batches, as one tensor."""
    for images, labels in batches:
        logits = model(images)
        metrics.update(logits, labels)
    values = metrics.compute()
    metrics.reset()
    return torch.stack([values[name].float() for name in sorted(values)])


def make(device, small):
    batch, side, classes = (16, 32, 10) if small else (64, 160, 100)
    fabric = Fabric(accelerator=device, devices=1, precision="bf16-mixed")
    fabric.launch()
    model = mobilenet_v3_small(weights=None, num_classes=classes).to(memory_format=torch.channels_last)
    model = fabric.setup_module(model).eval()
    metrics = build_metrics(classes).to(fabric.device)
    count = 2 * BATCHES_PER_SHARD * batch
    images = torch.randn(count, 3, side, side, device=fabric.device).contiguous(
        memory_format=torch.channels_last
    )
    labels = torch.randint(0, classes, (count,), device=fabric.device)
    batches = list(zip(images.split(batch), labels.split(batch), strict=False))
    shards = [batches[:BATCHES_PER_SHARD], batches[BATCHES_PER_SHARD:]]
    state = {"index": 0}

    def step():
        shard = shards[state["index"] % len(shards)]
        state["index"] += 1
        return validate(model, shard, metrics)

    return step
