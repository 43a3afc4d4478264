"""VGG-16 on CIFAR-10 as in the AB-training paper: AdamW and the paper's constants instead of the task's own SGD."""

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from thinwire.lab.tasks.workloads.cifar10_vgg16 import Cifar10VGG16
from thinwire.lab.tasks.workloads.schedules import cosine


class VGG16(Cifar10VGG16):
    """The task `cifar10-vgg16` with another optimizer, label smoothing and clipped gradients."""

    def optimizer(self, model: nn.Module) -> Optimizer:
        return AdamW(model.parameters(), lr=0.003, weight_decay=0.1)

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        return cosine(optimizer, steps, warmup=10 / 150, end=1e-5 / 0.003)

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(inputs), targets, label_smoothing=0.1)

    def adjust(self, model: nn.Module) -> None:
        clip_grad_norm_(model.parameters(), 1.0)
