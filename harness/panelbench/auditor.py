"""The task of a child that audits a mechanism: `worker` with one more task.

It is a module of its own because audits change no release: the code of `worker` is part of the key
of every cell.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from panelbench import accounting, worker
from panelbench.audit import Game, UnauditableError, audit, verdict
from panelbench.errors import BudgetError
from panelbench.privacy import Budget
from panelbench.record import Phase, Status

if TYPE_CHECKING:
    from panelbench.extension import Mechanism


def run_audit(task: worker.Task) -> None:
    """Play the game of the task's record against its mechanism."""
    subject = task.record["subject"]
    mechanism: Mechanism = task.component("mechanism", subject["mechanism"])
    budget = Budget.from_json(subject["budget"])
    stream = {name: subject[name] for name in ("seed", "mechanism", "budget")}
    task.enter(Phase.RELEASE)
    try:
        rng = worker.rng_of(stream, "audit")
        guarantee, found = audit(mechanism, budget, Game(**subject["game"]), rng=rng)
    except UnauditableError as error:
        task.finish(Status.UNSUPPORTED, error=str(error))
        return
    except BudgetError as error:
        task.finish(Status.INVALID, error=str(error))
        return
    figures = accounting.settle(guarantee, delta=budget.delta, alpha=budget.alpha)
    says = verdict(found, figures)
    task.finish(
        Status.OK,
        guarantee={**guarantee.to_json(), "figures": dataclasses.asdict(figures)},
        budget_figures=dataclasses.asdict(accounting.equivalents(budget)),
        info={"found": found, **dataclasses.asdict(says)},
    )


worker.TASKS["audit"] = run_audit

if __name__ == "__main__":
    worker.main()
