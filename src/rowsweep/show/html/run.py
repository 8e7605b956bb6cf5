"""Show a run as HTML: parts for a live view, and the whole for a page that stands still."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from rowsweep.show.html.chart import chart, peak_words
from rowsweep.show.html.figures import run_figures
from rowsweep.show.html.style import STYLE, colour, marked
from rowsweep.show.plain import details
from rowsweep.show.words import facts, values
from rowsweep.show.words.clean import as_html, clean, clean_lines

if TYPE_CHECKING:
    from rowsweep.sweeps.shards.shown import ShardSnapshot
    from rowsweep.sweeps.snapshot import Snapshot

_MOST_OF_AN_ERROR: Final = 240


def snapshot_html(snapshot: Snapshot, *, at: datetime | None = None, mark: str = "", note: str = "") -> str:
    """Answer the run as it stood `at`, styled where the page allows styles and readable where it does not.

    `mark` is a class of the whole, by which a live view beside it can take its place; `note` is a last line of markup.
    """
    as_of = f"<small>As of {values.instant(at)} UTC.{_again(snapshot)}</small>" if at else ""
    return (
        f'{STYLE}<div class="rowsweep {as_html(mark)}">{head(snapshot)}{bar(snapshot)}{figures(snapshot)}'
        f"{says(snapshot)}{more(snapshot)}{as_of}{note}</div>"
    )


def head(snapshot: Snapshot) -> str:
    """Answer the run's name and state."""
    name = as_html(snapshot.name)
    words = marked(as_html(facts.state_words(snapshot)), facts.tone(snapshot.words))
    return (
        f'<div class="rs-head"><span class="rs-name" title="{name}">{name}</span> '
        f'<span class="rs-state" role="status">{words}</span></div>'
    )


def bar(snapshot: Snapshot) -> str:
    """Answer the run's progress bar, and a smaller one for each of its shards."""
    shards = "".join(_shard_bar(snapshot, shard) for shard in snapshot.shards)
    return _run_bar(snapshot) + (f'<div class="rs-shards">{shards}</div>' if shards else "")


def _shard_bar(snapshot: Snapshot, shard: ShardSnapshot) -> str:
    words = as_html(facts.shard_line(shard))
    label = f'role="progressbar" aria-label="Progress of shard {shard.number} of {as_html(snapshot.name)}"'
    tone = facts.tone(shard.status)
    value = 'aria-valuetext="share unknown"' if shard.percent is None else f'aria-valuenow="{shard.percent:.0f}"'
    fill = f'style="width:{shard.percent or 0.0:.2f}%;background:{colour("busy" if tone == "plain" else tone)}"'
    return (
        f'<div class="rs-shard" title="{as_html(facts.range_words(shard))}"><small>{shard.number}</small>'
        f'<div class="rs-bar" {label} aria-valuemin="0" aria-valuemax="100" {value}>'
        f'<span class="rs-fill" {fill}></span></div><small>{words}</small></div>'
    )


def _run_bar(snapshot: Snapshot) -> str:
    """Answer the bar of the whole; it moves to and fro while the total is unknown and work is being done."""
    share, tone = facts.shown_share(snapshot), facts.tone(snapshot.words)
    words = as_html(facts.percent_words(snapshot))
    label = (
        f'role="progressbar" aria-label="Progress of {as_html(snapshot.name)}" aria-valuemin="0" aria-valuemax="100"'
    )
    paint = colour("busy" if tone == "plain" else tone)
    if share is None and snapshot.is_open:
        moves = "rs-seeking" if snapshot.words == "running" else ""
        fill = f'<span class="rs-fill {moves}" style="background:{paint}"></span>' if moves else ""
        return f'<div class="rs-progress"><div class="rs-bar" {label} aria-valuetext="total unknown">{fill}</div></div>'
    done = share or 0.0
    return (
        f'<div class="rs-progress"><div class="rs-bar" {label} aria-valuenow="{100 * done:.0f}"'
        f' aria-valuetext="{words}">'
        f'<span class="rs-fill" style="width:{100 * done:.2f}%;background:{paint}"></span></div>'
        f'<span class="rs-share">{words}</span></div>'
    )


def figures(snapshot: Snapshot) -> str:
    """Answer the figures in columns whose places do not move, and the chart of the rate."""
    found = run_figures(snapshot)
    titles = "".join(f'<th scope="col">{as_html(figure.title)}</th>' for figure in found)
    cells = "".join(
        f'<td><div class="rs-value">{as_html(figure.value)}</div><small>{as_html(figure.more)}</small></td>'
        for figure in found
    )
    return (
        f'<table class="rs-figures"><thead><tr>{titles}</tr></thead><tbody><tr>{cells}</tr></tbody></table>'
        f"{chart(snapshot)}<small>{as_html(peak_words(snapshot))}</small>"
    )


def says(snapshot: Snapshot, *, retry_in: float | None = None) -> str:
    """Answer what the run waits for or failed with, in the room of one line; empty where there is nothing to say."""
    said = [facts.trouble(snapshot)]
    if retry_in is not None:
        said.insert(0, f"trying again in {values.span(retry_in)}")
    text = "; ".join(part for part in said if part)
    if len(text) > _MOST_OF_AN_ERROR:
        text = f"{text[: _MOST_OF_AN_ERROR - 1]}…"
    tone: facts.Tone = "bad" if snapshot.status == "failed" else "warn"
    return f'<div class="rs-says">{marked(as_html(text), tone) if text else ""}</div>'


def more(snapshot: Snapshot) -> str:
    """Answer what is folded away: the last error in full, and everything else worth saying of the run."""
    error = ""
    if snapshot.last_error and snapshot.status != "done":
        lines = "\n".join(as_html(line) for line in clean_lines(snapshot.last_error))
        error = f"<details><summary>last error</summary><pre>{lines}</pre></details>"
    rows = "".join(
        f'<tr><th scope="row">{as_html(name)}</th><td class="rs-long">{as_html(value)}</td></tr>'
        for name, value in details(snapshot)
        if name
        in (
            "run",
            "exported to",
            "held back",
            "slowed down",
            "health",
            "input",
            "options",
            "environment",
            "launched by",
            "version",
            "checksum",
            "started",
            "finished",
        )
    )
    return f"{error}<details><summary>details</summary><table>{rows}</table></details>"


def _again(snapshot: Snapshot) -> str:
    return f" Live again: rs.attach(&quot;{as_html(clean(snapshot.run_id))}&quot;)" if snapshot.is_open else ""
