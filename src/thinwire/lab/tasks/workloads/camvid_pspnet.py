"""A small PSPNet on CamVid: the model of Zhao et al. (2017), on the data and in the role that the LGC paper gives it.

As in the PSPNet paper: a dilated residual backbone with an eighth of the image's resolution, pyramid pooling over 1,
2, 3 and 6 cells a side, the auxiliary loss with weight 0.4, momentum, weight decay, the "poly" schedule with power 0.9,
mirrored images. Unlike there: a backbone of seven narrow blocks, trained from scratch and so with a rate of 0.05
instead of 0.01, and images at half size.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from thinwire.lab.tasks.datasets import camvid
from thinwire.lab.tasks.datasets.camvid import CLASSES, IGNORED, Scenes
from thinwire.lab.tasks.workload import Budget, Part, Split, Workload
from thinwire.lab.tasks.workloads.schedules import poly

AUXILIARY = 0.4  # the weight of its loss
CELLS = (1, 2, 3, 6)  # per side, in the levels of the pyramid
EVALUATION_BATCH = 16


def conv(inputs: int, outputs: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    """A 3 x 3 convolution with its batch norm."""
    layer = nn.Conv2d(inputs, outputs, 3, stride, padding=dilation, dilation=dilation, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Two convolutions with a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.first = conv(inputs, outputs, stride, dilation)
        self.second = conv(outputs, outputs, dilation=dilation)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(F.relu(self.first(x)))
        return F.relu(y + self.shortcut(x))


class Pyramid(nn.Module):
    """Pyramid pooling: append to every position the means of its surroundings, in cells of four sizes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        # No batch norm here: the mean over the whole image is a single value, too few with one image per rank.
        self.levels = nn.ModuleList(nn.Conv2d(channels, channels // len(CELLS), 1) for _ in CELLS)

    def forward(self, x: Tensor) -> Tensor:
        around = [x]
        for cells, level in zip(CELLS, self.levels, strict=True):
            mean = F.relu(level(F.adaptive_avg_pool2d(x, cells)))
            around.append(F.interpolate(mean, size=x.shape[2:], mode="bilinear", align_corners=False))
        return torch.cat(around, 1)


class PSPNet(nn.Module):
    """Classifies each pixel; in training, also with an auxiliary classifier before the last stage."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, 16, stride=2), nn.ReLU(), conv(16, 32, stride=2), nn.ReLU())
        self.early = nn.Sequential(
            Block(32, 32), Block(32, 64, stride=2), Block(64, 64), Block(64, 96, dilation=2), Block(96, 96, dilation=2)
        )
        self.late = nn.Sequential(Block(96, 128, dilation=4), Block(128, 128, dilation=4))
        self.pyramid = Pyramid(128)
        self.classes = nn.Sequential(conv(256, 128), nn.ReLU(), nn.Conv2d(128, CLASSES, 1))
        self.auxiliary = nn.Sequential(conv(96, 48), nn.ReLU(), nn.Conv2d(48, CLASSES, 1))

    def forward(self, photos: Tensor) -> tuple[Tensor, Tensor]:
        """Scores [batch, classes, height, width], and the auxiliary scores."""
        half_way = self.early(self.stem(photos))
        scores = self.classes(self.pyramid(self.late(half_way)))
        full = photos.shape[2:]
        return (
            F.interpolate(scores, size=full, mode="bilinear", align_corners=False),
            F.interpolate(self.auxiliary(half_way), size=full, mode="bilinear", align_corners=False),
        )


class CamvidPSPNet(Workload):
    """A network that gives each pixel of a road scene a class."""

    batch = 16
    budgets: Mapping[str, Budget] = {
        "small": Budget(epochs=10, test=64),
        "plateau": Budget(epochs=60, validation=101, warmup=0.05, evaluations=12),
        "full": Budget(epochs=200),
    }
    metric = "test_mean_iou"

    def load(self, folder: Path | None) -> tuple[Scenes, Scenes]:
        return camvid.load(folder)

    def hold_back(self, training: Split, count: int, folder: Path | None) -> tuple[Split, Split]:
        """CamVid has a validation split of 101 scenes."""
        return training, Part(camvid.part(folder, "val"), torch.arange(count))

    def model(self) -> nn.Module:
        return PSPNet()

    def optimizer(self, model: nn.Module) -> Optimizer:
        return SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        return poly(optimizer, steps, power=0.9)

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        scores, auxiliary = model(inputs)
        return cross_entropy(scores, targets) + AUXILIARY * cross_entropy(auxiliary, targets)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, test: Split, examples: int) -> dict[str, float]:
        """Intersection over union, averaged over the classes, from the counts of all pixels."""
        counts = torch.zeros(CLASSES, CLASSES, dtype=torch.int64)  # [true class, predicted class]
        loss = 0.0
        for chosen in torch.split(torch.arange(examples), EVALUATION_BATCH):
            inputs, targets = test.batch(chosen, None)
            scores, _ = model(inputs)
            labeled = targets != IGNORED
            pairs = targets[labeled] * CLASSES + scores.argmax(1)[labeled]
            counts += pairs.bincount(minlength=CLASSES**2).view(CLASSES, CLASSES)
            loss += float(cross_entropy(scores, targets)) * int(labeled.sum())
        correct = counts.diagonal()
        union = counts.sum(0) + counts.sum(1) - correct
        return {
            "test_mean_iou": float((correct / union)[union > 0].mean()),
            "test_accuracy": float(correct.sum() / counts.sum()),
            "test_loss": loss / int(counts.sum()),
        }


def cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(scores, targets, ignore_index=IGNORED)
