"""Audits to be made, and making them: each in a child of its own, its record written once."""

from __future__ import annotations

import dataclasses
import math
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from panelbench import accounting, catalog, child
from panelbench.errors import PluginError
from panelbench.grid import canonical, key_of
from panelbench.privacy import Budget, Notion

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Iterable, Sequence

    from panelbench.audit import Game
    from panelbench.loader import Plugin
    from panelbench.parents import Parents
    from panelbench.progress import Progress
    from panelbench.record import Record, Status, Store


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One mechanism, with all parameters, at one budget.

    Attributes:
        mechanism: Full name and parameters.
        budget: What it may spend.
    """

    mechanism: dict[str, Any]
    budget: Budget

    @property
    def plugin(self) -> str:
        """Name of the mechanism's plugin."""
        return str(self.mechanism["name"]).split("/", 1)[0]


def of_plan(plan: dict[str, Any], epsilon: float) -> list[Wanted]:
    """Every private entry of a plan, under each relation, at its budget nearest to an epsilon.

    Args:
        plan: As `Plan.to_json` gives it.
        epsilon: Compared as ratios, in the figures of Gaussian noise.
    """
    nearest: dict[str, tuple[float, Wanted]] = {}
    for cell in plan["cells"]:
        budget = Budget.from_json(cell["budget"])
        if budget.notion is Notion.UNLIMITED:
            continue
        others = dataclasses.replace(
            budget, epsilon=None, b_g=None, rho=None, notion=Notion.UNLIMITED
        )
        distance = abs(math.log(accounting.equivalents(budget).epsilon / epsilon))
        name = canonical([cell["mechanism"], others.to_json()])
        if name not in nearest or distance < nearest[name][0]:
            nearest[name] = distance, Wanted(mechanism=cell["mechanism"], budget=budget)
    return [wanted for _, wanted in nearest.values()]


def of_mechanisms(
    names: Iterable[str],
    params: dict[str, Any],
    budgets: Sequence[Budget],
    plugins: dict[str, Plugin],
) -> list[Wanted]:
    """Mechanisms at some budgets, their parameters filled in; each plugin is asked once.

    Raises:
        PluginError: For an unknown name or parameter.
    """
    asked: dict[str, list[str]] = {}
    for name in names:
        plugin, short = catalog.split_name(name, "mechanism", plugins)
        asked.setdefault(plugin.name, []).append(short)
    found = []
    for plugin_name, shorts in asked.items():
        questions = [{"kind": "mechanism", "name": short, "params": params} for short in shorts]
        answer = catalog.ask(plugins[plugin_name], questions)
        errors = [answer.error, *(choice.get("error", "") for choice in answer.choices)]
        if any(errors):
            raise PluginError(next(filter(None, errors)))
        for short, choice in zip(shorts, answer.choices, strict=True):
            identity = {"name": f"{plugin_name}/{short}", "params": choice["params"]}
            found += [Wanted(mechanism=identity, budget=budget) for budget in budgets]
    return found


def names_of(audited: Sequence[tuple[dict[str, Any], str]]) -> list[str]:
    """What to call audits: mechanism and relation, with the parameters that tell some apart.

    Args:
        audited: Full name and parameters of each, and the neighboring relation.
    """
    alike: dict[str, list[dict[str, Any]]] = {}
    for mechanism, _ in audited:
        alike.setdefault(mechanism["name"], []).append(mechanism["params"])
    called = []
    for mechanism, relation in audited:
        params, others = mechanism["params"], alike[mechanism["name"]]
        apart = {k: v for k, v in params.items() if any(v != other.get(k) for other in others)}
        given = f" with {canonical(apart)}" if apart else ""
        called.append(f"{mechanism['name']}{given} under {relation}")
    return called


class Auditing:
    """Makes the audits that the store does not have.

    Attributes:
        store: Where records go.
        plugins: Every plugin by name.
        game: How each audit is played.
        seed: Root of the random streams.
    """

    def __init__(
        self,
        store: Store,
        plugins: dict[str, Plugin],
        game: Game,
        *,
        seed: int,
        parents: Parents,
        stop: threading.Event,
    ) -> None:
        self.store = store
        self.plugins = plugins
        self.game = game
        self.seed = seed
        self._parents = parents
        self._stop = stop

    def subject(self, wanted: Wanted) -> dict[str, Any]:
        """What an audit's key is a hash of."""
        known = catalog.identity(self._plugin(wanted))
        return {
            "mechanism": wanted.mechanism,
            "budget": wanted.budget.to_json(),
            "game": dataclasses.asdict(self.game),
            "seed": self.seed,
            "hashes": {
                "audit": catalog.audit_hash()[:16],
                "code": known.code[:16],
                "core": known.core[:16],
                "lock": key_of(known.versions)[:16],
            },
        }

    def _plugin(self, wanted: Wanted) -> Plugin:
        if wanted.plugin not in self.plugins:
            raise PluginError(f"The plugin '{wanted.plugin}' is not installed; install it.")
        return self.plugins[wanted.plugin]

    def run(
        self,
        wanted: Sequence[Wanted],
        *,
        workers: int,
        retry: Collection[Status],
        progress: Progress,
    ) -> list[Record]:
        """The records of all audits wanted, in order; those that are kept are not made again.

        Args:
            wanted: What to audit.
            workers: Audits side by side.
            retry: Statuses that are tried once more.
            progress: Told of each audit that begins and ends.
        """
        called = names_of([(item.mechanism, item.budget.relation) for item in wanted])

        def one(item: Wanted, name: str) -> Record | None:
            progress.begin(name)
            record = self._one(item, retry)
            progress.end(name, None if record is None else record.status)
            return record

        with ThreadPoolExecutor(max_workers=workers) as pool:
            jobs = [pool.submit(one, *pair) for pair in zip(wanted, called, strict=True)]
            try:
                return [record for job in jobs if (record := job.result()) is not None]
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _one(self, wanted: Wanted, retry: Collection[Status]) -> Record | None:
        subject = self.subject(wanted)
        key = key_of(subject)
        kept = self.store.latest("audit", key)
        if kept is not None and kept.status not in retry:
            return kept
        plugin = self._plugin(wanted)
        attempt = 1 if kept is None else kept.attempt + 1
        draft: dict[str, Any] = {
            "key": key,
            "attempt": attempt,
            "what": "audit",
            "subject": subject,
            "log": f"logs/{key}-{attempt}.log",
            "versions": catalog.identity(plugin).versions,
            "hardware": {
                "host": socket.gethostname(),
                "limits": dataclasses.asdict(self._parents.limits),
            },
        }
        outcome = child.supervise(
            {
                "task": "audit",
                "store": str(self.store.root),
                "plugin": dataclasses.asdict(plugin),
                "records": [draft],
            },
            parents=self._parents,
            log=self.store.root / draft["log"],
            stop=self._stop,
        )
        record = self.store.latest("audit", key)
        if record is not None and record.attempt == attempt:
            return record
        if outcome.interrupted or self._stop.is_set():
            return None
        self.store.add(child.unwritten(draft, outcome))
        return self.store.latest("audit", key)
