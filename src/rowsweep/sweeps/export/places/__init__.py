"""Where an export's objects go: a local folder, or a store that `pyarrow.fs` opens."""
