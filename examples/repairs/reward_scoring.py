"""Score candidate answers with a LoRA-tuned reward model."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForSequenceClassification


def build_backbone(small, dtype):
    config = LlamaConfig(
        vocab_size=1000 if small else 32000,
        hidden_size=64 if small else 2048,
        intermediate_size=128 if small else 5504,
        num_hidden_layers=2 if small else 16,
        num_attention_heads=4 if small else 16,
        num_key_value_heads=4 if small else 16,
        max_position_embeddings=2048,
        num_labels=1,
        pad_token_id=0,
    )
    return LlamaForSequenceClassification(config).to(dtype)


def load_reward_model(device, small):
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    backbone = build_backbone(small, dtype)
    lora = LoraConfig(
        task_type="SEQ_CLS",
        r=16,
        lora_alpha=16,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        init_lora_weights=False,
    )
    model = get_peft_model(backbone, lora, autocast_adapter_dtype=False)
    return model.to(device=device, dtype=dtype).eval()


class RewardScorer:
    def __init__(self, model):
        self.model = model

    @torch.inference_mode()
    def score(self, prompts, answers):
        ids = torch.cat([prompts, answers], dim=1)
        out = self.model(input_ids=ids, use_cache=False)
        return out.logits.squeeze(-1).float()

    def best_of_n(self, prompts, answers, n):
        rewards = self.score(prompts.repeat_interleave(n, dim=0), answers)
        rewards = rewards.view(-1, n)
        return rewards, rewards.argmax(dim=1)


def make(device, small):
    torch.manual_seed(0)
    device = torch.device(device)
    model = load_reward_model(device, small)
    scorer = RewardScorer(model)
    n_prompts, n = (2, 2) if small else (4, 8)
    prompt_len, answer_len = (8, 24) if small else (128, 384)
    vocab = model.config.vocab_size
    batches = [
        (
            torch.randint(1, vocab, (n_prompts, prompt_len), device=device),
            torch.randint(1, vocab, (n_prompts * n, answer_len), device=device),
        )
        for _ in range(4)
    ]
    state = {"i": 0}

    def step():
        prompts, answers = batches[state["i"] % len(batches)]
        state["i"] += 1
        rewards, _ = scorer.best_of_n(prompts, answers, n)
        return rewards

    return step
