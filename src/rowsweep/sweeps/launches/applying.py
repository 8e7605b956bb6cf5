"""Apply every declared backfill that is not applied here yet, what others require first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rowsweep.errors import InvalidDeclaration, InvalidInput
from rowsweep.sweeps.launches import gate
from rowsweep.sweeps.run import host, ledger_of

if TYPE_CHECKING:
    from rowsweep.sweeps.handle import Sweep

Action = Literal["launch", "wait", "live", "applied", "changed", "elsewhere", "by hand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What is to be done about one declared backfill, and why."""

    sweep: Sweep[Any]
    action: Action
    why: str


def in_order(sweeps: Iterable[Sweep[Any]]) -> list[Sweep[Any]]:
    """Answer the sweeps, each behind those it requires; InvalidDeclaration where they require each other."""
    by_name = {sweep.name: sweep for sweep in sweeps}
    ordered: dict[str, Sweep[Any]] = {}

    def add(sweep: Sweep[Any], path: tuple[str, ...]) -> None:
        if sweep.name in path:
            circle = " → ".join([*path[path.index(sweep.name) :], sweep.name])
            raise InvalidDeclaration(
                f"These sweeps require each other, so that none of them can begin: {circle}.",
                fix="take one name out of one of the `requires=`",
                meta={"field": "requires", "sweeps": list(path)},
            )
        for required in sweep.spec.requires:
            if required in by_name and required not in ordered:
                add(by_name[required], (*path, sweep.name))
        ordered.setdefault(sweep.name, sweep)

    for name in sorted(by_name):
        add(by_name[name], ())
    return list(ordered.values())


def application_of(sweep: Sweep[Any]) -> Application:
    """Say what is to be done about a backfill here and now."""
    status = sweep.status_here()
    state: str = status["state"]
    if state == "live":
        return Application(sweep=sweep, action="live", why=f"run {status['run_id']} is live")
    if state == "applied":
        return Application(sweep=sweep, action="applied", why=f"by run {status['run_id']}")
    here, environments = gate.environment(), sweep.spec.environments
    if environments and here not in environments:
        return Application(sweep=sweep, action="elsewhere", why=f"for {' or '.join(environments)}; this is {here}")
    if state == "changed":
        why = f"run {status['run_id']} applied another version; rowsweep run {sweep.name} --force applies this one"
        return Application(sweep=sweep, action="changed", why=why)
    if _needs_input(sweep):
        why = f"it takes an input: rowsweep sweeps launch {sweep.name} --input JSON"
        return Application(sweep=sweep, action="by hand", why=why)
    ledger = ledger_of(host().driver)
    open_ones = [name for name in sweep.spec.requires if not gate.done_rows(ledger, name)]
    if open_ones:
        return Application(sweep=sweep, action="wait", why=f"requires {', '.join(open_ones)}")
    return Application(sweep=sweep, action="launch", why="not applied here yet")


def _needs_input(sweep: Sweep[Any]) -> bool:
    try:
        sweep.options.input.dump(None)
    except InvalidInput:
        return True
    return False
