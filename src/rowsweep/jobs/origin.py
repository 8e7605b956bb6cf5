"""Where a declaration stands in the code: what makes a second one the same or another."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import FrameType

_PACKAGE: Final = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A declaration's module, its function's qualified name (None without one), and its place for messages.

    `execution` stands for one execution of the module: its spec, which a reload makes anew, or where there is none
    the code object that declared it.
    """

    module: str
    qualname: str | None
    place: str
    execution: object

    def replaces(self, former: Origin) -> bool:
        """Say whether declaring here again replaces the former declaration of the same name.

        A cell run twice and a reloaded module do; another place does not, nor the same module declaring a name
        without a function twice in one execution.
        """
        if self.module != former.module:
            return False
        if self.module == "__main__":
            return True
        if self.qualname is not None and former.qualname is not None:
            return self.qualname == former.qualname
        return self.execution is not former.execution


def origin_of(function: Any = None) -> Origin:
    """Answer where the innermost caller outside this package declares something."""
    frame = _calling_frame()
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    module = str(frame.f_globals.get("__name__", "?"))
    qualname = None
    if function is not None and getattr(function, "__name__", "<lambda>") != "<lambda>":
        module = getattr(function, "__module__", None) or module
        qualname = getattr(function, "__qualname__", None)
    execution = frame.f_globals.get("__spec__") or frame.f_code
    return Origin(module=module, qualname=qualname, place=place, execution=execution)


def _calling_frame() -> FrameType:
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE
