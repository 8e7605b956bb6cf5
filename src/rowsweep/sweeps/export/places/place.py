"""What a place of an export must do, and how one is named and opened."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rowsweep.errors import InvalidDeclaration

Where = str | Path | Callable[..., str | Path]
_SECRET: Final = re.compile(r"secret|passw|pwd|token|key|^sig$", re.IGNORECASE)


class Draft(Protocol):
    """An object that is being written, which nobody sees under its name yet."""

    @property
    def file(self) -> BinaryIO:
        """What its bytes are written to."""

    def seal(self) -> None:
        """Make sure that every byte is stored, before it is published."""

    def publish(self) -> None:
        """Let it appear whole under its name, in the place of what was there."""

    def discard(self) -> None:
        """Take away what is left of it; after it was published nothing is."""


class Place(Protocol):
    """One folder of objects, flat."""

    @property
    def shown(self) -> str:
        """Where it is, as people read it."""

    @property
    def renames(self) -> bool:
        """Whether publishing is one quick step, done under a lock, rather than an upload."""

    def sizes(self) -> dict[str, int]:
        """Answer the bytes of every object in it by name."""

    def read(self, name: str) -> bytes | None:
        """Read a small object; None where there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Write a small object whole."""

    def remove(self, name: str) -> None:
        """Remove an object; one that is gone is no error."""

    def draft(self, name: str, tag: str) -> Draft:
        """Begin an object; `tag` tells its temporary name from those of other runs and attempts."""

    def checksum(self, name: str) -> str | None:
        """Answer the store's own checksum of an object; None where it gives none."""


def is_store(where: str) -> bool:
    """Say whether what `resolve` answered is a store's, and not a folder of whatever machine asks."""
    return bool(_scheme(where))


def open_place(where: str) -> Place:
    """Open the place that `resolve` answered."""
    if is_store(where):
        from rowsweep.sweeps.export.places.store import StorePlace

        return StorePlace(where)
    from rowsweep.sweeps.export.places.local import LocalPlace

    return LocalPlace(Path(where))


def resolve(to: Where, value: Any) -> str:
    """Answer the absolute path or the URI that a declaration names for an input.

    Raises InvalidDeclaration for what names no place.
    """
    named = to(*([value] if _takes_input(to) else [])) if callable(to) else to
    _check_named(named)
    text = str(named)
    if _scheme(text) == "file":
        text = unquote(urlsplit(text).path)
    return text if _scheme(text) else str(Path(text).expanduser().absolute())


def check_where(to: object) -> None:
    """Refuse what names no place, as a path, a URI, or a function to be asked when a run begins."""
    if not callable(to):
        _check_named(to)
        return
    if isinstance(to, type) or inspect.iscoroutinefunction(to):
        raise _no_place(to)
    try:
        takes = inspect.signature(to).parameters.values()
    except (TypeError, ValueError):  # of a builtin, which does not say what it takes
        raise _no_place(to) from None
    must = [one for one in takes if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if len(must) > 1 or any(one.kind is one.KEYWORD_ONLY for one in must):
        raise _no_place(to)


def _takes_input(to: Callable[..., object]) -> bool:
    kinds = [one.kind for one in inspect.signature(to).parameters.values()]
    return any(kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD) for kind in kinds)


def _check_named(named: object) -> None:
    """Refuse what is no place, and a URI with a secret: what is stored of a run is no place for one."""
    if not isinstance(named, str | Path) or not str(named).strip():
        raise _no_place(named)
    parts = urlsplit(str(named)) if _scheme(str(named)) else None
    secret = None if parts is None else _secret_in(parts)
    if parts is not None and secret is not None:
        raise InvalidDeclaration(
            f"to holds a {secret} for {parts.scheme}://{parts.hostname}, and is stored with every run.",
            fix="leave it out: the store's own environment variables or the machine's role say who asks",
            meta={"field": "to"},
        )


def _no_place(got: object) -> InvalidDeclaration:
    return InvalidDeclaration(
        f"to must be a path, a URI, or a function of the input, or of nothing, that answers one; got {got!r:.120}.",
        fix='to="exports/orders", to="s3://bucket/orders", or to=lambda day: f"exports/{day}"',
        meta={"field": "to"},
    )


def _secret_in(parts: SplitResult) -> str | None:
    """Name what of a URI is a secret by its name; an Azure one may hold a client_secret."""
    if parts.password is not None:
        return "password"
    names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    return next((name for name in names if _SECRET.search(name)), None)


def _scheme(text: str) -> str:
    scheme, found, _ = text.partition("://")
    return scheme.lower() if found and scheme.isalnum() else ""
