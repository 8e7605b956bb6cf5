"""Say a snapshot in words once, for every view of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from rowsweep.show.words import values
from rowsweep.show.words.clean import clean, one_line
from rowsweep.show.words.governing import heeded_words, held_words, is_held, slow_words
from rowsweep.show.words.late import late_trouble

if TYPE_CHECKING:
    from rowsweep.sweeps.shards.shown import ShardSnapshot
    from rowsweep.sweeps.snapshot import Snapshot

Tone = Literal["good", "bad", "warn", "busy", "dim", "plain"]

_TONES: Final[dict[str, Tone]] = {
    "done": "good",
    "applied": "good",
    "failed": "bad",
    "dead": "bad",
    "cancelled": "warn",
    "changed": "warn",
    "paused": "warn",
    "stalled": "bad",
    "running": "busy",
    "live": "busy",
}
_SECONDS_BEFORE_A_MEAN: Final = 0.5
_AT_WORK: Final = ("running", "pausing", "cancelling")
_RATE: Final = "rate"


def tone(words: str) -> Tone:
    """Answer how a state in words looks: what needs somebody stands out."""
    if words.startswith(("retrying", "waiting", "pausing", "cancelling")):
        return "warn"
    return _TONES.get(words, "plain")


def state_words(snapshot: Snapshot) -> str:
    """Answer the state in words; "held" where a run at work waits for the database's health."""
    return "held" if is_held(snapshot) else clean(snapshot.words)


def shown_rate(snapshot: Snapshot) -> float | None:
    """Answer the rate of the last minutes, or the mean where there is none yet and of a run that has ended.

    None before half a second of active time.
    """
    if snapshot.is_open and snapshot.rows_per_second is not None:
        return snapshot.rows_per_second
    return mean_rate(snapshot)


def mean_rate(snapshot: Snapshot) -> float | None:
    """Answer the rate over all active time; None before half a second of it."""
    if snapshot.active_seconds < _SECONDS_BEFORE_A_MEAN or not snapshot.rows:
        return None
    return snapshot.rows / snapshot.active_seconds


def shown_share(snapshot: Snapshot) -> float | None:
    """Answer the bar's share of 1, never beyond it; None where the total is unknown."""
    return None if snapshot.percent is None else min(max(snapshot.percent / 100, 0.0), 1.0)


def percent_words(snapshot: Snapshot) -> str:
    """Answer the percentage, marked where it is of an estimate; nothing where it is unknown."""
    if snapshot.percent is None:
        return ""
    return f"{'' if snapshot.total_is == 'exact' else '≈ '}{values.percent(snapshot.percent)}"


def rows_words(snapshot: Snapshot) -> str:
    """Answer the rows done, and of how many as far as that is known."""
    rows = values.number(snapshot.rows)
    if snapshot.total is None:
        return f"{rows} rows, total unknown"
    if snapshot.total_is == "exact":
        return f"{rows} rows"
    mark = "at least " if snapshot.total_is == "at least" else "≈ "
    return f"{rows} of {mark}{values.number(snapshot.total)} rows"


def facts(snapshot: Snapshot) -> list[str]:
    """Answer the figures in reading order: rows, rate, batch, time left or taken."""
    said = [rows_words(snapshot)]
    per_second = shown_rate(snapshot)
    if per_second is not None:
        said.append(values.rate(per_second))
    if snapshot.is_open and snapshot.batch_rows is not None and snapshot.batch_ms is not None:
        size = values.number(round(snapshot.batch_rows))
        said.append(f"batch {size} rows in {values.milliseconds(snapshot.batch_ms)}")
    limit, by = limit_words(snapshot)
    if limit:
        said.append(limit if by is None else f"{limit} (tuned by {by})")
    if heeded := heeded_words(snapshot):
        said.append(heeded)
    if held := held_words(snapshot):
        said.append(held)
    if snapshot.is_open:
        said.append(_time_left(snapshot))
    else:
        said.append(batch_count(snapshot))
        said.append(f"{values.span(snapshot.active_seconds)} at work")
    if attempt := attempt_words(snapshot):
        said.append(attempt)
    if words := shard_words(snapshot):
        said.append(words)
    if aside := aside_words(snapshot):
        said.append(aside)
    return said


def batch_count(snapshot: Snapshot) -> str:
    """Answer how many batches have committed."""
    return f"{values.number(snapshot.batches)} {'batch' if snapshot.batches == 1 else 'batches'}"


def aside_words(snapshot: Snapshot) -> str:
    """Answer how many rows are set aside, nothing where none is."""
    count = snapshot.rejected_rows
    return f"{values.number(count)} {'row' if count == 1 else 'rows'} set aside" if count else ""


