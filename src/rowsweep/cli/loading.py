"""Import the modules that declare an application's jobs and sweeps."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tomllib
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from rowsweep.errors import InvalidOption, RowsweepError

BACKFILLS: Final = "backfills"


def load_app(given: Sequence[str] = ()) -> list[str]:
    """Import what declares the application, and answer the modules' names.

    That is what is given (dotted names, files or folders), else `[tool.rowsweep] app` of the working directory's
    `pyproject.toml`, else its `backfills/*.py`. The working directory can be imported from, as with `python -m`.
    Raises InvalidOption with file and line where one cannot be imported; what a declaration refuses passes through,
    with its `place` in `meta`.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    names: list[str] = []
    for app in given or _configured() or _backfills():
        path = Path(app)
        if path.is_dir() and ("/" in app or not _is_importable(app)):
            names += [_load_file(file) for file in _modules(path)]
        elif path.suffix == ".py" or "/" in app:
            names.append(_load_file(path))
        else:
            names.append(_load_module(app))
    return names


def _configured() -> list[str]:
    file = Path("pyproject.toml")
    if not file.is_file():
        return []
    try:
        app = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("rowsweep", {}).get("app", [])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _unloadable("pyproject.toml", str(error), place=str(file)) from error
    apps = [app] if isinstance(app, str) else app
    if not isinstance(apps, list) or not all(isinstance(name, str) for name in apps):
        raise InvalidOption(
            f"app under [tool.rowsweep] must be a module's name or a list of them; got {app!r:.80}.",
            fix='app = ["shop.sweeps"]',
            meta={"place": str(file)},
        )
    return apps


def _backfills() -> list[str]:
    return [f"{BACKFILLS}/"] if Path(BACKFILLS).is_dir() else []


def _modules(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.py") if not file.name.startswith("_"))


def _is_importable(name: str) -> bool:
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    return spec is not None and spec.origin is not None


def _load_module(name: str) -> str:
    try:
        importlib.import_module(name)
    except Exception as error:
        raise _told(error, name) from error
    return name


def _load_file(path: Path) -> str:
    """Execute a file as the module `<folder>.<stem>`; its stem need not be an identifier."""
    file = path.absolute()
    name = file.stem if file.parent == Path.cwd() else f"{_package_of(file.parent)}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise _unloadable(str(path), "there is no such Python file or folder", place=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _told(error, str(path)) from error
    return name


def _package_of(folder: Path) -> str:
    """Answer the folder's name as a package, there to be imported from, whatever else has that name."""
    package = sys.modules.get(folder.name)
    if package is None:
        package = sys.modules[folder.name] = ModuleType(folder.name)
        package.__path__ = []
    if str(folder) not in package.__path__:
        package.__path__.append(str(folder))
    return folder.name


def _told(error: Exception, app: str) -> RowsweepError:
    place = _place(error)
    if isinstance(error, RowsweepError):
        error.meta.setdefault("place", place)
        return error
    return _unloadable(app, f"{type(error).__name__}: {error}", place=place)


def _unloadable(app: str, why: str, *, place: str | None) -> InvalidOption:
    return InvalidOption(
        f"{app} cannot be imported: {why}",
        fix="correct the file, or name other modules: --app shop.sweeps",
        meta={"option": "app", "app": app, "place": place},
    )


def _place(error: Exception) -> str | None:
    """Answer file and line of the application's innermost part in the error's way here."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{_shown(error.filename)}:{error.lineno or 1}"
    ours = str(Path(__file__).parents[1])
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    theirs = [frame for frame in frames if not frame.filename.startswith(ours) and "/importlib/" not in frame.filename]
    near = [frame for frame in theirs if Path.cwd() in Path(frame.filename).parents] or theirs
    return f"{_shown(near[-1].filename)}:{near[-1].lineno}" if near else None


def _shown(filename: str) -> str:
    file, here = Path(filename), Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else filename
