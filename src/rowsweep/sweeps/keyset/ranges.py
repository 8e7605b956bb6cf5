"""The SQL that divides a table's keys into ranges: bounds, middles, and whether ranges tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from rowsweep.sweeps.keyset.catalog import quoted
from rowsweep.sweeps.keyset.expressions import base_type, own_form, unlike
from rowsweep.sweeps.keyset.statements import Statements

PAGES: Final = """
    select greatest(
             pg_catalog.pg_relation_size(c.oid),
             (select pg_catalog.sum(pg_catalog.pg_relation_size(p.relid)) from pg_catalog.pg_partition_tree(c.oid) p)
           ) / pg_catalog.current_setting('block_size')::pg_catalog.int8
      from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     where n.nspname = %(schema)s and c.relname = %(name)s"""
_BATCH_WEIGHT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeStatements(Statements):
    """Compose what finds and checks ranges of one table's keys, in the key's own types, collations and order.

    A row that matches the sweep's condition weighs five times one that is only passed over.
    """

    def bounds_by_histogram(self, ranges: int) -> sql.Composed:
        """Find the keys that divide the table by the planner's histogram of the first key column.

        Each is a key there is: the last one up to a bound of the histogram. Answers each key's texts and whether these
        read back, in key order; no row where there is no histogram, where common values stand beside it, or where more
        than a fifth of the rows changed since.
        """
        lead = self.table.key_types[0]
        return sql.SQL(
            "with rs_bounds as (\n"
            "  select s.histogram_bounds::pg_catalog.text::{type}[] as rs_bounds\n"
            "  from pg_catalog.pg_stats s\n"
            "  join pg_catalog.pg_namespace n on n.nspname = s.schemaname\n"
            "  join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = s.tablename\n"
            "  left join pg_catalog.pg_stat_all_tables t on t.relid = c.oid\n"
            "  where s.schemaname = %(rs_schema)s and s.tablename = %(rs_name)s and s.attname = %(rs_lead)s\n"
            "    and s.inherited = (c.relkind = 'p') and s.most_common_vals is null\n"
            "    and s.histogram_bounds is not null\n"
            "    and coalesce(t.n_mod_since_analyze, 0) <= greatest(c.reltuples, 0) / 5\n"
            "), rs_cuts as (\n"
            "  select distinct b.rs_bounds[1 + n * (pg_catalog.cardinality(b.rs_bounds) - 1) / {ranges}] as rs_cut\n"
            "  from rs_bounds b cross join pg_catalog.generate_series(1, {ranges} - 1) n\n"
            ")\n"
            "select {texts}, {exact} from rs_cuts cross join lateral (\n"
            "  select {key} from {table} where {lead} <= rs_cuts.rs_cut order by {last} limit 1) rs_found\n"
            "order by {sorted}"
        ).format(
            type=base_type(lead),
            ranges=sql.Literal(ranges),
            texts=self._key_texts(),
            exact=self._exact(),
            key=self._key(),
            table=self.table.identifier,
            lead=quoted(lead.name),
            last=self._key(descending=True),
            sorted=self._key(alias="rs_found"),
        )

    def bounds_by_sample(self, ranges: int) -> sql.Composed:
        """Find the keys that divide a sample of `rs_percent` of the table's pages; answers as by histogram."""
        return sql.SQL(
            "with rs_sample as (\n"
            "  select {key}, pg_catalog.row_number() over (order by {key}) - 1 as {at},\n"
            "         pg_catalog.count(*) over () as {of}\n"
            "  from {table} tablesample system (%(rs_percent)s) repeatable (1)\n"
            ")\n"
            "select {texts}, {exact} from rs_sample\n"
            "where {at} > 0 and {at} * {ranges} / {of} <> ({at} - 1) * {ranges} / {of} order by {at}"
        ).format(
            key=self._key(),
            at=self._own_name("rs_at"),
            of=self._own_name("rs_of"),
            table=self.table.identifier,
            texts=self._key_texts(),
            exact=self._exact(),
            ranges=sql.Literal(ranges),
        )

    def middles(self) -> sql.Composed:
        """Find the middle key of each range of `rs_numbers` in a sample, by weight, the heaviest range first.

        Answers the range's number, how many sampled keys it has, the middle's texts, and whether these read back.
        """
        return sql.SQL(
            "with rs_sample as materialized (\n"
            "  select {key}, 1 + case when {matches} then {weight} else 0 end as {weighs}\n"
            "  from {table} tablesample system (%(rs_percent)s) repeatable (1)\n"
            "), rs_summed as (\n"
            "  select r.rs_number, {keys}, pg_catalog.count(*) over (partition by r.rs_number) as {of},\n"
            "         pg_catalog.sum(s.{weighs}) over (partition by r.rs_number order by {keys}) as {upto},\n"
            "         pg_catalog.sum(s.{weighs}) over (partition by r.rs_number) as {total}\n"
            "  from {ranges} join rs_sample s on {within}\n"
            "), rs_middles as (\n"
            "  select distinct on (rs_number) rs_number, {of}, {total}, {key}\n"
            "  from rs_summed where {upto} * 2 >= {total} order by rs_number, {key}\n"
            ")\n"
            "select rs_number, {of}, {texts}, {exact} from rs_middles order by {total} desc"
        ).format(
            key=self._key(),
            keys=self._key(alias="s"),
            matches=self._matches(),
            weight=sql.Literal(_BATCH_WEIGHT),
            weighs=self._own_name("rs_weighs"),
            of=self._own_name("rs_of"),
            upto=self._own_name("rs_upto"),
            total=self._own_name("rs_total"),
            table=self.table.identifier,
            ranges=self._ranges(),
            within=sql.SQL("{} and {}").format(self._beyond("after", "s", ">"), self._beyond("to", "s", "<=")),
            texts=self._key_texts(),
            exact=self._exact(),
        )

    def halfway(self, most: int, *, started: bool) -> sql.Composed:
        """Find the middle of the next keys behind `rs_c0…`, `most` at the most, up to `rs_u0…` where it is bounded.

        Answers how many keys these are, the middle's texts, and whether these read back; no row where there is none.
        """
        return sql.SQL(
            "with rs_probe as materialized (\n"
            "  select {key}, pg_catalog.row_number() over (order by {key}) as {at}\n"
            "  from (select {key} from {table} where {ahead} order by {key} limit {most}) rs_keys\n"
            "), rs_many as (select pg_catalog.count(*) as {of} from rs_probe)\n"
            "select {of}, {texts}, {exact} from rs_probe cross join rs_many where {at} = ({of} + 1) / 2"
        ).format(
            key=self._key(),
            at=self._own_name("rs_at"),
            of=self._own_name("rs_of"),
            table=self.table.identifier,
            ahead=self._ahead(started=started),
            most=sql.Literal(most),
            texts=self._key_texts(),
            exact=self._exact(),
        )

    def is_between(self) -> sql.Composed:
        """Ask whether a key (`rs_m0…`) lies behind `rs_c0…` and before `rs_u0…`, either of which may be null."""
        names = [column.name for column in self.table.key_types]
        row = sql.SQL(", ").join(
            own_form(sql.Placeholder(f"rs_m{at}"), column) for at, column in enumerate(self.table.key_types)
        )
        columns = sql.SQL(", ").join(map(quoted, names))
        return sql.SQL(
            "select (%(rs_c0)s::pg_catalog.text is null or {behind})\n"
            "   and (%(rs_u0)s::pg_catalog.text is null or {before})\n"
            "from (select {row}) rs_middle ({columns})"
        ).format(behind=self._compare(">", "c"), before=self._compare("<", "u"), row=row, columns=columns)

    def tiling(self) -> sql.Composed:
        """Ask whether the ranges of `rs_numbers` tile: one after the other from the first key to the last.

        Each begins where the one before ends, and ends behind its beginning; the first has no beginning, and the last
        ends at `rs_u0…`, nowhere where that is null.
        """
        width = range(len(self.table.key))
        uppers = sql.SQL(", ").join(sql.SQL(f"%(rs_u{at})s::pg_catalog.text") for at in width)
        return sql.SQL(
            "with rs_chain as (\n"
            "  select pg_catalog.row_number() over w as place, pg_catalog.count(*) over () as places,\n"
            "         pg_catalog.jsonb_build_array({begins}) as begins, pg_catalog.jsonb_build_array({ends}) as ends,\n"
            "         pg_catalog.lag(pg_catalog.jsonb_build_array({ends})) over w as ended,\n"
            "         r.rs_after0 is null as is_first, r.rs_to0 is null as is_last,\n"
            "         coalesce(({after}) < ({to}), true) as advances\n"
            "  from {ranges}\n"
            "  window w as (order by r.rs_after0 is not null, {after})\n"
            ")\n"
            "select pg_catalog.count(*) > 0 and pg_catalog.bool_and(advances\n"
            "         and case when place = 1 then is_first else not is_first and begins = ended end\n"
            "         and (not is_last or place = places)\n"
            "         and (place < places or ends = pg_catalog.jsonb_build_array({uppers})))\n"
            "from rs_chain"
        ).format(
            begins=self._texts("after"),
            ends=self._texts("to"),
            after=self._bounds("after"),
            to=self._bounds("to"),
            uppers=uppers,
            ranges=self._ranges(),
        )

    def ordered(self) -> sql.Composed:
        """Sort the numbers of ranges by where they begin; one without a beginning comes first."""
        return sql.SQL("select r.rs_number from {ranges} order by r.rs_after0 is not null, {after}").format(
            ranges=self._ranges(), after=self._bounds("after")
        )

    def _texts(self, side: str) -> sql.Composed:
        return sql.SQL(", ").join(sql.SQL(f"r.rs_{side}{at}") for at in range(len(self.table.key)))

    def _own_name(self, name: str) -> sql.SQL:
        return quoted(unlike(name, self.table.key))

    def _ranges(self) -> sql.Composed:
        """Make the ranges a table: a number, and the texts of both bounds' columns."""
        sides = [f"rs_{side}{at}" for side in ("after", "to") for at in range(len(self.table.key))]
        arrays = sql.SQL(", ").join(sql.SQL(f"%({side})s::pg_catalog.text[]") for side in sides)
        columns = sql.SQL(", ").join(sql.SQL(side) for side in sides)
        return sql.SQL("unnest(%(rs_numbers)s::pg_catalog.int4[], {arrays}) as r (rs_number, {columns})").format(
            arrays=arrays, columns=columns
        )

    def _bounds(self, side: str) -> sql.Composed:
        return sql.SQL(", ").join(
            own_form(sql.SQL("r.rs_{}{}").format(sql.SQL(side), sql.SQL(str(at))), column)
            for at, column in enumerate(self.table.key_types)
        )

    def _beyond(self, side: str, alias: str, operator: str) -> sql.Composed:
        return sql.SQL("(r.rs_{}0 is null or ({}) {} ({}))").format(
            sql.SQL(side), self._key(alias=alias), sql.SQL(operator), self._bounds(side)
        )


def range_values(ranges: Any) -> dict[str, Any]:
    """Bind `(number, after, to)` triples as the table of ranges; bounds are texts of the key's columns, or None."""
    ranges = list(ranges)
    width = max((len(bound) for _, *bounds in ranges for bound in bounds if bound is not None), default=1)
    values: dict[str, Any] = {"rs_numbers": [number for number, _, _ in ranges]}
    for name, side in (("after", 1), ("to", 2)):
        for at in range(width):
            values[f"rs_{name}{at}"] = [None if each[side] is None else each[side][at] for each in ranges]
    return values
