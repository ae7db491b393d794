"""The public weights in a file, at half precision, with the settings that made them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from panelbench_path.transformer import Shape, Transformer

SHIPPED = Path(__file__).with_name("cells.npz")


def save(model: Transformer, path: Path, settings: dict[str, Any]) -> None:
    """Write a model and how it was made."""
    arrays = {name: t.detach().numpy().astype(np.float16) for name, t in model.state_dict().items()}
    facts = json.dumps({"shape": dataclasses.asdict(model.shape), "settings": settings})
    with path.open("wb") as file:
        np.savez_compressed(file, facts=np.array(facts), **arrays)


def settings_of(path: Path = SHIPPED) -> dict[str, Any]:
    """How a model was made."""
    with np.load(path, allow_pickle=False) as kept:
        settings: dict[str, Any] = json.loads(str(kept["facts"]))["settings"]
    return settings


def load(path: Path = SHIPPED) -> Transformer:
    """Read a model, in single precision."""
    with np.load(path, allow_pickle=False) as kept:
        model = Transformer(Shape(**json.loads(str(kept["facts"]))["shape"]))
        state = {
            name: torch.from_numpy(kept[name].astype(np.float32))
            for name in kept.files
            if name != "facts"
        }
    model.load_state_dict(state)
    return model
