"""Detection of products on shelves, dense anchor-free detector (torchvision)."""

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import batched_nms, clip_boxes_to_image


class DenseHead(nn.Module):
    def __init__(self, channels, num_classes, depth=2):
        super().__init__()
        self.cls_tower = self.tower(channels, depth)
        self.box_tower = self.tower(channels, depth)
        self.cls_logits = nn.Conv2d(channels, num_classes, 3, padding=1)
        self.box_deltas = nn.Conv2d(channels, 4, 3, padding=1)

    @staticmethod
    def tower(channels, depth):
        layers = []
        for _ in range(depth):
            layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(32, channels), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, features):
        scores, deltas = [], []
        for x in features:
            scores.append(self.cls_logits(self.cls_tower(x)).flatten(2).transpose(1, 2))
            deltas.append(self.box_deltas(self.box_tower(x)).flatten(2).transpose(1, 2))
        return torch.cat(scores, 1).sigmoid(), F.softplus(torch.cat(deltas, 1))


class ShelfDetector(nn.Module):
    def __init__(self, num_classes, image_size, topk, iou_threshold=0.5, max_detections=100):
        super().__init__()
        self.backbone = resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)
        self.head = DenseHead(self.backbone.out_channels, num_classes)
        self.num_classes = num_classes
        self.image_size = image_size
        self.topk = topk
        self.iou_threshold = iou_threshold
        self.max_detections = max_detections
        centers, strides = self.grid(image_size)
        self.register_buffer("centers", centers)
        self.register_buffer("strides", strides)

    @staticmethod
    def grid(image_size):
        centers, strides = [], []
        for stride in (4, 8, 16, 32, 64):
            axis = (torch.arange(image_size // stride) + 0.5) * stride
            y, x = torch.meshgrid(axis, axis, indexing="ij")
            centers.append(torch.stack([x, y], dim=-1).reshape(-1, 2))
            strides.append(torch.full((x.numel(), 1), 4.0 * stride))
        return torch.cat(centers), torch.cat(strides)

    def decode(self, deltas):
        distances = deltas * self.strides
        boxes = torch.cat([self.centers - distances[..., :2], self.centers + distances[..., 2:]], dim=-1)
        return clip_boxes_to_image(boxes, (self.image_size, self.image_size))

    def suppress(self, boxes, scores, labels):
        keep = batched_nms(boxes, scores, labels, self.iou_threshold)
        return keep[: self.max_detections]

    def forward(self, images):
        features = list(self.backbone(images).values())
        scores, deltas = self.head(features)
        boxes = self.decode(deltas)
        best, index = scores.flatten(1).topk(self.topk, dim=1)
        location, label = index // self.num_classes, index % self.num_classes
        detections = []
        for i in range(images.shape[0]):
            candidates = boxes[i, location[i]]
            keep = self.suppress(candidates, best[i], label[i])
            detections.append({"boxes": candidates[keep], "scores": best[i, keep], "labels": label[i, keep]})
        return detections


def make(device, small):
    torch.manual_seed(0)
    batch, size, topk = (1, 128, 200) if small else (4, 320, 1000)
    num_classes = 24
    model = ShelfDetector(num_classes, size, topk).to(device).eval()
    images = torch.randn(batch, 3, size, size, device=device)

    @torch.inference_mode()
    def step():
        return model(images)

    return step
