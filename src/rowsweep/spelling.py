"""Refuse a keyword that a public function or class does not have, by its name and with the near miss."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from rowsweep.errors import InvalidOption, did_you_mean

_Declared = TypeVar("_Declared", bound=Callable[..., Any])


def spelled(declared: _Declared) -> _Declared:
    """Let what is called screen its keywords first; for the type checker it stays what it is.

    One that takes any keyword screens its options by itself: here only one that stands where a required parameter is
    missing is refused. Raises InvalidOption.
    """
    is_class = isinstance(declared, type)
    called = cast("Callable[..., Any]", declared.__init__ if is_class else declared)

    @functools.wraps(called)
    def screening(*args: Any, **given: Any) -> Any:
        if given:
            _screen(declared.__name__, called, len(args), given)
        return called(*args, **given)

    if not is_class:
        return cast("_Declared", screening)
    declared.__init__ = screening  # type: ignore[method-assign]
    return declared


def _screen(name: str, called: Callable[..., Any], positional: int, given: Mapping[str, Any]) -> None:
    named, required, takes_any = _parameters(called)
    unknown = [option for option in given if option not in named]
    if not unknown:
        return
    known = [option for option in named if option != "self"]
    if takes_any:
        known = [option for option in required if option not in given and option not in named[:positional]]
    for option in unknown:
        near = did_you_mean(option, known)
        if near or not takes_any:
            has = "it has none" if not known else f"it {'lacks' if takes_any else 'has'} {', '.join(known)}"
            raise InvalidOption(
                f"{name} has no option {option!r}; {has}.", fix=near or f"remove {option}=", meta={"option": option}
            )


@functools.cache
def _parameters(called: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Answer the names of the parameters, of those that must be given, and whether any other keyword is taken."""
    found = inspect.signature(called).parameters.values()
    named = [one for one in found if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    required = tuple(one.name for one in named if one.default is one.empty)
    return tuple(one.name for one in named), required, any(one.kind is one.VAR_KEYWORD for one in found)
