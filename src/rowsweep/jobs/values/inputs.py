"""A job's input: any type a pydantic `TypeAdapter` takes, kept in its JSON form."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from rowsweep.errors import InvalidDeclaration, InvalidInput
from rowsweep.jobs.values.json_form import Json, NoJsonForm, check_form, json_text

if TYPE_CHECKING:
    from pydantic import ValidationError

MAX_BYTES: Final = 1024 * 1024


class InputType:
    """Validate inputs of one job at enqueue and again at its run; `None` declares a job without input."""

    def __init__(self, declared: Any, *, job: str) -> None:
        self.declared = declared
        self.job = job

    @cached_property
    def _adapter(self) -> Any:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            return TypeAdapter(self.declared)
        except (PydanticUserError, NameError, SyntaxError, TypeError) as error:
            raise InvalidDeclaration(
                f"input of {self.job!r} is {self.declared!r:.80}, which pydantic takes no values for: {error!s:.300}",
                fix="input=int, or a pydantic model, dataclass or TypedDict",
                meta={"job": self.job, "field": "input"},
            ) from error

    @cached_property
    def _validator(self) -> Any:
        """The validator inside of the adapter, at half of its cost for a small value."""
        return self._adapter.validator

    @cached_property
    def _serializer(self) -> Any:
        """The serializer inside of the adapter, for the same reason."""
        return self._adapter.serializer

    @cached_property
    def _refusal(self) -> type[ValidationError]:
        from pydantic import ValidationError

        return ValidationError

    def check(self) -> None:
        """Refuse a type that takes no values, when the job is declared."""
        if self.declared is not None:
            _ = self._adapter

    def dump(self, value: object) -> tuple[Any, Json]:
        """Validate a value given to enqueue; answer it parsed, with its JSON form.

        Raises InvalidInput, naming the path; nothing was inserted then. A value whose JSON form does not parse back is
        refused here: its run could only fail.
        """
        if self.declared is None:
            if value is not None:
                raise InvalidInput(
                    f"The job {self.job!r} takes no input; got {type(value).__name__}.",
                    fix="declare it with input=…, or enqueue() without an input",
                    meta={"job": self.job, "path": "$"},
                )
            return None, None
        parsed = self._validated(value)
        try:
            form = self._serialised(parsed, mode="json")
            check_form(form, lambda: self._serialised(parsed, mode="python"))
        except NoJsonForm as error:
            raise self._invalid(error.path, error.why) from error
        except (ValueError, TypeError, RecursionError) as error:
            raise self._invalid("$", f"it has no JSON form ({error!s:.200})") from error
        text = json_text(form)
        size = len(text) if text.isascii() else len(text.encode())
        if size > MAX_BYTES:
            raise self._invalid(
                "$",
                f"its JSON form is {size:,} bytes; the limit is {MAX_BYTES:,} (1 MiB)",
                fix="store the data elsewhere and pass a reference to it",
            )
        self._restored(text)
        return parsed, form

    def parse(self, stored: Json) -> Any:
        """Restore a stored input when its run starts; InvalidInput where it no longer parses."""
        return None if self.declared is None else self._restored(json_text(stored))

    def _serialised(self, parsed: object, *, mode: str) -> Any:
        return self._serializer.to_python(parsed, mode=mode, by_alias=True, round_trip=True, warnings=False)

    def _validated(self, value: object) -> Any:
        try:
            return self._validator.validate_python(value)
        except self._refusal as refused:
            raise self._refused(refused) from None

    def _restored(self, text: str) -> Any:
        try:
            return self._validator.validate_json(text)
        except self._refusal as refused:
            raise self._refused(refused, "its JSON form does not parse: ") from None

    def _refused(self, refused: ValidationError, what: str = "") -> InvalidInput:
        first = refused.errors(include_url=False, include_input=False)[0]
        path = "$" + "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in first["loc"])
        return self._invalid(path, f"{what}{first['msg']}")

    def _invalid(self, path: str, why: str, *, fix: str | None = None) -> InvalidInput:
        return InvalidInput(
            f"The input of {self.job!r} is not valid at {path}: {why}.",
            fix=fix or f"correct the value at {path}",
            meta={"job": self.job, "path": path},
        )
