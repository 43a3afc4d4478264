import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from thinwire.lab.tasks.datasets.camvid import CLASSES, HEIGHT, IGNORED, WIDTH, Scenes
from thinwire.lab.tasks.workloads.camvid_pspnet import CamvidPSPNet, PSPNet


class ClassFromPhoto(nn.Module):
    """Predicts for each pixel the class that is stored in the photo's first channel."""

    def forward(self, photos):
        classes = (photos[:, 0] * 58.395 + 123.675).round().long()
        scores = 9.0 * F.one_hot(classes, CLASSES).movedim(-1, 1)
        return scores, torch.zeros_like(scores)


def scenes(predicted, true):
    photos = np.zeros((*predicted.shape, 3), np.uint8)
    photos[..., 0] = predicted
    return Scenes(photos, true)


def test_mean_iou_is_computed_over_the_labeled_pixels_of_all_scenes():
    generator = np.random.default_rng(0)
    true = generator.integers(0, IGNORED + 1, (20, HEIGHT, WIDTH), np.uint8)
    predicted = np.where(generator.random(true.shape) < 0.6, true, 5).astype(np.uint8) % CLASSES
    labeled = true != IGNORED
    overlap = []
    for number in range(CLASSES):
        positive, actual = predicted[labeled] == number, true[labeled] == number
        overlap.append((positive & actual).sum() / (positive | actual).sum())
    metrics = CamvidPSPNet().evaluate(ClassFromPhoto(), scenes(predicted, true), 20)
    assert metrics["test_mean_iou"] == pytest.approx(np.mean(overlap), rel=1e-6)
    assert metrics["test_accuracy"] == pytest.approx((predicted == true)[labeled].mean(), rel=1e-6)


def test_a_class_without_pixels_is_ignored():
    true = np.zeros((1, HEIGHT, WIDTH), np.uint8)
    true[:, 90:] = 3
    predicted = true.copy()
    predicted[:, 90:, 120:] = 0  # half of the road is classified as sky
    metrics = CamvidPSPNet().evaluate(ClassFromPhoto(), scenes(predicted, true), 1)
    assert metrics["test_mean_iou"] == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_unlabeled_pixels_give_no_gradient():
    torch.manual_seed(0)
    scores = torch.randn(1, CLASSES, 8, 8, requires_grad=True)
    targets = torch.zeros(1, 8, 8, dtype=torch.int64)
    targets[:, :4] = IGNORED
    CamvidPSPNet().loss(lambda _: (scores, scores.detach()), scores, targets).backward()
    assert scores.grad[:, :, :4].abs().max() == 0
    assert scores.grad[:, :, 4:].abs().min() > 0


def test_a_rank_can_train_on_a_single_scene():
    torch.manual_seed(0)
    scores, auxiliary = PSPNet().train()(torch.randn(1, 3, HEIGHT, WIDTH))
    assert scores.shape == auxiliary.shape == (1, CLASSES, HEIGHT, WIDTH)
