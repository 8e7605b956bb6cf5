"""Show a snapshot as plain text: one line for a pipe, a few for a reader."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rowsweep.show.words import facts, values
from rowsweep.show.words.clean import clean
from rowsweep.show.words.governing import asked, governing

if TYPE_CHECKING:
    from rowsweep.sweeps.snapshot import Snapshot


def snapshot_line(snapshot: Snapshot) -> str:
    """Answer the snapshot in one line without control characters."""
    parts = [
        f"{clean(snapshot.name)}: {facts.state_words(snapshot)}",
        facts.percent_words(snapshot),
        *facts.facts(snapshot),
    ]
    trouble = facts.trouble(snapshot)
    return "  ".join(part for part in [*parts, trouble] if part)


def snapshot_text(snapshot: Snapshot) -> str:
    """Answer the snapshot in full, one thing a line, each line `name  value`."""
    pairs = details(snapshot)
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in pairs)


def details(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Answer everything worth saying of a run as pairs of a name and a clean value."""
    steered = asked(snapshot)
    pairs = [
        ("sweep", clean(snapshot.name)),
        ("run", snapshot.run_id),
        ("state", " ".join(filter(None, [facts.state_words(snapshot), facts.percent_words(snapshot)]))),
        ("progress", " · ".join(facts.facts(snapshot))),
        *(
            (f"shard {shard.number}", f"{facts.shard_line(shard)}  {facts.range_words(shard)}")
            for shard in snapshot.shards
        ),
        ("removed" if snapshot.kind == "purge" else "written", f"{values.number(snapshot.written)} rows"),
        ("exported to", clean(snapshot.destination or "")),
        ("trouble", facts.trouble(snapshot) or ""),
        *governing(snapshot),
        ("input", "" if snapshot.input is None else clean(_json(snapshot.input))),
        ("options", clean(_json(steered)) if steered else ""),
        ("environment", clean(snapshot.environment)),
        ("launched by", clean(snapshot.launched_by or "")),
        ("version", clean(snapshot.app_version or "")),
        ("checksum", clean(snapshot.checksum)),
        ("started", values.instant(snapshot.started_at)),
        ("updated", values.instant(snapshot.updated_at)),
        ("finished", values.instant(snapshot.finished_at)),
    ]
    return [(name, value) for name, value in pairs if value]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
