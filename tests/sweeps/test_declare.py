"""What is wrong in a declaration is refused where it stands, with the fix."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import DuplicateJob, InvalidDeclaration, InvalidOption, RowsweepError, UnknownJob
from rowsweep.jobs.registry import find_job, reset_jobs
from rowsweep.sweeps.registry import get_sweep, is_backfill, registered_backfills
from rowsweep.sweeps.spec import SweepSpec, checksum

ORDERS = rs.Rows("orders")


@pytest.fixture(autouse=True)
def _nothing_declared() -> Iterator[None]:
    reset_jobs()
    yield
    reset_jobs()


def handler(batch: rs.Batch) -> None:
    """Do nothing."""


async def async_handler(batch: rs.Batch) -> None:
    """Do nothing later."""


def refused(error: type[RowsweepError], *words: str, **given: Any) -> RowsweepError:
    """Declare what must be refused; the message has the words."""
    with pytest.raises(error) as caught:
        rs.backfill("totals", **given).launch()
    for word in (*words, "Fix: "):
        assert word in str(caught.value)
    return caught.value


def test_an_unknown_option_is_answered_with_the_nearest_of_its_kind() -> None:
    """S-020: those of the sweep as well as those of a job."""
    refused(InvalidDeclaration, "no option 'sett'; nearest: set", rows=ORDERS, sett={"total": "1"})
    refused(InvalidDeclaration, "nearest: batch_rows", rows=ORDERS, set={"total": "1"}, batchrows=5)
    with pytest.raises(InvalidDeclaration, match="no option 'overwite'; nearest: overwrite"):
        rs.export_rows("orders", ORDERS, to="x", overwite=True)
    with pytest.raises(InvalidDeclaration, match="no option 'bugdet'; nearest: budget"):
        rs.purge("old", targets=list, bugdet=rs.Budget(rows=1))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["neither a handler nor set="]),
        ({"handler": handler, "set": {"total": "1"}}, ["exactly one", "'both'"]),
        ({"handler": async_handler}, ["handler", "plain function"]),
        ({"handler": 7}, ["handler", "function", "7"]),
        ({"set": {}}, ["set", "columns with their SQL expressions", "{}"]),
        ({"set": {"total": 3}}, ["set", "{'total': 3}"]),
        ({"set": {"total": " "}}, ["set"]),
        ({"set": "total = 1"}, ["set", "'total = 1'"]),
        ({"set": {"total": "1"}, "atomic": False}, ["atomic", "True with set="]),
        ({"set": {"total": "1"}, "atomic": "no"}, ["atomic", "'no'"]),
        ({"set": {"total": "1"}, "adapt": 1}, ["adapt", "True or False"]),
        ({"set": {"total": "1"}, "environments": "production"}, ["environments", "('production',)"]),
        ({"set": {"total": "1"}, "requires": [1]}, ["requires", 'requires=("order-totals",)']),
        ({"set": {"total": "1"}, "requires": "other"}, ["requires", "requires=('other',)"]),
        ({"set": {"total": "1"}, "rows": "orders"}, ["rows", 'rs.Rows("orders")', "'orders'"]),
        ({"set": {"total": "1"}, "batchrows": 5}, ["'batchrows'"]),
        ({"set": {"total": "1"}, "retry": 3}, ["retry", "Retry"]),
    ],
)
def test_a_wrong_option_is_refused_by_name_with_what_came(given: dict[str, Any], words: list[str]) -> None:
    """D-1, S-020: both or neither, async handlers, wrong types, unknown options."""
    error = refused(InvalidDeclaration, *words, **({"rows": ORDERS} | given))
    assert str(error.meta["field"]) in str(error) or error.meta["field"] == "set"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch_rows": 0}, ["batch_rows", "0"]),
        ({"batch_rows": True}, ["batch_rows", "True"]),
        ({"batch_rows": 10_000_000}, ["batch_rows"]),
        ({"rate": "fast"}, ["rate", "'fast'", "2000/s"]),
        ({"lock_timeout": "soon"}, ["lock_timeout", "'soon'"]),
        ({"statement_timeout": -1}, ["statement_timeout"]),
        ({"priority": 5_000}, ["priority"]),
        ({"shards": "many"}, ["shards", "1 to 64", '"auto"', "'many'"]),
    ],
)
def test_a_number_out_of_bounds_is_refused_by_name(given: dict[str, Any], words: list[str]) -> None:
    """D-1, D-6, S-014: counts, rates and durations."""
    refused(InvalidOption, *words, rows=ORDERS, set={"total": "1"}, **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"table": ""}, ["table"]),
        ({"table": "a.b.c"}, ["table", '"sales.orders"']),
        ({"table": ("a", "b", "c")}, ["table"]),
        ({"table": 3}, ["table", "3"]),
        ({"table": "a."}, ["table"]),
        ({"table": "or\x00ders"}, ["table"]),
        ({"columns": "id"}, ["columns", "list of column names"]),
        ({"columns": []}, ["columns"]),
        ({"columns": ["id", "id"]}, ["columns", "each column once"]),
        ({"key": []}, ["key"]),
        ({"key": ["id", "id"]}, ["key", "each column once"]),
        ({"where": ""}, ["where", "one expression"]),
        ({"where": True}, ["where"]),
        ({"params": [1]}, ["params", "mapping"]),
        ({"params": {"rs_x": 1}}, ["params", "rs_"]),
        ({"params": {"x": float("nan")}}, ["params", "JSON"]),
        ({"params": {"x": object()}}, ["params", "JSON"]),
        ({"until": "never"}, ["until", '"end" or "start"', "'never'"]),
    ],
)
def test_rows_that_describe_nothing_are_refused(given: dict[str, Any], words: list[str]) -> None:
    """N-049, D-1: what `Rows` takes."""
    with pytest.raises(InvalidDeclaration) as caught:
        rs.Rows(**({"table": "orders"} | given))
    for word in (*words, "Fix: "):
        assert word in str(caught.value)


def test_a_name_with_a_colon_is_refused() -> None:
    """N-007: the colon separates the parts of keys."""
    wrong: list[Any] = ["", "a:b", "x" * 101, "a\nb", 7]
    for name in wrong:
        with pytest.raises(InvalidDeclaration, match="1 to 100 printable"):
            rs.backfill(name, rows=ORDERS, set={"total": "1"})


def test_a_wrong_option_is_refused_before_the_decorator_has_its_function() -> None:
    """D-1: the line that is wrong is the line that raises."""
    with pytest.raises(InvalidOption, match="batch_rows"):
        rs.backfill("totals", rows=ORDERS, batch_rows=0)
    with pytest.raises(InvalidDeclaration, match="rows"):
        rs.backfill("totals", rows=None)  # type: ignore[call-overload]


def test_a_sweep_with_set_is_no_decorator_and_cannot_be_called() -> None:
    """D-1: set= and a handler exclude each other, however they are put."""
    sweep = rs.backfill("totals", rows=ORDERS, set={"total": "1"})
    with pytest.raises(InvalidDeclaration, match="exclude each other"):
        sweep(handler)  # type: ignore[operator]


def test_a_handle_is_found_by_name_and_knows_that_it_is_a_backfill() -> None:
    """S-181, S-203, S-007: it is a job's handle, of a kind of its own."""
    sweep = rs.backfill("totals", rows=ORDERS, set={"total": "price * qty"})
    assert registered_backfills() == [sweep]
    assert get_sweep("totals") is sweep
    assert is_backfill(sweep)
    assert not is_backfill(handler)
    with pytest.raises(UnknownJob, match=r"nearest: 'totals'"):
        get_sweep("total")
    described = sweep.describe()
    assert {name: described[name] for name in ("name", "kind", "table", "key", "set", "atomic", "batch_rows")} == {
        "name": "totals",
        "kind": "backfill",
        "table": "orders",
        "key": None,
        "set": {"total": "price * qty"},
        "atomic": True,
        "batch_rows": 1_000,
    }
    assert (sweep.retry.attempts, sweep.options.tenant) == (20, "none")


