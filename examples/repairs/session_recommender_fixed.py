"""Train a next-item recommender on click sessions."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2Model


class SessionRecommender(nn.Module):
    def __init__(self, n_items, dim, layers, heads, length):
        super().__init__()
        config = GPT2Config(
            vocab_size=n_items,
            n_positions=length,
            n_embd=dim,
            n_layer=layers,
            n_head=heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
        )
        self.backbone = GPT2Model(config)
        self.out = nn.Linear(dim, n_items)

    def forward(self, items):
        hidden = self.backbone(input_ids=items[:, :-1]).last_hidden_state
        logits = self.out(hidden)
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), items[:, 1:].flatten())


class MetricLog:
    def __init__(self, keep=100):
        self.keep = keep
        self.rows = []

    def write(self, row):
        self.rows.append(row)
        del self.rows[: -self.keep]


def training_norms(model):
    tensors = {}
    for name, p in model.named_parameters():
        tensors[f"weight_norm/{name}"] = p.detach()
        if p.grad is not None:
            tensors[f"grad_norm/{name}"] = p.grad
    values = torch.stack(torch._foreach_norm(list(tensors.values()))).tolist()
    return dict(zip(tensors, values, strict=False))


class Trainer:
    def __init__(self, model, optimizer, loader, accelerator, log):
        self.accelerator = accelerator
        self.log = log
        self.model, self.optimizer, self.loader = accelerator.prepare(model, optimizer, loader)
        self.stream = self.epochs()

    def epochs(self):
        while True:
            yield from self.loader

    def train_step(self):
        (items,) = next(self.stream)
        loss = self.model(items)
        self.accelerator.backward(loss)
        self.log.write(training_norms(self.model))
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def make(device, small):
    torch.manual_seed(0)
    device = torch.device(device)
    accelerator = Accelerator(mixed_precision="bf16", cpu=device.type == "cpu")
    n_items, length, batch_size = (200, 10, 4) if small else (6000, 41, 32)
    model = SessionRecommender(n_items, 32 if small else 192, 2 if small else 10, 4, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sessions = TensorDataset(torch.randint(0, n_items, (batch_size * 16, length)))
    loader = DataLoader(sessions, batch_size=batch_size, drop_last=True)
    trainer = Trainer(model, optimizer, loader, accelerator, MetricLog())
    return trainer.train_step
