"""Supervised fine-tuning of a Llama-style decoder on long prompts with short answers.

Each example is a packed window: a long retrieved context and question, then a short answer at the end. The
loss covers the answer tokens only;
the prompt is masked with the ignore index. Weights and optimizer state are bf16. A step is one optimizer
update and returns the loss.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

STEPS = 4
IGNORE = -100


def build_model(device, small):
    config = LlamaConfig(
        vocab_size=512 if small else 49152,
        hidden_size=64 if small else 1536,
        intermediate_size=128 if small else 4224,
        num_hidden_layers=2 if small else 3,
        num_attention_heads=4 if small else 12,
        num_key_value_heads=2 if small else 6,
        max_position_embeddings=1024,
        attention_dropout=0.0,
        use_cache=False,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).to(device=device, dtype=torch.bfloat16).train()


def collate(examples, device):
    """Stacks (prompt, answer) pairs into input ids and labels with the prompts masked."""
    ids = torch.stack([torch.cat([prompt, answer]) for prompt, answer in examples])
    labels = torch.stack(
        [torch.cat([torch.full_like(prompt, IGNORE), answer]) for prompt, answer in examples]
    )
    return {"input_ids": ids.to(device), "labels": labels.to(device)}


def make_examples(vocab, n, window, low, high):
    examples = []
    for length in torch.randint(low, high + 1, (n,)).tolist():
        tokens = torch.randint(0, vocab, (window,))
        examples.append((tokens[:-length], tokens[-length:]))
    return examples


def make(device, small):
    model = build_model(device, small)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    batch, window, low, high = (3, 24, 3, 6) if small else (6, 960, 64, 140)
    vocab = model.config.vocab_size
    batches = [collate(make_examples(vocab, batch, window, low, high), device) for _ in range(4)]
    count = 0

    def step():
        nonlocal count
        data = batches[count % len(batches)]
        count += 1
        loss = model(input_ids=data["input_ids"], labels=data["labels"]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step
