"""The demo's three sweeps, copied to where `rowsweep demo` runs."""
