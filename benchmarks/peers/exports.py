"""Write a table to one Parquet file the way others do: `python -m benchmarks.peers.exports WHO DSN TABLE FILE`."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_GROUP_ROWS = 128_000
_TYPES = {
    "id": pa.int64(), "created_at": pa.timestamp("us", "UTC"), "customer": pa.string(), "price": pa.decimal128(10, 2),
    "qty": pa.int32(), "total": pa.string(), "band": pa.string(), "writes": pa.int32(),
}  # fmt: skip
QUERY = f"select {', '.join(_TYPES)} from {{}}"


def adbc(dsn: str, table: str, file: str) -> int:
    """Stream record batches from the ADBC driver into a ParquetWriter."""
    from adbc_driver_postgresql import dbapi  # type: ignore[import-not-found]  # a peer has an interpreter of its own

    rows = 0
    with dbapi.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute(QUERY.format(table))
        reader = cursor.fetch_record_batch()
        with pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch)
                rows += batch.num_rows
    return rows


def connectorx(dsn: str, table: str, file: str, **parallel: Any) -> int:
    """Read the whole table as Arrow, then write it."""
    import connectorx as cx  # type: ignore[import-not-found]

    found = cx.read_sql(dsn, QUERY.format(table), return_type="arrow", protocol="binary", **parallel)
    pq.write_table(found, file, compression="zstd", row_group_size=_GROUP_ROWS)
    return int(found.num_rows)


def connectorx_by_two(dsn: str, table: str, file: str) -> int:
    """Do so over two connections, a half of the keys each."""
    return connectorx(dsn, table, file, partition_on="id", partition_num=2)


def polars(dsn: str, table: str, file: str) -> int:
    """Read the whole table as a frame through ADBC, then write it."""
    import polars as pl

    frame = pl.read_database_uri(QUERY.format(table), dsn, engine="adbc")
    frame.write_parquet(file, compression="zstd", row_group_size=_GROUP_ROWS)
    return frame.height


def cursor(dsn: str, table: str, file: str) -> int:
    """Fetch rows through a server-side cursor of psycopg, and make record batches of them."""
    import psycopg

    schema, rows = pa.schema(list(_TYPES.items())), 0
    with (
        psycopg.connect(dsn) as connection,
        connection.cursor("rows", binary=True) as fetched,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        fetched.execute(QUERY.format(table))
        while found := fetched.fetchmany(20_000):
            columns = dict(zip(schema.names, zip(*found, strict=True), strict=True))
            columns["total"] = tuple(None if value is None else str(value) for value in columns["total"])
            writer.write_batch(pa.RecordBatch.from_pydict({n: list(v) for n, v in columns.items()}, schema=schema))
            rows += len(found)
    return rows


PEERS: dict[str, Callable[[str, str, str], int]] = {
    "adbc": adbc,
    "connectorx": connectorx,
    "connectorx-by-two": connectorx_by_two,
    "polars": polars,
    "cursor": cursor,
}


_IMPORTED = {
    "adbc": ["adbc_driver_postgresql.dbapi"],
    "connectorx": ["connectorx"],
    "connectorx-by-two": ["connectorx"],
    "polars": ["polars", "adbc_driver_postgresql.dbapi"],
    "cursor": ["psycopg"],
}


def main() -> None:
    """Write the file, and print the rows and the seconds as JSON."""
    who, dsn, table, file = sys.argv[1:]
    for module in _IMPORTED[who]:  # what everybody has to import is not what is measured
        importlib.import_module(module)
    began = time.perf_counter()
    rows = PEERS[who](dsn, table, file)
    print(json.dumps({"rows": rows, "seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main()
