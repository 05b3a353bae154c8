"""Multi-tenant scoring with LoRA adapters.

One frozen Llama-style base model carries one LoRA adapter per tenant. Requests arrive in small batches; each
names its tenant and holds a prompt
window and a candidate next token. A step answers one batch of requests: the log-probability of every
candidate under its tenant's adapter.
"""

from dataclasses import dataclass

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

STEPS = 4
TENANTS = ("retail", "legal", "travel", "health")


@dataclass
class Request:
    tenant: str
    input_ids: torch.Tensor
    candidate: torch.Tensor


def build_model(device, small):
    config = LlamaConfig(
        vocab_size=512 if small else 32000,
        hidden_size=64 if small else 768,
        intermediate_size=128 if small else 2048,
        num_hidden_layers=2 if small else 3,
        num_attention_heads=4 if small else 12,
        max_position_embeddings=256,
        use_cache=False,
        attn_implementation="sdpa",
    )
    base = LlamaForCausalLM(config).to(torch.bfloat16)
    lora = LoraConfig(
        task_type="CAUSAL_LM",
        r=8,
        lora_alpha=16,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
        init_lora_weights=False,
    )
    model = get_peft_model(base, lora, adapter_name=TENANTS[0], autocast_adapter_dtype=False)
    for tenant in TENANTS[1:]:
        model.add_adapter(tenant, lora)
    return model.to(device=device, dtype=torch.bfloat16).eval()


def make_batches(vocab_size, n_batches, batch, window, device):
    batches = []
    for b in range(n_batches):
        ids = torch.randint(0, vocab_size, (batch, window)).to(device)
        candidates = torch.randint(0, vocab_size, (batch,)).to(device)
        batches.append(
            [Request(TENANTS[(3 * i + b) % len(TENANTS)], ids[i], candidates[i]) for i in range(batch)]
        )
    return batches


def make(device, small):
    model = build_model(device, small)
    batches = make_batches(model.config.vocab_size, 4, 8, 12 if small else 96, device)
    count = 0

    def answer(request):
        model.set_adapter(request.tenant)
        logits = model(input_ids=request.input_ids.unsqueeze(0), logits_to_keep=1).logits[0, -1]
        return torch.log_softmax(logits.float(), dim=-1).gather(0, request.candidate.unsqueeze(0))

    @torch.no_grad()
    def step():
        nonlocal count
        requests = batches[count % len(batches)]
        count += 1
        return torch.cat([answer(request) for request in requests])

    return step
