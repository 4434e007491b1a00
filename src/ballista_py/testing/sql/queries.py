"""Random queries over the tables of `sql_tables`. The same chance gives the same query.

Every query has one right answer up to the order of its rows: LIMIT inside comes with an ORDER BY over all outputs,
windows are over whole partitions or a total order, and floats that depend on the order of summing are only results.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define, frozen

from ballista_py.testing.sql.expressions import COLUMNS, Column, Expressions

TABLES = (*"tttuuvwymzer", "x", "x2", "z2", "r", "r2")
_FRAMES = (
    "",
    "",
    " rows between 1 preceding and current row",
    " rows between unbounded preceding and 1 following",
)
_QUANTIFIED = ("= any", "<> all", ">= all", "< any")


@frozen
class RandomQuery:
    """A query and whether ORDER BY fixes the order of its rows."""

    sql: str
    ordered: bool


@define
class Queries(Expressions):
    """Writes whole queries."""

    aliases: int = 0
    ctes: list[tuple[str, list[Column]]] = Factory(list)

    def query(self) -> RandomQuery:
        """One query."""
        prefix = self._common_tables() if self.chance(0.25) else ""
        if self.chance(0.15):
            text, columns = self.set_operation()
        else:
            text, columns = self.select(2)
        tail = self.order(columns) if self.chance(0.35) else ""
        return RandomQuery(prefix + text + tail, bool(tail))

    def _common_tables(self) -> str:
        parts = []
        for number in range(self.rng.choice((1, 1, 2))):
            body, columns = self.select(1) if self.chance(0.85) else self.set_operation()
            parts.append(f"c{number} as ({body})")
            self.ctes.append((f"c{number}", columns))
        return f"with {', '.join(parts)} "

    def _alias(self) -> str:
        self.aliases += 1
        return f"q{self.aliases}"

    def order(self, columns: Sequence[Column]) -> str:
        """ORDER BY over all columns, inexact ones last, and perhaps a LIMIT and an OFFSET."""
        exact = [n for n, column in enumerate(columns, 1) if column.type != "dbl"]
        inexact = [n for n, column in enumerate(columns, 1) if column.type == "dbl"]
        ways = ("", " desc", " nulls first", " desc nulls last", " asc nulls last", " desc nulls first")
        terms = [f"{n}{self.rng.choice(ways)}" for n in (*exact, *inexact)]
        limit = f" limit {self.rng.randrange(0, 9)}" if self.chance(0.7) else ""
        offset = f" offset {self.rng.randrange(0, 5)}" if self.chance(0.3) else ""
        return f" order by {', '.join(terms)}{limit}{offset}"

    def set_operation(self) -> tuple[str, list[Column]]:
        """Two or three selects of the same columns, combined."""
        kind = self.rng.choice(("union", "union all", "intersect", "except", "except all", "intersect all"))
        names = self.rng.choice((["k"], ["k", "a"], ["s"], ["a", "b"], ["a", "id"], ["dt", "k"]))
        sides = []
        for _ in range(self.rng.choice((2, 2, 3))):
            alias = self._alias()
            columns = [Column(f"{alias}.{name}", type_) for name, type_ in COLUMNS.items()]
            picked = ", ".join(f"{alias}.{name}" for name in names)
            side = f"select {picked} from {self.rng.choice(TABLES)} {alias}{self.where(columns, 1)}"
            if self.chance(0.1):
                side = f"({side} order by {', '.join(str(n + 1) for n in range(len(names)))} limit 4)"
            sides.append(side)
        out = [Column(name, COLUMNS[name]) for name in names]
        text = f" {kind} ".join(sides)
        if self.chance(0.4):
            alias = self._alias()
            text = f"select {names[0]}, count(*) as n from ({text}) {alias} group by {names[0]}"
            return text, [out[0], Column("n", "int")]
        return text, out

    def source(self, depth: int) -> tuple[str, list[Column]]:
        """A FROM item and the columns that it brings."""
        alias = self._alias()
        if self.ctes and self.chance(0.35):
            name, columns = self.rng.choice(self.ctes)
            return f"{name} {alias}", [Column(f"{alias}.{c.text}", c.type) for c in columns]
        if depth > 0 and self.chance(0.25):
            text, columns = self.select(depth - 1) if self.chance(0.8) else self.set_operation()
            if self.chance(0.15):
                text += self.order(columns)
            return f"({text}) {alias}", [Column(f"{alias}.{c.text}", c.type) for c in columns]
        table = self.rng.choice(TABLES)
        return f"{table} {alias}", [Column(f"{alias}.{name}", type_) for name, type_ in COLUMNS.items()]

    def joined(self, depth: int) -> tuple[str, list[Column]]:
        """Up to three FROM items, joined in any of the ways."""
        text, columns = self.source(depth)
        kinds = ("join", "join", "left join", "right join", "full join", "cross join", "semi join", "anti join")
        for _ in range(self.rng.choice((0, 0, 1, 1, 2))):
            right, more = self.source(depth)
            kind = self.rng.choice(kinds)
            if kind == "cross join":
                text, columns = f"{text} cross join {right}", columns + more
                continue
            text = f"{text} {kind} {right} on {self._join_condition(columns, more)}"
            columns = columns if kind in ("semi join", "anti join") else columns + more
        return text, columns

    def _join_condition(self, left: list[Column], right: list[Column]) -> str:
        pairs = [(a, b) for a in left for b in right if a.type == b.type and a.type != "dbl"]
        if not pairs:
            return "true"
        keys = [(a, b) for a, b in pairs if a.is_key and b.is_key]
        a, b = self.rng.choice(keys) if keys and self.chance(0.6) else self.rng.choice(pairs)
        condition = f"{a.text} {self.rng.choice(('=', '=', '=', '=', 'is not distinct from', '<'))} {b.text}"
        return f"{condition} and {self.predicate(left + right)}" if self.chance(0.3) else condition

    def where(self, columns: Sequence[Column], depth: int) -> str:
        """A WHERE clause, or none."""
        parts = []
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            nested = depth > 0 and self.chance(0.25)
            parts.append(self.subquery_predicate(columns, depth) if nested else self.predicate(columns))
        return f" where {' and '.join(parts)}" if parts else ""

    def subquery_predicate(self, outer: Sequence[Column], depth: int) -> str:
        """EXISTS, IN, a quantified comparison or a scalar subquery, correlated or not."""
        source, inner, where = self._nested(outer, depth)
        roll = self.rng.random()
        if roll < 0.35:
            return f"{self.rng.choice(('', 'not '))}exists (select 1 from {source}{where})"
        subject = self.scalar(outer)
        matching = [c for c in inner if c.type == subject.type]
        if roll < 0.8 and matching:
            target = self.rng.choice(matching).text
            if subject.is_key and self.chance(0.6):
                target = next((c.text for c in matching if c.is_key), target)
            how = self.rng.choice(_QUANTIFIED) if self.chance(0.15) else self.rng.choice(("in", "in", "not in"))
            return f"{subject.text} {how} (select {target} from {source}{where})"
        left = self.scalar(outer, "int")
        left_text = left.text if left.type == "int" else "1"
        return f"{left_text} {self.rng.choice(('=', '<', '>='))} {self._scalar_query(source, inner, where)}"

    def _scalar_query(self, source: str, inner: Sequence[Column], where: str) -> str:
        numbers = [c for c in inner if c.type == "int"]
        forms = ("max({})", "min({})", "sum({})", "count({})", "coalesce(max({}), -1)")
        value = self.rng.choice(forms).format(self.rng.choice(numbers).text) if numbers else "count(*)"
        return f"(select {value} from {source}{where})"

    def _nested(self, outer: Sequence[Column], depth: int) -> tuple[str, list[Column], str]:
        """FROM and WHERE of a nested query that may refer to the outer one."""
        source, inner = self.source(0)
        conditions = []
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            pairs = [(a, b) for a in outer for b in inner if a.type == b.type and a.type != "dbl"]
            keys = [(a, b) for a, b in pairs if a.is_key and b.is_key]
            if pairs:
                a, b = self.rng.choice(keys) if keys and self.chance(0.7) else self.rng.choice(pairs)
                conditions.append(f"{a.text} {self.rng.choice(('=', '=', '=', '<'))} {b.text}")
        if self.chance(0.5):
            conditions.append(self.predicate(inner))
        return source, inner, f" where {' and '.join(conditions)}" if conditions else ""

    def select(self, depth: int) -> tuple[str, list[Column]]:
        """One block and its output columns."""
        source, columns = self.joined(depth)
        where = self.where(columns, depth)
        if self.chance(0.4):
            return self._grouped(source, columns, where)
        items = [self.scalar(columns) for _ in range(self.rng.choice((1, 2, 3)))]
        if self.chance(0.3):
            items = [self.rng.choice([c for c in columns if c.is_key and c.type != "dbl"] or items), *items]
        windowed = self.chance(0.15)
        if windowed:
            items.append(self._window(source, columns))
        if depth > 0 and self.chance(0.08):
            inner = self._nested(columns, depth)
            items.append(Column(self._scalar_query(*inner), "int"))
        picked, out = _labelled(items)
        distinct = "distinct " if self.chance(0.2) else ""
        qualify = f" qualify c{len(items) - 1} > 1" if windowed and self.chance(0.2) else ""
        if qualify and items[-1].text.startswith("(select"):
            qualify = ""
        return f"select {distinct}{picked} from {source}{where}{qualify}", out

    def _window(self, source: str, columns: Sequence[Column]) -> Column:
        part = self.rng.choice([c for c in columns if c.type not in ("dbl", "flt")] or columns)
        keys = [c for c in columns if c.is_key and c.type != "dbl"]
        if keys and self.chance(0.5):
            part = self.rng.choice(keys)
        numbers = [c for c in columns if c.type == "int"] or [Column("1", "int")]
        value = self.rng.choice(numbers).text
        ids = [c.text for c in columns if c.text.endswith(".id")]
        single = " join " not in source and len(ids) == 1
        over = f"partition by {part.text}" if self.chance(0.85) else ""
        if single and self.chance(0.5):  # a total order
            function = self.rng.choice((f"lag({value})", "row_number()", f"first_value({value})", f"sum({value})"))
            frame = self.rng.choice(_FRAMES) if function.startswith("sum") else ""
            return Column(f"{function} over ({over} order by {ids[0]}{frame})", "int")
        if self.chance(0.2):
            return Column(f"{self.rng.choice(('rank', 'dense_rank'))}() over ({over} order by {value})", "int")
        return Column(f"{self.rng.choice(('sum', 'count', 'max'))}({value}) over ({over})", "int")

    def _grouped(self, source: str, columns: list[Column], where: str) -> tuple[str, list[Column]]:
        keys = [self.scalar(columns) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        own_keys = [c for c in columns if c.is_key and c.type != "dbl"]
        if keys and own_keys and self.chance(0.4):
            keys[0] = self.rng.choice(own_keys)
        unique = " join " not in source
        items = [*keys, *(self.aggregate(columns, unique) for _ in range(self.rng.choice((1, 2, 3))))]
        picked, out = _labelled(items)
        clause = f" group by {', '.join(str(n + 1) for n in range(len(keys)))}" if keys else ""
        texts = [key.text for key in keys]
        if keys and self.chance(0.15):
            sets = (
                f"rollup ({', '.join(texts)})",
                f"cube ({', '.join(texts)})",
                f"grouping sets (({texts[0]}), ())",
            )
            clause = f" group by {', '.join((self.rng.choice(sets), *texts[1:]))}"
        if keys and self.chance(0.3):
            forms = ("count(*) > 1", "count(*) <= 2", "min(1) is not null", "count(*) > (select count(*) from r2)")
            clause += f" having {self.rng.choice(forms)}"
        return f"select {picked} from {source}{where}{clause}", out


def _labelled(items: Sequence[Column]) -> tuple[str, list[Column]]:
    """The select list with names, and the columns as an enclosing block sees them."""
    picked = ", ".join(f"{item.text} as c{number}" for number, item in enumerate(items))
    return picked, [Column(f"c{number}", item.type) for number, item in enumerate(items)]
