"""One batch of a purge: a page of due rows deleted and its checkpoint stored, in one transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from psycopg.rows import tuple_row

from rowsweep.errors import CursorStuck
from rowsweep.sweeps.batch.chain import Chain
from rowsweep.sweeps.keyset.expressions import cursor_values
from rowsweep.sweeps.purge.targets.catalog import Reference, find_reference

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import BatchClosed
    from rowsweep.sweeps.batch.closing import Closer
    from rowsweep.sweeps.batch.connection import BatchConnection
    from rowsweep.sweeps.purge.position import PurgePosition
    from rowsweep.sweeps.purge.targets.setup import TargetSetup

BY_TRIGGER: Final = "a trigger of the table"
_MOST_ROUNDS: Final = 6
_WALKED_AHEAD: Final = 20_000
_PAGES_AHEAD: Final = 50
_ENDS_AHEAD: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DuePage:
    """A page found: how many rows it has, the place it ends at, and its rows' addresses as they are bound, if asked."""

    rows: int
    to: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    is_full: bool = True


_Search = Callable[["PurgePosition", int], list[DuePage]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeDone:
    """A committed batch: where the target stands behind it, whether its page was full, and what the ledger wants.

    `awaits_locks` says that a round begins whose rows were locked by others a moment ago.
    """

    at: PurgePosition
    is_full: bool
    closed: BatchClosed
    awaits_locks: bool = False


class DeleteWork:
    """Delete one target's due rows page by page.

    Pages are found beforehand, several at once. At first only their ends are, and each is deleted as a range of the
    walk. Once a row of one was locked or held by others, in later rounds, and where a walk meets rows that are not due
    or many of one value, their rows are found too, and locked apart from their delete, so that each row that stays is
    known. What is found is only a hint: what is due is asked again of the row as it stands.
    """

    def __init__(self, held: BatchConnection, closer: Closer, setup: TargetSetup, goes_on: Callable[[], bool]) -> None:
        self._held = held
        self._closer = closer
        self._setup = setup
        self._statements = setup.statements()
        self._holders: list[Reference] = []
        self._steps_over: str | None = None
        self._texts: dict[Any, str] = {}
        self._ahead: deque[DuePage] = deque()
        self._expects: tuple[Any, int] | None = None
        self._steady: int | None = None
        self._page: DuePage | None = None
        self._is_quick = setup.is_plain
        self._chain = Chain(held, closer, self, goes_on)

    def next(self, at: PurgePosition, limit: int, *, stored: bool) -> PurgeDone:
        """Delete the next page; at the end of the walk begin another round where one could still remove rows."""
        is_quick = self._is_quick and at.round == 1
        if is_quick and self._closer.chains:
            after, page, closed = self._chain.next(at, limit, stored=stored)
        else:
            with self._held.transaction() as marker:
                page, after = self._quickly(at, limit) if is_quick else self._carefully(at, limit)
                closed = self._closer.close(at, after, marker, stored=stored)
        self._steps_over = None
        return PurgeDone(
            at=after,
            is_full=page is not None and page.is_full,
            closed=closed,
            awaits_locks=after.round > at.round and at.skipped > 0,
        )

    def be_careful(self) -> bool:
        """Find and lock pages apart from their delete from now on; False where that is done already."""
        was_quick, self._is_quick = self._is_quick, False
        self._ahead.clear()
        return was_quick

    def learn(self, schema: str, table: str, name: str) -> bool:
        """Note a foreign key that held a row, so that pages leave the rows it holds alone; False where that won't do.

        It will not where the referring table may not be read, or hid the row: then the row is found by smaller pages.
        """
        self.be_careful()
        if any((one.schema, one.table, one.name) == (schema, table, name) for one in self._holders):
            return False
        with self._held.transaction():
            found = find_reference(self._held.connection, schema, table, name)
        if found is None or not found.readable:
            return False
        self._holders.append(found)
        self._texts = {name: text for name, text in self._texts.items() if name != "delete"}
        return True

    def step_over(self, holder: str) -> None:
        """Let the next page, of one row, be counted as held and left."""
        self._steps_over = holder

    def blame(self, error: BaseException, at: PurgePosition) -> None:
        """Note on an error which places the page covers."""
        if self._page is not None:
            table = self._setup.table.qualified
            error.add_note(f"{table}: the rows behind {at.cursor}, up to and including {self._page.to}")

    def find(self, at: PurgePosition, limit: int) -> DuePage | None:
        """Find where the next page ends, None at the end of the walk."""
        return self._find(at, limit, self._ends)

    def known(self, at: PurgePosition, limit: int) -> DuePage | None:
        """Answer the next page where its end was found ahead."""
        return self.find(at, limit) if self._ahead and self._expects == ((at.round, at.cursor), limit) else None

    def send(self, at: PurgePosition, page: DuePage) -> Any:
        """Send the delete of a page as a range of the walk; answer its cursor."""
        started = at.cursor is not None
        text = self._composed(("delete to", started), lambda: self._statements.delete_to(started=started))
        values = {**cursor_values("c", at.cursor), **cursor_values("u", page.to)}
        return self._execute(text, {"rs_cutoff": self._setup.cutoff, **values})

    def after(self, at: PurgePosition, page: DuePage | None, cursor: Any) -> PurgePosition:
        """Answer the position behind a page that was deleted so, or behind the walk."""
        if page is None:
            return self._at_end(at)
        return at.removed(cursor.rowcount, to=page.to).passed(skipped=max(page.rows - cursor.rowcount, 0))

    def concerns(self, page: DuePage | None) -> None:
        """Note which page an error from now on is about."""
        self._page = page

    def _quickly(self, at: PurgePosition, limit: int) -> tuple[DuePage | None, PurgePosition]:
        page = self._page = self.find(at, limit)
        return page, self.after(at, page, None if page is None else self.send(at, page))

    def _carefully(self, at: PurgePosition, limit: int) -> tuple[DuePage | None, PurgePosition]:
        page = self._page = self._find(at, limit, self._search)
        if page is None:
            return None, self._at_end(at)
        return page, self._passed_over(at, page) or self._deleted(at, page)

    def _deleted(self, at: PurgePosition, page: DuePage) -> PurgePosition:
        if not page.rows:
            return at.removed(0, to=page.to)
        text = self._composed("delete", lambda: self._statements.delete(self._holders))
        values = {f"rs_a{number}": given for number, given in enumerate(page.addresses)}
        free, gone, by_holder = self._execute(text, {"rs_cutoff": self._setup.cutoff, **values}).fetchone()
        blocked = {
            _shown(self._holders[number]): {"rows": rows, "keys": keys} for number, rows, keys in by_holder or ()
        }
        held = sum(one["rows"] for one in blocked.values())
        if free > gone:
            blocked[BY_TRIGGER] = {"rows": free - gone, "keys": []}
        return at.removed(gone, to=page.to).passed(skipped=page.rows - free - held, blocked=blocked)

    def _passed_over(self, at: PurgePosition, page: DuePage) -> PurgePosition | None:
        if self._steps_over is None or page.rows != 1:
            return None
        key = ", ".join(page.to[-len(self._setup.table.key) :])
        return at.removed(0, to=page.to).passed(blocked={self._steps_over: {"rows": 1, "keys": [key]}})

    def _at_end(self, at: PurgePosition) -> PurgePosition:
        frees_its_own = at.rows > at.removed_before and any(
            one.is_own and _shown(one) in at.blocked for one in self._holders
        )
        return at.again() if frees_its_own or (at.skipped and at.round < _MOST_ROUNDS) else at.finished()

    def _find(self, at: PurgePosition, limit: int, search: _Search) -> DuePage | None:
        ahead, self._ahead = self._ahead, deque[DuePage]()
        if self._expects != ((at.round, at.cursor), limit):
            ahead.clear()
        if not ahead:
            found = search(at, limit)
            if found and found[-1].to == at.cursor:
                raise self._stuck(found[-1].to)
            ahead.extend(found)
        self._steady = limit
        if not ahead:
            return None
        page = ahead.popleft()
        self._ahead, self._expects = ahead, ((at.round, page.to), limit)
        return page

    def _ends(self, at: PurgePosition, limit: int) -> list[DuePage]:
        """Find where the next pages end; what is in them is asked when they are deleted."""
        started, values = at.cursor is not None, self._behind(at)
        pages = min(max(_WALKED_AHEAD // limit, 1), _ENDS_AHEAD) if self._steady == limit else 1
        text = self._composed(
            ("ends", started, limit, pages), lambda: self._statements.ends(limit, pages, started=started)
        )
        found = [DuePage(rows=limit, to=tuple(to)) for to in self._execute(text, values).fetchall()]
        if found:
            return found
        text = self._composed(("last end", started), lambda: self._statements.last_end(started=started))
        last = self._execute(text, values).fetchone()
        return [] if last is None else [DuePage(rows=last[-1], to=tuple(last[:-1]), is_full=False)]

    def _search(self, at: PurgePosition, limit: int) -> list[DuePage]:
        """Find the next pages with their rows' addresses."""
        is_wide = self._steady == limit or self._is_sparse
        keys = max(limit, min(_WALKED_AHEAD, limit * _PAGES_AHEAD)) if is_wide else limit
        started = at.cursor is not None
        text = self._composed(
            ("search", started, limit, keys), lambda: self._statements.search(keys, limit, started=started)
        )
        width = len(self._statements.order)
        return [
            DuePage(
                rows=row[1],
                addresses=tuple(row[2 + width :]) if row[1] else (),
                to=tuple(row[2 : 2 + width]),
                is_full=row[1] == limit,
            )
            for row in self._execute(text, self._behind(at)).fetchall()
        ]

    @property
    def _is_sparse(self) -> bool:
        """Whether the walk meets rows that are not due."""
        return self._setup.aged.index is None or self._statements.where is not None

    def _behind(self, at: PurgePosition) -> dict[str, Any]:
        return {"rs_cutoff": self._setup.cutoff, **cursor_values("c", at.cursor)}

    def _stuck(self, to: tuple[str, ...]) -> CursorStuck:
        table = self._setup.table
        return CursorStuck(
            f"The cursor of {table.qualified} does not advance behind {to}.",
            fix="give the table a primary key whose text form reads back as the same value",
            meta={"key": list(table.key), "to": to},
        )

    def _composed(self, name: Any, compose: Callable[[], Any]) -> str:
        if name not in self._texts:
            self._texts[name] = compose().as_string(self._held.connection)
        return self._texts[name]

    def _execute(self, text: str, values: dict[str, Any]) -> Any:
        return self._held.connection.cursor(row_factory=tuple_row).execute(text, values, prepare=True)


def _shown(holder: Reference) -> str:
    return f"{holder.name} of {holder.qualified}"
