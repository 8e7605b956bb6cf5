"""What goes out once for a whole pass: the handler, the input, and the table that its pages are of."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rowsweep.errors import InvalidDeclaration

if TYPE_CHECKING:
    from rowsweep.sweeps.keyset.catalog import Column, Table

Handler = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ByName:
    """A handler by the place where it is declared: under a decorator its name is the sweep's there."""

    module: str
    name: str
    file: str | None

    def found(self) -> Handler:
        """Import its module here, by name or else from the same file, and answer the function."""
        function = _function_at(self._module(), self.name)
        if function is None:
            raise AttributeError(f"{self.name!r} in {self.module} is no handler of a sweep")
        return function

    def _module(self) -> ModuleType:
        try:
            module = importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if self.file is None or not f"{self.module}.".startswith(f"{error.name}."):
                raise
            return self._from_file(error)
        is_other = self.file is not None and getattr(module, "__file__", None) != self.file
        return self._from_file(None) if is_other and Path(str(self.file)).is_file() else module

    def _from_file(self, missing: ModuleNotFoundError | None) -> ModuleType:
        spec = importlib.util.spec_from_file_location(self.module, str(self.file))
        if spec is None or spec.loader is None or not Path(str(self.file)).is_file():
            error = missing or ModuleNotFoundError(self.module)
            error.add_note(f"an executor runs the handler where {self.module} can be imported: install it there too")
            raise error
        module = sys.modules[self.module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What every page of a pass is computed by; `is_watched`: the process there ends with the one that made it."""

    name: str
    handler: Handler | ByName
    input: Any
    table: Table
    columns: tuple[Column, ...]
    is_watched: bool = False

    def packed(self, *, is_watched: bool) -> bytes:
        """Pickle it; InvalidDeclaration where its input, or what its handler is over, cannot be."""
        return check_pickles(self.name, "handler or input", replace(self, is_watched=is_watched))

    def function(self) -> Handler:
        """Answer the handler itself."""
        return self.handler.found() if isinstance(self.handler, ByName) else self.handler


def dumps(value: Any) -> bytes:
    """Pickle, by value what a notebook or a script itself defines where cloudpickle is installed."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(value)
    return bytes(cloudpickle.dumps(value))


def sendable(name: str, handler: Handler) -> Handler | ByName:
    """Answer how a handler goes out: by its module and name, else by value.

    Raises InvalidDeclaration where it can go neither way: defined in a notebook, a script or a function, without
    cloudpickle, or over something that cannot be pickled.
    """
    by_name = _named(handler)
    if by_name is not None:
        return by_name
    if importlib.util.find_spec("cloudpickle") is None:
        raise _refused(
            name,
            "is defined in a notebook, a script or another function, where no other process can import it",
            "move it to a module, or pip install 'rowsweep[dask]', which brings cloudpickle",
        )
    check_pickles(name, "handler", handler)
    return handler


def check_pickles(name: str, what: str, value: Any) -> bytes:
    """Pickle something for the executor of a sweep, or say why it does not go out."""
    try:
        return dumps(value)
    except Exception as error:
        raise _refused(
            name,
            f"does not go to its executor, since its {what} cannot be pickled: {type(error).__name__}: {error!s:.200}",
            "open connections, locks and files inside the function, or pass them by name",
        ) from error


def _named(handler: Handler) -> ByName | None:
    module, name = getattr(handler, "__module__", None), getattr(handler, "__qualname__", None)
    here = sys.modules.get(str(module))
    if module == "__main__" or here is None or not isinstance(name, str) or _function_at(here, name) is not handler:
        return None
    return ByName(module=str(module), name=name, file=getattr(here, "__file__", None))


def _function_at(module: ModuleType, name: str) -> Handler | None:
    from rowsweep.sweeps.handle import TableSweep

    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, TableSweep):
        found = getattr(found.spec, "handler", None)
    return found if callable(found) else None


def _refused(name: str, why: str, fix: str) -> InvalidDeclaration:
    return InvalidDeclaration(f"The handler of {name!r} {why}.", fix=fix, meta={"field": "executor", "sweep": name})
