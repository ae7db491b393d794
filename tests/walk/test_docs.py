"""Every command in the documentation is one, and the how-tos work as they are written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from panelbench.cli import _parser as parser

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for folder in (ROOT, ROOT / "docs", ROOT / "plugins", ROOT / "leaderboards", ROOT / "harness")
    for path in folder.glob("*.md")
)
HOW_TOS = ("register-a-mechanism", "run-a-grid")


def blocks(page):
    """The indented code blocks of a page, without the indent."""
    found, block = [], []
    for line in [*page.read_text().splitlines(), "end"]:
        if line.startswith("    ") or (block and not line.strip()):
            block.append(line[4:])
        elif block:
            found.append("\n".join(block).strip("\n"))
            block = []
    return found


def commands(text):
    """The `panelbench` commands in a block, as arguments."""
    joined = text.replace("\\\n", " ")
    return [
        shlex.split(line, comments=True)[1:]
        for line in joined.splitlines()
        if line.startswith("panelbench ")
    ]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_of_a_page_is_understood(page, capsys):
    for block in blocks(ROOT / page):
        for arguments in commands(block):
            try:
                parser().parse_args(arguments)
            except SystemExit:
                pytest.fail(f"{page}: panelbench {' '.join(arguments)}: {capsys.readouterr().err}")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_of_a_page_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), target


def follow(bench, page):
    """Write the files that a page shows and run its commands, in order."""
    for block in blocks(ROOT / "docs" / f"{page}.md"):
        first = re.match(r"# ([\w.]+\.(py|toml))\n", block)
        if first:
            (bench.folder / first[1]).write_text(block + "\n")
        for arguments in commands(block):
            records = sorted((bench.folder / "results" / "records").glob("*.json"))
            bench(*(str(records[0]) if part == "RECORD" else part for part in arguments))


@pytest.mark.parametrize("page", HOW_TOS)
def test_a_how_to_works_as_it_is_written(bench, page):
    bench.plugins = []
    (bench.folder / "leaderboards").symlink_to(ROOT / "leaderboards")  # as in a clone
    follow(bench, page)
    assert list((bench.folder / "results").glob("*.html"))


def test_publishing_works_as_it_is_written(bench):
    bench.plugins = []
    (grid,) = (b for b in blocks(ROOT / "docs" / "run-a-grid.md") if b.startswith("# grid.toml"))
    (bench.folder / "grid.toml").write_text(grid)
    follow(bench, "publish-a-leaderboard")
    published = bench.folder / "leaderboards" / "grid.csv"
    assert published.read_bytes() == (bench.folder / "again.csv").read_bytes()
