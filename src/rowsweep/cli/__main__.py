"""The command line as `python -m rowsweep.cli`."""

from __future__ import annotations

from rowsweep.cli.main import main

if __name__ == "__main__":
    main()
