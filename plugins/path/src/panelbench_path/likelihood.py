"""The loss of texts under a causal language model, one number for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts:
    """Some texts, padded on the right.

    Attributes:
        ids: Shape (texts, tokens).
        states: The grammar's state that each token is drawn in, -1 where it is not scored.
        allowed: Tokens allowed in each state, shape (states, vocabulary).
    """

    ids: torch.Tensor
    states: torch.Tensor
    allowed: torch.Tensor


def losses(model: torch.nn.Module, texts: Texts) -> torch.Tensor:
    """Mean negative log likelihood of the scored tokens of each text, shape (texts,); 0 for none.

    Nothing is shared between texts: no mean over the batch (as the libraries' own loss takes, which
    divides by the tokens of all), and no mask is needed, because padding comes after all that is
    scored and the model looks back only. Each token is scored among those that its state allows,
    which is how it is drawn.
    """
    lm = cast("PreTrainedModel", model)
    hidden: Any = lm.base_model(input_ids=texts.ids[:, :-1], use_cache=False)[0]
    states, targets = texts.states[:, 1:], texts.ids[:, 1:]
    text, place = torch.nonzero(states >= 0, as_tuple=True)
    head: Any = lm.get_output_embeddings()  # type: ignore[no-untyped-call]  # of the library
    logits = head(hidden[text, place]).float()
    logits = logits.masked_fill(~texts.allowed[states[text, place]], -torch.inf)
    each = functional.cross_entropy(logits, targets[text, place], reduction="none")
    scored = torch.bincount(text, minlength=len(states)).clamp(min=1)
    nothing = 0.0 * hidden[:, -1].float().sum(dim=1)  # so that a text without scored tokens is 0
    total: torch.Tensor = nothing.index_add(0, text, each)
    return total / scored
