"""Fine-tune a sentence embedding model on duplicate question pairs."""

import itertools
import os
import random
import tempfile

import torch
import torch.nn.functional as F
from sentence_transformers import SentenceTransformer, util
from sentence_transformers.models import Pooling, Transformer
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertModel, BertTokenizerFast


def build_vocab(size):
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [f"w{i}" for i in range(size)]


def build_encoder(small):
    config = BertConfig(
        vocab_size=2005 if small else 30005,
        hidden_size=64 if small else 768,
        num_hidden_layers=2 if small else 12,
        num_attention_heads=4 if small else 12,
        intermediate_size=128 if small else 3072,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with tempfile.TemporaryDirectory() as path:
        vocab = os.path.join(path, "vocab.txt")
        with open(vocab, "w") as f:
            f.write("\n".join(build_vocab(config.vocab_size - 5)))
        BertTokenizerFast(vocab).save_pretrained(path)
        BertModel(config).save_pretrained(path)
        word = Transformer(path, max_seq_length=128 if small else 512)
    pool = Pooling(config.hidden_size, pooling_mode="mean")
    return SentenceTransformer(modules=[word, pool], device="cpu"), config.vocab_size - 5


class QuestionPairs(Dataset):
    def __init__(self, tokenizer, n, n_words, max_words):
        rng = random.Random(0)
        vocab = tokenizer.get_vocab()
        words = [f"w{i}" for i in range(n_words)]
        cls, sep = vocab["[CLS]"], vocab["[SEP]"]
        self.items = []
        for _ in range(n):
            pair = []
            for _ in range(2):
                length = rng.randint(max_words // 4, max_words)
                ids = [vocab[w] for w in rng.choices(words, k=length)]
                pair.append(torch.tensor([cls, *ids, sep]))
            self.items.append(tuple(pair))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class PairCollator:
    def __init__(self, pad_id, max_length):
        self.pad_id = pad_id
        self.max_length = max_length

    def pad(self, seqs):
        seqs = [s[: self.max_length] for s in seqs]
        width = max(len(s) for s in seqs)
        ids = torch.stack([F.pad(s, (0, width - len(s)), value=self.pad_id) for s in seqs])
        return {"input_ids": ids, "attention_mask": (ids != self.pad_id).long()}

    def __call__(self, batch):
        left, right = zip(*batch, strict=False)
        return self.pad(left), self.pad(right)


class InBatchNegatives(torch.nn.Module):
    def __init__(self, model, scale=20.0):
        super().__init__()
        self.model = model
        self.scale = scale

    def forward(self, anchors, positives):
        a = self.model(anchors)["sentence_embedding"]
        b = self.model(positives)["sentence_embedding"]
        scores = util.cos_sim(a, b) * self.scale
        return F.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def make(device, small):
    torch.manual_seed(0)
    device = torch.device(device)
    model, n_words = build_encoder(small)
    model.to(device).train()
    batch_size = 4 if small else 40
    max_length = model.max_seq_length
    data = QuestionPairs(model.tokenizer, batch_size * 8, n_words, max_length // 2)
    loader = DataLoader(
        data,
        batch_size=batch_size,
        collate_fn=PairCollator(model.tokenizer.pad_token_id, max_length),
        pin_memory=device.type == "cuda",
        drop_last=True,
    )
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    criterion = InBatchNegatives(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=device.type == "cuda")

    def to_device(features):
        return {k: v.to(device, non_blocking=True) for k, v in features.items()}

    def step():
        anchors, positives = next(batches)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = criterion(to_device(anchors), to_device(positives))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step
