"""From TOML to cells: what is planned, under which keys, from which random streams."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from panelbench import Budget, GridError
from panelbench.grid import Choice, canonical, expand, matching
from panelbench.gridfile import read
from panelbench.worker import rng_of

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
repeats = 2
seed = 7
[budgets]
epsilon = [2.0, 1.0]
delta = "n^-1.1"
relation = ["add-or-remove-one", "replace-one"]
[[datasets]]
name = "d/tables"
[[mechanisms]]
name = "m/private"
[[mechanisms]]
name = "m/reference"
[[metrics]]
name = "x/score"
"""


@pytest.fixture
def grid(tmp_path: Path):
    path = tmp_path / "question.toml"
    path.write_text(TEXT)
    read_grid = read(path)
    roles = {"m/private": "private", "m/reference": "reference"}
    return dataclasses.replace(
        read_grid,
        datasets=tuple(
            dataclasses.replace(c, plugin="d", reads="user-tables") for c in read_grid.datasets
        ),
        mechanisms=tuple(
            dataclasses.replace(c, plugin="m", reads="user-tables", role=roles[c.name])
            for c in read_grid.mechanisms
        ),
    )


HASHES = {"code": "c", "core": "k", "lock": "l"}


def cells(grid, *, data="data", **hashes):
    contents = {canonical(c.identity): (data, 1000) for c in grid.datasets}
    return expand(grid, contents, {"m": {**HASHES, **hashes}})


def test_a_private_mechanism_runs_at_every_budget_relation_and_repeat(grid):
    private = [c for c in cells(grid) if c.mechanism.name == "m/private"]
    assert len(private) == 2 * 2 * 2
    assert sorted({c.budget.epsilon for c in private}) == [1.0, 2.0]
    assert {c.budget.delta for c in private} == {1000**-1.1}


def test_a_reference_runs_once_a_repeat_without_a_budget(grid):
    reference = [c for c in cells(grid) if c.mechanism.name == "m/reference"]
    assert [c.repeat for c in reference] == [0, 1]
    assert {c.budget for c in reference} == {Budget.unlimited()}


def test_every_cell_has_a_key_of_its_own_that_the_order_of_the_file_does_not_change(grid):
    keys = [c.key for c in cells(grid)]
    assert len(set(keys)) == len(keys)
    turned = dataclasses.replace(grid, mechanisms=grid.mechanisms[::-1], levels=grid.levels[::-1])
    assert sorted(c.key for c in cells(turned)) == sorted(keys)


@pytest.mark.parametrize("change", [{"code": "x"}, {"core": "x"}, {"lock": "x"}, {"data": "x"}])
def test_whatever_can_change_a_release_changes_every_key(grid, change):
    assert not {c.key for c in cells(grid)} & {c.key for c in cells(grid, **change)}


def test_a_label_changes_no_key(grid):
    named = tuple(dataclasses.replace(c, label="better name") for c in grid.mechanisms)
    renamed = dataclasses.replace(grid, mechanisms=named)
    assert [c.key for c in cells(renamed)] == [c.key for c in cells(grid)]


def test_streams_are_shared_by_what_is_compared_and_differ_by_repeat_and_purpose(grid):
    found = {}
    for cell in cells(grid):
        found.setdefault(cell.repeat, set()).add(
            int(rng_of(cell.stream, "release").integers(2**62))
        )
    assert [len(draws) for draws in found.values()] == [1, 1]
    assert found[0] != found[1]
    stream = cells(grid)[0].stream
    assert rng_of(stream, "release").integers(2**62) != rng_of(stream, "score").integers(2**62)


def test_the_random_stream_of_a_cell_is_the_same_on_every_machine():
    stream = {"seed": 1, "dataset": {"name": "d", "params": {}}, "repeat": 0}
    assert rng_of(stream, "release").integers(2**31, size=3).tolist() == [
        1127360122,
        1146973987,
        192131430,
    ]


