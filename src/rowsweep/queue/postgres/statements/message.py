"""Several statements in one message: none of it can be left half sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from psycopg import Pipeline

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.abc import PQGen

# psycopg sends each statement of a pipeline as it comes, and says nothing public of holding them back.
_NEEDED: Final = ("_communicate_gen", "_exit_gen", "_fetch_gen")


class _Message(Pipeline):
    """A pipeline that sends what is put into it all at once, with its sync, when its block ends.

    A process that is stopped between two statements of a pipeline leaves a session that waits for the rest of it: it
    keeps its locks, and no timeout of an idle transaction ends it.
    """

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        if exc_val is not None:
            self.command_queue.clear()
            self.result_queue.clear()
        super().__exit__(exc_type, exc_val, exc_tb)

    def _communicate_gen(self) -> PQGen[None]:
        """Keep the statement for later."""
        yield from ()

    def _exit_gen(self) -> PQGen[None]:
        if not self.command_queue:
            return
        commands = [*self.command_queue, self.pgconn.pipeline_sync]
        self.command_queue.clear()
        self.command_queue.append(lambda: _all(commands))
        self.result_queue.append(None)
        try:
            yield from super()._communicate_gen()
        finally:
            yield from self._fetch_gen(flush=True)


def is_supported() -> bool:
    """Say whether statements can be sent so with this libpq and this psycopg."""
    return Pipeline.is_supported() and all(hasattr(Pipeline, name) for name in _NEEDED)


@contextmanager
def message(connection: Connection[Any]) -> Iterator[None]:
    """Send the statements executed in the block in one message at its end, and wait for all answers.

    A block that raises sends nothing. The first statement's error that is met is raised; those behind it did not run.
    """
    with connection.lock:
        if connection._pipeline is not None:
            msg = "a message cannot be made inside a pipeline"
            raise RuntimeError(msg)
        pipeline = connection._pipeline = _Message(connection)
    try:
        with pipeline:
            yield
    finally:
        connection._pipeline = None


def _all(commands: list[Callable[[], None]]) -> None:
    for command in commands:
        command()
