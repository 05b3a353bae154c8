"""Contrastive training of a sentence encoder on paraphrase pairs with sentence-transformers.

A BERT encoder with mean pooling is trained with in-batch negatives on (sentence, paraphrase) pairs, in bf16
autocast through Accelerate. The
pairs are tokenized ahead of time and held in pinned memory. A step is one optimizer update on one batch of
pairs and returns the loss.
"""

import random
import tempfile

import torch
from accelerate import Accelerator
from sentence_transformers import SentenceTransformer, losses, models
from transformers import BertConfig, BertModel, BertTokenizerFast

STEPS = 4
MAX_LENGTH = 128
WORDS = [f"w{i}" for i in range(2000)]


def build_encoder(device, small):
    hidden = 64 if small else 1024
    config = BertConfig(
        vocab_size=8192,
        hidden_size=hidden,
        num_hidden_layers=2 if small else 4,
        num_attention_heads=hidden // (16 if small else 64),
        intermediate_size=4 * hidden,
        max_position_embeddings=MAX_LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/vocab.txt", "w") as f:
            f.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
        BertTokenizerFast(f"{folder}/vocab.txt").save_pretrained(folder)
        BertModel(config).save_pretrained(folder)
        transformer = models.Transformer(folder, max_seq_length=MAX_LENGTH)
    pooling = models.Pooling(hidden, pooling_mode="mean")
    return SentenceTransformer(modules=[transformer, pooling], device=device)


def sentence(rng, low, high):
    return " ".join(rng.choices(WORDS, k=rng.randint(low, high)))


def tokenize(model, texts, pin):
    enc = model.tokenizer(
        texts, padding="longest", truncation=True, max_length=MAX_LENGTH, return_tensors="pt"
    )
    return {k: (v.pin_memory() if pin else v) for k, v in enc.items() if k in ("input_ids", "attention_mask")}


def make(device, small):
    rng = random.Random(3)
    accelerator = Accelerator(mixed_precision="bf16", cpu=device == "cpu")
    model = accelerator.prepare(build_encoder(device, small)).train()
    pin = device == "cuda"
    batch, low, high = (4, 8, 20) if small else (128, 60, 108)
    batches = [
        [tokenize(model, [sentence(rng, low, high) for _ in range(batch)], pin) for _ in range(2)]
        for _ in range(4)
    ]
    loss_fn = losses.MultipleNegativesRankingLoss(model, scale=20.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    count = 0

    def step():
        nonlocal count
        pair = batches[count % len(batches)]
        count += 1
        features = [{k: v.to(device, non_blocking=True) for k, v in side.items()} for side in pair]
        loss = loss_fn(features, labels=None)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step
