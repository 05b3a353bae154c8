"""Constrained generation of catalogue records.

A small Llama-style decoder continues product descriptions with alternating attribute and value tokens.
Attribute tokens and value tokens come
from two closed vocabularies (the shop's catalogue), so decoding is restricted to one of them at each
position. Each step generates the records
for one batch of descriptions and returns the score of every chosen token, which is what the ranking service
stores.
"""

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList

STEPS = 4


class Catalogue:
    """The closed vocabularies: even positions hold attributes, odd positions hold values."""

    def __init__(self, vocab_size, n_attributes, n_values, seed=7):
        gen = torch.Generator().manual_seed(seed)
        order = (torch.randperm(vocab_size - 4, generator=gen) + 4).tolist()
        self.attributes = sorted(order[:n_attributes])
        self.values = sorted(order[n_attributes : n_attributes + n_values])


class CatalogueProcessor(LogitsProcessor):
    """Blocks all tokens outside the vocabulary of the current position, for the whole batch at once."""

    def __init__(self, catalogue, vocab_size, device):
        blocked = torch.ones(2, vocab_size, dtype=torch.bool)
        blocked[0, catalogue.attributes] = False
        blocked[1, catalogue.values] = False
        self.blocked = blocked.to(device)

    def __call__(self, input_ids, scores):
        return scores.masked_fill(self.blocked[input_ids.shape[-1] % 2], float("-inf"))


def build_model(device, small):
    config = LlamaConfig(
        vocab_size=512 if small else 32000,
        hidden_size=64 if small else 768,
        intermediate_size=128 if small else 2048,
        num_hidden_layers=2 if small else 4,
        num_attention_heads=4 if small else 12,
        num_key_value_heads=2 if small else 4,
        max_position_embeddings=512,
        initializer_range=0.05,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).to(device=device, dtype=torch.bfloat16).eval()


def make(device, small):
    model = build_model(device, small)
    vocab_size = model.config.vocab_size
    catalogue = Catalogue(vocab_size, *((40, 60) if small else (1200, 2400)))
    processors = LogitsProcessorList([CatalogueProcessor(catalogue, vocab_size, device)])
    batch, prompt_len = (3, 8) if small else (16, 48)
    prompts = [torch.randint(4, vocab_size, (batch, prompt_len)).to(device) for _ in range(4)]
    mask = torch.ones(batch, prompt_len, dtype=torch.long, device=device)
    generation = GenerationConfig(
        max_new_tokens=6,
        do_sample=False,
        use_cache=True,
        bos_token_id=1,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    count = 0

    @torch.inference_mode()
    def step():
        nonlocal count
        prompt = prompts[count % len(prompts)]
        count += 1
        out = model.generate(
            prompt,
            attention_mask=mask,
            generation_config=generation,
            logits_processor=processors,
        )
        return torch.stack([s.float().amax(dim=-1) for s in out.scores], dim=1)

    return step
