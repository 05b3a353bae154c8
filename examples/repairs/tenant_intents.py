"""Serve intent classification for several tenants, one LoRA adapter each."""

import random
from dataclasses import dataclass

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import BertConfig, BertModel


@dataclass
class Request:
    tenant: str
    input_ids: torch.Tensor


def build_encoder(small, tenants):
    config = BertConfig(
        vocab_size=1000 if small else 30522,
        hidden_size=64 if small else 384,
        num_hidden_layers=2 if small else 12,
        num_attention_heads=4 if small else 12,
        intermediate_size=128 if small else 1536,
    )
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], init_lora_weights=False)
    model = get_peft_model(BertModel(config), lora, adapter_name=tenants[0])
    for tenant in tenants[1:]:
        model.add_adapter(tenant, lora)
    return model, config.hidden_size


class IntentService:
    def __init__(self, encoder, heads):
        self.encoder = encoder
        self.heads = heads

    def classify(self, tenant, input_ids):
        self.encoder.set_adapter(tenant)
        pooled = self.encoder(input_ids=input_ids).pooler_output
        return self.heads[tenant](pooled).softmax(dim=-1)

    @torch.no_grad()
    def handle(self, requests):
        answers = [self.classify(r.tenant, r.input_ids.unsqueeze(0))[0] for r in requests]
        return torch.stack(answers)


def request_queue(tenants, n, length, vocab, device):
    order = [tenants[i % len(tenants)] for i in range(n)]
    random.Random(n).shuffle(order)
    return [Request(t, torch.randint(1, vocab, (length,), device=device)) for t in order]


def make(device, small):
    torch.manual_seed(0)
    device = torch.device(device)
    tenants = ["bank", "travel", "retail", "telecom"]
    encoder, hidden = build_encoder(small, tenants)
    heads = nn.ModuleDict({t: nn.Linear(hidden, 20) for t in tenants})
    service = IntentService(encoder.to(device).eval(), heads.to(device).eval())
    vocab = encoder.config.vocab_size
    queues = [request_queue(tenants, 8, 16 if small else 64, vocab, device) for _ in range(4)]
    state = {"i": 0}

    def step():
        queue = queues[state["i"] % len(queues)]
        state["i"] += 1
        return service.handle(queue)

    return step
