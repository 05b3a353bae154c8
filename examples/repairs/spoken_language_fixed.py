"""Train a spoken language identifier on log-mel features."""

import torch
from accelerate import Accelerator
from torch.utils.data import TensorDataset
from transformers import WhisperConfig, WhisperForAudioClassification


def build_model(small, n_languages):
    config = WhisperConfig(
        d_model=64 if small else 512,
        encoder_layers=2 if small else 6,
        encoder_attention_heads=4 if small else 8,
        encoder_ffn_dim=128 if small else 2048,
        decoder_layers=1,
        decoder_attention_heads=4 if small else 8,
        decoder_ffn_dim=128,
        max_source_positions=100 if small else 1500,
        num_mel_bins=80,
        classifier_proj_size=256,
        num_labels=n_languages,
        attn_implementation="sdpa",
    )
    return WhisperForAudioClassification(config)


def build_features(n, frames, n_languages, device):
    mels = torch.randn(n, 80, frames, device=device)
    labels = torch.randint(0, n_languages, (n,), device=device)
    return TensorDataset(mels, labels)


class LanguageTrainer:
    def __init__(self, model, optimizer, scheduler, accelerator):
        self.accelerator = accelerator
        self.model, self.optimizer, self.scheduler = accelerator.prepare(model, optimizer, scheduler)

    def train_batch(self, mels, labels):
        self.model.train()
        loss = self.model(input_features=mels, labels=labels).loss
        self.accelerator.backward(loss)
        self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.detach()


def make(device, small):
    torch.manual_seed(0)
    device = torch.device(device)
    accelerator = Accelerator(mixed_precision="bf16", cpu=device.type == "cpu")
    n_languages = 30
    model = build_model(small, n_languages)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 100))
    trainer = LanguageTrainer(model, optimizer, scheduler, accelerator)
    batch_size = 2 if small else 24
    data = build_features(batch_size * 3, 200 if small else 3000, n_languages, device)
    state = {"i": 0}

    def step():
        start = (state["i"] % 3) * batch_size
        state["i"] += 1
        mels, labels = data[start : start + batch_size]
        return trainer.train_batch(mels, labels)

    return step
