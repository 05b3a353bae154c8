"""Fine-tuning a ViT on high-resolution photographs of birds (timm)."""

import timm
import torch
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2


class AttentionRollout:
    """Collects the attention maps of every block and multiplies them up."""

    def __init__(self, model):
        self.model = model
        self.maps = []
        self.hooks = []

    def __enter__(self):
        self.fused = [block.attn.fused_attn for block in self.model.blocks]
        for block in self.model.blocks:
            block.attn.fused_attn = False
            self.hooks.append(
                block.attn.attn_drop.register_forward_hook(
                    lambda module, args, output: self.maps.append(output.detach())
                )
            )
        return self

    def __exit__(self, *exc):
        for hook in self.hooks:
            hook.remove()
        self.hooks.clear()
        for block, fused in zip(self.model.blocks, self.fused, strict=False):
            block.attn.fused_attn = fused

    def rollout(self):
        joint = None
        for attn in self.maps:
            attn = attn.float().mean(dim=1)
            attn = attn + torch.eye(attn.shape[-1], device=attn.device)
            attn = attn / attn.sum(dim=-1, keepdim=True)
            joint = attn if joint is None else attn @ joint
        self.maps.clear()
        return joint[:, 0, 1:]


class Trainer:
    def __init__(self, device, small):
        self.device = torch.device(device)
        self.num_classes = 10 if small else 555
        size = 64 if small else 384
        overrides = {"embed_dim": 96, "depth": 2, "num_heads": 3} if small else {}
        self.model = timm.create_model(
            "vit_base_patch16_384", pretrained=False, img_size=size, num_classes=self.num_classes, **overrides
        ).to(self.device)
        self.explainer = AttentionRollout(self.model)
        self.criterion = SoftTargetCrossEntropy()
        self.optimizer = create_optimizer_v2(self.model, opt="adamw", lr=3e-5, weight_decay=0.05)
        batch = 4 if small else 40
        self.batches = [
            (
                torch.randn(batch, 3, size, size, device=self.device),
                torch.randint(self.num_classes, (batch,), device=self.device),
            )
            for _ in range(2)
        ]
        self.iteration = 0

    def soft_targets(self, labels, smoothing=0.1):
        off = smoothing / self.num_classes
        target = torch.full((labels.shape[0], self.num_classes), off, device=labels.device)
        return target.scatter_(1, labels[:, None], 1.0 - smoothing + off)

    def train_step(self):
        images, labels = self.batches[self.iteration % len(self.batches)]
        self.iteration += 1
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(images)
        loss = self.criterion(logits.float(), self.soft_targets(labels))
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def make(device, small):
    torch.manual_seed(0)
    trainer = Trainer(device, small)
    trainer.model.train()
    return trainer.train_step
