"""The registry: one declaration a name, and what declaring it again means."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import rowsweep as rs
from rowsweep.errors import DuplicateJob, InvalidDeclaration, UnknownJob
from rowsweep.jobs.handle import JobHandle
from rowsweep.jobs.registry import (
    check_name,
    describe_jobs,
    get_job,
    is_job_handle,
    register,
    register_jobs,
    registered_jobs,
    reset_jobs,
)

SENDS = """
import rowsweep as rs

@rs.job("send", tenant="none")
def send(ctx):
    return {version}
"""
SWEEP = """
import rowsweep as rs

sweep = rs.backfill("{name}", rows=rs.Rows("orders"), set={{"total": "{expression}"}})
"""


def executed(source: str, *, module: str) -> dict[str, Any]:
    """Run a source as the module of that name, as a notebook's cell or a loader does."""
    namespace: dict[str, Any] = {"__name__": module}
    exec(compile(source, f"<{module}>", "exec"), namespace)
    return namespace


def imported(path: Path) -> ModuleType:
    """Execute a file as a module of its stem, anew each time."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_declared_job_is_found_by_its_name() -> None:
    """S-019: the handle has its name, policy, tenant and description, and the registry answers it."""

    @rs.job("send", tenant="none", description="mail it")
    def send(ctx: rs.Ctx) -> None: ...

    assert get_job("send") is send
    assert (send.name, send.retry, send.tenant_for(None)) == ("send", rs.Retry(), None)
    assert repr(send) == "<job 'send'>"


def test_an_unknown_name_is_refused_with_the_nearest_ones() -> None:
    """S-019."""
    rs.job("order-totals", lambda _ctx: None, tenant="none")
    with pytest.raises(UnknownJob, match="nearest: 'order-totals'") as refused:
        get_job("order-total")
    assert refused.value.meta["nearest"] == ["order-totals"]
    with pytest.raises(UnknownJob, match="none is close"):
        get_job("zzz")


def test_the_same_module_and_function_replace_their_declaration() -> None:
    """N-006: a module executed anew declares what it declared before."""
    first = executed(SENDS.format(version=1), module="shop.mail")
    second = executed(SENDS.format(version=2), module="shop.mail")
    assert get_job("send") is second["send"] is not first["send"]
    assert get_job("send").body(None) == 2
    assert first["send"].body(None) == 1


def test_another_module_s_declaration_of_the_name_is_refused_with_both_places() -> None:
    """S-021, N-006."""
    executed(SENDS.format(version=1), module="shop.mail")
    with pytest.raises(DuplicateJob) as refused:
        executed(SENDS.format(version=1), module="shop.letters")
    assert refused.value.meta["kind"] == "job"
    assert refused.value.meta["places"] == ["<shop.mail>:4", "<shop.letters>:4"]
    assert "<shop.mail>:4" in refused.value.fix
    assert get_job("send").origin.module == "shop.mail"


def test_another_function_of_the_same_module_is_refused() -> None:
    """S-021, N-006: two functions are two jobs."""
    with pytest.raises(DuplicateJob):
        executed(SENDS.format(version=1) + SENDS.format(version=2).replace("def send", "def post"), module="shop.mail")


def test_a_cell_run_again_replaces_whatever_it_declared() -> None:
    """N-006: in `__main__` every declaration of the name replaces, of another function or of none."""
    executed(SENDS.format(version=1), module="__main__")
    executed(SENDS.format(version=2).replace("def send", "def post"), module="__main__")
    assert get_job("send").body(None) == 2
    executed(
        SWEEP.format(name="totals", expression="1") + SWEEP.format(name="totals", expression="2"), module="__main__"
    )
    assert get_job("totals").describe()["set"] == {"total": "2"}


def test_a_reloaded_module_replaces_and_an_edit_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-006, with `importlib.reload`."""
    path = tmp_path / "rowsweep_reloaded.py"
    path.write_text(SENDS.format(version=1) + SWEEP.format(name="totals", expression="1"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.import_module("rowsweep_reloaded")
    try:
        path.write_text(SENDS.format(version=20) + SWEEP.format(name="totals", expression="20"))
        importlib.invalidate_caches()
        importlib.reload(module)
    finally:
        sys.modules.pop("rowsweep_reloaded")
    assert get_job("send").body(None) == 20
    assert get_job("totals").describe()["set"] == {"total": "20"}


def test_a_file_loaded_again_replaces(tmp_path: Path) -> None:
    """N-006: as the command line loads a folder of sweeps."""
    path = tmp_path / "order_totals.py"
    path.write_text(SWEEP.format(name="totals", expression="price"))
    imported(path)
    imported(path)
    assert len(registered_jobs()) == 1


def test_a_name_without_a_function_twice_in_one_execution_is_refused(tmp_path: Path) -> None:
    """N-006: with no function to tell them apart, the second is a mistake."""
    twice = SWEEP.format(name="totals", expression="1") + SWEEP.format(name="totals", expression="2")
    with pytest.raises(DuplicateJob):
        executed(twice, module="shop.sweeps")
    path = tmp_path / "sweeps.py"
    path.write_text(twice)
    reset_jobs()
    with pytest.raises(DuplicateJob):
        imported(path)


def test_two_functions_of_one_module_cannot_both_declare_a_name_without_one(tmp_path: Path) -> None:
    """N-006: the execution of the module decides, not the place in it."""
    path = tmp_path / "factories.py"
    path.write_text(
        "import rowsweep as rs\n"
        "def one(): return rs.job('nightly', lambda ctx: 1, tenant='none')\n"
        "def two(): return rs.job('nightly', lambda ctx: 2, tenant='none')\n"
    )
    module = imported(path)
    module.one()
    with pytest.raises(DuplicateJob):
        module.two()


def test_a_look_alike_is_no_handle() -> None:
    """S-022: the shape alone is no proof."""
    made = rs.job("send", lambda _ctx: None, tenant="none")
    assert is_job_handle(made)
    assert not is_job_handle(SimpleNamespace(**vars(made)))
    assert not is_job_handle(JobHandle.__new__(JobHandle))
    assert not is_job_handle(None)


def test_the_origin_keeps_where_a_handle_comes_from() -> None:
    """S-022."""

    @rs.job("send", tenant="none")
    def send(ctx: rs.Ctx) -> None: ...

    origin = send.origin
    assert (origin.module, send.named) == (__name__, True)
    assert origin.qualname == "test_the_origin_keeps_where_a_handle_comes_from.<locals>.send"
    assert origin.place.startswith(f"{__file__}:")


def test_an_unnamed_job_starts_with_its_function_s_name() -> None:
    """N-007; a lambda's is anonymous until it is registered."""

    @rs.job(tenant="none")
    def send(ctx: rs.Ctx) -> None: ...

    first = rs.job(None, lambda _ctx: None, tenant="none")
    second = rs.job(None, lambda _ctx: None, tenant="none")
    assert [send.name, first.name, second.name] == ["send", "anonymous-job-1", "anonymous-job-2"]
    assert not send.named


def test_registering_a_module_stamps_the_unnamed_in_place() -> None:
    """S-023, S-024: the very object is renamed; a definition that names itself keeps its name; the rest is left."""
    named = rs.job("weekly", lambda _ctx: None, tenant="none")
    unnamed = rs.job(None, lambda _ctx, _value: None, tenant="none", input=int)
    module = ModuleType("shop")
    vars(module).update({"mailing": unnamed, "report": named, "other": 5})
    assert register_jobs(module) == [unnamed, named]
    assert (unnamed.name, named.name) == ("mailing", "weekly")
    assert [job.name for job in registered_jobs()] == ["mailing", "weekly"]
    with pytest.raises(UnknownJob):
        get_job("anonymous-job-1")
    with pytest.raises(rs.RowsweepError, match="input of 'mailing'"):
        unnamed.options.input.dump("x")
    register_jobs({"again": unnamed})
    assert unnamed.name == "mailing"


def test_a_forgotten_handle_comes_back_by_registering_its_module() -> None:
    """S-024, S-435."""
    send = rs.job("send", lambda _ctx: None, tenant="none")
    reset_jobs()
    assert registered_jobs() == []
    register_jobs({"send": send})
    assert get_job("send") is send


def test_registering_never_takes_a_name_from_another_declaration() -> None:
    """S-021, S-024: neither for a stamped name nor for an own one, and the refused handle stays what it was."""
    executed(SENDS.format(version=1), module="shop.mail")
    stray = rs.job(None, lambda _ctx: None, tenant="none")
    with pytest.raises(DuplicateJob):
        register_jobs({"send": stray})
    assert (stray.name, stray.named) == ("anonymous-job-1", False)
    assert get_job("anonymous-job-1") is stray
    reset_jobs()
    mine = rs.job("send", lambda _ctx: None, tenant="none")
    reset_jobs()
    executed(SENDS.format(version=1), module="shop.mail")
    with pytest.raises(DuplicateJob):
        register_jobs({"send": mine})


def test_a_replaced_handle_does_not_come_back_by_registering() -> None:
    """N-006: a notebook may still hold the former one."""
    former = executed(SENDS.format(version=1), module="shop.mail")
    executed(SENDS.format(version=2), module="shop.mail")
    register_jobs(former)
    assert get_job("send").body(None) == 2
    register(get_job("send"))


@pytest.mark.parametrize("name", ["a", "x" * 100, "order totals", "größe", "a/b.c-d_e"])
def test_names_of_printable_characters_are_taken(name: str) -> None:
    """N-007."""
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "x" * 101, "a:b", "a\nb", "a\x00", "\ud800", 5, None, b"a"])
def test_other_names_are_refused(name: object) -> None:
    """N-007."""
    with pytest.raises(InvalidDeclaration, match="1 to 100 printable characters") as refused:
        check_name(name)
    assert refused.value.meta == {"field": "name"}


def test_descriptions_are_json_and_mapped_over_the_registry() -> None:
    """S-025, S-015."""
    rs.job("b", lambda _ctx, _order: None, tenant=lambda _order: "acme", input=dict[str, int], queue="slow", priority=5)
    rs.job("a", lambda _ctx: None, tenant="none", retry=rs.Retry(attempts=2, dead_letter=False))
    first, second = describe_jobs()
    assert json.loads(json.dumps([first, second])) == [first, second]
    assert [first, second] == [get_job("a").describe(), get_job("b").describe()]
    assert (first["name"], first["attempts"], first["dead_letter"], first["tenant"]) == ("a", 2, False, "none")
    assert (second["queue"], second["priority"], second["tenant"], second["input"]) == ("slow", 5, "function", "dict")
