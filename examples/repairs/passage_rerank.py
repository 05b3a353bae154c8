"""Rerank passages with a causal language model that answers yes or no."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM


def build_model(small):
    config = Qwen3Config(
        vocab_size=2000 if small else 151936,
        hidden_size=64 if small else 1024,
        intermediate_size=128 if small else 3072,
        num_hidden_layers=2 if small else 12,
        num_attention_heads=4 if small else 16,
        num_key_value_heads=2 if small else 8,
        head_dim=16 if small else 64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


class Reranker:
    def __init__(self, model, yes_id, no_id):
        self.model = model
        self.yes_id = yes_id
        self.no_id = no_id

    @torch.inference_mode()
    def relevance(self, input_ids, attention_mask):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        last = out.logits[:, -1, :]
        pair = torch.stack([last[:, self.no_id], last[:, self.yes_id]], dim=1).float()
        return pair.softmax(dim=1)[:, 1]

    def rank(self, input_ids, attention_mask, n_passages):
        scores = self.relevance(input_ids, attention_mask).view(-1, n_passages)
        return scores, scores.argsort(dim=1, descending=True)


def candidate_batch(n, length, vocab, device):
    ids = torch.randint(3, vocab, (n, length), device=device)
    pads = torch.randint(0, length // 4, (n, 1), device=device)
    pads[0] = 0
    mask = (torch.arange(length, device=device)[None, :] >= pads).long()
    return ids * mask, mask


def make(device, small):
    torch.manual_seed(0)
    device = torch.device(device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = build_model(small).to(device=device, dtype=dtype).eval()
    reranker = Reranker(model, yes_id=1, no_id=2)
    n_queries, n_passages, length = (2, 2, 32) if small else (3, 16, 512)
    batches = [candidate_batch(n_queries * n_passages, length, model.config.vocab_size, device) for _ in range(4)]
    state = {"i": 0}

    def step():
        ids, mask = batches[state["i"] % len(batches)]
        state["i"] += 1
        scores, _ = reranker.rank(ids, mask, n_passages)
        return scores

    return step
