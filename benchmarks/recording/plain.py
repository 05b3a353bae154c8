"""Six programs on timm, transformers, accelerate, lightning and torchvision, random weights: plain.py NAME STEPS."""

from __future__ import annotations

import os
import sys
import tempfile

from clock import DEVICE, SMALL, Clock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def timm_resnet(steps: int) -> None:
    """A ResNet in bfloat16 and channels_last, fed by workers, as timm's own training does it."""
    import timm
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Images(Dataset[tuple[torch.Tensor, int]]):
        def __len__(self) -> int:
            return steps * batch

        def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
            return torch.full((3, side, side), at % 7 / 7), at % 10

    batch, side = (4, 64) if SMALL else (64, 176)
    model = timm.create_model("resnet18" if SMALL else "resnet50", num_classes=10)
    clock = Clock()
    model.to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Images(), batch, num_workers=0 if SMALL else 6, pin_memory=not SMALL)
    for images, labels in loader:
        images = images.to(DEVICE, memory_format=torch.channels_last, non_blocking=True)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels.to(DEVICE, non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        clock.step()
    clock.save()


def hf_trainer(steps: int) -> None:
    """GPT-2 in the Trainer, which imports transformers before torch."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Steps(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args, state, control, **kwargs):  # type: ignore[no-untyped-def]
            clock.step()

    batch, length = (2, 16) if SMALL else (8, 512)
    config = GPT2Config(n_layer=2 if SMALL else 8, n_embd=64 if SMALL else 768, n_head=4 if SMALL else 12)
    model = GPT2LMHeadModel(config)
    ids = torch.randint(0, config.vocab_size, (steps * batch, length))
    data = [{"input_ids": row, "labels": row} for row in ids]
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        wanted = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=batch,
            bf16=not SMALL,
            save_strategy="no",
            logging_steps=10_000,
            report_to=[],
            disable_tqdm=True,
            use_cpu=SMALL,
        )
        Trainer(model=model, args=wanted, train_dataset=data, callbacks=[Steps()]).train()
    clock.save()


def accelerate_bert(steps: int) -> None:
    """BERT under accelerate, whose optimizer steps once per two batches."""
    import torch
    from accelerate import Accelerator
    from torch.utils.data import DataLoader
    from transformers import BertConfig, BertForSequenceClassification

    batch, length, layers = (2, 16, 2) if SMALL else (32, 128, 8)
    size = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128} if SMALL else {}
    config = BertConfig(num_hidden_layers=layers, num_labels=4, **size)
    model = BertForSequenceClassification(config)
    data = [
        {"input_ids": torch.randint(0, config.vocab_size, (length,)), "labels": torch.tensor(n % 4)}
        for n in range(2 * steps * batch)
    ]
    clock = Clock()
    accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="no" if SMALL else "bf16", cpu=SMALL)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch))
    for entry in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**entry).loss)
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                clock.step()
    clock.save()


def lightning_vit(steps: int) -> None:
    """torchvision's ViT in Lightning's Trainer."""
    import lightning
    import torch
    from torchvision.models import VisionTransformer

    class Classifier(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = VisionTransformer(side, 16, layers, 4 if SMALL else 6, width, 4 * width)

        def training_step(self, batch, at):  # type: ignore[no-untyped-def]
            images, labels = batch
            return torch.nn.functional.cross_entropy(self.model(images), labels)

        def on_train_batch_end(self, outputs, batch, at):  # type: ignore[no-untyped-def]
            clock.step()

        def configure_optimizers(self):  # type: ignore[no-untyped-def]
            return torch.optim.AdamW(self.parameters())

    batch, side, layers, width = (2, 32, 2, 64) if SMALL else (64, 128, 8, 384)
    images, labels = torch.randn(batch * 4, 3, side, side), torch.randint(0, 1000, (batch * 4,))
    data = [(images[n % len(images)], labels[n % len(labels)]) for n in range(batch * steps)]
    clock = Clock()
    trainer = lightning.Trainer(
        max_steps=steps,
        accelerator="cpu" if SMALL else "gpu",
        devices=1,
        precision="32-true" if SMALL else "bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), torch.utils.data.DataLoader(data, batch))
    clock.save()


def compiled_llama(steps: int) -> None:
    """A Llama under torch.compile with a fused AdamW."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    batch, length = (1, 16) if SMALL else (4, 1024)
    config = LlamaConfig(
        num_hidden_layers=1 if SMALL else 4,
        hidden_size=64 if SMALL else 1024,
        intermediate_size=128 if SMALL else 2816,
        num_attention_heads=4 if SMALL else 16,
        vocab_size=128 if SMALL else 32_000,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(torch.float32 if SMALL else torch.bfloat16)
    clock = Clock()
    model.to(DEVICE)
    fast = torch.compile(model, backend="eager" if SMALL else "inductor")
    optimizer = torch.optim.AdamW(model.parameters(), fused=not SMALL)
    for _ in range(steps):
        ids = torch.randint(0, config.vocab_size, (batch, length), device=DEVICE)
        fast(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        clock.step()
    clock.save()


def infer_towers(steps: int) -> None:
    """Inference of an image and a text tower, whose embeddings are compared on the CPU."""
    import timm
    import torch
    from transformers import BertConfig, BertModel

    batch = 2 if SMALL else 32
    size = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128} if SMALL else {}
    images = timm.create_model("resnet18" if SMALL else "convnext_tiny", num_classes=0).eval()
    texts = BertModel(BertConfig(num_hidden_layers=2 if SMALL else 6, **size)).eval()
    clock = Clock()
    images.to(DEVICE)
    texts.to(DEVICE)
    pictures = torch.randn(batch, 3, 64 if SMALL else 224, 64 if SMALL else 224)
    ids = torch.randint(0, 1000, (batch, 16 if SMALL else 64))
    with torch.inference_mode(), torch.autocast(DEVICE, torch.bfloat16):
        for _ in range(steps):
            left = images(pictures.to(DEVICE))
            right = texts(ids.to(DEVICE)).pooler_output
            size_of = min(left.shape[1], right.shape[1])
            (left[:, :size_of].float() @ right[:, :size_of].float().T).argmax(1).cpu()
            clock.step()
    clock.save()


PROGRAMS = {
    run.__name__: run for run in (timm_resnet, hf_trainer, accelerate_bert, lightning_vit, compiled_llama, infer_towers)
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](int(sys.argv[2]))
