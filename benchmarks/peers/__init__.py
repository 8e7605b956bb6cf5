"""The peers of a benchmark, each run by an interpreter that has it; none is a dependency of rowsweep."""
