"""An LSTM on characters of Shakespeare, which is one of the tasks of the AdaComp paper (Chen et al., 2018).

As in char-rnn (Karpathy, 2015), which the text comes from: two layers, the rate of 0.002 and gradients clipped; the
width is between its default and its recommendation for larger texts. Unlike there: Adam, which AdaComp was tested
with, on half a cosine; windows of 64 characters that start without a state, and gradients clipped by their norm.
"""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from thinwire.lab.tasks.workload import Budget
from thinwire.lab.tasks.workloads.characters import CHARACTERS, CharacterModel
from thinwire.lab.tasks.workloads.schedules import cosine

WIDTH = 256


class Characters(nn.Module):
    """Two recurrent layers between an embedding and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.scores = nn.Linear(WIDTH, CHARACTERS)

    def forward(self, text: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(text))
        scores: Tensor = self.scores(states)
        return scores


class ShakespeareLSTM(CharacterModel):
    """Two recurrent layers that predict the next character."""

    window = 64
    batch = 64
    budgets: Mapping[str, Budget] = {
        "small": Budget(epochs=3, test=400),
        "plateau": Budget(epochs=16, validation=800, warmup=0.05, evaluations=16),
        "full": Budget(epochs=45),
    }

    def model(self) -> nn.Module:
        return Characters()

    def optimizer(self, model: nn.Module) -> Optimizer:
        return Adam(model.parameters(), lr=2e-3, fused=True)

    def schedule(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        return cosine(optimizer, steps)

    def adjust(self, model: nn.Module) -> None:
        clip_grad_norm_(model.parameters(), 5.0)
