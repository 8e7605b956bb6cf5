"""The SQL of a purge, composed for an application's own table: pages of what is due, and deletes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from rowsweep.sweeps.keyset.catalog import Column, Table, quoted
from rowsweep.sweeps.keyset.expressions import expression
from rowsweep.sweeps.purge.targets.catalog import Aged, Reference

_Part = sql.Composable
_SHOWN_KEYS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeStatements:
    """Compose every statement of one target.

    Its rows are walked in the order of the aged column and the key where an index orders by that column, else of the
    key. Values are bound by name: `rs_cutoff`, `rs_c0…` the cursor's texts, `rs_a0…` a page's rows. Rows of a plain
    table are addressed by `ctid`, which holds within a page: whatever has moved since does not match and is met again.
    Rows of a partitioned table are addressed by key, as a `ctid` says nothing across partitions.
    """

    table: Table
    aged: Aged
    operator: str
    where: str | None

    @property
    def order(self) -> tuple[str, ...]:
        """The columns that rows are walked by."""
        if self.aged.index is None:
            return self.table.key
        return (self.aged.column, *(name for name in self.table.key if name != self.aged.column))

    def search(self, keys: int, page_rows: int, *, started: bool) -> sql.Composed:
        """Walk so many keys in one reading and cut those that are due into pages; no row at the end.

        Answers (page, its rows, the place it ends at, its rows' addresses as arrays' texts). A page ends at its last
        row, the last page where the walk does.
        """
        places = _named("rs_o", self.order)
        addresses = _named("rs_a", self._address)
        is_all_due = self.aged.index is not None and self.where is None
        due = sql.SQL("" if is_all_due else " filter (where rs_due)")
        number = sql.SQL("pg_catalog.row_number() over rs_walk")
        size = sql.Literal(page_rows)
        place = sql.SQL(
            "coalesce(pg_catalog.max({0}::pg_catalog.text) filter (where rs_ends),"
            " pg_catalog.max({0}::pg_catalog.text) filter (where rs_due and rs_k %% {1} = 0))"
        )
        return sql.SQL(
            "select greatest(rs_k - 1, 0) / {size}, pg_catalog.count(*){due}, {ends}, {rows} from (\n"
            "  select {columns}, {is_due} as rs_due, {count} as rs_k,\n"
            "         {number} = {keys} or pg_catalog.lead(1) over rs_walk is null as rs_ends\n"
            "    from {table} where {ahead} window rs_walk as (order by {order}) order by {order} limit {keys}\n"
            ") rs_seen group by 1 order by 1"
        ).format(
            size=size,
            due=due,
            ends=_list(place.format(name, size) for name in places),
            rows=_list(sql.SQL("pg_catalog.array_agg({}){}::pg_catalog.text").format(name, due) for name in addresses),
            columns=_list(
                sql.SQL("{} as {}").format(self._own(name), alias)
                for name, alias in zip([*self.order, *self._address], [*places, *addresses], strict=True)
            ),
            is_due=sql.SQL("true") if is_all_due else self._due_here(),
            count=number if is_all_due else self._counted_due(),
            number=number,
            keys=sql.Literal(keys),
            table=self.table.identifier,
            ahead=self._ahead(started=started),
            order=self._ordered(),
        )

    def ends(self, page_rows: int, pages: int, *, started: bool) -> sql.Composed:
        """Find where the next full pages end, each from the one before; no row where less than a page is left."""
        places = _named("rs_o", self.order)
        here = _list(sql.SQL("rs_pages.{}").format(place) for place in places)
        return sql.SQL(
            "with recursive rs_pages (rs_page, {places}) as (\n"
            "  (select 1, {order} from {table} where {ahead} order by {order} limit 1 offset {before})\n"
            "  union all\n"
            "  select rs_pages.rs_page + 1, {next} from rs_pages cross join lateral (\n"
            "    select {named} from {table} where ({order}) > ({here}) and {aged} order by {order}\n"
            "     limit 1 offset {before}) rs_next\n"
            "   where rs_pages.rs_page < {pages}\n"
            ")\n"
            "select {texts} from rs_pages order by rs_page"
        ).format(
            places=_list(places),
            order=self._ordered(),
            table=self.table.identifier,
            ahead=self._ahead(started=started),
            before=sql.Literal(page_rows - 1),
            next=_list(sql.SQL("rs_next.{}").format(place) for place in places),
            named=self._named(),
            here=here,
            aged=self._old_enough(),
            pages=sql.Literal(pages),
            texts=_texts(places),
        )

    def last_end(self, *, started: bool) -> sql.Composed:
        """Find where the rows that are left end, and count them; used where they are less than a page."""
        places = _named("rs_o", self.order)
        return sql.SQL(
            "select {texts}, rs_rows from (\n"
            "  select {named}, pg_catalog.row_number() over (order by {order}) as rs_rows from {table} where {ahead}\n"
            ") rs_left order by rs_rows desc limit 1"
        ).format(
            texts=_texts(places),
            named=self._named(),
            order=self._ordered(),
            table=self.table.identifier,
            ahead=self._ahead(started=started),
        )

    def delete_to(self, *, started: bool) -> sql.Composed:
        """Delete every due row up to and including a page's end (`rs_u0…`); a row locked by others is waited for."""
        return sql.SQL("delete from {} where {} and ({}) <= ({})").format(
            self.table.identifier, self._ahead(started=started), self._ordered(), self._values("rs_u")
        )

    def delete(self, holders: Sequence[Reference] = ()) -> sql.Composed:
        """Delete a page's rows that are still due, that nobody else has locked, and that none of the keys holds.

        Answers how many were free, how many went, and by key how many are held, with some of them.
        """
        here = self._here()
        held = [self._is_referred(holder) for holder in holders]
        parts = [
            sql.SQL(
                "rs_free as materialized (\n  select {} from {} where {} and {}{} for update skip locked\n)"
            ).format(
                self._addresses(),
                self.table.identifier,
                here,
                self.due(),
                sql.SQL("").join(sql.SQL(" and not {}").format(one) for one in held),
            ),
            sql.SQL("rs_gone as (\n  delete from {} where {} returning 1 as rs_one\n)").format(
                self.table.identifier, self._freed()
            ),
        ]
        shown: _Part = sql.SQL("null")
        if held:
            parts.append(self._held(here, held))
            shown = sql.SQL(
                "(select pg_catalog.json_agg(pg_catalog.json_build_array(rs_by, rs_rows, rs_keys)) from (\n"
                "  select rs_by, pg_catalog.count(*) as rs_rows, (pg_catalog.array_agg(rs_key))[1:{}] as rs_keys\n"
                "    from rs_held group by rs_by) rs_holders)"
            ).format(sql.Literal(_SHOWN_KEYS))
        return sql.SQL(
            "with {}\nselect (select pg_catalog.count(*) from rs_free), (select pg_catalog.count(*) from rs_gone), {}"
        ).format(sql.SQL(",\n").join(parts), shown)

    def matching(self) -> sql.Composed:
        """Select every row that is due."""
        return sql.SQL("select 1 from {} where {}").format(self.table.identifier, self.due())

    def span(self, tz: str) -> sql.Composed:
        """Count what is due, with the oldest and the newest as instants."""
        own = self._own(self.aged.column)
        instant: _Part = own
        if self.aged.type != "timestamptz":
            instant = sql.SQL("({}::timestamp at time zone {})").format(own, sql.Literal(tz))
        finite = sql.SQL("filter (where pg_catalog.isfinite({}))").format(own)
        return sql.SQL(
            "select pg_catalog.count(*), pg_catalog.min({0}) {1}, pg_catalog.max({0}) {1} from {2} where {3}"
        ).format(instant, finite, self.table.identifier, self.due())

    def due(self) -> _Part:
        """The condition by which a row is due."""
        aged = self._old_enough()
        return aged if self.where is None else sql.SQL("{} and {}").format(aged, self._matches())

    @property
    def _address(self) -> tuple[str, ...]:
        return self.table.key if self.aged.partitioned else ("ctid",)

    def _addresses(self) -> _Part:
        return _list(
            sql.SQL("{} as rs_a{}").format(self._own(name), sql.SQL(str(at))) for at, name in enumerate(self._address)
        )

    def _here(self) -> _Part:
        """Match a page's rows by their addresses."""
        if not self.aged.partitioned:
            return sql.SQL("{} = any (%(rs_a0)s::pg_catalog.tid[])").format(self._own("ctid"))
        names = [sql.SQL(f"rs_a{at}") for at in range(len(self._address))]
        arrays = _list(sql.SQL("%({})s::pg_catalog.text[]").format(name) for name in names)
        cast = _list(
            sql.SQL("{}::{}").format(name, _type(column))
            for name, column in zip(names, self.table.key_types, strict=True)
        )
        return sql.SQL("({}) in (select {} from unnest({}) rs_page ({}))").format(
            _list(self._own(name) for name in self._address), cast, arrays, _list(names)
        )

    def _freed(self) -> _Part:
        names = _list(sql.SQL(f"rs_a{at}") for at in range(len(self._address)))
        if not self.aged.partitioned:
            return sql.SQL("{} = any (array(select {} from rs_free))").format(self._own("ctid"), names)
        return sql.SQL("({}) in (select {} from rs_free)").format(
            _list(self._own(name) for name in self._address), names
        )

    def _held(self, here: _Part, held: Sequence[_Part]) -> sql.Composed:
        by = sql.SQL(" ").join(
            sql.SQL("when {} then {}").format(one, sql.Literal(number)) for number, one in enumerate(held)
        )
        key = _list(sql.SQL("{}::pg_catalog.text").format(self._own(name)) for name in self.table.key)
        return sql.SQL(
            "rs_held as materialized (\n  select pg_catalog.concat_ws(', ', {}) as rs_key, case {} end as rs_by\n"
            "    from {} where {} and {} and ({})\n)"
        ).format(key, by, self.table.identifier, here, self.due(), sql.SQL(" or ").join(held))

    def _is_referred(self, holder: Reference) -> sql.Composed:
        same = _all(
            sql.SQL("{} = {}").format(quoted("rs_referring", column), self._own(referred))
            for column, referred in zip(holder.columns, holder.referred, strict=True)
        )
        return sql.SQL("exists (select from {} rs_referring where {})").format(
            quoted(holder.schema, holder.table), same
        )

    def _ahead(self, *, started: bool) -> _Part:
        conditions: list[_Part] = []
        if started:
            conditions.append(sql.SQL("({}) > ({})").format(self._ordered(), self._values("rs_c")))
        if self.aged.index is not None:
            conditions.append(self._old_enough())
        return _all(conditions) if conditions else sql.SQL("true")

    def _old_enough(self) -> sql.Composed:
        return sql.SQL("{} {} %(rs_cutoff)s::{}").format(
            self._own(self.aged.column), sql.SQL(self.operator), sql.SQL(self.aged.type)
        )

    def _values(self, prefix: str) -> sql.Composed:
        """Bind a place's texts, each as its column's type."""
        return _list(
            sql.SQL("{}::{}").format(sql.Placeholder(f"{prefix}{at}"), _type(self.table.column(name)))
            for at, name in enumerate(self.order)
        )

    def _named(self) -> sql.Composed:
        places = _named("rs_o", self.order)
        return _list(
            sql.SQL("{} as {}").format(self._own(name), place) for name, place in zip(self.order, places, strict=True)
        )

    def _counted_due(self) -> _Part:
        """Number the rows that are due, up to and including the one that is walked over."""
        return sql.SQL(
            "pg_catalog.count(*) filter (where {}) over (rs_walk rows between unbounded preceding and current row)"
        ).format(self._due_here())

    def _due_here(self) -> _Part:
        """Say of a row that is walked over whether it is due, never null."""
        due = self._matches() if self.aged.index is not None else self.due()
        return sql.SQL("coalesce({}, false)").format(due)

    def _matches(self) -> _Part:
        return sql.SQL("(\n{}\n)").format(expression(self.where or "true", bound=False))

    def _ordered(self) -> _Part:
        return _list(self._own(name) for name in self.order)

    def _own(self, column: str) -> sql.SQL:
        return quoted(self.table.schema, self.table.name, column)


def _named(prefix: str, columns: Sequence[str]) -> list[sql.SQL]:
    return [sql.SQL(f"{prefix}{at}") for at in range(len(columns))]


def _texts(places: Sequence[_Part]) -> sql.Composed:
    return _list(sql.SQL("{}::pg_catalog.text").format(place) for place in places)


def _type(column: Column) -> sql.SQL:
    return quoted(column.type_schema, column.type_name)


def _list(parts: Iterable[_Part]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def _all(conditions: Iterable[_Part]) -> sql.Composed:
    return sql.SQL(" and ").join(conditions)
