"""Listen-attend-spell style speech recognition, trained with Lightning Fabric."""

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn

PAD = 0


class Listener(nn.Module):
    def __init__(self, n_mels, dim):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(n_mels, dim, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv1d(dim, dim, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.rnn = nn.LSTM(dim, dim // 2, batch_first=True, bidirectional=True)

    def forward(self, mels):
        x = self.conv(mels).transpose(1, 2)
        return self.rnn(x)[0]


class Speller(nn.Module):
    def __init__(self, n_tokens, dim):
        super().__init__()
        self.dim = dim
        self.embed = nn.Embedding(n_tokens, dim)
        self.cell = nn.LSTMCell(2 * dim, dim)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.readout = nn.Sequential(nn.Linear(2 * dim, dim), nn.Tanh(), nn.Linear(dim, n_tokens))

    def attend(self, h, keys, memory):
        scores = torch.bmm(keys, self.query(h).unsqueeze(2)).squeeze(2) / self.dim**0.5
        return torch.bmm(scores.softmax(dim=1).unsqueeze(1), memory).squeeze(1)

    def forward(self, memory, tokens):
        keys = self.key(memory)
        inputs = self.embed(tokens[:, :-1])
        targets = tokens[:, 1:]
        h = memory.new_zeros(len(memory), self.dim)
        c = torch.zeros_like(h)
        context = memory.mean(dim=1)
        total = 0.0
        for t in range(inputs.size(1)):
            h, c = self.cell(torch.cat([inputs[:, t], context], dim=1), (h, c))
            context = self.attend(h, keys, memory)
            logits = self.readout(torch.cat([h, context], dim=1))
            total = total + F.cross_entropy(logits, targets[:, t], ignore_index=PAD, reduction="sum")
        return total / (targets != PAD).sum()


class Transcriber(L.LightningModule):
    def __init__(self, n_mels, n_tokens, dim):
        super().__init__()
        self.listener = Listener(n_mels, dim)
        self.speller = Speller(n_tokens, dim)

    def forward(self, mels, tokens):
        return self.speller(self.listener(mels), tokens)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-4)


def utterances(n, frames, length, n_tokens, device):
    mels = torch.randn(n, 80, frames, device=device)
    tokens = torch.randint(1, n_tokens, (n, length), device=device)
    ends = torch.randint(length // 2, length + 1, (n, 1), device=device)
    tokens = tokens.masked_fill(torch.arange(length, device=device) >= ends, PAD)
    return mels, tokens


def make(device, small):
    torch.manual_seed(0)
    device = torch.device(device)
    fabric = L.Fabric(accelerator="cuda" if device.type == "cuda" else "cpu", devices=1)
    n_tokens = 100 if small else 500
    model = Transcriber(80, n_tokens, 32 if small else 256)
    model, optimizer = fabric.setup(model, model.configure_optimizers())
    n, frames, length = (2, 40, 10) if small else (24, 320, 81)
    batches = [utterances(n, frames, length, n_tokens, device) for _ in range(4)]
    state = {"i": 0}

    def step():
        mels, tokens = batches[state["i"] % len(batches)]
        state["i"] += 1
        loss = model(mels, tokens)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=5.0, error_if_nonfinite=False)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step
