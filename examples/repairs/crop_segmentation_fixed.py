"""Fitting a new DeepLabV3 head on a fixed backbone for crop maps (torchvision)."""

import torch
import torch.nn.functional as F
from torchvision.models.segmentation import deeplabv3_resnet50
from torchvision.models.segmentation.deeplabv3 import DeepLabHead


def build_model(num_classes):
    model = deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=21)
    model.backbone.requires_grad_(False)
    model.classifier = DeepLabHead(2048, num_classes)
    return model


class HeadTuner:
    """Trains the classifier only; the backbone stays as it was pre-trained."""

    def __init__(self, model, lr):
        self.model = model
        self.device = next(model.parameters()).device
        self.optimizer = torch.optim.SGD(model.classifier.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
        self.scheduler = torch.optim.lr_scheduler.PolynomialLR(self.optimizer, total_iters=100_000, power=0.9)

    def set_train_mode(self):
        self.model.train()
        self.model.backbone.eval()

    def training_step(self, images, masks):
        self.model.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.model(images)["out"]
        loss = F.cross_entropy(logits.float(), masks, ignore_index=255)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.detach()


def make(device, small):
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    batch, size, num_classes = (2, 48, 5) if small else (12, 512, 14)
    model = build_model(num_classes).to(device, memory_format=torch.channels_last)
    tuner = HeadTuner(model, lr=0.01)
    tuner.set_train_mode()
    images = torch.randn(batch, 3, size, size, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    masks = torch.randint(num_classes, (batch, size, size), device=device)
    masks[:, :4] = 255

    def step():
        return tuner.training_step(images, masks)

    return step
