"""What runs out there: one page in, the handler's answer out."""

from __future__ import annotations

import io
import os
import pickle
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from multiprocessing import parent_process
from typing import TYPE_CHECKING, Any

from rowsweep.errors import InvalidDeclaration
from rowsweep.sweeps.batch.batch import Batch, BatchPlace
from rowsweep.sweeps.batch.forms.frames import as_frame, column_form
from rowsweep.sweeps.batch.forms.returned import as_returned_frame, no_objects
from rowsweep.sweeps.executors.failures import SentError
from rowsweep.sweeps.executors.orders import Handler, Order

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from rowsweep.sweeps.batch.forms.reading import Form
    from rowsweep.sweeps.keyset.catalog import Column, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOut:
    """One page on its way out: an Arrow stream, psycopg's values pickled, or both.

    `token` is another one each time: a cluster must not take two calls for the same.
    """

    place: BatchPlace
    token: str
    table: bytes | None
    rows: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageBack:
    """What came of a page: an Arrow stream, nothing, an error, or the wish for the page in other forms too.

    `token` is the call's that it answers.
    """

    token: str
    frame: bytes | None = None
    wants: frozenset[Form] | None = None
    failure: SentError | None = None

    def value(self) -> pl.DataFrame | None:
        """Answer what the handler returned, or raise what it raised."""
        if self.failure is not None:
            raise self.failure.restored()
        if self.frame is None:
            return None
        import polars as pl

        return pl.read_ipc_stream(io.BytesIO(self.frame))


class FormWanted(BaseException):
    """The handler asked for a form that the page was not sent in; no `except Exception` of its own may eat it."""


class FarRows:
    """Answer the page in the forms that it was sent in; note what else was asked for."""

    def __init__(self, page: PageOut, columns: Sequence[Column], key: tuple[str, ...]) -> None:
        self.asked: set[Form] = set()
        self.lacks = False
        self._page = page
        self._columns = columns
        self._key = key
        self._dicts: list[dict[str, Any]] | None = None
        self._table: pa.Table | None = None
        self._frame: pl.DataFrame | None = None

    def dicts(self) -> list[dict[str, Any]]:
        """Answer the rows as dicts of psycopg's own values."""
        if self._dicts is None:
            self._dicts = pickle.loads(self._sent("dicts", self._page.rows))  # noqa: S301 - from the pass that sent it
        return self._dicts

    def table(self) -> pa.Table:
        """Answer the rows in their Arrow form."""
        if any(column_form(column).finish is not None for column in self._columns):
            return self.frame().to_arrow()
        return self._sent_table()

    def frame(self) -> pl.DataFrame:
        """Answer the rows as a polars frame."""
        if self._frame is None:
            forms = [column_form(column) for column in self._columns]
            self._frame = as_frame(self._sent_table(), forms, self._key)
        return self._frame

    def _sent_table(self) -> pa.Table:
        import pyarrow as pa

        if self._table is None:
            self._table = pa.ipc.open_stream(self._sent("frame", self._page.table)).read_all()
        return self._table

    def _sent(self, form: Form, data: bytes | None) -> bytes:
        self.asked.add(form)
        if data is None:
            self.lacks = True
            raise FormWanted
        return data


class FarBatch(Batch):
    """A batch away from its transaction: rows, index, key and input are there, the connection and `ctx` are not."""

    def __init__(self, place: BatchPlace, value: Any, rows: FarRows) -> None:
        missing: Any = [_OutOfReach(name) for name in ("batch.ctx", "batch.connection")]
        super().__init__(place=place, ctx=missing[0], input=value, connection=missing[1], reader=rows)

    @property
    def signal(self) -> None:
        """None: what stops the run stops waiting for this page."""
        return


class _OutOfReach:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise InvalidDeclaration(
            f"{self._name} does not reach into an executor: the page's transaction is another process's.",
            fix="return a frame, which is written back there, or declare the sweep without executor=",
            meta={"field": "executor"},
        )


def warm(order: bytes, token: str) -> PageBack:
    """Import what a page will need, so that no page's time has it."""
    import polars as pl
    import pyarrow as pa

    try:
        _handler(order)
        pl.DataFrame(pa.table({"warm": [1]}))
    except Exception as error:  # noqa: BLE001 - it is raised where the pass is
        return PageBack(token=token, failure=SentError.of(error))
    return PageBack(token=token)


def compute(order: bytes, page: PageOut) -> PageBack:
    """Call the handler over a page and answer what it returned, checked as far as can be without the table."""
    try:
        known, handler = _handler(order)
        rows = FarRows(page, known.columns, known.table.key)
        try:
            value = handler(FarBatch(page.place, known.input, rows))
            frame = _packed(value, known.table)
        except (FormWanted, Exception):
            if not rows.lacks:
                raise
        token = page.token
        return PageBack(token=token, wants=frozenset(rows.asked)) if rows.lacks else PageBack(token=token, frame=frame)
    except Exception as error:  # noqa: BLE001 - it is raised where the pass is
        return PageBack(token=page.token, failure=SentError.of(error))


@lru_cache(maxsize=4)
def _handler(order: bytes) -> tuple[Order, Handler]:
    """Load an order once a process: what its handler keeps stays from page to page."""
    known: Order = pickle.loads(order)  # noqa: S301 - from the pass that sent it
    if known.is_watched:
        _end_with_parent()
    return known, known.function()


@cache
def _end_with_parent() -> None:
    """End when the process that made this one is gone: a pool's processes would wait for it for ever."""
    parent = parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="rowsweep-parent", daemon=True).start()


def _packed(value: object, table: Table) -> bytes | None:
    import polars as pl

    frame = as_returned_frame(value, table)
    if frame is None:
        return None
    for name, kind in frame.schema.items():
        if kind == pl.Object:
            raise no_objects(name)
    stream = io.BytesIO()
    frame.write_ipc_stream(stream)
    return stream.getvalue()
