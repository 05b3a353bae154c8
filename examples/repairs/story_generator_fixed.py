"""Generate story continuations with a GPT-2 style model."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList


class RepeatPenalty(LogitsProcessor):
    """Lowers the scores of tokens which a story already contains."""

    def __init__(self, penalty):
        self.penalty = penalty

    def __call__(self, input_ids, scores):
        s = scores.gather(1, input_ids)
        s = torch.where(s < 0, s * self.penalty, s / self.penalty)
        return scores.scatter(1, input_ids, s)


def build_model(small):
    config = GPT2Config(
        vocab_size=500 if small else 20000,
        n_positions=256,
        n_embd=64 if small else 512,
        n_layer=2 if small else 8,
        n_head=4 if small else 8,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    return GPT2LMHeadModel(config)


class StoryWriter:
    def __init__(self, model, max_new_tokens, penalty=1.3):
        self.model = model
        self.max_new_tokens = max_new_tokens
        self.processors = LogitsProcessorList([RepeatPenalty(penalty)])

    @torch.inference_mode()
    def continue_stories(self, prompts):
        return self.model.generate(
            input_ids=prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=self.max_new_tokens,
            do_sample=False,
            logits_processor=self.processors,
        )


def make(device, small):
    torch.manual_seed(0)
    device = torch.device(device)
    model = build_model(small).to(device).eval()
    writer = StoryWriter(model, max_new_tokens=4 if small else 12)
    n, length = (3, 8) if small else (32, 40)
    vocab = model.config.vocab_size
    batches = [torch.randint(2, vocab, (n, length), device=device) for _ in range(4)]
    state = {"i": 0}

    def step():
        prompts = batches[state["i"] % len(batches)]
        state["i"] += 1
        return writer.continue_stories(prompts)

    return step
