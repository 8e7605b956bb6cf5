"""The jobs that this process has declared, by name, each with where it was declared."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rowsweep.errors import DuplicateJob, InvalidDeclaration, UnknownJob, nearest
from rowsweep.jobs.handle import JobHandle
from rowsweep.jobs.origin import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping


_MAX_NAME = 100


_lock = threading.Lock()
_entries: dict[str, JobHandle[Any, Any]] = {}
_anonymous = 0


def check_name(name: object, *, kind: str = "job") -> str:
    """Refuse a name that is not 1 to 100 printable characters without `:` (it separates parts of keys)."""
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME or ":" in name or not name.isprintable():
        raise InvalidDeclaration(
            f"The name of a {kind} must be 1 to {_MAX_NAME} printable characters without ':'; got {name!r:.120}.",
            fix=f'name the {kind} such as "order-totals"',
            meta={"field": "name"},
        )
    return name


def anonymous_name() -> str:
    """Answer a name that collides with nothing, for a declaration whose body has none."""
    global _anonymous
    with _lock:
        _anonymous += 1
        return f"anonymous-job-{_anonymous}"


def register(handle: JobHandle[Any, Any]) -> None:
    """Put a handle under its name; the same declaration made again replaces the former one.

    Raises DuplicateJob where another declaration has the name, naming both places.
    """
    with _lock:
        _check_free(handle, handle.name)
        _entries[handle.name] = handle


def get_job(name: str) -> JobHandle[Any, Any]:
    """Answer the job of this name; UnknownJob with the nearest names otherwise."""
    entry = _entries.get(name)
    if entry is None:
        raise unknown("job", name, _entries, listed_by="rowsweep jobs names")
    return entry


def unknown(what: str, name: str, declared: Iterable[str], *, listed_by: str) -> UnknownJob:
    """Make the refusal of a job or task that this process has not declared, with the nearest names."""
    near = nearest(name, declared)
    known = ", ".join(repr(other) for other in near) or "none is close"
    return UnknownJob(
        f"No {what} {name!r} is declared in this process (nearest: {known}).",
        fix=f"import the module that declares it, or see `{listed_by}`",
        meta={"name": name, "nearest": near},
    )


def find_job(name: str) -> JobHandle[Any, Any] | None:
    """Answer the job of this name, None where this process has not declared it."""
    return _entries.get(name)


def registered_jobs() -> list[JobHandle[Any, Any]]:
    """Answer every declared job by name."""
    with _lock:
        return [_entries[name] for name in sorted(_entries)]


def is_job_handle(value: object) -> bool:
    """Say whether this is a handle that a factory of this package made: its shape, and the origin it was given."""
    return isinstance(value, JobHandle) and isinstance(getattr(value, "origin", None), Origin)


def describe_jobs() -> list[dict[str, Any]]:
    """Answer the JSON projection of every declared job."""
    return [handle.describe() for handle in registered_jobs()]


def register_jobs(module: ModuleType | Mapping[str, Any]) -> list[JobHandle[Any, Any]]:
    """Register every handle in a module or mapping; an unnamed one is stamped with its attribute's name, in place.

    A handle whose declaration has been made again since is left aside. Raises DuplicateJob.
    """
    members = vars(module) if isinstance(module, ModuleType) else module
    found = [(attribute, value) for attribute, value in list(members.items()) if is_job_handle(value)]
    for attribute, handle in found:
        if not handle.named:
            _rename(handle, check_name(attribute))
        else:
            former = find_job(handle.name)
            if former is None or not former.origin.replaces(handle.origin):
                register(handle)
    return [handle for _, handle in found]


def reset_jobs() -> None:
    """Forget every declaration; for tests."""
    global _anonymous
    with _lock:
        _entries.clear()
        _anonymous = 0


def _rename(handle: JobHandle[Any, Any], name: str) -> None:
    with _lock:
        _check_free(handle, name)
        if _entries.get(handle.name) is handle:
            del _entries[handle.name]
        handle.stamp(name)
        _entries[name] = handle


def _check_free(handle: JobHandle[Any, Any], name: str) -> None:
    former, origin = _entries.get(name), handle.origin
    if former is not None and former is not handle and not origin.replaces(former.origin):
        raise DuplicateJob(
            f"The {handle.kind} {name!r} is declared at {former.origin.place} and again at {origin.place}.",
            fix=f"give one of them another name, or remove the declaration at {former.origin.place}",
            meta={"kind": "job", "name": name, "places": [former.origin.place, origin.place]},
        )
