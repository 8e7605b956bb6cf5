"""What a sweep's declaration says, screened, with the checksum by which a changed one is told."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, get_args

from rowsweep.options import Rate, count, duration, invalid_option, rate
from rowsweep.queue.stores.shards import MOST_SHARDS
from rowsweep.sweeps.executors.declared import check_executor
from rowsweep.sweeps.health.choice import INHERIT, checks_of
from rowsweep.sweeps.keyset.rows import Rows
from rowsweep.sweeps.late.options import LATE_WAIT, Late, check_late
from rowsweep.sweeps.refusals import refused

MOST_BATCH_ROWS: Final = 1_000_000
# The list is one column of the run's ledger row.
MOST_REJECTED: Final = 10_000
_USUALLY_REJECTED: Final = 1_000

OnError = Literal["stop", "set-aside"]


class Rejecting(TypedDict, total=False):
    """What a launch may say of rows that fail by themselves, in the declaration's place."""

    on_error: OnError | None
    max_rejected: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSpec:
    """How any sweep goes about its batches; `batch_rows`, `rate` and the timeouts may change between attempts."""

    batch_rows: int = 1_000
    adapt: bool = True
    rate: str | Rate | None = None
    environments: Sequence[str] = ()
    requires: Sequence[str] = ()
    lock_timeout: str | timedelta = "1s"
    statement_timeout: str | timedelta = "15s"
    health: Any = INHERIT

    def __post_init__(self) -> None:
        if not isinstance(self.adapt, bool):
            raise refused("adapt", "True or False", self.adapt, "adapt=True")
        count(self.batch_rows, option="batch_rows", minimum=1, maximum=MOST_BATCH_ROWS)
        if self.health is not INHERIT:
            checks_of(self.health)
        if self.rate is not None:
            rate(self.rate, option="rate")
        for option, works in (("environments", '("production",)'), ("requires", '("order-totals",)')):
            _check_texts(option, getattr(self, option), works)
        for option in ("lock_timeout", "statement_timeout"):
            duration(getattr(self, option), option=option)

    def milliseconds(self, option: str) -> int:
        """Answer a timeout in whole milliseconds, at least one (zero would mean none to Postgres)."""
        return max(round(duration(getattr(self, option), option=option).total_seconds() * 1000), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec(PassSpec):
    """Which rows of a table a pass walks; they may not change between attempts.

    `source` is a DSN or a pool of another database than the queue's; it is never shown or stored. `shards` says how
    many jobs share a run.
    """

    rows: Rows
    source: Any = field(default=None, repr=False)
    shards: int | Literal["auto"] = 1

    def __post_init__(self) -> None:
        if not isinstance(self.rows, Rows):
            raise refused("rows", "a Rows", self.rows, 'rows=rs.Rows("orders")')
        if self.source is not None and not (_is_text(self.source) or hasattr(self.source, "connection")):
            raise refused("source", "a DSN or a psycopg pool", type(self.source).__name__, 'source="postgresql://…"')
        if isinstance(self.shards, str) and self.shards != "auto":
            raise invalid_option("shards", f'a whole number from 1 to {MOST_SHARDS}, or "auto"', self.shards, '"auto"')
        if self.shards != "auto":
            count(self.shards, option="shards", minimum=1, maximum=MOST_SHARDS)
        PassSpec.__post_init__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec(TableSpec):
    """What is done to the rows: expressions, or a handler's work."""

    assignments: Mapping[str, str] | None = None
    handler: Callable[..., Any] | None = None
    atomic: bool = True
    on_error: OnError = "stop"
    max_rejected: int | None = None
    executor: Executor | Callable[[], Executor] | None = field(default=None, repr=False)
    ahead: int | None = None
    late: Late = "due"
    late_wait: str | timedelta | None = LATE_WAIT

    def __post_init__(self) -> None:
        TableSpec.__post_init__(self)
        self._check_what()
        check_late(self)
        if not isinstance(self.atomic, bool):
            raise refused("atomic", "True or False", self.atomic, "atomic=True")
        check_rejecting(self.on_error, self.max_rejected)
        if self.on_error == "stop" and self.max_rejected is not None:
            raise refused(
                "max_rejected",
                'given with on_error="set-aside"',
                self.max_rejected,
                'on_error="set-aside", or remove it',
            )
        check_executor(self)

    @property
    def most_rejected(self) -> int:
        """How many rows a run may set aside."""
        return _USUALLY_REJECTED if self.max_rejected is None else self.max_rejected

    @property
    def is_exactly_once(self) -> bool:
        """Whether a batch's writes commit with its checkpoint."""
        return self.atomic and self.source is None

    def _check_what(self) -> None:
        if (self.handler is None) == (self.assignments is None):
            came = "neither" if self.handler is None else "both"
            raise refused("set", "a handler or set={column: expression}, exactly one", came, "remove one of them")
        if self.assignments is not None:
            _check_assignments(self.assignments)
            if self.atomic is False:
                raise refused("atomic", "True with set=: the database does all the work", False, "atomic=True")
        if self.handler is not None:
            _check_handler(self.handler)


def check_rejecting(on_error: object, max_rejected: object) -> None:
    """Refuse what says nothing about rows that fail by themselves."""
    if on_error not in get_args(OnError):
        raise refused("on_error", '"stop" or "set-aside"', on_error, 'on_error="set-aside"')
    if max_rejected is not None:
        count(max_rejected, option="max_rejected", minimum=1, maximum=MOST_REJECTED)


def checksum(kind: str, spec: SweepSpec) -> str:
    """Answer the SHA-256 over what decides a sweep's effect: kind, table, key, where, params, set and handler.

    A handler counts by its syntax tree without decorators and docstring, so comments and formatting change nothing;
    where there is no source (a lambda, code typed at a prompt) by its bytecode. Functions it calls are not covered.
    """
    rows = spec.rows
    parts = {
        "kind": kind,
        "table": list(rows.parts),
        "key": None if rows.key_columns is None else list(rows.key_columns),
        "where": rows.where,
        "params": rows.params_form,
        "set": None if spec.assignments is None else dict(spec.assignments),
        "handler": None if spec.handler is None else code_of(spec.handler),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def code_of(handler: Callable[..., Any]) -> str:
    """Answer what tells this function's code from another's."""
    if isinstance(handler, functools.partial):
        return repr((code_of(handler.func), handler.args, handler.keywords))
    function = inspect.unwrap(handler)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        tree = None
    if isinstance(tree, ast.FunctionDef):
        tree.decorator_list = []
        if ast.get_docstring(tree, clean=False) is not None:
            tree.body = tree.body[1:]
        return ast.dump(tree)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return f"{type(function).__module__}.{type(function).__qualname__}" if code is None else _bytecode(code)


def _bytecode(code: Any) -> str:
    return f"{code.co_code.hex()} {code.co_names} {[_const(const) for const in code.co_consts]}"


def _const(const: Any) -> str:
    """Show a constant as every process shows it: a set's order is another one in each."""
    if isinstance(const, frozenset):
        return repr(sorted(map(repr, const)))
    return _bytecode(const) if inspect.iscode(const) else repr(const)


def _check_handler(handler: object) -> None:
    if not callable(handler):
        raise refused("handler", "a function of a batch", handler, "def handle(batch): … under @rs.backfill(…)")
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None)):  # noqa: B004 - callable() does not tell
        raise refused("handler", "a plain function", "an async one", "declare it with def")


def _check_assignments(assignments: object) -> None:
    texts = assignments if isinstance(assignments, Mapping) else {}
    if not texts or not all(_is_text(column) and _is_text(text) for column, text in texts.items()):
        raise refused("set", "columns with their SQL expressions", assignments, 'set={"total": "price * qty"}')


def _check_texts(option: str, value: object, works: str) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(_is_text(text) for text in value):
        raise refused(option, "a tuple of names", value, f"{option}={(value,) if _is_text(value) else works}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
