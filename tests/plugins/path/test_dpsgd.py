"""Facts about DP-SGD by user: what is summed, what is noised, what a user can change."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from panelbench_path.books import Books
from panelbench_path.checkpoint import Shelf
from panelbench_path.dpsgd import Plan, train
from panelbench_path.lora import attach, merge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USERS, POSITIONS, WIDTH = 7, 5, 6


class Mixer(nn.Module):
    """Two layers, positions mixed between them, one layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(11, WIDTH)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.outer = nn.Linear(WIDTH, 11, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.inner(self.embed(tokens)))
        x = torch.tanh(self.inner(x.cumsum(dim=1)))
        scores: torch.Tensor = self.outer(x)
        return scores


def batch() -> torch.Tensor:
    return torch.randint(0, 11, (USERS, POSITIONS), generator=torch.Generator().manual_seed(1))


def losses_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    scores = model(tokens)[:, :-1]
    loss = nn.functional.cross_entropy(
        scores.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    )
    return loss.reshape(len(tokens), -1).mean(dim=1)


def summed(model: nn.Module, layers: list[nn.Linear], clip: float, tokens: torch.Tensor) -> Any:
    books = Books(model, layers)
    sums = [torch.zeros_like(layer.weight) for layer in layers]
    model.requires_grad_(requires_grad=False)
    _, norms = books.add_clipped(losses_of, tokens, clip, sums)
    books.close()
    model.requires_grad_(requires_grad=True)
    return sums, norms


def one_by_one(
    model: nn.Module, layers: list[nn.Linear], tokens: torch.Tensor
) -> list[list[torch.Tensor]]:
    weights = [layer.weight for layer in layers]
    return [
        list(torch.autograd.grad(losses_of(model, tokens[k : k + 1]).sum(), weights))
        for k in range(len(tokens))
    ]


def clipped(
    gradients: list[list[torch.Tensor]], clip: float
) -> tuple[list[torch.Tensor], torch.Tensor]:
    norms = torch.stack([torch.cat([g.flatten() for g in user]).norm() for user in gradients])
    shares = [min(1.0, clip / float(norm)) for norm in norms]
    total = [
        sum(share * user[k] for share, user in zip(shares, gradients, strict=True))
        for k in range(len(gradients[0]))
    ]
    return total, norms  # type: ignore[return-value]  # sum of tensors


