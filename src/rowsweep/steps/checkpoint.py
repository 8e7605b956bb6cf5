"""A durable step whose stored value is replaced in place: one row, however often it moves."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from rowsweep.queue.stores.steps import StepPut
from rowsweep.steps.output import output_form

if TYPE_CHECKING:
    from rowsweep.jobs.values.json_form import Json
    from rowsweep.queue.stores.steps import Recorded
    from rowsweep.steps.runner import StepRunner


class MovingStep:
    """Keep the last value of a checkpoint, and move it under the run's claim."""

    def __init__(self, runner: StepRunner, name: str, stored: Recorded | None) -> None:
        self._runner = runner
        self._name = name
        self._value: Json = None if stored is None else stored.output
        self._is_known = True

    def get(self) -> Json:
        """Answer the last committed value, None where there is none yet.

        After a `put` into a transaction it is read back: whether that one committed is for the database to say.
        """
        if not self._is_known:
            stored = self._runner.read(self._name)
            return None if stored is None else stored.output
        return copy.deepcopy(self._value)

    def put(self, value: object, *, tx: Any = None) -> None:
        """Store the value; with `tx` it commits with that transaction's work or not at all."""
        form = output_form(self._name, value)
        put = StepPut(run_id=self._runner.run_id, name=self._name, kind="checkpoint", status="done", output=form)
        self._runner.put(put, tx=tx)
        self._value, self._is_known = form, tx is None
