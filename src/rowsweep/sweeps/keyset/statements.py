"""The SQL composed for an application's own table: keyset pages, updates, write-back, estimates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from rowsweep.sweeps.keyset.catalog import Column, Table, quoted
from rowsweep.sweeps.keyset.expressions import base_type, differing, expression, unlike

STAGE = "rowsweep_stage"
_PROBES: Final = (
    "explain select (\n{}\n){} from {}",
    "explain select case when true then \n{}\n end{} from {}",
)

_Part = sql.Composable


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """Compose every statement of one sweep over one table.

    Values are bound by name: `rs_c0…` the cursor's texts, `rs_u0…` the upper bound's, beside the application's own
    parameters. A page's size is written into its statement, so that a plan knows it. The key's comparisons use the
    columns' own type and collation. `also` is a condition of ours beside the application's.
    """

    table: Table
    where: str | None
    bound_params: bool
    bounded: bool
    also: sql.Composable | None = None

    def next_page(self, limit: int, *, started: bool) -> sql.Composed:
        """Find the next page's last key by stepping over those before it; a short page ends at the last key there is.

        Answers whether the page is full, the key's texts, and whether these read back as that key; no row at the end.
        """
        return sql.SQL(
            "with rs_full as materialized (\n"
            "  select {key} from {table} where {page} order by {key} limit 1 offset {before}\n"
            "), rs_last as (\n"
            "  select {key} from {table} where {page} and not exists (select from rs_full) order by {last} limit 1\n"
            ")\n"
            "select true, {texts}, {exact} from rs_full union all select false, {texts}, {exact} from rs_last"
        ).format(
            key=self._key(),
            table=self.table.identifier,
            page=self._ahead(started=started),
            before=sql.Literal(limit - 1),
            last=self._key(descending=True),
            texts=self._key_texts(),
            exact=self._exact(),
        )

    def next_pages(self, limit: int, *, started: bool, pages: int) -> sql.Composed:
        """Find the last keys of the next full pages, each from the one before; answers rows as `next_page` does."""
        upper = [self._compare("<=", "u")] if self.bounded else []
        behind = sql.SQL("({}) > ({})").format(self._key(), self._key(alias="rs_pages"))
        return sql.SQL(
            "with recursive rs_pages ({number}, {key}) as (\n"
            "  (select 1, {key} from {table} where {page} order by {key} limit 1 offset {before})\n"
            "  union all\n"
            "  select rs_pages.{number} + 1, {next} from rs_pages cross join lateral (\n"
            "    select {key} from {table} where {behind} order by {key} limit 1 offset {before}) rs_next\n"
            "   where rs_pages.{number} < {pages}\n"
            ")\n"
            "select true, {texts}, {exact} from rs_pages order by {number}"
        ).format(
            number=quoted(unlike("rs_page", self.table.key)),
            key=self._key(),
            next=self._key(alias="rs_next"),
            table=self.table.identifier,
            page=self._ahead(started=started),
            behind=_all([behind, *upper]),
            before=sql.Literal(limit - 1),
            pages=sql.Literal(pages),
            texts=self._key_texts(),
            exact=self._exact(),
        )

    def update(self, assignments: Mapping[str, str], *, started: bool) -> sql.Composed:
        """Update the page's matching rows by expressions: it takes the locks and checks the condition again."""
        sets = sql.SQL(", ").join(
            sql.SQL("{} = (\n{}\n)").format(quoted(column), self._own(text)) for column, text in assignments.items()
        )
        beside = self._beside()
        source = sql.SQL("") if beside is None else sql.SQL(" from {}").format(beside)
        return sql.SQL("update {} set {}{} where {}").format(
            self.table.identifier, sets, source, _all(self._page(started=started))
        )

    def count(self, *, started: bool, lock: bool) -> sql.Composed:
        """Count the page's matching rows, locking them where they may be written back."""
        return sql.SQL("select pg_catalog.count(*) from (select 1 from {} where {}{}) rs_matching").format(
            self._source(),
            _all(self._page(started=started)),
            self._locking() if lock else sql.SQL(""),
        )

    def left(self, whose: _Part, *, started: bool) -> sql.Composed:
        """Count the page's rows that match and of which a condition of ours holds."""
        return sql.SQL("select pg_catalog.count(*) from {} where {} and {}").format(
            self._source(), _all(self._page(started=started)), whose
        )

    def read(self, columns: Iterable[_Part], *, started: bool, lock: bool, matching: bool = True) -> sql.Composed:
        """Read the rows between the cursor and the page's last key (`rs_u0…`), in key order."""
        conditions = self._page(started=started) if matching else self._between(started=started)
        return sql.SQL("select {} from {} where {} order by {}{}").format(
            sql.SQL(", ").join(columns),
            self._source() if matching else self.table.identifier,
            _all(conditions),
            self._sorted(),
            self._locking() if lock else sql.SQL(""),
        )

    def read_csv(self, line: _Part, *, started: bool, lock: bool, matching: bool = True) -> sql.Composed:
        """Read the same rows as one UTF-8 text of CSV lines, null where there are none."""
        rows = self.read([sql.SQL("{} as rs_line").format(line)], started=started, lock=lock, matching=matching)
        # The last line ends too: Arrow may take an empty field at the very end of a text for an empty string.
        lines = "pg_catalog.string_agg(rs_line, pg_catalog.chr(10)) || pg_catalog.chr(10)"
        text = sql.SQL(f"pg_catalog.convert_to({lines}, 'UTF8')")
        return sql.SQL("select {} from ({}) rs_lines").format(text, rows)

    def digest_csv(self, line: _Part, *, started: bool, lock: bool) -> sql.Composed:
        """Answer the SHA-256 of the text that `read_csv` reads, null where it is null; no row travels."""
        text = self.read_csv(line, started=started, lock=lock)
        return sql.SQL("select pg_catalog.sha256(rs_text) from ({}) rs_page (rs_text)").format(text)

    def read_records(self, columns: Iterable[_Part], *, started: bool) -> sql.Composed:
        """Read the page's rows as one UTF-8 text, null where there are none: a line each, a record between two nulls.

        A record's text is made by the server in one go; a null before and behind tells its parentheses from its fields.
        """
        line = sql.SQL("row(null, {}, null)::pg_catalog.text as rs_line").format(sql.SQL(", ").join(columns))
        return sql.SQL(
            "select pg_catalog.convert_to("
            "pg_catalog.string_agg(rs_line, pg_catalog.chr(10)) || pg_catalog.chr(10), 'UTF8') from ({}) rs_lines"
        ).format(self.read([line], started=started, lock=False))

    def first_matching(self) -> sql.Composed:
        """Find the last key of the first rows that match: what a preview runs over."""
        form = "select {} from (select {} from {} where {} order by {} limit %(rs_limit)s) rs_first order by {} limit 1"
        return sql.SQL(form).format(
            self._key_texts(),
            self._key(),
            self.table.identifier,
            self._matches(),
            self._key(),
            self._key(descending=True, alias="rs_first"),
        )

    def highest(self) -> sql.Composed:
        """Find the highest key there is."""
        return sql.SQL("select {} from {} order by {} limit 1").format(
            self._key_texts(), self.table.identifier, self._sorted(descending=True)
        )

    def matching(self, of: sql.Composable | None = None) -> sql.Composed:
        """Select every row that the sweep is over, in the table or a part of it; for estimates and counts."""
        bounds = [self._compare("<=", "u")] if self.bounded else []
        return sql.SQL("select 1 from {} where {}").format(
            of or self.table.identifier, _all([*bounds, self._matches()])
        )

    def probes(self, assignments: Mapping[str, str] | None) -> list[tuple[str, str, sql.Composed]]:
        """Answer statements that plan only if each piece of the application's SQL stands as one expression.

        Each is `(field, text, statement)`; two wrappings a piece, since no text escapes both, then its own place.
        """
        pieces = [("where", self.where, "boolean")] if self.where is not None else []
        pieces += [(f"set[{column!r}]", text, "") for column, text in (assignments or {}).items()]
        probes: list[tuple[str, str, sql.Composed]] = []
        for field, text, kind in pieces:
            cast = sql.SQL("::pg_catalog.bool" if kind else "")
            probes += [
                (field, text, sql.SQL(form).format(self._own(text), cast, self.table.identifier)) for form in _PROBES
            ]
        if self.where is not None:
            probes.append(("where", self.where, sql.SQL("explain ") + self.matching()))
        if assignments:
            whole = sql.SQL("explain ") + self.update(assignments, started=True)
            sets = [f"{column} = {text}" for column, text in assignments.items()]
            probes.append(("set", ", ".join(sets), whole))
        return probes

    def create_stage(self, columns: Iterable[str], *, lasts: bool) -> sql.Composed:
        """Make the staging table: the given columns with their own types and collations, no constraint.

        Emptied at each commit where it `lasts` as long as the session, else gone with it.
        """
        end = sql.SQL("delete rows" if lasts else "drop")
        return sql.SQL("create temporary table {} on commit {} as select {} from {} where false").format(
            quoted(STAGE), end, self._names(columns), self.table.identifier
        )

    def copy_stage(self, columns: Iterable[str]) -> sql.Composed:
        """Fill the staging table from CSV below a first line that is none."""
        return sql.SQL("copy pg_temp.{} ({}) from stdin (format csv, header true, encoding 'UTF8')").format(
            quoted(STAGE), self._names(columns)
        )

    def write_back(self, columns: Iterable[Column], *, started: bool) -> sql.Composed:
        """Update the page's rows from the staging table where a value really differs."""
        changing = list(columns)
        sets = sql.SQL(", ").join(sql.SQL("{0} = rs_new.{0}").format(quoted(column.name)) for column in changing)
        return sql.SQL("update {} rs_old set {} from pg_temp.{} rs_new where {}").format(
            self.table.identifier, sets, quoted(STAGE), self._staged_differs(changing, started=started)
        )

    def moved(self, columns: Iterable[Column], *, started: bool) -> sql.Composed:
        """Find the key of a row of the page of which the staging table has another value in these columns."""
        texts = (sql.SQL("rs_old.{}::pg_catalog.text").format(quoted(name)) for name in self.table.key)
        return sql.SQL("select {} from {} rs_old, pg_temp.{} rs_new where {} limit 1").format(
            sql.SQL(", ").join(texts),
            self.table.identifier,
            quoted(STAGE),
            self._staged_differs(list(columns), started=started),
        )

    def odd_staged(self, *, started: bool) -> sql.Composed:
        """Find a staged key that came twice (true) or is not of this page (false), with its text; no row if none is."""
        return sql.SQL(
            "(select true, {texts} from pg_temp.{stage} group by {key} having pg_catalog.count(*) > 1 limit 1)\n"
            "union all\n"
            "(select false, {texts} from pg_temp.{stage} rs_new where not exists (\n"
            "   select from (select {key} from {table} where {page}) rs_old where {same}) limit 1)\n"
            "limit 1"
        ).format(
            texts=self._key_texts(),
            key=self._key(),
            stage=quoted(STAGE),
            table=self._source(),
            page=_all(self._page(started=started)),
            same=self._same_key(),
        )

    def _staged_differs(self, columns: Sequence[Column], *, started: bool) -> _Part:
        differs = sql.SQL(" or ").join(
            differing(column, quoted("rs_old", column.name), quoted("rs_new", column.name)) for column in columns
        )
        between = self._between(started=started, alias="rs_old")
        return _all([self._same_key(), *between, sql.SQL("({})").format(differs)])

    def _beside(self) -> _Part | None:
        """Answer what the page's conditions are about besides the table."""
        return None

    def _source(self) -> _Part:
        beside = self._beside()
        return self.table.identifier if beside is None else sql.SQL("{}, {}").format(self.table.identifier, beside)

    def _locking(self) -> _Part:
        return sql.SQL(" for no key update of {}").format(quoted(self.table.name))

    def _same_key(self) -> _Part:
        return _all(sql.SQL("rs_old.{0} = rs_new.{0}").format(quoted(name)) for name in self.table.key)

    def _ahead(self, *, started: bool) -> _Part:
        conditions = [self._compare(">", "c")] if started else []
        if self.bounded:
            conditions.append(self._compare("<=", "u"))
        return _all(conditions) if conditions else sql.SQL("true")

    def _exact(self) -> _Part:
        """Ask whether a key's texts read back as the same key."""
        return sql.SQL(" and ").join(
            sql.SQL("({0}::pg_catalog.text)::{1} = {0}").format(quoted(column.name), base_type(column))
            for column in self.table.key_types
        )

    def _page(self, *, started: bool) -> list[_Part]:
        conditions = self._between(started=started)
        return conditions if self.where is None and self.also is None else [*conditions, self._matches()]

    def _between(self, *, started: bool, alias: str | None = None) -> list[_Part]:
        lower = [self._compare(">", "c", alias)] if started else []
        return [*lower, self._compare("<=", "u", alias)]

    def _compare(self, operator: str, prefix: str, alias: str | None = None) -> _Part:
        values = sql.SQL(", ").join(
            sql.SQL("{}::{}").format(sql.Placeholder(f"rs_{prefix}{at}"), base_type(column))
            for at, column in enumerate(self.table.key_types)
        )
        return sql.SQL("({}) {} ({})").format(self._key(alias=alias), sql.SQL(operator), values)

    def _matches(self) -> _Part:
        own = [] if self.where is None else [sql.SQL("(\n{}\n)").format(self._own(self.where))]
        conditions = own if self.also is None else [*own, self.also]
        return _all(conditions) if conditions else sql.SQL("true")

    def _own(self, text: str) -> sql.SQL:
        return expression(text, bound=self.bound_params)

    def _key(self, *, descending: bool = False, alias: str | None = None) -> sql.Composed:
        form = sql.SQL("{} desc" if descending else "{}")
        names = (quoted(name) if alias is None else quoted(alias, name) for name in self.table.key)
        return sql.SQL(", ").join(form.format(name) for name in names)

    def _sorted(self, *, descending: bool = False) -> sql.Composed:
        """Sort by the table's columns: a bare name in ORDER BY would be the text that is selected under it."""
        return self._key(descending=descending, alias=self.table.name)

    def _key_texts(self) -> sql.Composed:
        return sql.SQL(", ").join(sql.SQL("{}::pg_catalog.text").format(quoted(name)) for name in self.table.key)

    def _names(self, columns: Iterable[str]) -> sql.Composed:
        return sql.SQL(", ").join(quoted(column) for column in columns)


def _all(conditions: Iterable[_Part]) -> _Part:
    return sql.SQL(" and ").join(conditions)
