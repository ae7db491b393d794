"""Facts about the public model: made-up tables, pretraining, and the file that is shipped."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import TYPE_CHECKING

import numpy as np
import torch

from panelbench_path.layout import MISSING, NONE, SLOTS, VOCABULARY, neighbors
from panelbench_path.pretrain import Settings, batch, pretrain
from panelbench_path.prior import population
from panelbench_path.transformer import Cells, Memory, Shape, Transformer
from panelbench_path.weights import SHIPPED, load, save, settings_of

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Shape(width=16, layers=1, heads=2, inner=16)


def test_made_up_tables_hold_only_what_their_bias_allows() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = population(rng, tables=20, others=10)
        there = np.arange(drawn.tokens.shape[1]) < drawn.rows[:, None]
        assert (drawn.tokens[~there] == NONE).all()
        for column in range(drawn.tokens.shape[2]):
            held = drawn.tokens[..., column][there]
            assert np.isfinite(drawn.bias[column, held]).all()
        assert drawn.bias.shape == (SLOTS, VOCABULARY)
        shares = np.exp(drawn.bias[: drawn.tokens.shape[2]]).sum(axis=1)
        np.testing.assert_allclose(shares, 1.0)


def test_made_up_tables_vary_in_columns_length_and_missing_values() -> None:
    rng = np.random.default_rng(1)
    drawn = [population(rng, tables=10, others=5) for _ in range(40)]
    assert len({one.tokens.shape[2] for one in drawn}) > 5
    assert len({one.tokens.shape[1] for one in drawn}) > 10
    gone = [bool((one.tokens == MISSING).any()) for one in drawn]
    assert any(gone)
    assert not all(gone)


def test_rows_of_made_up_tables_depend_on_the_row_before() -> None:
    rng = np.random.default_rng(2)
    found = []
    for _ in range(30):
        drawn = population(rng, tables=60, others=1)
        first, second = drawn.tokens[:, 0, 0], drawn.tokens[:, 1, 0]
        found.append(np.corrcoef(first, second)[0, 1] if first.std() and second.std() else 0.0)
    assert np.mean(found) > 0.15


def test_a_table_reads_its_neighbors() -> None:
    tokens = np.array([[[5, 6], [7, 8], [9, 10]]])
    read = neighbors(tokens, np.array([3]), starts=np.array([0]), window=9)
    assert read["target"].tolist() == [[5, 6, 7, 8, 9, 10]]
    assert read["left"].tolist() == [[0, 5, 6, 7, 8, 9]]
    assert read["above"].tolist() == [[0, 0, 5, 6, 7, 8]]
    assert read["beyond"].tolist() == [[0, 0, 0, 0, 5, 6]]
    assert read["slot"].tolist() == [[0, 1, 0, 1, 0, 1]]


def test_a_window_sees_the_rows_before_it_as_neighbors_only() -> None:
    tokens = np.array([[[5, 6], [7, 8], [9, 10]], [[5, 6], [0, 0], [0, 0]]])
    read = neighbors(tokens, np.array([3, 1]), starts=np.array([1, 0]), window=1)
    assert read["target"].tolist() == [[7, 8], [5, 6]]
    assert read["left"].tolist() == [[6, 7], [0, 5]]
    assert read["above"].tolist() == [[5, 6], [0, 0]]


def test_a_time_of_day_is_no_neighbor_of_a_gap() -> None:
    tokens = np.array([[[5, 6], [7, 8], [9, 10]]])
    read = neighbors(tokens, np.array([3]), starts=np.array([0]), window=9, clock=True)
    assert read["slot"].tolist() == [[2, 1, 0, 1, 0, 1]]
    assert read["above"].tolist() == [[0, 0, 0, 6, 7, 8]]
    assert read["beyond"].tolist() == [[0, 0, 0, 0, 0, 6]]


def test_cells_one_by_one_are_the_cells_at_once() -> None:
    torch.manual_seed(0)
    model = Transformer(SMALL)
    cells, _, _ = batch(np.random.default_rng(0), 1, 3)
    whole = model(cells)
    memory = Memory(10_000)
    fields = [field.name for field in dataclasses.fields(Cells)]
    for place in range(5):
        one = Cells(**{name: getattr(cells, name)[:, place : place + 1] for name in fields})
        torch.testing.assert_close(model(one, memory)[:, 0], whole[:, place], rtol=1e-4, atol=1e-5)


def test_a_cell_does_not_see_itself_or_what_follows() -> None:
    torch.manual_seed(0)
    model = Transformer(SMALL)
    tokens = np.random.default_rng(0).integers(2, 30, (1, 4, 2))
    before = neighbors(tokens, np.array([4]), starts=np.array([0]), window=4)
    changed = tokens.copy()
    changed[0, 2:] = 31
    after = neighbors(changed, np.array([4]), starts=np.array([0]), window=4)
    one, other = (
        model(Cells(**{name: torch.from_numpy(array) for name, array in read.items()}))
        for read in (before, after)
    )
    assert torch.equal(one[0, :5], other[0, :5])
    assert not torch.equal(one[0, 5:], other[0, 5:])


def digest(model: Transformer) -> str:
    rounded = [
        t.detach().numpy().astype(np.float64).round(4) + 0.0 for t in model.state_dict().values()
    ]
    return hashlib.sha256(b"".join(array.tobytes() for array in rounded)).hexdigest()


def test_pretraining_gives_the_same_model_again() -> None:
    settings = Settings(steps=2, populations=1, tables=2)
    runs = [pretrain(settings, lambda _: None, shape=SMALL) for _ in range(2)]
    assert runs[0][1] == runs[1][1]
    assert digest(runs[0][0]) == digest(runs[1][0])


def test_the_first_steps_of_the_shipped_model_are_as_they_were() -> None:
    _, losses = pretrain(dataclasses.replace(Settings(), steps=3), lambda _: None)
    np.testing.assert_allclose(losses, FIRST_LOSSES, rtol=2e-3)


FIRST_LOSSES = [2.40110, 2.60551, 2.77495]


def test_the_shipped_file_was_made_with_the_defaults_of_the_script() -> None:
    assert settings_of() == dataclasses.asdict(Settings())
    assert load().shape == Shape()
    assert SHIPPED.stat().st_size < 3_000_000


def test_the_shipped_model_knows_more_than_marginals() -> None:
    cells, bias, scores = batch(np.random.default_rng(12345), 24, 3)  # not the seed of training
    model = load()
    there = cells.target != NONE
    with torch.no_grad():
        scores = torch.log_softmax(
            torch.where(there[..., None], model(cells) + bias + model.weighted(scores), 0.0), dim=-1
        )
        alone = torch.log_softmax(torch.where(there[..., None], bias, 0.0), dim=-1)
    own, plain = (
        -s.gather(-1, cells.target[..., None])[..., 0][there].mean() for s in (scores, alone)
    )
    assert float(own) < float(plain) - 0.05


def test_weights_survive_the_file(tmp_path: Path) -> None:
    model = Transformer(SMALL)
    save(model, tmp_path / "w.npz", {"steps": 1})
    again = load(tmp_path / "w.npz")
    assert settings_of(tmp_path / "w.npz") == {"steps": 1}
    for name, tensor in again.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-3, atol=1e-4)
