"""Show a snapshot as static HTML: no script, no style sheet, readable in a saved notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rowsweep.show import facts
from rowsweep.show.clean import as_html
from rowsweep.show.plain import details

if TYPE_CHECKING:
    from rowsweep.sweeps.snapshot import Snapshot

_COLOURS: Final[dict[facts.Tone, str]] = {
    "good": "#2e7d32",
    "bad": "#c62828",
    "warn": "#b26a00",
    "busy": "#1565c0",
    "dim": "#757575",
    "plain": "inherit",
}


def snapshot_html(snapshot: Snapshot) -> str:
    """Answer the snapshot's name, state, bar and figures as HTML, every value escaped."""
    colour = _COLOURS[facts.tone(snapshot.words)]
    said = " · ".join(as_html(fact) for fact in facts.facts(snapshot))
    trouble = facts.trouble(snapshot)
    return (
        '<div class="rowsweep" style="max-width:44em">'
        f"<div><strong>{as_html(snapshot.name)}</strong> "
        f'<span style="color:{colour}">{as_html(snapshot.words)}</span></div>'
        f"<div>{_bar(snapshot)} {as_html(facts.percent_words(snapshot))}</div>"
        f"<div>{said}</div>"
        + (f'<div style="color:{colour}">{as_html(trouble)}</div>' if trouble else "")
        + f"{_details(snapshot)}</div>"
    )


def _bar(snapshot: Snapshot) -> str:
    share = facts.shown_share(snapshot)
    value = "" if share is None and snapshot.is_open else f' value="{share or 0.0:.4f}"'
    return f'<progress{value} max="1" style="width:75%"></progress>'


def _details(snapshot: Snapshot) -> str:
    rows = "".join(
        f'<tr><td style="text-align:left">{as_html(name)}</td><td style="text-align:left">{as_html(value)}</td></tr>'
        for name, value in details(snapshot)
    )
    return f"<details><summary>details</summary><table>{rows}</table></details>"
