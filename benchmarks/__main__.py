"""Run the benchmarks whose name starts with the argument, and print one line of JSON a figure."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks

TOOLS = {"__main__", "flights", "loops", "measure", "peers", "tables", "workers"}


def main(only: str = "") -> int:
    """Measure the `FIGURES` of every module that match; a figure below its bar is printed, not an exit code."""
    names = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    names = [name for name in names if name not in TOOLS]
    wanted = [name for name in names if name.startswith(only.partition(".")[0])]
    figures = {
        name: measure
        for module in wanted
        for name, measure in importlib.import_module(f"benchmarks.{module}").FIGURES.items()
        if name.startswith(only)
    }
    if not figures:
        print(f"No figure starts with {only!r}. There are: {', '.join(names) or 'none'}.", file=sys.stderr)
        return 2
    for measure in figures.values():
        print(measure().as_json(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
