"""The small model that this package ships: Gemma 3 with 0.8 million weights, reserved tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panelbench import DataError
from panelbench_path import reserved

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WEIGHTS = Path(__file__).with_name("text.npz")
SHAPE: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 384,
}
"""Sizes, in the words of Hugging Face."""


def fresh(seed: int) -> PreTrainedModel:
    """The untrained model; global random state is used and put back."""
    import torch  # noqa: PLC0415 - cells fork from a parent that has not imported it
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig  # noqa: PLC0415 - likewise

    config = Gemma3TextConfig(
        vocab_size=reserved.SIZE,
        layer_types=["full_attention"] * SHAPE["num_hidden_layers"],
        query_pre_attn_scalar=SHAPE["head_dim"],
        max_position_embeddings=4096,
        initializer_range=0.04,
        pad_token_id=None,
        bos_token_id=reserved.START,
        eos_token_id=reserved.STOP,
        **SHAPE,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: PreTrainedModel = Gemma3ForCausalLM(config)
    model.train(mode=False)
    return model


def save(model: PreTrainedModel, path: Path, settings: dict[str, Any]) -> None:
    """Write the weights at half precision, with the settings that made them."""
    arrays: dict[str, Any] = {
        name: parameter.detach().numpy().astype(np.float16)
        for name, parameter in model.named_parameters()
    }
    with path.open("wb") as file:
        np.savez_compressed(file, settings=np.array(json.dumps(settings)), **arrays)


def settings(path: Path = WEIGHTS) -> dict[str, Any]:
    """What made a file of weights."""
    with np.load(path, allow_pickle=False) as kept:
        found: dict[str, Any] = json.loads(str(kept["settings"]))
    return found


def load(path: Path = WEIGHTS) -> PreTrainedModel:
    """The model with the weights of a file, in single precision.

    Raises:
        DataError: Where the file is not there or is not of this model.
    """
    import torch  # noqa: PLC0415 - cells fork from a parent that has not imported it

    model = fresh(0)
    try:
        with np.load(path, allow_pickle=False) as kept, torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(torch.from_numpy(kept[name].astype(np.float32)))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"'{path.name}' does not hold the weights of the shipped model ({error}); reinstall "
            f"panelbench-path, or make them again with `python -m panelbench_path.pretrain_text`."
        ) from error
    return model
