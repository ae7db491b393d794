"""A10: once the files are there, nothing needs a network."""

from __future__ import annotations

import os

import pytest

BLOCK = """
import socket
def refuse(self, address, *rest):
    if self.family in (socket.AF_INET, socket.AF_INET6):
        raise OSError(f"the network is off: {address}")
    return kept(self, address, *rest)
kept = socket.socket.connect
socket.socket.connect = refuse
def nowhere(*arguments, **options):
    raise OSError(f"the network is off: {arguments}")
socket.getaddrinfo = socket.create_connection = nowhere
"""


@pytest.fixture
def off(bench, tmp_path):
    """Every process of the command refuses to connect."""
    site = tmp_path / "off"
    site.mkdir()
    (site / "sitecustomize.py").write_text(BLOCK)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    bench.environment["PYTHONPATH"] = os.pathsep.join([str(site), *filter(None, inherited)])
    return bench


def test_a10_a_grid_runs_and_is_published_with_sockets_blocked(off):
    grid = off.grid(repeats=2)
    off.run(grid)
    off("publish", grid, "--store", off.store, "--to", off.folder / "boards")
    off("verify", off.folder / "boards")
    assert all(record["status"] == "ok" for record in off.records().values())


def test_a10_blocked_sockets_would_be_noticed(off, tmp_path):
    plugin = tmp_path / "calls_home.py"
    plugin.write_text('import urllib.request\nurllib.request.urlopen("http://localhost:9/")\n')
    off.plugins = [plugin]
    assert "the network is off" in off("list").stdout