MODULE = """
import rowsweep as rs

{more}
@rs.backfill("bands", rows=rs.Rows("orders", where={where!r}))
def bands(batch):
    return None

totals = rs.backfill("totals", rows=rs.Rows("orders"), set={{"total": "price * qty"}})
"""


def executed(name: str, text: str, module: types.ModuleType | None = None) -> types.ModuleType:
    """Execute a module's text, as an import, a reload or a cell does."""
    module = module or types.ModuleType(name)
    exec(compile(text, f"<{name}>", "exec"), module.__dict__)
    return module


def test_a_module_executed_anew_replaces_its_declarations() -> None:
    """N-006: a reload changes the declaration, not only its body."""
    module = executed("shop.sweeps", MODULE.format(more="", where="a"))
    executed("shop.sweeps", MODULE.format(more="# edited", where="b"), module)
    assert get_sweep("bands") is module.bands
    assert module.bands.describe()["where"] == "b"
    assert find_job("totals") is module.totals


def test_a_cell_run_twice_replaces_its_declarations() -> None:
    """N-006: `__main__` replaces whatever the cell says now, a set form by a handler too."""
    main = executed("__main__", MODULE.format(more="", where="a"))
    executed("__main__", MODULE.format(more="x = 1", where="b"), main)
    executed("__main__", 'import rowsweep as rs\nbands = rs.backfill("bands", rows=rs.Rows("o"), set={"a": "1"})', main)
    assert get_sweep("bands") is main.bands
    assert get_sweep("bands").describe()["set"] == {"a": "1"}


