"""Which steps a run named: each name once, with what kind, and the first of them for the report."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from rowsweep.errors import DuplicateStep, InvalidOption

if TYPE_CHECKING:
    from rowsweep.queue.stores.steps import StepKind

MAX_TRACE_NAMES: Final = 200
MAX_NAME: Final = 200


class StepTrace:
    """Refuse a name that comes twice, and keep the names that ran and that were replayed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, StepKind] = {}
        self._ran: list[str] = []
        self._replayed: list[str] = []

    @property
    def steps(self) -> tuple[str, ...]:
        """Answer the names whose body ran here, the first 200."""
        return tuple(self._ran)

    @property
    def replayed(self) -> tuple[str, ...]:
        """Answer the names that were answered from their stored output, the first 200."""
        return tuple(self._replayed)

    def enter(self, name: str, kind: StepKind) -> None:
        """Take the name for this run; DuplicateStep where it is taken: a name is what a replay finds a step by."""
        check_step_name(name)
        with self._lock:
            if name in self._kinds:
                raise DuplicateStep(
                    f"The step {name!r} comes twice in one run; the first is a {self._kinds[name]!r} step.",
                    fix=f'name each step apart, such as ctx.step.run("{name}:2", …)',
                    meta={"step": name},
                )
            self._kinds[name] = kind

    def note_ran(self, name: str) -> None:
        """Keep the name of a step whose body ran."""
        _note(self._ran, name)

    def note_replayed(self, name: str) -> None:
        """Keep the name of a step that was replayed."""
        _note(self._replayed, name)


def check_step_name(name: object) -> None:
    """Refuse a step's name that is not printable text of 1 to 200 characters."""
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidOption(
            f"The name of a step must be 1 to {MAX_NAME} printable characters; got {name!r:.120}.",
            fix='ctx.step.run("charge-card", …)',
            meta={"option": "name"},
        )


def _note(names: list[str], name: str) -> None:
    if len(names) < MAX_TRACE_NAMES:
        names.append(name)
