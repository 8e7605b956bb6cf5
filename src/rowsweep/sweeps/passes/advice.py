"""What to look at first where Postgres refused the SQL itself: a name, a privilege, a type (SQLSTATE class 42)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rowsweep.errors import RowsweepError

if TYPE_CHECKING:
    import psycopg

_MARK: Final = "Fix: "
_ADVICE: Final = {
    "42501": "the privileges: grant what is denied above to the role that the workers connect as (README, Privileges)",
    "42703": "the column that is named above: correct it in the handler or the declaration, or add it to its table",
    "42P01": "the table that is named above: correct it in the handler or the declaration, or create it",
    "42883": "the function or operator that is named above, and the types it is given: a cast such as x::text may do",
    "42804": "the types that are named above: a cast such as x::text may do",
    "42601": "the SQL where the message points at",
}
_ANY: Final = "the SQL that is refused above, in the handler or the declaration"


def wrong_sql(error: BaseException) -> psycopg.Error | None:
    """Answer the database's refusal of SQL that is wrong in itself, in this error or behind it; None for any other."""
    from rowsweep.sweeps.batch.patience import database_error

    behind = database_error(error)
    is_wrong = behind is not None and (behind.sqlstate or "").startswith("42")
    return behind if is_wrong and not isinstance(error, RowsweepError) else None


def advise(error: Exception) -> None:
    """Note on such an error what to look at first, once: it is kept with the run, for whoever asks for the way on."""
    behind = wrong_sql(error)
    if behind is not None and advice_in("\n".join(getattr(error, "__notes__", []))) is None:
        error.add_note(f"{_MARK}look at {_ADVICE.get(behind.sqlstate or '', _ANY)}")


def advice_in(text: str) -> str | None:
    """Answer what was noted on the error of which this is kept; None where nothing was."""
    lines = (line.strip() for line in text.splitlines())
    return next((line.removeprefix(_MARK) for line in lines if line.startswith(f"{_MARK}look at ")), None)
