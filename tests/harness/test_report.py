"""The page and the table say what the CSV says, and the page needs nothing from outside."""

from __future__ import annotations

import csv
import html.parser
import re

import pytest


class Reader(html.parser.HTMLParser):
    """Collects cells, and checks that every element is closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.cells, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.text = ""
        if tag not in {"meta", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in {"td", "th"}:
            self.cells.append(self.text)

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def page(bench):
    grid = bench.grid(
        repeats=3,
        budgets="epsilon = [0.5, 1.0, 4.0]",
        mechanisms=["fx-ok", ("fx-ok", "{ shift = 0.5 }"), "fx-nonprivate", "fx-overspend"],
    )
    bench.run(grid, rc=3)
    return (bench.store / "fx.html").read_text()


def test_the_page_opens_with_the_network_off(page):
    assert not re.search(r"(src|href|url)\s*[=(]\s*[\"']?(https?:)?//", page)
    assert "http" not in re.sub(r"<pre>.*?</pre>", "", page, flags=re.DOTALL)


def test_the_page_is_well_formed_and_holds_every_mean_of_the_csv(page, bench):
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    rows = csv.DictReader((bench.store / "fx.csv").read_text().splitlines())
    for row in rows:
        assert f"{float(row['mean']):.4g}" in reader.cells


def test_the_page_names_what_is_quarantined_with_the_reason(page):
    assert "Quarantined" in page
    assert re.search(r"fx-overspend.*spends epsilon", page)


def test_the_curve_has_a_point_for_each_budget_and_a_level_line_for_a_reference(page):
    assert page.count("<circle") == 6
    assert page.count('stroke-dasharray="3 4"') >= 1


def test_names_are_escaped(bench):
    grid = bench.grid()
    grid.write_text(grid.read_text().replace('name = "fx"', 'name = "fx"\ntitle = "<b>&"', 1))
    bench.run(grid)
    assert "<b>&" not in (bench.store / "fx.html").read_text()
    assert "&lt;b&gt;&amp;" in (bench.store / "fx.html").read_text()


def test_the_table_shows_two_relations_apart(bench):
    budgets = 'epsilon = [1.0]\nrelation = ["add-or-remove-one", "replace-one"]'
    told = bench.run(bench.grid(budgets=budgets)).stdout
    assert "add-or-remove-one" in told
    assert "replace-one" in told


def test_tables_side_by_side_come_on_request_only_and_say_that_they_are_real(page, bench):
    assert "Tables of" not in page
    bench("report", bench.folder / "fx.toml", "--store", bench.store, "--tables")
    reader = Reader()
    shown = (bench.store / "fx.html").read_text()
    reader.feed(shown)
    assert reader.open == []
    assert "do not publish this page" in shown
    assert "real test users" in shown
    assert "fx-nonprivate: a table of" in shown


def test_the_page_says_what_audits_found_and_who_was_not_audited(bench):
    grid = bench.grid(mechanisms=["fx-laplace", ("fx-laplace", "{ noise = 2.0 }")])
    bench.run(grid)
    page = bench.store / "fx.html"
    assert "What audits found" not in page.read_text()
    only = ("fixtures-plugin/fx-laplace", "--relation", "add-or-remove-one")
    bench("audit", *only, "--store", bench.store, "--method", "pairs", "--releases", 500)
    bench("report", grid, "--store", bench.store)
    shown = page.read_text()
    reader = Reader()
    reader.feed(shown)
    assert reader.open == []
    (found,) = re.findall(r"What audits found.*?</details>", shown, flags=re.DOTALL)
    (first, second) = re.findall(r"<tr data-name.*?</tr>", found)
    assert re.search(r"add-or-remove-one</td><td>1</td><td>0\.\d", first)
    assert "noise=2" in second
    assert "not audited" in second
