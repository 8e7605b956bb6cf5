"""The JSON form of values: strict where a value must come back, safe where it is only shown."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rowsweep.telemetry.text import is_encodable, safe_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic_core import SchemaSerializer

Json: TypeAlias = Any
"""A value that `json.dumps` takes: None, bool, int, float, str, list, dict with str keys."""

_DEEPEST: Final = 30
# Python reads no number of more than 4,300 digits unless told to: https://docs.python.org/3/library/stdtypes.html
_MOST_BITS: Final = 14_000
_ENCODER: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_SURROGATE: Final = "text with a lone surrogate cannot be kept in jsonb"


class NoJsonForm(ValueError):
    """A value has no JSON form that Postgres can keep; `path` says where, as `$.a[3]`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


def json_form(value: object) -> Json:
    """Answer the JSON form of any value pydantic can serialise, as `jsonb` would bind it.

    Raises NoJsonForm, naming the path, for NaN, infinities, NUL, lone surrogates, numbers of more digits than Python
    reads back, and objects without a form.
    """
    if value is None:
        return None
    plain = _plain(value)
    check_form(plain, lambda: _python_form(value))
    return plain


def check_form(form: Json, shown: Callable[[], object]) -> None:
    """Refuse a serialised value that `jsonb` cannot keep; NoJsonForm with the path.

    `shown` answers the same value serialised for Python: a null there that is NaN or an infinity was lost on the way,
    as pydantic does with those in a part declared `Any`.
    """
    if type(form) is int and form.bit_length() <= _MOST_BITS:
        return
    has_null = False
    for path, leaf in _leaves(form, "$"):
        has_null = has_null or leaf is None
        why = _unstorable(leaf)
        if why is not None:
            raise NoJsonForm(path, why)
    lost = next(_lost_numbers(shown(), form, "$"), None) if has_null else None
    if lost is not None:
        raise NoJsonForm(*lost)


def json_text(value: Json) -> str:
    """Render a JSON form as text for a `jsonb` parameter; `value` must have come from `json_form` or `safe_json`."""
    return repr(value) if type(value) is int else _ENCODER.encode(value)


def safe_json(value: object) -> Json:
    """Answer a JSON form that always exists: what cannot be kept is replaced by its text, never raised."""
    try:
        plain = _plain(value)
    except NoJsonForm:
        plain = _in_parts(value, _DEEPEST)
    return _map_leaves(plain, _made_safe)


def _plain(value: object) -> Json:
    if value is None or isinstance(value, (bool, int)):
        return value
    if type(value) is str or type(value) is float:
        return value
    try:
        return to_jsonable(value)
    except Exception as error:
        path, culprit = _find_culprit(value)
        if isinstance(culprit, str):
            raise NoJsonForm(path, _SURROGATE) from None
        nested = isinstance(culprit, (dict, list, tuple))
        why = "is nested too deeply, or contains itself" if nested else "has no JSON form"
        raise NoJsonForm(path, f"{type(culprit).__name__} {why}") from error


def to_jsonable(value: object) -> Json:
    """Answer what pydantic makes of a value, special numbers and lone surrogates still in it."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, inf_nan_mode="constants", by_alias=True)


def _python_form(value: object) -> object:
    return _any_serializer().to_python(value, warnings=False)


@cache
def _any_serializer() -> SchemaSerializer:
    from pydantic_core import SchemaSerializer, core_schema

    return SchemaSerializer(core_schema.any_schema())


def _lost_numbers(shown: object, form: Json, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(shown, float) and form is None:
        yield path, f"{shown} is not JSON"
    elif isinstance(shown, dict) and isinstance(form, dict):
        for part, (key, inner) in zip(shown.values(), form.items(), strict=False):
            yield from _lost_numbers(part, inner, f"{path}.{key}")
    elif isinstance(shown, (list, tuple, set, frozenset)) and isinstance(form, list):
        for at, (part, inner) in enumerate(zip(shown, form, strict=False)):
            yield from _lost_numbers(part, inner, f"{path}[{at}]")


def _find_culprit(value: object, path: str = "$", deepest: int = _DEEPEST) -> tuple[str, object]:
    """Walk plain containers to the first part without a form, for the message."""
    if deepest and isinstance(value, (dict, list, tuple)):
        for inner, part in _parts(value, path):
            if not _has_form(part):
                return _find_culprit(part, inner, deepest - 1)
    return path, value


def _parts(value: dict[Any, object] | list[object] | tuple[object, ...], path: str) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict):
        yield from ((f"{path}[{at}]", part) for at, part in enumerate(value))
        return
    for key, part in value.items():
        yield f"{path}.{_key_text(key)} (key)", key
        yield f"{path}.{_key_text(key)}", part


def _has_form(value: object) -> bool:
    try:
        to_jsonable({value: None} if isinstance(value, str) else value)
    except Exception:  # noqa: BLE001 - any failure marks the part that has no form
        return False
    return True


def _in_parts(value: object, deepest: int, inside: frozenset[int] = frozenset()) -> Json:
    """Answer plain containers part by part, so that one part without a form costs only itself."""
    if isinstance(value, (dict, list, tuple)):
        if not deepest or id(value) in inside:
            return _shown(value)
        inner = inside | {id(value)}
        if isinstance(value, dict):
            return {_key_text(key): _in_parts(part, deepest - 1, inner) for key, part in value.items()}
        return [_in_parts(part, deepest - 1, inner) for part in value]
    try:
        return _plain(value)
    except NoJsonForm:
        return _shown(value)


def _key_text(key: object) -> str:
    try:
        (text,) = to_jsonable({key: None})
    except Exception:  # noqa: BLE001 - a key without a form, or whose text raises
        text = key if isinstance(key, str) else _shown(key)
    return safe_text(str(text))


def _leaves(value: Json, path: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"{path}.{safe_text(str(key))} (key)", key
            yield from _leaves(part, f"{path}.{safe_text(str(key))}")
    elif isinstance(value, list):
        for at, part in enumerate(value):
            yield from _leaves(part, f"{path}[{at}]")
    else:
        yield path, value


def _map_leaves(value: Json, change: Callable[[Json], Json]) -> Json:
    if isinstance(value, dict):
        return {change(str(key)): _map_leaves(part, change) for key, part in value.items()}
    if isinstance(value, list):
        return [_map_leaves(part, change) for part in value]
    return change(value)


def _unstorable(leaf: Json) -> str | None:
    if isinstance(leaf, float) and not math.isfinite(leaf):
        return f"{leaf} is not JSON"
    if isinstance(leaf, int) and leaf.bit_length() > _MOST_BITS:
        return f"a whole number of {leaf.bit_length():,} bits is too long"
    if isinstance(leaf, str):
        if "\x00" in leaf:
            return "text with NUL cannot be kept in jsonb"
        if not is_encodable(leaf):
            return _SURROGATE
    return None


def _made_safe(leaf: Json) -> Json:
    if isinstance(leaf, float) and not math.isfinite(leaf):
        return "NaN" if math.isnan(leaf) else ("Infinity" if leaf > 0 else "-Infinity")
    if isinstance(leaf, int) and leaf.bit_length() > _MOST_BITS:
        return f"(a whole number of {leaf.bit_length():,} bits)"
    return safe_text(leaf) if isinstance(leaf, str) else leaf


def _shown(value: object) -> str:
    try:
        return repr(value)
    except BaseException:  # noqa: BLE001 - a repr is application code and may raise anything
        return f"<{type(value).__name__} whose repr raises>"
