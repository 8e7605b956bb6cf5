"""Show a receipt as HTML: what it says first, then its figures, then what they are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rowsweep.show.html.style import STYLE, marked
from rowsweep.show.words import values
from rowsweep.show.words.clean import as_html
from rowsweep.show.words.facts import Tone

if TYPE_CHECKING:
    from rowsweep.sweeps.late.receipts.receipt import KeyRange, Receipt

_STATES: Final[dict[bool | None, tuple[str, Tone]]] = {
    True: ("complete", "good"),
    False: ("not complete", "bad"),
    None: ("cannot be told", "warn"),
}
_MOST_RANGES: Final = 16


def receipt_html(receipt: Receipt) -> str:
    """Answer the receipt as a part of a page, every value escaped, readable without styles."""
    words, tone = _STATES[receipt.is_complete]
    figures = [
        ("Due", "cannot be told" if receipt.due is None else values.number(receipt.due)),
        ("Matching", values.number(receipt.matching)),
        ("Set aside", values.number(receipt.rejected)),
        ("Open writers", values.number(receipt.writers)),
        ("Rows done", values.number(receipt.rows)),
    ]
    titles = "".join(f'<th scope="col">{as_html(title)}</th>' for title, _ in figures)
    cells = "".join(f'<td><div class="rs-value">{as_html(value)}</div></td>' for _, value in figures)
    name = as_html(receipt.name)
    return (
        f'{STYLE}<div class="rowsweep"><div class="rs-head"><span class="rs-name" title="{name}">{name}</span> '
        f'<span class="rs-state">{marked(as_html(words), tone)}</span> <small>on {as_html(receipt.table)}</small></div>'
        f'<table class="rs-figures"><thead><tr>{titles}</tr></thead><tbody><tr>{cells}</tr></tbody></table>'
        f"{_details(receipt)}<small>As of {values.instant(receipt.at)} UTC.</small></div>"
    )


def _details(receipt: Receipt) -> str:
    pairs = [
        ("run", receipt.run_id),
        ("state", receipt.status),
        ("where", receipt.where or "every row"),
        ("keys gone over", _covered(receipt.covered)),
        ("snapshot", receipt.snapshot),
    ]
    rows = "".join(
        f'<tr><th scope="row">{as_html(name)}</th><td class="rs-long">{as_html(value)}</td></tr>'
        for name, value in pairs
    )
    return f"<details><summary>details</summary><table>{rows}</table></details>"


def _covered(ranges: Sequence[KeyRange]) -> str:
    told = [f"{_bound(after, 'first')} … {_bound(to, 'last')}" for after, to in ranges[:_MOST_RANGES]]
    more = len(ranges) - len(told)
    return "; ".join([*told, f"and {more} more"] if more else told) or "none"


def _bound(key: tuple[str, ...] | None, end: str) -> str:
    return end if key is None else f"({', '.join(key)})"