def test_another_place_may_not_take_the_name() -> None:
    """N-006, S-021: both places are named."""
    executed("shop.sweeps", MODULE.format(more="", where="a"))
    with pytest.raises(DuplicateJob) as caught:
        executed("shop.others", MODULE.format(more="", where="a"))
    assert "<shop.sweeps>:" in str(caught.value)
    assert "<shop.others>:" in str(caught.value)
    assert "another name" in caught.value.fix


def test_one_module_may_not_declare_a_name_twice() -> None:
    """N-006: twice in one execution of a module is two declarations."""
    twice = "import rowsweep as rs\n" + 'rs.backfill("t", rows=rs.Rows("o"), set={"a": "1"})\n' * 2
    with pytest.raises(DuplicateJob):
        executed("shop.sweeps", twice)


def summed(text: str, **options: Any) -> str:
    """Answer the checksum of a handler given as text."""
    name = "/tmp/none.py"
    import linecache

    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"rs": rs}
    exec(compile(text, name, "exec"), scope)
    return checksum("backfill", SweepSpec(rows=options.pop("rows", ORDERS), handler=scope["handle"], **options))


BODY = "def handle(batch):\n    return batch.frame\n"


def test_a_checksum_ignores_what_changes_no_effect() -> None:
    """D-2: comments, formatting, docstring, decorators, batch size, rate, timeouts, environments."""
    plain = summed(BODY)
    assert summed('def handle(batch):\n    """Say what."""\n    # why\n    return (batch\n        .frame)\n') == plain
    assert summed(f"import functools\n@functools.lru_cache\n{BODY}") == plain
    assert summed(BODY, batch_rows=7, rate="5/s", adapt=False, lock_timeout=timedelta(seconds=3)) == plain
    assert summed(BODY, environments=("production",), requires=("other",)) == plain
    assert len(plain) == 64


def test_a_checksum_changes_with_what_decides_the_effect() -> None:
    """D-2: kind, table, key, where, params, set and the handler's code."""
    sets = SweepSpec(rows=ORDERS, assignments={"total": "1"})
    sums = [
        summed(BODY),
        summed("def handle(batch):\n    return batch.arrow\n"),
        *(
            summed(BODY, rows=rows)
            for rows in (
                rs.Rows("order"),
                rs.Rows("orders", where="a"),
                rs.Rows("orders", where="a", params={"x": 1}),
                rs.Rows("orders", where="a", params={"x": 2}),
                rs.Rows("orders", key="id"),
            )
        ),
        checksum("backfill", sets),
        checksum("purge", sets),
        checksum("backfill", SweepSpec(rows=ORDERS, assignments={"total": "2"})),
        checksum("backfill", SweepSpec(rows=ORDERS, assignments={"band": "1"})),
        checksum("backfill", SweepSpec(rows=ORDERS, handler=lambda batch: batch.rows)),
        checksum("backfill", SweepSpec(rows=ORDERS, handler=lambda batch: batch.frame)),
    ]
    assert len(set(sums)) == len(sums)
    assert checksum("backfill", SweepSpec(rows=rs.Rows(("orders",)), assignments={"total": "1"})) == sums[7]


def test_a_method_and_a_callable_object_have_a_checksum_by_their_code() -> None:
    """D-2: whatever can be called; two equal ones in two processes must agree, so no address is in it."""

    class Caller:
        def __call__(self, batch: rs.Batch) -> None:
            """Do nothing."""

        def method(self, batch: rs.Batch) -> None:
            """Do nothing."""

    first, second = Caller(), Caller()
    for one, other in ((first, second), (first.method, second.method)):
        assert checksum("backfill", SweepSpec(rows=ORDERS, handler=one)) == checksum(
            "backfill", SweepSpec(rows=ORDERS, handler=other)
        )


def test_a_checksum_is_the_same_in_every_process(tmp_path: Path) -> None:
    """D-2: sets among constants, partial functions and objects without code have no order or address in it."""
    script = tmp_path / "sums.py"
    script.write_text(SUMS)
    runs = {
        subprocess.run(
            [sys.executable, str(script)], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(runs) == 1
    assert len(set(runs.pop().split())) == 3


SUMS = """
import functools
import operator
import rowsweep as rs
from rowsweep.sweeps.spec import SweepSpec, checksum

def named(batch, words):
    return None

for handler in (
    lambda batch: batch.rows if batch.index in {"a", "b", "c", "d"} else None,
    functools.partial(named, words=["x"]),
    operator.attrgetter("frame"),
):
    print(checksum("backfill", SweepSpec(rows=rs.Rows("orders"), handler=handler)))
"""
