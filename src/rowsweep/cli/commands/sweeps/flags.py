"""The arguments and flags that several of the commands on sweeps take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from rowsweep.sweeps.handle import Sweep

RunText = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, its unique prefix, or a sweep's name.")]
OnErrorFlag = Annotated[
    Literal["stop", "set-aside"] | None,
    typer.Option("--on-error", help="A backfill only: what becomes of rows that fail by themselves."),
]
MaxRejected = Annotated[int | None, typer.Option(metavar="N", help="The most rows that may be set aside.", min=1)]
Wait = Annotated[
    bool, typer.Option("--wait", help="Watch it until it ends, worked by a worker; Ctrl-C leaves it going.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The sweep's name.")]
Input = Annotated[str | None, typer.Option("--input", metavar="JSON", help="The sweep's input.")]
Force = Annotated[bool, typer.Option("--force", help="Run it even where it is applied, or has changed since.")]
BatchRows = Annotated[int | None, typer.Option(metavar="N", help="Rows of the first batches.", min=1)]
Rate = Annotated[str | None, typer.Option(metavar="RATE", help="The most rows in a period, such as 2000/s.")]
HealthText = Annotated[
    str | None,
    typer.Option("--health", metavar="LIMITS", help="on, off, or limits such as replica_lag=30s,vacuum=off."),
]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for the record.")]
Confirm = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE", help="A purge only: the largest share of a table it may remove, such as 0.5.", min=0, max=1
    ),
]


def confirmation(sweep: Sweep[Any], confirm: float | None) -> dict[str, Any]:
    """Answer what `launch()` is given for --confirm; refused where the sweep is no purge."""
    if confirm is None:
        return {}
    if sweep.sweep_kind != "purge":
        raise typer.BadParameter(f"{sweep.name} is no purge.", param_hint="--confirm")
    return {"confirm": confirm}
