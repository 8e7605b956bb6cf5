"""Batches without handlers: one's end and the next one's beginning travel in one message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from rowsweep.sweeps.batch.connection import CommitUnknown, check_committed

if TYPE_CHECKING:
    from rowsweep.queue.stores.ledger import BatchClosed
    from rowsweep.sweeps.batch.closing import Closer
    from rowsweep.sweeps.batch.connection import BatchConnection

Place = TypeVar("Place")
Page = TypeVar("Page")


class Statements(Protocol[Place, Page]):
    """What such a batch is: a page, and the one statement that does it."""

    def find(self, at: Place, limit: int) -> Page | None:
        """Find the next page, None at the end."""

    def known(self, at: Place, limit: int) -> Page | None:
        """Answer the next page where that takes no question, else None."""

    def send(self, at: Place, page: Page) -> Any:
        """Send the statement that does a page; answer its cursor."""

    def after(self, at: Place, page: Page | None, cursor: Any) -> Place:
        """Answer the place behind a page whose statement is done, or the end."""

    def concerns(self, page: Page | None) -> None:
        """Note which page an error from now on is about."""


@dataclass(slots=True, kw_only=True)
class Begun(Generic[Place, Page]):
    """A batch in an open transaction whose statement was sent, or what failed of that."""

    at: Place
    limit: int
    page: Page | None
    cursor: Any = None
    error: Exception | None = None

    @property
    def is_done(self) -> bool:
        """Whether only its close is missing."""
        return self.error is None


class Chain(Generic[Place, Page]):
    """Do such batches one by one; each costs one round trip where the next page is known.

    A batch's closing statement, its commit, and the next batch's begin and statement travel together. The closing
    statement fails where the batch may not commit, and then nothing behind it runs. The next batch is a transaction of
    its own, taken up by a call for the same place and size, rolled back by anything else. `goes_on` says whether such a
    call is to be expected at once.
    """

    def __init__(
        self, held: BatchConnection, closer: Closer, statements: Statements[Place, Page], goes_on: Callable[[], bool]
    ) -> None:
        self._held = held
        self._closer = closer
        self._statements = statements
        self._goes_on = goes_on

    def next(self, at: Place, limit: int, *, stored: bool) -> tuple[Place, Page | None, BatchClosed]:
        """Do the next page and commit it with its checkpoint; answer the place behind it, the page, and the close."""
        begun: Begun[Place, Page] | None = None
        try:
            begun = self._taken(at, limit) or self._begin(at, limit)
            self._statements.concerns(begun.page)
            after = self._statements.after(at, begun.page, begun.cursor)
            following, closed = self._close(at, after, limit, stored=stored)
        except BaseException:
            if begun is not None:
                self._statements.concerns(begun.page)
            self._held.roll_back()
            raise
        self._held.begun = following
        return after, begun.page, closed

    def _taken(self, at: Place, limit: int) -> Begun[Place, Page] | None:
        begun: Begun[Place, Page] | None = self._held.begun
        if begun is None or begun.at is not at or begun.limit != limit:
            self._held.abandon()
            return None
        if begun.error is not None:
            self._statements.concerns(begun.page)
            raise begun.error
        self._held.begun = None
        return begun

    def _begin(self, at: Place, limit: int) -> Begun[Place, Page]:
        page = self._statements.known(at, limit)
        self._held.give_way()
        with self._held.connection.message():
            self._held.send_begin()
            cursor = None if page is None else self._statements.send(at, page)
        if page is None:
            page = self._statements.find(at, limit)
            cursor = None if page is None else self._statements.send(at, page)
        return Begun(at=at, limit=limit, page=page, cursor=cursor)

    def _close(self, at: Any, after: Any, limit: int, *, stored: bool) -> tuple[Begun[Place, Page] | None, BatchClosed]:
        closer, behind = (
            self._closer,
            _Behind(self._held, lambda: self._next_begun(after, limit), self._statements.send),
        )
        close = closer.made(at, after, stored=stored, behind=behind)
        if close.behind is None:
            closed = closer.checked(closer.ledger, close)
            self._held.commit()
            return None, closed
        closed = closer.send(closer.ledger, close)
        if not closed.held:
            self._held.roll_back()
            raise closer.missed()
        return behind.settled(), closed

    def _next_begun(self, at: Place, limit: int) -> Begun[Place, Page] | None:
        page = self._statements.known(at, limit) if self._goes_on() and not self._held.is_wanted else None
        return None if page is None else Begun(at=at, limit=limit, page=page)


class _Behind:
    """What travels behind a batch's closing statement: its commit, and the next batch."""

    def __init__(
        self,
        held: BatchConnection,
        next_begun: Callable[[], Begun[Any, Any] | None],
        send: Callable[[Any, Any], Any],
    ) -> None:
        self._held = held
        self._next_begun = next_begun
        self._send = send
        self._commit: Any = None
        self._following: Begun[Any, Any] | None = None
        self._error: Exception | None = None

    def send(self) -> None:
        """Send them."""
        following = self._following = self._next_begun()
        self._commit = self._held.send_commit(begins=following is not None)
        if following is not None:
            following.cursor = self._send(following.at, following.page)

    def failed(self, error: Exception) -> None:
        """Keep the error until it is asked whose it is."""
        self._error = error

    def settled(self) -> Begun[Any, Any] | None:
        """Answer the next batch, with what failed in it; raises where the commit did not land, or may have not."""
        error, connection = self._error, self._held.connection
        if error is not None and self._commit.statusmessage != "COMMIT":
            if connection.closed or connection.broken:
                raise CommitUnknown from error
            raise error
        check_committed(self._commit)
        if self._following is not None:
            self._following.error = error
        return self._following
