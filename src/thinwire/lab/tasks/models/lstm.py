"""A word-level LSTM language model: most parameters sit in one embedding shared with the decoder."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS = 28_869


class LanguageModel(nn.Module):
    """Predict each next word of a text from the words before it."""

    # There is no dropout: its masks come from the global generator, and a seed must determine the gradients.

    def __init__(self, words: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.decoder_bias = nn.Parameter(torch.zeros(words))
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, text: Tensor) -> Tensor:
        """Map word numbers (batch, steps) to logits (batch, steps, words)."""
        states, _ = self.lstm(self.embedding(text))
        # The decoder is tied: a word's logit is how well the state matches that word's embedding.
        return F.linear(states, self.embedding.weight, self.decoder_bias)


def lstm() -> nn.Module:
    """Build a three-layer language model of width 650 with tied embedding and decoder."""
    return LanguageModel(WORDS, width=650, layers=3)
