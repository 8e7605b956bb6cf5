"""Say in words what a run's governor did: how long it held and slowed it, by which signal, and what each says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from rowsweep.show.words import values
from rowsweep.show.words.clean import clean, one_line

if TYPE_CHECKING:
    from rowsweep.sweeps.snapshot import Snapshot


_REPORTED: Final = ("governor", "late", "declared_rate", "destination")


def held_words(snapshot: Snapshot) -> str:
    """Answer how long it was held back in all; nothing where it never was."""
    seconds = sum(_seconds(snapshot, "held").values())
    return f"held back {values.span(seconds)}" if seconds else ""


def is_held(snapshot: Snapshot) -> bool:
    """Say whether the run waits for the database's health, or for what a function of the application's names."""
    levels = [level for _, level, _ in _signals(snapshot)]
    return snapshot.words == "running" and bool(snapshot.waiting_for) and "hold" in levels


def heeded_words(snapshot: Snapshot) -> str:
    """Answer what somebody asked an open run to heed, and who; nothing where nobody did."""
    options = snapshot.options if isinstance(snapshot.options, dict) else {}
    heeded, tuned = options.get("health"), options.get("tuned")
    if heeded is None or not snapshot.is_open:
        return ""
    if isinstance(heeded, dict):
        heeded = ", ".join(f"{name} {_limit(limits)}" for name, limits in heeded.items())
    by = tuned.get("by") if isinstance(tuned, dict) else None
    return clean(f"health {heeded}" + (f" (tuned by {by})" if by else ""))


def _limit(limits: object) -> str:
    if not isinstance(limits, dict):
        return str(limits)
    return " and ".join(f"{how} {limit}" for how, limit in limits.items())


def slow_words(snapshot: Snapshot) -> str:
    """Answer what a run that goes on is slowed down by; nothing where nothing does."""
    slow = [said for _, level, said in _signals(snapshot) if level == "slow"]
    return f"slowed down by {slow[0]}" if slow and snapshot.words == "running" else ""


def governing(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Answer what there is to say as pairs of a name and a clean value.

    What each signal says is for a run that goes on; of one that has ended, how many it could heed.
    """
    signals = _signals(snapshot)
    if snapshot.is_open:
        told = "; ".join(
            f"{name} {level}{f': {said}' if said and level != 'ok' else ''}" for name, level, said in signals
        )
    else:
        told = _heeded(signals)
    return [
        ("held back", _by_name(_seconds(snapshot, "held"))),
        ("slowed down", _by_name(_seconds(snapshot, "slowed"))),
        ("health", told),
    ]


def _heeded(signals: list[tuple[str, str, str]]) -> str:
    """Answer how many could be read; where none could, why most could not."""
    unknown = Counter(said for _, level, said in signals if level == "unknown")
    known, total = len(signals) - unknown.total(), len(signals)
    if known or not total:
        return f"heeded {known} of {total} {'signal' if total == 1 else 'signals'}" if total else ""
    ((why, _),) = unknown.most_common(1)
    return f"heeded none of {total} {'signal' if total == 1 else 'signals'}{f': {why}' if why else ''}"


def asked(snapshot: Snapshot) -> dict[str, Any]:
    """Answer the run's options without what its pass reports there."""
    options = snapshot.options if isinstance(snapshot.options, dict) else {}
    return {name: value for name, value in options.items() if name not in _REPORTED}


def _by_name(seconds: dict[str, float]) -> str:
    longest = sorted(seconds.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{values.span(amount)} by {clean(name)}" for name, amount in longest)


def _seconds(snapshot: Snapshot, how: str) -> dict[str, float]:
    found = _governor(snapshot).get(how)
    return {str(name): float(amount) for name, amount in found.items()} if isinstance(found, dict) else {}


def _signals(snapshot: Snapshot) -> list[tuple[str, str, str]]:
    found = _governor(snapshot).get("signals")
    if not isinstance(found, dict):
        return []
    return [
        (clean(str(name)), clean(str(one.get("is", ""))), one_line(str(one.get("says", ""))))
        for name, one in found.items()
        if isinstance(one, dict)
    ]


def _governor(snapshot: Snapshot) -> dict[str, Any]:
    options = snapshot.options if isinstance(snapshot.options, dict) else {}
    found = options.get("governor")
    return found if isinstance(found, dict) else {}