@pytest.mark.parametrize("kind", ["all", "lora"])
def test_norms_and_clipped_sum_are_those_of_a_loop_over_single_users(kind: str) -> None:
    model = Mixer()
    layers = [model.inner, model.outer]
    if kind == "lora":
        layers = attach(model, rank=2, alpha=4.0, seed=3)
        for layer in layers:  # away from the start, where half of the gradients are zero
            nn.init.normal_(layer.weight, std=0.3)
    tokens = batch()
    expected, norms = clipped(one_by_one(model, layers, tokens), clip=0.7)
    sums, found = summed(model, layers, 0.7, tokens)
    assert (norms > 0.7).any()
    assert (norms < 0.7).any() or kind == "all"
    torch.testing.assert_close(found, norms, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(sums, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_norms_are_those_of_vmap() -> None:
    model = Mixer()
    tokens = batch()
    named = {name: p.detach() for name, p in model.named_parameters() if name.endswith("r.weight")}

    def loss(weights: dict[str, torch.Tensor], one: torch.Tensor) -> torch.Tensor:
        def call(_model: nn.Module, given: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = functional_call(model, weights, (given,))
            return out

        scores = call(model, one[None])[0, :-1]
        return nn.functional.cross_entropy(scores, one[1:])

    by_user = vmap(grad(loss), in_dims=(None, 0))(named, tokens)
    squares = torch.stack([g.flatten(1).square().sum(dim=1) for g in by_user.values()])
    _, norms = summed(model, [model.inner, model.outer], 1.0, tokens)
    torch.testing.assert_close(norms, squares.sum(dim=0).sqrt(), rtol=1e-5, atol=1e-6)


def test_two_ways_to_a_norm_agree() -> None:
    wide = nn.Linear(400, 300, bias=False)  # forming its gradients is dearer than the products
    read = torch.randn(3, 4, 400, generator=torch.Generator().manual_seed(2))

    def loss(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = layer(x).square().sum(dim=(1, 2))
        return value

    books = Books(wide, [wide])
    wide.requires_grad_(requires_grad=False)
    sums = [torch.zeros_like(wide.weight)]
    _, norms = books.add_clipped(loss, read, 5.0, sums)
    gradients = [2 * (read[k] @ wide.weight.T).T @ read[k] for k in range(3)]
    torch.testing.assert_close(
        norms, torch.stack([g.norm() for g in gradients]), rtol=1e-5, atol=1e-6
    )
    expected = sum(5.0 / g.norm() * g for g in gradients)
    torch.testing.assert_close(sums[0], expected, rtol=1e-4, atol=1e-5)


def test_sequences_of_one_user_are_clipped_together() -> None:
    model = Mixer()
    tokens = batch()[:6]

    def pairs(net: nn.Module, given: torch.Tensor) -> torch.Tensor:
        return losses_of(net, given).reshape(3, 2).sum(dim=1)

    books = Books(model, [model.outer])
    model.requires_grad_(requires_grad=False)
    sums = [torch.zeros_like(model.outer.weight)]
    _, norms = books.add_clipped(pairs, tokens, 1e9, sums)
    model.requires_grad_(requires_grad=True)
    single = one_by_one(model, [model.outer], tokens)
    both = torch.stack([(single[2 * k][0] + single[2 * k + 1][0]).norm() for k in range(3)])
    torch.testing.assert_close(norms, both, rtol=1e-5, atol=1e-6)


def test_opacus_gives_the_same_clipped_sum() -> None:
    pytest.importorskip("opacus", reason="the extra 'opacus' is not installed")
    from panelbench_path.hooks_engine import Hooks  # noqa: PLC0415 - needs the extra

    model = Mixer()
    layers = attach(model, rank=2, alpha=4.0, seed=3)
    for layer in layers:
        nn.init.normal_(layer.weight, std=0.3)
    tokens = batch()
    expected, norms = summed(model, layers, 0.5, tokens)
    model.requires_grad_(requires_grad=False)
    hooks = Hooks(model, layers)
    sums = [torch.zeros_like(layer.weight) for layer in layers]
    _, found = hooks.add_clipped(losses_of, tokens, 0.5, sums)
    hooks.close()
    torch.testing.assert_close(found, norms, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(expected, sums, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def plan(**changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "users": USERS,
        "denominator": 8.0,
        "sampling": 0.5,
        "steps": 6,
        "clip": 0.1,
        "stddev": 0.2,
        "rate": 0.05,
        "micro": 2,
        "warmup": 1,
    }
    return Plan(**(settings | changes))


def trained(
    given: Plan, tokens: torch.Tensor, **options: Any
) -> tuple[list[torch.Tensor], list[list[int]]]:
    model = Mixer()
    seen: list[list[int]] = []

    turned = options.pop("turned", False)

    def batches_of(
        users: np.ndarray, micro: int, _rng: np.random.Generator
    ) -> Iterator[torch.Tensor]:
        for first in range(0, len(users), micro):
            some = (users[::-1] if turned else users)[first : first + micro].copy()
            seen.append([int(user) for user in some])
            yield tokens[some]

    layers = [model.inner, model.outer]
    rng = options.pop("rng", None) or np.random.default_rng(4)
    train(model, layers, batches_of, losses_of, given, rng=rng, say=lambda _: None, **options)
    return [layer.weight.detach().clone() for layer in layers], seen


def test_one_user_contributes_at_most_the_clipping_norm_to_a_step() -> None:
    model = Mixer()
    layers = [model.inner, model.outer]
    tokens = batch()
    whole, norms = summed(model, layers, 0.3, tokens)
    assert (norms > 0.3).all()
    for user in range(USERS):
        rest, _ = summed(model, layers, 0.3, tokens[torch.arange(USERS) != user])
        part = torch.cat([(a - b).flatten() for a, b in zip(whole, rest, strict=True)])
        assert float(part.norm()) <= 0.3 * (1 + 1e-5)


def test_a_user_is_at_most_one_example_of_a_step() -> None:
    _, seen = trained(plan(micro=100, sampling=1.0), batch())
    assert all(sorted(users) == list(range(USERS)) for users in seen)


def test_users_are_sampled_independently_with_the_stated_probability() -> None:
    steps = 2000
    _, seen = trained(plan(steps=steps, micro=100, stddev=0.0, rate=1e-9), batch())
    # False alarm below 1e-6: Hoeffding, seven users, two sides.
    slack = math.sqrt(math.log(2 * USERS / 1e-6) / (2 * steps))
    shares = np.bincount(np.concatenate([np.array(s) for s in seen]), minlength=USERS) / steps
    assert np.abs(shares - 0.5).max() < slack
    sizes = {len(users) for users in seen}
    assert len(sizes) > 4  # Poisson: the size of a sample is random


def test_an_empty_sample_is_a_step_of_noise() -> None:
    start = Mixer()
    weights, seen = trained(plan(sampling=1e-9), batch())
    assert seen == []
    assert not torch.equal(weights[0], start.inner.weight)


def test_no_users_at_all_still_train_on_noise() -> None:
    weights, _ = trained(plan(users=0), batch())
    assert all(torch.isfinite(weight).all() for weight in weights)


def test_the_number_of_private_users_does_not_scale_the_gradient() -> None:
    tokens = torch.cat([batch(), batch()])
    few, _ = trained(plan(sampling=1e-9, users=USERS), tokens)
    many, _ = trained(plan(sampling=1e-9, users=USERS), tokens)
    other, _ = trained(plan(sampling=1e-9, users=USERS, denominator=9.0), tokens)
    assert torch.equal(few[0], many[0])
    assert not torch.equal(few[0], other[0])


def test_micro_batches_and_order_change_nothing_but_rounding() -> None:
    one, _ = trained(plan(micro=100), batch())
    other, _ = trained(plan(micro=2), batch(), turned=True)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_noise_has_the_stated_standard_deviation() -> None:
    model = nn.Linear(200, 200, bias=False)
    nn.init.zeros_(model.weight)
    given = plan(users=0, denominator=1.0, sampling=1.0, steps=1, stddev=3.0, rate=1.0, warmup=0)
    seen: list[torch.Tensor] = []

    def watch(gradients: list[torch.Tensor], *_: object) -> None:
        seen.extend(gradients)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("panelbench_path.dpsgd._Adam.step", lambda _self, g, *_: watch(g))
        train(
            model, [model], lambda *_: (), losses_of, given,
            rng=np.random.default_rng(0), say=lambda _: None,
        )  # fmt: skip
    # 40,000 draws: the standard deviation is within 5 of its own standard errors (6e-7).
    assert abs(float(seen[0].std()) / 3.0 - 1) < 5 / math.sqrt(2 * 40_000)


class Killed(Exception):  # noqa: N818 - an event of this test
    """The process died here."""


def test_a_killed_run_goes_on_with_the_same_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("panelbench_path.dpsgd.KEEP_EVERY_SECONDS", -1.0)
    expected, _ = trained(plan(), batch())
    shelf = Shelf(folder=tmp_path, key="k")
    count = 0
    model, tokens = Mixer(), batch()

    def dies(users: np.ndarray, micro: int, _rng: np.random.Generator) -> Iterator[torch.Tensor]:
        nonlocal count
        for first in range(0, len(users), micro):
            count += 1
            if count == 6:
                raise Killed
            yield tokens[users[first : first + micro]]

    with pytest.raises(Killed):
        train(
            model, [model.inner, model.outer], dies, losses_of, plan(),
            rng=np.random.default_rng(4), say=lambda _: None, shelf=shelf,
        )  # fmt: skip
    rng = np.random.default_rng(4)
    rng.random(3)  # whatever the generator did before: its state comes from the checkpoint
    resumed, seen = trained(plan(), tokens, shelf=shelf, rng=rng)
    assert len(seen) < 24
    for a, b in zip(resumed, expected, strict=True):
        assert torch.equal(a, b)


def test_the_ledger_event_states_noise_on_the_sum_and_every_step() -> None:
    event = plan().event()
    assert (event.stddev, event.clipping_norm) == (0.2, 0.1)
    assert (event.sampling_probability, event.count) == (0.5, 6)


@pytest.mark.parametrize(
    "change",
    [{"sampling": 0.0}, {"sampling": 1.1}, {"clip": 0.0}, {"stddev": -1.0}, {"clip": math.inf}],
)
def test_a_plan_refuses_what_has_no_guarantee_to_compute(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        plan(**change)


def test_merged_adapters_compute_the_same() -> None:
    model = Mixer()
    before = model(batch()).detach()
    layers = attach(model, rank=2, alpha=4.0, seed=3, wanted=lambda name: name == "inner")
    assert len(layers) == 2
    torch.testing.assert_close(model(batch()), before)
    for layer in layers:
        nn.init.normal_(layer.weight)
    adapted = model(batch()).detach()
    assert not torch.allclose(adapted, before)
    merge(model)
    assert isinstance(model.inner, nn.Linear)
    torch.testing.assert_close(model(batch()), adapted, rtol=1e-4, atol=1e-5)
