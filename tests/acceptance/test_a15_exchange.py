"""A09, A02 and A15: folders merge in any order, boards are verified, compared and reproduced."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

from panelbench.errors import StoreError
from panelbench.merge import merge
from panelbench.record import digest_of


def merged(bench, name, *stores, rc=0):
    return bench("merge", *stores, "--to", bench.folder / name, rc=rc)


@pytest.fixture
def two(bench):
    """One grid, its cells shared between two people; one of them had a failure too."""
    grid = bench.grid(repeats=2, mechanisms=["fx-ok", "fx-raise", ("fx-ok", "{ shift = 0.5 }")])
    bench.run(grid, rc=3)
    ann, bob = bench.folder / "ann", bench.folder / "bob"
    for root in (ann, bob):
        shutil.copytree(bench.store, root)
    for folder in ("records", "scores"):
        names = sorted(path.name for path in (ann / folder).iterdir())
        for index, name in enumerate(names):
            ((ann, bob)[index % 2] / folder / name).unlink()
    return grid, ann, bob


def test_a09_two_folders_merge_to_the_same_board_in_either_order(bench, two):
    grid, ann, bob = two
    merged(bench, "one", ann, bob)
    merged(bench, "other", bob, ann)
    boards = []
    for name in ("one", "other"):
        path = bench.folder / f"{name}.csv"
        bench("leaderboard", grid, "--store", bench.folder / name, "--csv", path)
        boards.append(path.read_bytes())
    assert boards[0] == boards[1] == (bench.store / "fx.csv").read_bytes()


def test_a09_different_results_under_one_key_are_a_conflict(bench, two):
    _, ann, bob = two
    path = next(p for p in sorted((bench.store / "scores").iterdir()))
    for root, by in ((ann, 0.0), (bob, 1.0)):
        record = json.loads(path.read_text())
        record["scores"][0]["value"] += by
        record["digest"] = digest_of(record)
        (root / "scores" / path.name).write_text(json.dumps(record))
    told = merged(bench, "one", ann, bob, rc=1).stdout
    key = path.name.rsplit("-", 1)[0]
    assert f"conflict: score {key} (fixtures-plugin/fx-gap): 2 different results" in told
    assert merged(bench, "other", bob, ann, rc=1).stdout == told
    kept = [(bench.folder / n / "scores" / f"{key}-2.json").read_bytes() for n in ("one", "other")]
    assert kept[0] == kept[1]


def test_a09_an_attempt_that_went_well_counts_whatever_the_order(bench, two):
    _, ann, bob = two
    path = next(
        p for p in sorted((bench.store / "records").iterdir()) if "fx-raise" in p.read_text()
    )
    good = json.loads(path.read_text()) | {"status": "ok", "error": "", "started": "2000-01-01"}
    good["digest"] = digest_of(good)
    (ann / "records" / path.name).write_text(json.dumps(good))
    (bob / "records" / path.name).write_text(path.read_text())
    merged(bench, "one", ann, bob)
    second = bench.folder / "one" / "records" / path.name.replace("-1.json", "-2.json")
    assert json.loads(second.read_text())["status"] == "ok"


def test_a_published_board_becomes_a_store_that_more_is_added_to(bench):
    grid = bench.grid(repeats=2, mechanisms=["fx-ok", "fx-nonprivate"])
    bench.run(grid)
    published = bench.folder / "boards" / "fx.jsonl.gz"
    bench("publish", grid, "--store", bench.store, "--to", published.parent)
    versions = json.loads(gzip.decompress(published.read_bytes()).split(b"\n", 1)[0])["versions"]
    merged(bench, "again", published)
    kept = bench.records(store=bench.folder / "again").values()
    assert all(record["versions"] == versions["fixtures-plugin"] != {} for record in kept)
    again = bench.folder / "again"
    bench("leaderboard", "fx", "--store", again, "--csv", bench.folder / "again.csv")
    assert (bench.folder / "again.csv").read_bytes() == (bench.store / "fx.csv").read_bytes()
    more = bench.grid(
        repeats=2, mechanisms=["fx-ok", "fx-nonprivate", ("fx-ok", "{ shift = 0.5 }")]
    )
    told = bench("run", more, "--store", again, "--plugin", bench.plugins[0]).stderr
    assert "6/6 cells done (4 kept), 0 failed" in told
    assert not list((again / "records").glob("*-2.json"))


def test_a_store_and_what_was_published_of_it_are_one_record_each(bench):
    grid = bench.grid(mechanisms=["fx-ok"])
    bench.run(grid)
    published = bench.folder / "boards" / "fx.jsonl.gz"
    bench("publish", grid, "--store", bench.store, "--to", published.parent)
    for name, sources in (("one", (bench.store, published)), ("other", (published, bench.store))):
        merged(bench, name, *sources)
        both = bench.folder / name
        for folder in ("records", "scores"):
            # with what is not published
            assert bench.records(folder, both) == bench.records(folder)


def test_what_was_altered_or_is_damaged_is_not_merged_and_leaves_nothing(bench):
    grid = bench.grid(mechanisms=["fx-ok"])
    bench.run(grid)
    bench("publish", grid, "--store", bench.store, "--to", bench.folder / "boards")
    archive = bench.folder / "boards" / "fx.jsonl.gz"
    text = gzip.decompress(archive.read_bytes()).decode()
    value = next(json.loads(line)["scores"] for line in text.splitlines() if '"score"' in line)
    made_up = text.replace(f'"value": {value[0]["value"]}', '"value": 0.001')
    assert made_up != text
    bad = bench.folder / "bad.jsonl.gz"
    for content, reason in (
        (gzip.compress(made_up.encode()), "was altered after it was written"),
        (archive.read_bytes()[:300], "it is damaged"),
        (b"", "cannot be read"),
        (gzip.compress(b"[1]"), "cannot be read"),
    ):
        bad.write_bytes(content)
        told = merged(bench, "new", bad, rc=1).stderr
        assert reason in told
        assert "Traceback" not in told
        assert not (bench.folder / "new").exists()
    bad.unlink()
    assert "No such file" in merged(bench, "new", bad, rc=1).stderr
    assert "is not empty" in merged(bench, "fx.toml", archive, rc=1).stderr

    path = next((bench.store / "scores").iterdir())
    path.write_text(path.read_text().replace(str(value[0]["value"]), "0.001"))
    assert "was altered" in merged(bench, "new", bench.store, rc=1).stderr


def test_a_merge_that_fails_leaves_its_folder_empty(bench, monkeypatch):
    bench.run(bench.grid(mechanisms=["fx-ok"]))

    def full(*_):
        raise StoreError("no space")

    monkeypatch.setattr("panelbench.merge.write_over", full)
    with pytest.raises(StoreError):
        merge([bench.store], bench.folder / "new", print)
    assert not any((bench.folder / "new").iterdir())


def test_of_two_plans_that_counts_which_holds_the_other_and_others_are_refused(bench):
    first, more = ["fx-ok"], ["fx-ok", "fx-nonprivate"]
    boards = {}
    for name, mechanisms in (("one", first), ("two", more), ("odd", ["fx-nonprivate"])):
        grid = bench.grid(mechanisms=mechanisms)
        bench.run(grid)
        bench("publish", grid, "--store", bench.store, "--to", bench.folder / name)
        boards[name] = bench.folder / name / "fx.jsonl.gz"
    told = merged(bench, "new", boards["one"], boards["odd"], rc=1).stderr
    assert "planned different things" in told
    assert not (bench.folder / "new").exists()
    lines = gzip.decompress(boards["two"].read_bytes()).splitlines()
    cut = bench.folder / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(b"\n".join(line for line in lines if b'"cell"' not in line)))
    assert "Of 2 cells of plans/fx.json 1 have no record" in merged(
        bench, "part", boards["one"], cut
    ).stderr  # fmt: skip
    merged(bench, "new", boards["one"], boards["two"])
    told = bench("run", bench.grid(mechanisms=more), "--store", bench.folder / "new").stderr
    assert "2/2 cells done (2 kept)" in told


def test_merging_into_a_folder_in_use_or_from_no_store_is_refused(bench, two):
    _, ann, _ = two
    assert "is not empty" in bench("merge", ann, "--to", ann, rc=1).stderr
    assert "is no store" in bench("merge", bench.cache, "--to", bench.folder / "x", rc=1).stderr


@pytest.fixture
def public(bench):
    grid = bench.grid(repeats=2, mechanisms=["fx-ok", "fx-nonprivate"])
    bench.run(grid)
    folder = bench.folder / "public"
    bench("publish", grid, "--store", bench.store, "--to", folder)
    return folder


def altered(folder, change):
    path = folder / "fx.jsonl.gz"
    first, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    lines = change([json.loads(line) for line in lines])
    text = "\n".join([first, *(json.dumps(line, sort_keys=True) for line in lines)])
    path.write_bytes(gzip.compress(text.encode()))


def test_a15_verify_finds_nothing_wrong_with_what_was_published_and_kept(bench, public):
    assert "All is as it says" in bench("verify", public).stdout
    assert "All is as it says" in bench("verify", bench.store).stdout


def test_a15_verify_names_an_altered_score(bench, public):
    def better(records):
        score = next(r for r in records if r["what"] == "score")
        score["scores"][0]["value"] /= 2
        return records

    altered(public, better)
    told = bench("verify", public, rc=1).stdout
    assert "was altered after it was written" in told
    assert "fx.csv, line" in told


def test_a15_verify_names_an_altered_csv(bench, public):
    table = public / "fx.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:-1], lines[-1].replace("fx", "FX", 1)]) + "\n")
    told = bench("verify", public, rc=1).stdout
    assert f"fx.csv, line {len(lines)}, is not what the records give" in told
    assert "Problems: 1." in told


def test_a15_verify_names_a_csv_that_is_gone(bench, public):
    (public / "fx.csv").unlink()
    assert "fx.csv is not beside it" in bench("verify", public, rc=1).stdout


def test_a15_verify_names_missing_cells(bench, public):
    altered(public, lambda records: [r for r in records if r["what"] == "score"])
    assert "4 of 4 planned cells have no record" in bench("verify", public, rc=1).stdout


def test_a15_verify_names_records_that_the_plan_does_not_and_records_that_are_there_twice(
    bench, public
):
    archive = public / "fx.jsonl.gz"
    first, *lines = gzip.decompress(archive.read_bytes()).decode().splitlines()
    head = json.loads(first)
    head["plan"]["cells"] = head["plan"]["cells"][1:]
    text = "\n".join([json.dumps(head), *lines, lines[-1]]) + "\n"
    archive.write_bytes(gzip.compress(text.encode()))
    bench("leaderboard", archive, "--csv", public / "fx.csv")
    told = bench("verify", public, rc=1).stdout
    assert "1 records are of cells that its plan does not name" in told
    assert "is there 2 times" in told


def test_a15_verify_names_other_line_ends_and_a_csv_without_its_archive(bench, public):
    table = public / "fx.csv"
    (public / "stray.csv").write_text("a\n")
    table.write_bytes(table.read_bytes().replace(b"\n", b"\r\n"))
    told = bench("verify", public, rc=1).stdout
    assert "fx.csv, line 1, is not what the records give" in told
    assert "stray.csv has no archive" in told


def test_a15_verify_settles_claims_again(bench, public):
    def bolder(records):
        cell = next(r for r in records if r["what"] == "cell" and r["subject"]["repeat"] == 0
                    and r["guarantee"]["ledger"])  # fmt: skip
        for event in cell["guarantee"]["ledger"]:
            event["scale" if "scale" in event else "stddev"] /= 2
        return [{**r, "digest": digest_of(r)} for r in records]

    altered(public, bolder)
    told = bench("verify", public, rc=1).stdout
    assert "its guarantee exceeds the budget" in told
    assert "settles to epsilon" in told


def test_a15_verify_names_a_release_that_is_not_its_hash(bench, public):
    assert public.is_dir()
    folder = next((bench.store / "releases").iterdir())
    meta = folder / "meta.json"
    meta.write_text(
        meta.read_text().replace('"info": {', '"info": {"x": 1, ', 1).replace(", }", "}")
    )
    told = bench("verify", bench.store, rc=1).stdout
    assert f"releases/{folder.name} is not what its hash says" in told


def test_a02_a_recorded_cell_is_reproduced_to_the_bit(bench):
    bench.run(bench.grid(repeats=2))
    path = max((bench.store / "records").iterdir())
    told = bench("reproduce", path)
    assert told.stdout.startswith("identical")


def test_a02_a_score_that_only_rounding_changed_is_within_tolerance(bench):
    bench.run(bench.grid())
    path = next((bench.store / "scores").iterdir())
    for apart, rc, said in ((1e-9, 0, "within tolerance"), (1e-3, 3, "different")):
        record = json.loads(path.read_text())
        record["scores"][0]["value"] += apart
        path.write_text(json.dumps(record))
        cell = next((bench.store / "records").iterdir())
        assert bench("reproduce", cell, rc=rc).stdout.startswith(said)


def test_a02_reproduce_says_what_differs_and_what_changed(bench):
    bench.run(bench.grid())
    path = next((bench.store / "scores").iterdir())
    record = json.loads(path.read_text())
    record["scores"][0]["value"] += 0.25
    path.write_text(json.dumps(record))
    cell = next((bench.store / "records").iterdir())
    raw = json.loads(cell.read_text())
    raw["subject"]["hashes"]["code"] = "0" * 16
    cell.write_text(json.dumps(raw))
    told = bench("reproduce", cell, rc=3).stdout
    assert told.startswith("different")
    assert "changed since: code" in told
    assert "<- differs" in told


def test_reproduce_of_what_is_no_record_says_what_to_give(bench):
    board = bench.folder / "board.jsonl.gz"
    board.write_bytes(gzip.compress(b"{}"))
    told = bench("reproduce", board, "--store", bench.store, rc=1).stderr.strip()
    assert told.startswith(f"panelbench: '{board}' is the beginning of no keys; give the path of")
    assert "a record's .json, or the beginning of one key" in told


def test_compare_of_tables_says_that_archives_are_compared(bench):
    told = bench("compare", "a.csv", "b.csv", rc=1).stderr
    assert told.startswith("panelbench: 'a.csv' is a table without its records; boards are read")
    assert "name the .jsonl.gz" in told


def test_compare_tells_what_is_surely_worse_and_exits_with_three(bench):
    board = {}
    for name, shift in (("a", 0.0), ("b", 5.0)):
        grid = bench.grid(name=name, repeats=5, mechanisms=["fx-ok"])
        bench.run(grid)
        bench("publish", grid, "--store", bench.store, "--to", bench.folder)
        board[name] = path = bench.folder / f"{name}.jsonl.gz"

        def worse(lines, shift=shift):
            for line in lines:
                for score in line["scores"]:
                    score["value"] += shift * (
                        1 + line["subject"].get("stream", {}).get("repeat", 0) / 99
                    )
            return lines

        first, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        texts = [json.dumps(line) for line in worse([json.loads(line) for line in lines])]
        path.write_bytes(gzip.compress("\n".join([first, *texts]).encode()))
    assert "0 separated" in bench("compare", board["a"], board["a"]).stdout
    told = bench("compare", board["a"], board["b"], rc=3).stdout
    assert told.startswith("WORSE")
    assert bench("compare", board["b"], board["a"]).stdout.startswith("better")
