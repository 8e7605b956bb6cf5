"""Find the next page, and do to it what is done in the database."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import CursorStuck
from rowsweep.sweeps.batch.batch import BatchPlace
from rowsweep.sweeps.keyset.cursor import run
from rowsweep.sweeps.keyset.expressions import cursor_values

if TYPE_CHECKING:
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.keyset.statements import Statements
    from rowsweep.sweeps.passes.position import KeyRange, Position

_MOST_PAGES: Final = 16
MOST_AHEAD: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page found: whether it has all the keys asked for, and the last one's texts."""

    is_full: bool
    to: tuple[str, ...]


class PageFinder:
    """Find the next page over the pass's connection, and do to it what is done in the database."""

    def __init__(
        self,
        held: BatchConnection,
        statements: Statements,
        params: Mapping[str, Any],
        upper: Sequence[str] | None,
        *,
        most_ahead: int = MOST_AHEAD,
    ) -> None:
        self.held = held
        self._most_ahead = most_ahead
        self.statements = statements
        self._params = dict(params)
        self._upper = None if upper is None else tuple(upper)
        self._texts: dict[Any, str] = {}
        self._ahead: deque[Page] = deque()
        self._expects: tuple[tuple[str, ...] | None, int, KeyRange | None] | None = None
        self._steady: int | None = None
        self._to: tuple[str, ...] | None = None

    def update(self, assignments: Mapping[str, str], at: Position, page: Page) -> Any:
        """Send the update of the page's matching rows; answer its cursor, which counts them."""
        started = at.cursor is not None
        text = self._composed(("update", started), lambda: self.statements.update(assignments, started=started))
        return self._execute(text, self.page_values(at, page.to))

    def count(self, at: Position, page: Page, *, lock: bool) -> int:
        """Count the page's matching rows, locking them where asked."""
        started = at.cursor is not None
        text = self._composed(("count", started, lock), lambda: self.statements.count(started=started, lock=lock))
        return int(self._execute(text, self.page_values(at, page.to)).fetchone()[0])

    def page_values(self, at: Position, to: Sequence[str]) -> dict[str, Any]:
        """Bind the bounds of a page and the application's parameters."""
        return {**self._params, **cursor_values("c", at.cursor), **cursor_values("u", to)}

    def find(self, at: Position, limit: int) -> Page | None:
        """Find the next page, None at the end; once the size is steady, several pages' in one statement.

        Bounds found ahead tile the key range as those found one by one do: rows that appear in a page before its turn
        belong to it, rows behind the last known bound are found by the next search.
        """
        self._to = None
        ahead, self._ahead = self._ahead, deque[Page]()
        if self._expects != (at.cursor, limit, at.range):
            ahead.clear()
        if not ahead and self._steady == limit and limit <= self._most_ahead // 2:
            ahead.extend(self._search(at, limit, min(self._most_ahead // limit, _MOST_PAGES)))
        if not ahead:
            ahead.extend(self._search(at, limit, 1))
        self._steady = limit
        if not ahead:
            return None
        page = ahead.popleft()
        self._ahead, self._expects, self._to = ahead, (page.to, limit, at.range), page.to
        return page

    def known(self, at: Position, limit: int) -> Page | None:
        """Answer the next page where it was found ahead, None where it has to be searched for."""
        return self.find(at, limit) if self._ahead and self._expects == (at.cursor, limit, at.range) else None

    def concerns(self, page: Page | None) -> None:
        """Note which page an error from now on is about."""
        self._to = None if page is None else page.to

    def _search(self, at: Position, limit: int, pages: int) -> list[Page]:
        started = at.cursor is not None
        upper = self._upper if at.range is None else at.range.to
        statements = replace(self.statements, bounded=upper is not None)
        compose = statements.next_page if pages == 1 else partial(statements.next_pages, pages=pages)
        text = self._composed(
            ("next", started, limit, pages, statements.bounded), lambda: compose(limit, started=started)
        )
        values = {**self._params, **cursor_values("u", upper), **cursor_values("c", at.cursor)}
        found: list[Page] = []
        for is_full, *texts, exact in self._execute(text, values).fetchall():
            to = tuple(texts)
            before = found[-1].to if found else at.cursor
            if not exact or to == before:
                raise self._stuck(before, to)
            found.append(Page(is_full=is_full, to=to))
        return found

    def _stuck(self, before: tuple[str, ...] | None, to: tuple[str, ...]) -> CursorStuck:
        table = self.statements.table
        return CursorStuck(
            f"The cursor of {table.qualified} does not advance: from {before} to {to}.",
            fix="name another key: Rows(…, key=[…]), whose text form reads back as the same value",
            meta={"key": list(table.key), "from": before, "to": to},
        )

    def blame(self, error: BaseException, at: Position) -> None:
        """Note on an error which keys the batch behind a position covers, where its page was found."""
        to = self._to if at.plan is None else at.plan.to
        if to is not None:
            place = BatchPlace(run_id="", index=at.index + 1, after=at.cursor, to=to)
            error.add_note(place.shown())

    def _composed(self, name: Any, compose: Callable[[], Any]) -> str:
        if name not in self._texts:
            self._texts[name] = compose().as_string(self.held.connection)
        return self._texts[name]

    def _execute(self, text: str, values: Mapping[str, Any]) -> Any:
        return run(self.held.connection, text, values, prepare=True)
