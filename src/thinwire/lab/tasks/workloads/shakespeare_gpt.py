"""A small transformer on the characters of Tiny Shakespeare, as nanoGPT trains one on a CPU (Karpathy, 2022).

As there: four layers of four heads and width 128, windows of 64 characters, AdamW with its constants, a warm-up and
half a cosine to a tenth of the rate, gradients clipped to norm 1, no dropout. Unlike there: batches of 32 and not
12 windows, and the epochs.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from thinwire.lab.tasks.workload import Budget
from thinwire.lab.tasks.workloads.characters import CHARACTERS, CharacterModel
from thinwire.lab.tasks.workloads.schedules import cosine

WINDOW, LAYERS, HEADS, WIDTH = 64, 4, 4, 128
SPREAD = 0.02  # of initial weights


class Block(nn.Module):
    """Causal self-attention, then an MLP, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, bias=False)
        self.queries_keys_values = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.looked = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm2 = nn.LayerNorm(WIDTH, bias=False)
        self.wide = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, _ = x.shape
        parts = self.queries_keys_values(self.norm1(x)).view(batch, steps, 3, HEADS, -1)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.looked(seen.transpose(1, 2).flatten(2))
        thought: Tensor = self.narrow(F.gelu(self.wide(self.norm2(x))))
        return x + thought


class GPT(nn.Module):
    """Predict each next character from those before it in the window."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.places = nn.Embedding(WINDOW, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # Every block adds to the same residual stream, so with more blocks each starts smaller.
                adds = name.endswith(("looked.weight", "narrow.weight"))
                nn.init.normal_(parameter, std=SPREAD / math.sqrt(2 * LAYERS) if adds else SPREAD)

    def forward(self, text: Tensor) -> Tensor:
        x = self.characters(text) + self.places(torch.arange(text.shape[1], device=text.device))
        # Tied weights: a character's score is the dot product with its embedding.
        return F.linear(self.norm(self.blocks(x)), self.characters.weight)


class ShakespeareGPT(CharacterModel):
    """A transformer that predicts the next character: dense matrices and embeddings."""

    window = WINDOW
    batch = 32
    budgets: Mapping[str, Budget] = {
        "small": Budget(epochs=3, test=400),
        "plateau": Budget(epochs=16, validation=800, evaluations=16),
        "full": Budget(epochs=20),
    }

    def model(self) -> nn.Module:
        return GPT()

    def optimizer(self, model: nn.Module) -> Optimizer:
        groups = [
            {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
        ]
        return AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        return cosine(optimizer, steps, warmup=0.05, end=0.1)

    def adjust(self, model: nn.Module) -> None:
        clip_grad_norm_(model.parameters(), 1.0)
