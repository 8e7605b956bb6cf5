"""The tasks that this process has declared, by name, each with where it was declared."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rowsweep.errors import DuplicateJob
from rowsweep.jobs.registry import check_name, unknown
from rowsweep.jobs.tasks.handle import TaskHandle

if TYPE_CHECKING:
    from collections.abc import Mapping

_lock = threading.Lock()
_entries: dict[str, TaskHandle] = {}
_anonymous = 0


def is_task_handle(value: object) -> bool:
    """Say whether this is a task."""
    return isinstance(value, TaskHandle)


def anonymous_name() -> str:
    """Answer a name that collides with nothing, for a task declared without one."""
    global _anonymous
    with _lock:
        _anonymous += 1
        return f"anonymous-task-{_anonymous}"


def declare(handle: TaskHandle) -> None:
    """Put a handle under its name; the same declaration made again replaces the former one. Raises DuplicateJob."""
    with _lock:
        former = _entries.get(handle.name)
        if former is not None and former is not handle and not handle.origin.replaces(former.origin):
            raise _duplicate(handle, former)
        _entries[handle.name] = handle


def register_task(name: str, handle: TaskHandle) -> TaskHandle:
    """Register a handle under a name: an unnamed task takes it, one that names itself keeps its own.

    Twice under one name changes nothing. Raises DuplicateJob for another handle's name, and for a second name.
    """
    if handle.named:
        former = _entries.get(handle.name)
        if former is None or not former.origin.replaces(handle.origin):
            declare(handle)
    elif not handle.stamped:
        _rename(handle, check_name(name, kind="task"))
    elif handle.name != name:
        raise DuplicateJob(
            f"The task {handle.name!r}, declared at {handle.origin.place}, is registered again as {name!r}.",
            fix=f"task({name!r}, …) at {handle.origin.place} names it once for all",
            meta={"kind": "task", "name": name, "places": [handle.origin.place]},
        )
    return handle


def name_tasks(tasks: Mapping[str, Any]) -> list[TaskHandle]:
    """Register every task of a mapping under its key; anything else in it is left alone."""
    return [register_task(name, value) for name, value in list(tasks.items()) if isinstance(value, TaskHandle)]


def register_tasks(module: ModuleType | Mapping[str, Any]) -> list[TaskHandle]:
    """Register every task in a module or mapping; an unnamed one is stamped with its attribute's name, in place."""
    return name_tasks(vars(module) if isinstance(module, ModuleType) else module)


def registered_tasks() -> list[TaskHandle]:
    """Answer every declared task by name."""
    with _lock:
        return [_entries[name] for name in sorted(_entries)]


def get_task(name: str) -> TaskHandle:
    """Answer the task of this name; UnknownJob with the nearest names otherwise."""
    entry = _entries.get(name)
    if entry is None:
        raise unknown("task", name, _entries, listed_by="rowsweep tasks ls")
    return entry


def reset_tasks() -> None:
    """Forget every declaration, and count unnamed tasks from one again; for tests."""
    global _anonymous
    with _lock:
        _entries.clear()
        _anonymous = 0


def _rename(handle: TaskHandle, name: str) -> None:
    with _lock:
        former = _entries.get(name)
        if former is not None and former is not handle and not handle.origin.replaces(former.origin):
            raise _duplicate(handle, former, name)
        if _entries.get(handle.name) is handle:
            del _entries[handle.name]
        handle.stamp(name)
        _entries[name] = handle


def _duplicate(handle: TaskHandle, former: TaskHandle, name: str | None = None) -> DuplicateJob:
    taken, first, second = name or handle.name, former.origin.place, handle.origin.place
    return DuplicateJob(
        f"The task {taken!r} is declared at {first} and again at {second}.",
        fix=f"give one of them another name, or remove the declaration at {first}",
        meta={"kind": "task", "name": taken, "places": [first, second]},
    )
