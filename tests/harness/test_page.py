"""The page in a browser: nothing that axe minds, on a desk and on a phone, and it does its work.

Needs Chromium (`apt-get install chromium`); without it these tests are skipped.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = find_spec("axe_core_python")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; apt-get install chromium"),
    pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed"),
]
DARK, LIGHT = 0, 1


def axe():
    return (Path(AXE.submodule_search_locations[0]) / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def page(new_bench):
    bench = new_bench()
    grid = bench.grid(
        repeats=3,
        budgets="epsilon = [0.5, 1.0, 4.0]",
        mechanisms=["fx-ok", ("fx-ok", "{ shift = 0.5 }"), "fx-nonprivate", "fx-overspend"],
        metrics=["fx-gap", "fx-count"],
    )
    bench.run(grid, rc=3)
    return (bench.store / "fx.html").read_text()


@pytest.fixture
def asked(page, tmp_path):
    """Open the page and say what an expression in it, or its promise, is worth."""

    def ask(expression, *, scheme=LIGHT, size="1280,900", page=page):
        answer = f"""<script>addEventListener("load", async () => {{
            const found = JSON.stringify(await ({expression}));
            const out = document.createElement("pre");
            out.id = "answer"; out.textContent = found; document.body.append(out); }})</script>"""
        file = tmp_path / "page.html"
        file.write_text(page.replace("</body>", f"{answer}</body>"))
        command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={size}"]
        command += ["--virtual-time-budget=30000", "--dump-dom", str(file)]
        told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        found = re.search(r'<pre id="answer">(.*?)</pre>', told.stdout, re.DOTALL)
        assert found, told.stderr
        return json.loads(html.unescape(found[1]))

    return ask


VIOLATIONS = "axe.run().then(r => r.violations.map(v => `${v.impact} ${v.id}: ${v.nodes[0].html}`))"


@pytest.mark.parametrize(("scheme", "size"), [(LIGHT, "1280,900"), (DARK, "400,800")])
def test_axe_finds_nothing_in_light_on_a_desk_or_in_dark_on_a_phone(asked, page, scheme, size):
    opened = page.replace("<details>", "<details open>")
    tested = opened.replace("</body>", f"<script>{axe()}</script></body>")
    assert asked(VIOLATIONS, scheme=scheme, size=size, page=tested) == []


def test_axe_would_find_something(asked, page):
    bad = page.replace("<main>", '<main><p style="color:#eee;background:#fff">pale</p>', 1)
    bad = bad.replace("</body>", f"<script>{axe()}</script></body>")
    assert any("color-contrast" in found for found in asked(VIOLATIONS, page=bad))


def test_nothing_but_tables_scrolls_sideways_on_a_phone(asked):
    assert asked("document.documentElement.scrollWidth <= innerWidth", size="400,800")


def test_a_click_on_a_heading_sorts_up_then_down_inside_sections(asked):
    expression = """(() => {
        const table = document.querySelector("table");
        const told = () => [...table.tBodies[0].querySelectorAll("td:nth-child(2)")]
            .map(cell => +cell.dataset.value);
        const button = table.querySelectorAll("thead th button")[1];
        button.click(); const up = told(); button.click(); return [up, told()]; })()"""
    up, down = asked(expression)
    assert len(up) > 1
    assert up == sorted(up)
    assert down == up[::-1]


def test_at_a_glance_each_measure_leads_to_its_table(asked):
    expression = """[...document.querySelectorAll("tr.measure")].map(row => {
        row.querySelector("a").click();
        const heading = document.querySelector(":target");
        return [heading.textContent === row.querySelector("a").textContent,
            ...[...row.querySelectorAll("td")].map(cell => cell.textContent)]; })"""
    assert asked(expression) == [[True, "13 of 3", "20 of 3"], [True, "13 of 3", "13 of 3"]]


def test_a_name_typed_in_hides_the_other_entries(asked):
    expression = """(() => {
        const field = document.getElementById("filter");
        field.value = "nonprivate"; field.dispatchEvent(new Event("input"));
        return [...document.querySelectorAll("table tr[data-name]")]
            .filter(row => !row.hidden).map(row => row.dataset.name); })()"""
    left = asked(expression)
    assert left
    assert all("nonprivate" in name for name in left)


def test_a_name_in_the_legend_hides_its_line_and_says_so(asked):
    expression = """(() => {
        const key = document.querySelector(".keys button");
        const line = document.querySelector(".picture g.line");
        key.focus(); key.click();
        return [key.getAttribute("aria-pressed"), getComputedStyle(line.parentElement
            .querySelector("g.line[hidden]")).display]; })()"""
    assert asked(expression) == ["false", "none"]