def shard_words(snapshot: Snapshot) -> str:
    """Answer how many shards are done, and of how many; nothing where the run is one job."""
    if not snapshot.shards:
        return ""
    done = sum(shard.status == "done" for shard in snapshot.shards)
    return f"{len(snapshot.shards)} shards" if snapshot.status == "done" else f"{done} of {len(snapshot.shards)} shards"


def shard_line(shard: ShardSnapshot) -> str:
    """Answer how one shard stands, in a line without its bar."""
    percent = (
        "" if shard.percent is None else f"{'' if shard.status == 'done' else '≈ '}{values.percent(shard.percent)}"
    )
    return "  ".join(filter(None, [f"{values.number(shard.rows)} rows", percent, shard.status]))


def range_words(shard: ShardSnapshot) -> str:
    """Answer which keys the range has that a shard is in."""
    after = "from the first key" if shard.after is None else f"behind ({clean(', '.join(shard.after))})"
    to = "to the end" if shard.to is None else f"up to ({clean(', '.join(shard.to))})"
    return f"{after} {to}"


def trouble(snapshot: Snapshot) -> str | None:
    """Answer what keeps the sweep waiting or made it fail, in one clean line; None where nothing does.

    What is wrong comes first. That a run keeps its rate is said behind it, and only of a run that is at work: what
    another one waited for when it was left says nothing any more.
    """
    said = _wrong(snapshot)
    if snapshot.waiting_for == _RATE and snapshot.words in _AT_WORK:
        return f"{said}; {_waits(snapshot)}" if said else _waits(snapshot)
    return said or late_trouble(snapshot) or None


def _wrong(snapshot: Snapshot) -> str:
    """Answer what is wrong, nothing where nothing is."""
    if snapshot.status == "paused" and (said := pause_words(snapshot)):
        return said
    is_at_work = snapshot.words in _AT_WORK
    if is_at_work and snapshot.waiting_for not in (None, _RATE):
        return _waits(snapshot)
    if snapshot.quiet_seconds is not None and snapshot.waiting_for is None:
        return f"no figures for {values.span(snapshot.quiet_seconds)}"
    if slow := slow_words(snapshot):
        return slow
    if snapshot.last_error and snapshot.status != "done":
        code = f"{clean(snapshot.last_error_code)}: " if snapshot.last_error_code else ""
        text = one_line(snapshot.last_error)
        return text if code in text else code + text
    return "" if is_at_work or snapshot.waiting_for in (None, _RATE) else _waits(snapshot)


def _waits(snapshot: Snapshot) -> str:
    return f"waiting for {clean(snapshot.waiting_for or '')}"


def pause_words(snapshot: Snapshot) -> str:
    """Answer who asked for the last pause, and why; nothing where neither is known."""
    options = snapshot.options if isinstance(snapshot.options, dict) else {}
    pause = options.get("paused")
    by, reason = (pause.get("by"), pause.get("reason")) if isinstance(pause, dict) else (None, None)
    if not by and not reason:
        return ""
    return f"paused{f' by {clean(by)}' if by else ''}{f': {one_line(reason)}' if reason else ''}"


def attempt_words(snapshot: Snapshot) -> str | None:
    """Answer which attempt is made or has failed; None for a first one, and where the run has ended."""
    if not snapshot.is_open or not snapshot.attempt:
        return None
    of = f"attempt {snapshot.attempt}" + ("" if snapshot.max_attempts is None else f" of {snapshot.max_attempts}")
    if snapshot.words.startswith("retrying"):
        return f"{of} failed"
    return of if snapshot.attempt > 1 else None


def limit_words(snapshot: Snapshot) -> tuple[str, str | None]:
    """Answer the rate asked for this run, else the declared one, and by whom it was tuned; nothing for none."""
    options = snapshot.options if isinstance(snapshot.options, dict) else {}
    rate, tuned, declared = options.get("rate"), options.get("tuned"), options.get("declared_rate")
    if not snapshot.is_open or (rate is None and declared is None):
        return "", None
    if rate is None:
        return f"at most {clean(declared)}", None
    by = tuned.get("by") if isinstance(tuned, dict) else None
    return "no rate limit" if rate == "none" else f"at most {clean(rate)}", None if by is None else clean(by)


def _time_left(snapshot: Snapshot) -> str:
    if snapshot.eta_seconds is None:
        return "ETA unknown"
    left = values.span(snapshot.eta_seconds)
    is_at_work = snapshot.words == "running" and snapshot.quiet_seconds is None
    return f"ETA {left}" if is_at_work else f"{left} of work left"
