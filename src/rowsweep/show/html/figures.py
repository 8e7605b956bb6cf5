"""Put a run's figures under titles, for views that have a place for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rowsweep.show.words import facts, values
from rowsweep.show.words.governing import held_words

if TYPE_CHECKING:
    from rowsweep.sweeps.snapshot import Snapshot

_SECONDS_OF_NOW: Final = 5.0
_LEAST_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Hold one figure of a run: what it is, its value, and a smaller remark."""

    title: str
    value: str
    more: str = ""


def run_figures(snapshot: Snapshot) -> list[Figure]:
    """Answer the figures under their titles, the same titles for as long as the run is open."""
    rows, _, of = facts.rows_words(snapshot).removesuffix(" rows").partition(" of ")
    rows, _, unknown = rows.partition(" rows, ")
    mean = facts.mean_rate(snapshot)
    is_at_work = snapshot.words == "running" and snapshot.quiet_seconds is None
    latest = rate_now(snapshot) if is_at_work else None
    rate = latest if latest is not None else facts.shown_rate(snapshot)
    worked = ", ".join(filter(None, [f"{values.span(snapshot.active_seconds)} at work", held_words(snapshot)]))
    size = "" if snapshot.batch_rows is None else f"{values.number(round(snapshot.batch_rows))} rows"
    taken = "" if snapshot.batch_ms is None else f"in {values.milliseconds(snapshot.batch_ms)}"
    batches = facts.batch_count(snapshot)
    aside = f"{values.number(snapshot.rejected_rows)} set aside" if snapshot.rejected_rows else ""
    attempt = facts.attempt_words(snapshot) or ""
    return [
        Figure(title="Rows", value=rows, more=f"of {of}" if of else unknown),
        Figure(
            title="Rate",
            value="unknown" if rate is None else values.rate(rate),
            more=facts.limit_words(snapshot)[0] or ("" if mean is None else f"mean {values.rate(mean)}"),
        ),
        Figure(title="Time left", value=_eta_words(snapshot), more=worked)
        if snapshot.is_open
        else Figure(
            title="Time taken",
            value=values.span(snapshot.active_seconds),
            more=", ".join(filter(None, ["at work", held_words(snapshot)])),
        ),
        Figure(title="Batch", value=size or "unknown", more=taken or batches)
        if snapshot.is_open
        else Figure(title="Batches", value=values.number(snapshot.batches), more=f"mean {size}" if size else ""),
        Figure(
            title="Removed" if snapshot.kind == "purge" else "Written",
            value=values.number(snapshot.written),
            more=", ".join(filter(None, [attempt.removesuffix(" failed"), aside])),
        ),
    ]


def rate_now(snapshot: Snapshot) -> float | None:
    """Answer the rate over the last seconds of active time; None before there is a sample to start from."""
    since = [sample for sample in snapshot.samples if snapshot.active_seconds - sample[0] >= _SECONDS_OF_NOW]
    base = since[-1] if since else (snapshot.samples[0] if snapshot.samples else None)
    if base is None or snapshot.active_seconds - base[0] < _LEAST_SECONDS:
        return None
    return (snapshot.rows - base[1]) / (snapshot.active_seconds - base[0])


def _eta_words(snapshot: Snapshot) -> str:
    return "unknown" if snapshot.eta_seconds is None else values.span(snapshot.eta_seconds)
