"""A step's output: its JSON form, which is what the body is answered on the first run as on a replay."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rowsweep.errors import InvalidStepOutput
from rowsweep.jobs.values.json_form import NoJsonForm, json_form, json_text

if TYPE_CHECKING:
    from rowsweep.jobs.values.json_form import Json


def output_form(name: str, output: object) -> Json:
    """Answer the JSON form of what a step's body returned; InvalidStepOutput, naming the path, where it has none."""
    try:
        return json_form(output)
    except NoJsonForm as error:
        raise InvalidStepOutput(
            f"The output of the step {name!r} cannot be stored at {error.path}: {error.why}.",
            fix="return plain data from the step, or None",
            meta={"step": name, "path": error.path},
        ) from error


def restore(name: str, form: Json, returns: Any) -> Any:
    """Answer the stored form, through `returns` where given; InvalidStepOutput where it does not fit that type."""
    if returns is None:
        return form
    from pydantic import ValidationError

    try:
        return _adapter(returns).validate_json(json_text(form))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = "$" + "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in first["loc"])
        raise InvalidStepOutput(
            f"The output of the step {name!r} is no {getattr(returns, '__name__', returns)} at {path}: {first['msg']}.",
            fix="give the step another name when the type of its output changes, or correct returns=",
            meta={"step": name, "path": path},
        ) from None


def _adapter(returns: Any) -> Any:
    try:
        return _cached_adapter(returns)
    except TypeError:
        return _new_adapter(returns)


def _new_adapter(returns: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(returns)


_cached_adapter = lru_cache(maxsize=128)(_new_adapter)
