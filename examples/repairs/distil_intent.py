"""Distillation of an intent classifier with Accelerate.

A small BERT student learns from a larger frozen BERT teacher: soft targets at a temperature plus the hard
labels. Mixed precision, gradient
clipping and the optimizer go through Accelerate. A step is one optimizer update on one batch of packed
utterances and returns the loss.
"""

import torch
import torch.nn.functional as F
from accelerate import Accelerator, cpu_offload
from transformers import BertConfig, BertForSequenceClassification

STEPS = 4
TEMPERATURE = 2.0
ALPHA = 0.7


def bert(vocab, hidden, layers, heads, labels):
    config = BertConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        max_position_embeddings=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=labels,
        attn_implementation="sdpa",
    )
    return BertForSequenceClassification(config)


def load_teacher(vocab, labels, device, small):
    """The frozen teacher, in bf16, ready to run on device."""
    teacher = bert(vocab, 64 if small else 768, 2 if small else 4, 4 if small else 12, labels)
    teacher = teacher.to(torch.bfloat16).eval().requires_grad_(False)
    return cpu_offload(teacher, execution_device=device)


def distillation_loss(student_logits, teacher_logits, labels):
    soft = (
        F.kl_div(
            F.log_softmax(student_logits.float() / TEMPERATURE, dim=-1),
            F.log_softmax(teacher_logits.float() / TEMPERATURE, dim=-1),
            log_target=True,
            reduction="batchmean",
        )
        * TEMPERATURE**2
    )
    hard = F.cross_entropy(student_logits.float(), labels)
    return ALPHA * soft + (1 - ALPHA) * hard


def make(device, small):
    accelerator = Accelerator(mixed_precision="bf16", cpu=device == "cpu")
    vocab, labels = (512, 12) if small else (30522, 150)
    student = bert(vocab, 48 if small else 384, 2 if small else 4, 4 if small else 6, labels)
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-4, weight_decay=0.01, fused=True)
    student, optimizer = accelerator.prepare(student, optimizer)
    teacher = load_teacher(vocab, labels, accelerator.device, small)
    student.train()

    batch, length = (4, 8) if small else (32, 64)
    batches = [
        (torch.randint(0, vocab, (batch, length)).to(device), torch.randint(0, labels, (batch,)).to(device))
        for _ in range(4)
    ]
    count = 0

    def step():
        nonlocal count
        input_ids, targets = batches[count % len(batches)]
        count += 1
        with torch.no_grad():
            teacher_logits = teacher(input_ids=input_ids).logits
        student_logits = student(input_ids=input_ids).logits
        loss = distillation_loss(student_logits, teacher_logits, targets)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step
