"""Train a x4 super-resolution network with a pixel loss and a VGG-16 perceptual loss.

The generator is an EDSR-style residual network.  The perceptual loss compares torchvision VGG-16 activations
of the
generated and the true image after relu2_2, relu3_3 and relu4_3.  The image patches live on the device.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import vgg16

STEPS = 4


class ResidualBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x):
        return x + 0.1 * self.body(x)


class Generator(nn.Module):
    def __init__(self, channels, blocks):
        super().__init__()
        self.head = nn.Conv2d(3, channels, 3, padding=1)
        self.body = nn.Sequential(*[ResidualBlock(channels) for _ in range(blocks)])
        self.up = nn.Sequential(
            nn.Conv2d(channels, 16 * channels // 4, 3, padding=1),
            nn.PixelShuffle(4),
            nn.Conv2d(channels // 4, 3, 3, padding=1),
        )

    def forward(self, x):
        h = self.head(x)
        return self.up(h + self.body(h)) + F.interpolate(
            x, scale_factor=4, mode="bilinear", align_corners=False
        )


class PerceptualLoss(nn.Module):
    """L1 distance between VGG-16 activations, summed over three depths."""

    def __init__(self):
        super().__init__()
        features = vgg16(weights=None).features
        self.slices = nn.ModuleList([features[:9], features[9:16], features[16:23]])
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))

    def forward(self, fake, real):
        x = (fake - self.mean) / self.std
        y = (real - self.mean) / self.std
        loss = 0.0
        for part in self.slices:
            x, y = part(x), part(y)
            loss = loss + F.l1_loss(x, y)
        return loss


def make(device, small):
    batch, side, channels, blocks = (2, 8, 16, 2) if small else (24, 64, 64, 16)
    generator = Generator(channels, blocks).to(device, memory_format=torch.channels_last)
    perceptual = PerceptualLoss().to(device, memory_format=torch.channels_last).eval()
    optimizer = torch.optim.AdamW(generator.parameters(), lr=2e-4, fused=True)
    patches = torch.rand(4 * batch, 3, 4 * side, 4 * side, device=device).contiguous(
        memory_format=torch.channels_last
    )
    order = iter(range(10**9))

    def step():
        start = next(order) % 4 * batch
        real = patches[start : start + batch]
        low = F.avg_pool2d(real, 4)
        with torch.autocast(device, dtype=torch.bfloat16):
            fake = generator(low)
            pixel = F.l1_loss(fake, real)
            feature = perceptual(fake, real)
        loss = pixel + 0.05 * feature
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return pixel.detach(), feature.detach()

    return step
