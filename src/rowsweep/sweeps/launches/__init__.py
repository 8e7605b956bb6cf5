"""Before a run: whether it may, how it is launched, and all that is declared applied in order."""
