"""The JSON form of values: strict where a value must come back, safe where it is only shown."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json: TypeAlias = Any
"""A value that `json.dumps` takes: None, bool, int, float, str, list, dict with str keys."""


class NoJsonForm(ValueError):
    """A value has no JSON form that Postgres can keep; `path` says where, as `$.a[3]`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


def json_form(value: object) -> Json:
    """Answer the JSON form of any value pydantic can serialise, as `jsonb` would bind it.

    Raises NoJsonForm for NaN, infinities, NUL, lone surrogates and objects without a form, naming the path.
    """
    plain = _plain(value)
    for path, leaf in _leaves(plain, "$"):
        why = _unstorable(leaf)
        if why is not None:
            raise NoJsonForm(path, why)
    return plain


def json_text(value: Json) -> str:
    """Render a JSON form as text for a `jsonb` parameter; `value` must have come from `json_form` or `safe_json`."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def safe_json(value: object) -> Json:
    """Answer a JSON form that always exists: what cannot be kept is replaced by its text, never raised."""
    try:
        plain = _plain(value)
    except NoJsonForm:
        plain = safe_text(_shown(value))
    return _map_leaves(plain, _made_safe)


def safe_text(text: str, limit: int | None = None) -> str:
    r"""Replace NUL and lone surrogates by their escape text (`\x00`, `\ud800`), cut at `limit` characters."""
    made = text.replace("\x00", "\\x00")
    if not _encodable(made):
        made = "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in made)
    return made if limit is None or len(made) <= limit else made[: max(limit - 1, 0)] + "…"


def _plain(value: object) -> Json:
    if value is None or isinstance(value, (bool, int)):
        return value
    if type(value) is str or type(value) is float:
        return value
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value, inf_nan_mode="constants", by_alias=True)
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        path, culprit = _find_culprit(value)
        raise NoJsonForm(path, f"{type(culprit).__name__} has no JSON form") from error


def _find_culprit(value: object, path: str = "$") -> tuple[str, object]:
    """Walk plain containers to the first part without a form, for the message."""
    from pydantic_core import to_jsonable_python

    parts: Iterator[tuple[str, object]]
    if isinstance(value, dict):
        parts = ((f"{path}.{key}", part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        parts = ((f"{path}[{at}]", part) for at, part in enumerate(value))
    else:
        return path, value
    for inner, part in parts:
        try:
            to_jsonable_python(part)
        except RecursionError:
            return inner, part
        except Exception:  # noqa: BLE001 - any failure marks the part that has no form
            return _find_culprit(part, inner)
    return path, value


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
    if isinstance(leaf, str):
        if "\x00" in leaf:
            return "text with NUL cannot be kept in jsonb"
        if not _encodable(leaf):
            return "text with a lone surrogate cannot be kept in jsonb"
    return None


def _made_safe(leaf: Json) -> Json:
    if isinstance(leaf, float) and not math.isfinite(leaf):
        return "NaN" if math.isnan(leaf) else ("Infinity" if leaf > 0 else "-Infinity")
    return safe_text(leaf) if isinstance(leaf, str) else leaf


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a repr is application code and may raise anything
        return f"<{type(value).__name__} whose repr raises>"
