"""Recognition of activities from wearable sensors, with metrics (torchmetrics)."""

import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassCohenKappa,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassFBetaScore,
    MulticlassHammingDistance,
    MulticlassJaccardIndex,
    MulticlassMatthewsCorrCoef,
    MulticlassPrecision,
    MulticlassRecall,
    MulticlassSpecificity,
)


class Residual1d(nn.Module):
    def __init__(self, channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv1d(channels, channels, 5, stride=stride, padding=2, bias=False)
        self.norm1 = nn.BatchNorm1d(channels)
        self.conv2 = nn.Conv1d(channels, channels, 5, padding=2, bias=False)
        self.norm2 = nn.BatchNorm1d(channels)
        self.pool = nn.AvgPool1d(stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.pool(x) + self.norm2(self.conv2(h)))


class GaitNet(nn.Module):
    def __init__(self, sensors, channels, depth, num_classes):
        super().__init__()
        self.stem = nn.Conv1d(sensors, channels, 7, padding=3)
        self.blocks = nn.Sequential(*[Residual1d(channels, 2 if i % 3 == 2 else 1) for i in range(depth)])
        self.head = nn.Linear(channels, num_classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(dim=-1))


def build_metrics(num_classes):
    options = {"num_classes": num_classes, "validate_args": False}
    return MetricCollection(
        {
            "acc": MulticlassAccuracy(average="micro", **options),
            "balanced_acc": MulticlassAccuracy(average="macro", **options),
            "precision": MulticlassPrecision(average="macro", **options),
            "recall": MulticlassRecall(average="macro", **options),
            "specificity": MulticlassSpecificity(average="macro", **options),
            "f1": MulticlassF1Score(average="macro", **options),
            "f2": MulticlassFBetaScore(beta=2.0, average="macro", **options),
            "hamming": MulticlassHammingDistance(average="macro", **options),
            "precision_per_class": MulticlassPrecision(average="none", **options),
            "recall_per_class": MulticlassRecall(average="none", **options),
            "f1_per_class": MulticlassF1Score(average="none", **options),
            "jaccard": MulticlassJaccardIndex(average="macro", **options),
            "mcc": MulticlassMatthewsCorrCoef(**options),
            "kappa": MulticlassCohenKappa(**options),
            "confusion": MulticlassConfusionMatrix(**options),
        }
    )


class ActivityTrainer:
    def __init__(self, model, metrics, lr=1e-3):
        self.model = model.train()
        self.metrics = metrics
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def training_step(self, signals, labels):
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(signals)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        self.optimizer.step()
        self.metrics.update(logits.detach(), labels)
        return loss.detach()

    def epoch_end(self):
        report = self.metrics.compute()
        self.metrics.reset()
        return report


def make(device, small):
    torch.manual_seed(0)
    batch, length, channels, depth = (8, 32, 16, 2) if small else (64, 256, 64, 12)
    model = GaitNet(9, channels, depth, num_classes=12).to(device)
    trainer = ActivityTrainer(model, build_metrics(12).to(device))
    batches = [
        (torch.randn(batch, 9, length, device=device), torch.randint(12, (batch,), device=device)) for _ in range(4)
    ]
    counter = 0

    def step():
        nonlocal counter
        signals, labels = batches[counter % len(batches)]
        counter += 1
        return trainer.training_step(signals, labels)

    step.trainer = trainer
    return step
