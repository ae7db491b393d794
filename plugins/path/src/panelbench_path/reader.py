"""A causal language model that reads several texts at once, a few tokens at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel


BLOCK = 64


class _Roomy(DynamicLayer):
    """A layer's memory with room to grow, so that a token copies none before it."""

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        *_more: object,
        **_options: object,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Remember some positions; all that there are."""
        had = self.get_seq_length()
        has = had + key_states.shape[2]
        if not had:
            self._room = [key_states[:, :, :0], value_states[:, :, :0]]
            self.lazy_initialization(key_states, value_states)
        for place, new in enumerate((key_states, value_states)):
            if has > self._room[place].shape[2]:
                wider = new.new_empty((*new.shape[:2], has + BLOCK, new.shape[3]))
                wider[:, :, :had] = self._room[place][:, :, :had]
                self._room[place] = wider
            self._room[place][:, :, had:has] = new
        self.keys, self.values = (room[:, :, :has] for room in self._room)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some texts."""
        has = self.get_seq_length()
        if has:
            self._room = [room[indices] for room in self._room]
            self.keys, self.values = (room[:, :, :has] for room in self._room)


class Reader:
    """Texts that grow, with the model's memory of what it read.

    New tokens are aligned on the right and what is missing on the left is masked, so that the last
    position is the last token of every text, whatever their lengths.

    Args:
        model: With the vocabulary of the texts.
        count: Number of texts.
    """

    def __init__(self, model: PreTrainedModel, count: int) -> None:
        self._model = model
        self._memory = DynamicCache(config=model.config)
        self._memory.layers = [
            _Roomy() if type(layer) is DynamicLayer else layer for layer in self._memory.layers
        ]
        self._mask = np.zeros((count, 0), dtype=np.int64)
        self._place = np.zeros(count, dtype=np.int64)

    @property
    def tokens(self) -> int:
        """Positions in the memory."""
        return self._mask.shape[1]

    def feed(self, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """Read on; scores of what comes next, shape (texts, vocabulary).

        Those of a text that got no token are meaningless.
        """
        lengths = np.array([len(text) for text in texts])
        wide = int(lengths.max())
        ids = np.zeros((len(texts), wide), dtype=np.int64)
        for text, row in zip(texts, ids, strict=True):
            if text:
                row[wide - len(text) :] = text
        new = (np.arange(wide) >= wide - lengths[:, None]).astype(np.int64)
        self._mask = np.concatenate([self._mask, new], axis=1)
        places = (self._place[:, None] + np.cumsum(new, axis=1) - 1).clip(min=0)
        self._place += lengths
        device = self._model.device
        masked: dict[str, Any] = {}
        if not self._mask.all():
            masked["attention_mask"] = torch.from_numpy(self._mask).to(device)
        found: Any = self._model.base_model(
            input_ids=torch.from_numpy(ids).to(device),
            position_ids=torch.from_numpy(places).to(device),
            cache=self._memory,
            use_cache=True,
            **masked,
        )
        head: Any = self._model.get_output_embeddings()  # type: ignore[no-untyped-call]  # of the library
        scores: torch.Tensor = head(found.last_hidden_state[:, -1]).float()
        return scores

    def keep(self, texts: np.ndarray) -> None:
        """Go on with some of the texts only."""
        self._mask, self._place = self._mask[texts], self._place[texts]
        if self.tokens:
            self._memory.batch_select_indices(torch.from_numpy(texts).to(self._model.device))


def drawn(
    scores: torch.Tensor,
    allowed: np.ndarray | None,
    rng: np.random.Generator,
    *,
    temperature: float,
    top_p: float,
) -> np.ndarray:
    """A token for each text, shape (texts,).

    Args:
        scores: Shape (texts, vocabulary).
        allowed: What may be drawn, same shape; None for everything.
        rng: The source of randomness.
        temperature: Scores are divided by it.
        top_p: Only the most likely tokens that together have this probability.
    """
    scores = scores / temperature
    if allowed is not None:
        scores = scores.masked_fill(~torch.from_numpy(allowed).to(scores.device), -torch.inf)
    chances = torch.softmax(scores.double(), dim=1)
    if top_p < 1:
        ordered, order = chances.sort(dim=1, descending=True)
        beyond = ordered.cumsum(dim=1) - ordered >= top_p
        chances = chances.scatter(1, order, ordered.masked_fill(beyond, 0.0))
    edges = chances.cumsum(dim=1).cpu().numpy()
    at = rng.random(len(edges))[:, None] * edges[:, -1:]
    picked = (at >= edges).sum(axis=1)
    return np.asarray(np.minimum(picked, edges.shape[1] - 1))