def test_globs_match_full_and_short_names(grid):
    assert [c.name for c in matching(grid.mechanisms, ["m/*"], "mechanism")] == [
        "m/private",
        "m/reference",
    ]
    assert [c.name for c in matching(grid.mechanisms, ["ref*"], "mechanism")] == ["m/reference"]
    with pytest.raises(GridError, match="Did you mean 'm/private'"):
        matching(grid.mechanisms, ["privat"], "mechanism")


def test_delta_from_the_number_of_users_needs_one(grid):
    with pytest.raises(GridError, match="write a number instead"):
        grid.budgets(None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = [", "is not valid TOML"),
        ("budgets = 3", r"\[budgets\] must be a table"),
        (TEXT.replace('"n^-1.1"', '"n^-2"'), "delta"),
        (TEXT.replace('"n^-1.1"', "0.0"), "delta must lie strictly between 0 and 1"),
        (TEXT.replace('"n^-1.1"', "2.0"), "delta must lie strictly between 0 and 1"),
        (TEXT.replace("epsilon = [2.0, 1.0]", "epsilon = 1.0"), "must be a list of numbers"),
        (TEXT.replace("epsilon = [2.0, 1.0]", 'epsilon = ["1"]'), "must be a number"),
        (TEXT.replace("epsilon = [2.0, 1.0]", "epsilon = [inf]"), "must be a number"),
        (TEXT.replace("epsilon = [2.0, 1.0]", "epsilon = [true]"), "must be a number"),
        (TEXT.replace("repeats = 2", "repeats = 1.5"), "repeats must be a whole number"),
        (TEXT.replace('name = "m/private"', 'nam = "m/private"'), "Did you mean 'name'"),
        (TEXT.replace('name = "m/private"', 'name = "m/p"\nparams = 3'), "params must be a table"),
        (TEXT.replace("repeats = 2", 'name = "Bad Name"'), "name must hold up to 80"),
        (TEXT.replace("[[metrics]]", "[[metric]]"), "Did you mean 'metrics'"),
        (TEXT.replace('[[metrics]]\nname = "x/score"', ""), r"at least one \[\[metrics\]\]"),
        ("\xff", "cannot be|not valid"),
    ],
)
def test_a_malformed_grid_is_one_sentence_that_names_the_file(tmp_path, text, said):
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(GridError, match=said) as caught:
        read(path)
    assert "bad.toml" in str(caught.value)
    assert "\n" not in str(caught.value).strip()


def test_choices_are_told_apart_by_their_parameters():
    assert Choice(name="a", params={"x": 1}).identity != Choice(name="a").identity


def confined(tmp_path, line):
    path = tmp_path / "confined.toml"
    path.write_text(TEXT.replace('name = "m/private"', f'name = "m/private"\n{line}'))
    return read(path)


def test_a_mechanism_may_be_confined_to_some_budgets_and_datasets(grid, tmp_path):
    choice = confined(tmp_path, "budgets = [2]\ndatasets = ['d/tables']").mechanisms[0]
    only = dataclasses.replace(grid.mechanisms[0], levels=choice.levels, on=choice.on)
    found = cells(dataclasses.replace(grid, mechanisms=(only,)))
    assert {c.budget.epsilon for c in found} == {2.0}
    nowhere = dataclasses.replace(only, on=("elsewhere",))
    assert not cells(dataclasses.replace(grid, mechanisms=(nowhere,)))
    full = cells(grid)
    assert {c.key for c in found} <= {c.key for c in full}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("budgets = [3]", "the budget 3 is none of the grid's, 1, 2"),
        ("budgets = 2", "must be a list"),
        ("datasets = ['d/tabels']", "Did you mean 'd/tables'"),
    ],
)
def test_what_it_is_confined_to_must_be_there(tmp_path, line, told):
    with pytest.raises(GridError, match=told):
        confined(tmp_path, line)
