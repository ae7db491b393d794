"""A15: what was published changes only with a reason, which stays beside it."""

from __future__ import annotations


def published(bench, seed=1, **parts):
    grid = bench.grid(repeats=2, **parts)
    grid.write_text(f"seed = {seed}\n{grid.read_text()}")
    bench.run(grid)
    return ("publish", grid, "--store", bench.store, "--to", bench.folder / "boards")


def test_a15_a_board_is_published_with_its_page_and_again_without_a_word(bench):
    command = published(bench)
    bench(*command)
    bench(*command)
    names = {path.name for path in (bench.folder / "boards").iterdir()}
    assert names == {"fx.csv", "fx.jsonl.gz", "fx.html"}


def test_a15_a_changed_and_a_withdrawn_entry_need_a_reason_and_leave_a_line(bench):
    bench(*published(bench, mechanisms=["fx-ok", "fx-nonprivate"]))
    before = (bench.folder / "boards" / "fx.csv").read_bytes()
    command = published(bench, mechanisms=["fx-ok"], seed=99)
    told = bench(*command, rc=1).stderr
    assert "--because" in told
    assert (bench.folder / "boards" / "fx.csv").read_bytes() == before
    bench(*command, "--because", "Another seed.")
    noted = (bench.folder / "boards" / "CHANGES.md").read_text()
    assert "Another seed." in noted
    assert "withdrawn: " in noted
    assert "numbers changed" in noted


def test_a15_a_new_entry_needs_no_reason(bench):
    bench(*published(bench))
    bench(*published(bench, mechanisms=["fx-ok", "fx-nonprivate"]))
    assert not (bench.folder / "boards" / "CHANGES.md").exists()


def test_a15_a_grid_file_that_did_not_run_is_not_published(bench):
    command = published(bench)
    grid = command[1]
    grid.write_text(grid.read_text() + "# changed since\n")
    assert "is not what ran" in bench(*command, rc=1).stderr


def test_a15_boards_without_a_row_in_common_are_no_comparison(bench):
    bench(*published(bench))
    bench(*published(bench, name="other", mechanisms=["fx-nonprivate"]))
    boards = bench.folder / "boards"
    told = bench("compare", boards / "fx.jsonl.gz", boards / "other.jsonl.gz", rc=1).stderr
    assert "no row in common" in told
