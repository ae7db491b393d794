"""smartnoise-synth's mechanisms, in their own environment; and what can be said without it."""

from __future__ import annotations

import json
import subprocess

import pytest

from panelbench import Budget, NeighboringRelation
from panelbench.catalog import installed
from panelbench.environments import environment, surroundings
from panelbench.testing import examine_apart, tiny_tables
from panelbench_smartnoise.aim import Aim
from panelbench_smartnoise.mst import Mst

THEIRS = environment("smartnoise")
EACH = pytest.mark.parametrize("mechanism", [Aim, Mst])
needs_environment = pytest.mark.skipif(
    THEIRS.state != "built",
    reason="The environment 'smartnoise' is not built; run `panelbench env build smartnoise`.",
)

RUN = """
import json, sys
import numpy as np
from panelbench import Budget
from panelbench.testing import tiny_tables
from panelbench_smartnoise.{module} import {name}
import snsynth.{module}  # which draws from numpy's global generator as it is imported

before = np.random.get_state()[1].copy()
data, budget = tiny_tables(), Budget.approximate_dp(2.0, 1e-5)
mechanism = {name}(horizon=2, bins=4, {more})
found = mechanism.release(data, budget, rng=np.random.default_rng(0))
guarantee = found.guarantee
facts = {{
    "established": guarantee.established,
    "epsilon": guarantee.declared.epsilon,
    "ledger": len(guarantee.ledger),
    "public": guarantee.public,
    "rows": found.frame.groupby("user").size().unique().tolist(),
    "untouched": bool((np.random.get_state()[1] == before).all()),
    "bounds": found.info["bounds"],
}}
print(json.dumps(facts), file=sys.stderr)
"""


def run(module, name, more=""):
    done = subprocess.run(
        [THEIRS.python, "-c", RUN.format(module=module, name=name, more=more)],
        env=surroundings(foreign=True), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.strip().splitlines()[-1])


@EACH
def test_the_library_is_calibrated_for_add_or_remove_one_alone(mechanism):
    schema = tiny_tables().schema
    replace = Budget.approximate_dp(1.0, 1e-5, relation=NeighboringRelation.REPLACE_ONE)
    assert "add-or-remove-one" in mechanism().supports(schema, replace)
    assert mechanism().supports(schema, Budget.approximate_dp(1.0, 1e-5)) is None
    assert "limited" in mechanism().supports(schema, Budget.unlimited())


@EACH
@pytest.mark.parametrize("wrong", [{"clip": "paper"}, {"horizon": 0}, {"tables": 0}])
def test_a_wrong_parameter_is_refused_by_name(mechanism, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        mechanism(**wrong)


def test_it_names_its_environment_and_nothing_heavy_is_installed_here():
    plugin = installed()["smartnoise"]
    assert plugin.environment == "smartnoise"
    assert any("[smartnoise]" in requirement for requirement in THEIRS.requirements)


@needs_environment
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "more", "public"),
    [("aim", "Aim", "rounds=10", []), ("mst", "Mst", "", ["number of users"])],
)
def test_a_release_is_declared_and_says_what_the_library_takes_for_public(
    module, name, more, public
):
    facts = run(module, name, more)
    assert facts["established"] == "declared"
    assert facts["epsilon"] == 2.0
    assert facts["ledger"] == 0
    assert facts["public"] == public
    assert facts["rows"] == [2]
    assert facts["untouched"]  # the library draws from numpy's global generator


@needs_environment
@pytest.mark.slow
def test_bounds_are_those_of_our_own_aim_on_the_same_stream():
    import numpy as np  # noqa: PLC0415 - only where the environment is there

    from panelbench_marginals.aim import Aim as Ours  # noqa: PLC0415 - likewise

    budget = Budget.approximate_dp(2.0, 1e-5)
    ours = Ours(horizon=2, bins=4, rounds=10).release(
        tiny_tables(), budget, rng=np.random.default_rng(0)
    )
    assert run("aim", "Aim", "rounds=10")["bounds"] == ours.info["bounds"]


@needs_environment
@pytest.mark.slow
def test_the_plugin_passes_the_exam_in_its_environment():
    for finding in examine_apart(installed()["smartnoise"]):
        assert finding.passed, f"{finding.fact}: {finding.why}"
