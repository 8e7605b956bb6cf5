"""What sweeps refuse: an option that no declaration can have, one that changed under a run, a checkpoint of nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rowsweep.errors import ChangedSinceApplied, InvalidCheckpoint, InvalidDeclaration

_IMPERSONAL: Final = frozenset({"infinity", "-infinity", "nan", "24:00:00"})


def refused(field: str, expected: str, got: object, fix: str) -> InvalidDeclaration:
    """Make the refusal of an option that a declaration cannot have."""
    return InvalidDeclaration(f"{field} must be {expected}; got {got!r:.120}.", fix=fix, meta={"field": field})


def shown_value(value: object) -> str:
    """Answer how a refusal shows a row's value: only one that says nothing of anybody, since refusals are logged."""
    return repr(value) if str(value).lower() in _IMPERSONAL else "a value"


def refuse_changed(what: str, *, began: Mapping[str, Any], now: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Refuse to go on where a field of `now` differs from what the run began with; `what` names whose field it is.

    Rows behind the cursor were done by the former declaration, rows ahead would be done by this one. Raises
    ChangedSinceApplied.
    """
    changed = [field for field, value in now.items() if began.get(field) != value]
    if changed:
        first = changed[0]
        raise ChangedSinceApplied(
            f"The {first} of {what} changed while its run was under way: it began with {began.get(first)!r:.200}, the "
            f"declaration now says {now[first]!r:.200}.",
            fix="restore the declaration to let the run finish, or cancel the run and launch anew",
            meta={**meta, "changed": changed},
        )


def foreign_checkpoint(step_name: str, value: object, *, of: str) -> InvalidCheckpoint:
    """Make the refusal of a stored position that none of our passes stored; `of` names their kind."""
    return InvalidCheckpoint(
        f"The checkpoint {step_name!r} holds {value!r:.200}, which no {of} stored.",
        fix="rowsweep jobs show <id> --steps",
        meta={"step": step_name},
    )
