"""Training a small GAN-free vocoder with a multi-scale mel loss (torchaudio)."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torchaudio.transforms import MelSpectrogram

SAMPLE_RATE = 22050


class ResBlock(nn.Module):
    def __init__(self, channels, kernel_size=3, dilations=(1, 3)):
        super().__init__()
        self.convs = nn.ModuleList(
            weight_norm(nn.Conv1d(channels, channels, kernel_size, dilation=d, padding=d * (kernel_size - 1) // 2))
            for d in dilations
        )

    def forward(self, x):
        for conv in self.convs:
            x = x + conv(F.leaky_relu(x, 0.1))
        return x


class Generator(nn.Module):
    def __init__(self, n_mels=80, channels=128, rates=(8, 8, 4)):
        super().__init__()
        self.pre = weight_norm(nn.Conv1d(n_mels, channels, 7, padding=3))
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for rate in rates:
            self.ups.append(
                weight_norm(nn.ConvTranspose1d(channels, channels // 2, 2 * rate, stride=rate, padding=rate // 2))
            )
            channels //= 2
            self.blocks.append(ResBlock(channels))
        self.post = weight_norm(nn.Conv1d(channels, 1, 7, padding=3))

    def forward(self, mel):
        x = self.pre(mel)
        for up, block in zip(self.ups, self.blocks, strict=False):
            x = block(up(F.leaky_relu(x, 0.1)))
        return torch.tanh(self.post(F.leaky_relu(x, 0.1))).squeeze(1)


class MultiScaleMelLoss(nn.Module):
    """L1 distance of log-mel spectra at several resolutions."""

    def __init__(self, n_ffts=(256, 512, 1024, 2048), n_mels=(20, 40, 80, 160), eps=1e-5):
        super().__init__()
        self.scales = list(zip(n_ffts, n_mels, strict=False))
        self.eps = eps

    def log_mel(self, wave, n_fft, n_mels):
        transform = MelSpectrogram(SAMPLE_RATE, n_fft=n_fft, hop_length=n_fft // 4, n_mels=n_mels, power=1.0).to(
            wave.device
        )
        return transform(wave).clamp_min(self.eps).log10()

    def forward(self, fake, real):
        loss = 0.0
        for n_fft, n_mels in self.scales:
            loss = loss + F.l1_loss(self.log_mel(fake, n_fft, n_mels), self.log_mel(real, n_fft, n_mels))
        return loss / len(self.scales)


def make(device, small):
    torch.manual_seed(0)
    batch, frames, channels = (2, 16, 32) if small else (8, 32, 128)
    generator = Generator(channels=channels).to(device)
    criterion = MultiScaleMelLoss().to(device)
    optimizer = torch.optim.AdamW(generator.parameters(), lr=2e-4, betas=(0.8, 0.99))
    mels = torch.randn(batch, 80, frames, device=device)
    waves = 0.3 * torch.randn(batch, frames * 256, device=device).clamp(-3, 3)

    def step():
        optimizer.zero_grad(set_to_none=True)
        fake = generator(mels)
        loss = criterion(fake, waves)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
