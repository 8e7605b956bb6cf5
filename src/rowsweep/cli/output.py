"""What a command says: one JSON document, or words for a terminal or a pipe; refusals on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rowsweep.jobs.values.json_form import json_text, safe_json
from rowsweep.show.words.clean import clean, clean_lines
from rowsweep.show.words.values import number

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from rowsweep.errors import RowsweepError
    from rowsweep.show.tables.table import Table


class Output:
    """Answer on stdout in the form that was asked for; with `is_json` only documents appear there."""

    def __init__(self, *, is_json: bool = False, is_coloured: bool = True) -> None:
        self.is_json = is_json
        self.is_coloured = is_coloured
        self._console: Console | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether stdout is a terminal that can move its cursor, and words are wanted there."""
        return not self.is_json and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")

    @property
    def console(self) -> Console:
        """The terminal, as rich draws on it; `NO_COLOR` and `--no-color` are respected."""
        if self._console is None:
            from rich.console import Console

            no_color = None if self.is_coloured else True
            self._console = Console(no_color=no_color, highlight=False, markup=False, emoji=False)
        return self._console

    def document(self, value: object) -> None:
        """Write one JSON document in one line; what has no JSON form is written as its text."""
        _write(_json_text(value))

    def answer(self, value: object, words: str) -> None:
        """Write the value as JSON where that is asked for, else the words."""
        if self.is_json:
            self.document(value)
        else:
            self.say(words)

    def table(self, table: Table, value: object) -> None:
        """Write the value as JSON where that is asked for, else the table."""
        if self.is_json:
            self.document(value)
        elif self.is_terminal:
            self.console.print(table.in_terminal())
        else:
            _write(table.as_plain())

    def draw(self, view: RenderableType, plain: str, value: object) -> None:
        """Write the value as JSON, the view on a terminal, or the plain text into a pipe."""
        if self.is_json:
            self.document(value)
        elif self.is_terminal:
            self.console.print(view)
        else:
            _write(plain)

    def say(self, words: str, *, style: str = "") -> None:
        """Write a sentence for people; JSON readers do not get it."""
        if self.is_json:
            return
        if self.is_terminal:
            self.console.print(words, style=style)
        else:
            _write(words)

    @contextmanager
    def counting(self, of_what: str) -> Iterator[Callable[[int], None]]:
        """Answer what shows a count while something is being made; a terminal's only, and gone afterwards."""
        if not self.is_terminal:
            yield lambda _: None
            return
        with self.console.status("") as status:
            yield lambda count: status.update(f"{number(count)} {of_what}")

    def note(self, words: str) -> None:
        """Write a remark on stderr, where it is in no reader's way."""
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()

    def refuse(self, error: RowsweepError, *, flags: Sequence[str] = ()) -> None:
        """Write a refusal on stderr: its cause, where it is known the place, and its fix.

        `flags` are those of this command that a command named by the fix needs as well.
        """
        if self.is_json:
            refusal: dict[str, Any] = {"code": error.code, "cause": error.cause, "fix": error.fix, "meta": error.meta}
            self.note(_json_text(refusal))
            return
        place = error.meta.get("place")
        self.note("\n".join(_indented("error", error.cause)))
        if isinstance(place, str):
            self.note(f"   at: {clean(place)}")
        self.note("\n".join(_indented("  fix", error.fix)))
        missing = [flag for flag in flags if flag not in error.fix]
        if missing and "rowsweep " in error.fix:
            self.note(f"       with the {' and '.join(missing)} of this command")
        self.note(f" code: {error.code}")


def _indented(label: str, text: str) -> list[str]:
    first, *more = clean_lines(text.replace("\t", "  ")) or [""]
    return [f"{label}: {first}", *(" " * (len(label) + 2) + line for line in more)]


def _json_text(value: object) -> str:
    return json_text(_form(value))


def _form(value: object) -> Any:
    """Answer a JSON form in which one odd value becomes its text, and not all that is around it."""
    if isinstance(value, Mapping):
        return {str(name): _form(part) for name, part in value.items()}
    return [_form(part) for part in value] if isinstance(value, list | tuple) else safe_json(value)


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
