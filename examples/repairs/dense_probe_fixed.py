"""Dense probing of a frozen timm ViT-B/16: segmentation from the patch tokens of two intermediate blocks.

A LightningModule holds the frozen backbone and a light convolutional head; the loop below drives its hooks by
hand.
"""

import lightning as L
import timm
import torch
import torch.nn.functional as F
from torch import nn

STEPS = 5
CLASSES = 21
PROBED_BLOCKS = [2, 4]


class DenseProbe(L.LightningModule):
    def __init__(self, backbone, img_size, lr=1e-3):
        super().__init__()
        self.backbone = timm.create_model(backbone, pretrained=False, num_classes=0, img_size=img_size)
        self.backbone.requires_grad_(False).to(torch.bfloat16)
        width = self.backbone.embed_dim * len(PROBED_BLOCKS)
        self.head = nn.Sequential(
            nn.Conv2d(width, 256, 1), nn.BatchNorm2d(256), nn.GELU(), nn.Conv2d(256, CLASSES, 1)
        )
        self.lr = lr

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    @torch.no_grad()
    def features(self, images):
        maps = self.backbone.forward_intermediates(
            images.to(torch.bfloat16),
            indices=PROBED_BLOCKS,
            norm=True,
            output_fmt="NCHW",
            intermediates_only=True,
            stop_early=True,
        )
        return torch.cat(maps, dim=1)

    def forward(self, images):
        with torch.autocast(images.device.type, dtype=torch.bfloat16):
            logits = self.head(self.features(images))
        return F.interpolate(logits.float(), scale_factor=4, mode="bilinear", align_corners=False)

    def training_step(self, batch, batch_idx):
        images, masks = batch
        logits = self(images)
        loss = F.cross_entropy(logits, masks)
        accuracy = (logits.detach().argmax(1) == masks).float().mean()
        return {"loss": loss, "accuracy": accuracy}

    def configure_optimizers(self):
        return torch.optim.AdamW(self.head.parameters(), lr=self.lr, weight_decay=0.01, fused=True)


def make(device, small):
    name, img_size, batch = ("vit_tiny_patch16_224", 64, 2) if small else ("vit_base_patch16_224", 224, 192)
    module = DenseProbe(name, img_size).to(device).train()
    optimizer = module.configure_optimizers()
    images = torch.randn(2 * batch, 3, img_size, img_size, device=device)
    masks = torch.randint(0, CLASSES, (2 * batch, img_size // 16, img_size // 16), device=device)
    masks = masks.repeat_interleave(4, 1).repeat_interleave(4, 2)
    batches = list(zip(images.split(batch), masks.split(batch), strict=False))
    state = {"index": 0}

    def step():
        index = state["index"]
        state["index"] += 1
        output = module.training_step(batches[index % len(batches)], index)
        optimizer.zero_grad(set_to_none=True)
        output["loss"].backward()
        optimizer.step()
        return output["loss"].detach()

    return step
