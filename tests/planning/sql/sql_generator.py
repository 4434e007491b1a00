"""Random queries over the tables of `small_tables`, deterministic for one source of chance.

Every query has one right answer up to the order of its rows: LIMIT comes with an ORDER BY over all outputs,
windows are over whole partitions, and floats are only results.
"""

from __future__ import annotations

from random import Random

from attrs import Factory, define, frozen

TABLES = ("t", "t", "t", "u", "u", "v", "w", "y", "z", "z2", "e", "r", "r", "r2")
COLUMNS = {
    "k": "int",
    "a": "int",
    "b": "int",
    "s": "text",
    "d": "dec",
    "dt": "date",
    "bo": "bool",
    "id": "int",
}
LITERALS = {
    "int": ("0", "1", "2", "3", "-1", "7", "null", "99"),
    "text": ("'a'", "''", "'ab'", "'é'", "'zz'", "null"),
    "dec": ("0.15", "3.35", "5", "-7.5", "100.01", "null"),
    "date": ("date '2020-01-10'", "date '2020-06-01'", "date '2021-01-31'", "null::date"),
    "bool": ("true", "false", "null::boolean"),
}
_FORMS = {
    "int": "count sum min max avg count_distinct sum_distinct var_pop stddev bit_xor median",
    "text": "count min max count_distinct",
    "dec": "count sum min max avg stddev_pop count_distinct",
    "date": "count min max",
    "bool": "count bool_and bool_or count_if",
}
_FLOATS = ("avg", "var_pop", "stddev", "stddev_pop", "median")
_RESULTS = {"count": "int", "count_if": "int", **dict.fromkeys(_FLOATS, "dbl")}


@frozen
class Column:
    """A column in scope: how to write it, and its type."""

    text: str
    type: str


@define
class Generator:
    """Writes queries; `rng` decides."""

    rng: Random
    aliases: int = 0
    ctes: list[tuple[str, list[Column]]] = Factory(list)

    def query(self) -> str:
        """One query."""
        prefix = ""
        if self.chance(0.2):
            body, columns = self.select(1, [], named=True)
            prefix = f"with c0 as ({body}) "
            self.ctes.append(("c0", columns))
        if self.chance(0.15):
            return prefix + self.set_operation()
        text, columns = self.select(2, [], named=True)
        return prefix + text + self.order(columns)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def alias(self) -> str:
        self.aliases += 1
        return f"q{self.aliases}"

    def order(self, columns: list[Column]) -> str:
        if not self.chance(0.3):
            return ""
        terms = [
            f"{n}{self.rng.choice(('', ' desc', ' nulls first', ' desc nulls last'))}"
            for n in range(1, len(columns) + 1)
        ]
        limit = f" limit {self.rng.randrange(0, 9)}" if self.chance(0.7) else ""
        offset = f" offset {self.rng.randrange(0, 5)}" if self.chance(0.3) else ""
        return f" order by {', '.join(terms)}{limit}{offset}"

    def set_operation(self) -> str:
        kind = self.rng.choice(("union", "union all", "intersect", "except", "except all", "intersect all"))
        names = self.rng.choice((["k"], ["k", "a"], ["s"], ["a", "b"], ["a", "id"]))
        sides = []
        for _ in range(self.rng.choice((2, 2, 3))):
            alias = self.alias()
            source = self.rng.choice(TABLES)
            columns = [Column(f"{alias}.{name}", type_) for name, type_ in COLUMNS.items()]
            picked = ", ".join(f"{alias}.{name}" for name in names)
            sides.append(f"select {picked} from {source} {alias}{self.where(columns, 1)}")
        text = f" {kind} ".join(sides)
        if self.chance(0.4):
            return f"select {names[0]}, count(*) from ({text}) o group by {names[0]}"
        return text

    def source(self, depth: int) -> tuple[str, list[Column]]:
        alias = self.alias()
        if self.ctes and self.chance(0.3):
            name, columns = self.rng.choice(self.ctes)
            return f"{name} {alias}", [Column(f"{alias}.{c.text}", c.type) for c in columns]
        if depth > 0 and self.chance(0.25):
            text, columns = self.select(depth - 1, [], named=True)
            return f"({text}) {alias}", [Column(f"{alias}.{c.text}", c.type) for c in columns]
        table = self.rng.choice(TABLES)
        return f"{table} {alias}", [Column(f"{alias}.{name}", type_) for name, type_ in COLUMNS.items()]

    def joined(self, depth: int) -> tuple[str, list[Column]]:
        text, columns = self.source(depth)
        for _ in range(self.rng.choice((0, 0, 1, 1, 2))):
            right, more = self.source(depth)
            kind = self.rng.choice(("join", "join", "left join", "right join", "full join", "comma"))
            if kind == "comma":
                if "right join" in text or "full join" in text:
                    kind = "join"
                else:
                    text, columns = f"{text} cross join {right}", columns + more
                    continue
            text = f"{text} {kind} {right} on {self.join_condition(columns, more)}"
            columns = columns + more
        return text, columns

    def join_condition(self, left: list[Column], right: list[Column]) -> str:
        pairs = [(a, b) for a in left for b in right if a.type == b.type and a.type != "dbl"]
        if not pairs:
            return "true"
        keys = [(a, b) for a, b in pairs if a.text.endswith(".k") and b.text.endswith(".k")]
        a, b = self.rng.choice(keys) if keys and self.chance(0.6) else self.rng.choice(pairs)
        condition = f"{a.text} = {b.text}"
        if self.chance(0.3):
            condition += f" and {self.predicate(left + right, 0)}"
        return condition

    def where(self, columns: list[Column], depth: int, join_columns: list[Column] | None = None) -> str:
        parts = [self.predicate(columns, depth) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        return f" where {' and '.join(parts)}" if parts else ""

    def scalar(self, columns: list[Column], type_: str | None = None) -> Column:
        usable = [c for c in columns if type_ is None or c.type == type_]
        usable = [c for c in usable if c.type != "dbl"] or [c for c in columns if c.type == "int"]
        if not usable:
            return Column(self.rng.choice(LITERALS["int"][:5]), "int")
        column = self.rng.choice(usable)
        if column.type == "int" and self.chance(0.2):
            other = self.rng.choice([c for c in columns if c.type == "int"])
            return Column(f"({column.text} {self.rng.choice('+-*')} {other.text})", "int")
        if column.type == "text" and self.chance(0.2):
            return Column(f"{self.rng.choice(('upper', 'lower'))}({column.text})", "text")
        if self.chance(0.1):
            return Column(f"coalesce({column.text}, {self.rng.choice(LITERALS[column.type])})", column.type)
        if self.chance(0.1):
            return Column(f"case when {self.predicate(columns, 0)} then {column.text} end", column.type)
        return column

    def predicate(self, columns: list[Column], depth: int) -> str:
        roll = self.rng.random()
        column = self.scalar(columns)
        literal = self.rng.choice(LITERALS[column.type])
        if roll < 0.12:
            return f"not ({self.predicate(columns, depth)})" if depth else f"{column.text} is null"
        if roll < 0.24:
            joiner = self.rng.choice((" or ", " and "))
            return f"({self.predicate(columns, 0)}{joiner}{self.predicate(columns, 0)})"
        if roll < 0.34:
            keys = [c for c in columns if c.text.endswith(".k")]
            if keys:
                return f"{self.rng.choice(keys).text} in ({', '.join(self.rng.sample(LITERALS['int'], 3))})"
        if depth and roll < 0.52:
            return self.subquery_predicate(columns, depth)
        if roll < 0.6:
            return f"{column.text} is {self.rng.choice(('', 'not '))}null"
        if roll < 0.66 and column.type == "text":
            return f"{column.text} like '{self.rng.choice(('a%', '%b', '_'))}'"
        if roll < 0.72:
            return f"{column.text} between {literal} and {self.rng.choice(LITERALS[column.type])}"
        if roll < 0.8:
            return f"{column.text} is {self.rng.choice(('', 'not '))}distinct from {literal}"
        if column.type == "bool":
            return column.text
        other = self.scalar(columns, column.type)
        right = other.text if other.type == column.type and self.chance(0.4) else literal
        return f"{column.text} {self.rng.choice(('=', '=', '<>', '<', '>', '>='))} {right}"

    def subquery_predicate(self, outer: list[Column], depth: int) -> str:
        source, inner = self.source(0)
        correlation = []
        for _ in range(self.rng.choice((0, 1, 1, 2))):
            pairs = [(a, b) for a in outer for b in inner if a.type == b.type and a.type != "dbl"]
            keys = [(a, b) for a, b in pairs if a.text.endswith(".k") and b.text.endswith(".k")]
            if not pairs:
                continue
            a, b = self.rng.choice(keys) if keys and self.chance(0.7) else self.rng.choice(pairs)
            correlation.append(f"{a.text} {self.rng.choice(('=', '=', '=', '<'))} {b.text}")
        if self.chance(0.5):
            correlation.append(self.predicate(inner, 0))
        where = f" where {' and '.join(correlation)}" if correlation else ""
        roll = self.rng.random()
        if roll < 0.4:
            return f"{self.rng.choice(('', 'not '))}exists (select 1 from {source}{where})"
        subject = self.scalar(outer)
        matching = [c for c in inner if c.type == subject.type]
        if roll < 0.8 and matching:
            target = self.rng.choice(matching).text
            if subject.text.endswith(".k") and self.chance(0.6):
                target = next((c.text for c in matching if c.text.endswith(".k")), target)
            return f"{subject.text} {self.rng.choice(('', 'not '))}in (select {target} from {source}{where})"
        numbers = [c for c in inner if c.type == "int"]
        value = f"max({self.rng.choice(numbers).text})" if numbers else "count(*)"
        left = self.scalar(outer, "int")
        left_text = left.text if left.type == "int" else "1"
        return f"{left_text} {self.rng.choice(('=', '<', '>='))} (select {value} from {source}{where})"

    def select(self, depth: int, outer: list[Column], named: bool = False) -> tuple[str, list[Column]]:
        source, columns = self.joined(depth)
        where = self.where(columns, depth)
        if self.chance(0.4):
            return self.grouped(source, columns, where)
        items = [self.scalar(columns) for _ in range(self.rng.choice((1, 2, 3)))]
        if self.chance(0.3):
            items = [self.rng.choice([c for c in columns if c.text.endswith(".k")] or columns), *items]
            items = [item if item.type != "dbl" else Column("1", "int") for item in items]
        if self.chance(0.12):
            items.append(self.window(columns))
        labels = [f"c{n}" for n in range(len(items))]
        picked = ", ".join(f"{item.text} as {label}" for item, label in zip(items, labels, strict=True))
        distinct = "distinct " if self.chance(0.2) else ""
        out = [Column(label, item.type) for item, label in zip(items, labels, strict=True)]
        return f"select {distinct}{picked} from {source}{where}", out

    def window(self, columns: list[Column]) -> Column:
        part = self.rng.choice([c for c in columns if c.type != "dbl"] or columns)
        keys = [c for c in columns if c.text.endswith(".k")]
        if keys and self.chance(0.5):
            part = self.rng.choice(keys)
        numbers = [c for c in columns if c.type == "int"] or [Column("1", "int")]
        value = self.rng.choice(numbers).text
        return Column(
            f"{self.rng.choice(('sum', 'count', 'max'))}({value}) over (partition by {part.text})", "int"
        )

    def grouped(self, source: str, columns: list[Column], where: str) -> tuple[str, list[Column]]:
        keys = [self.scalar(columns) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        own_keys = [c for c in columns if c.text.endswith(".k")]
        if keys and own_keys and self.chance(0.4):
            keys[0] = self.rng.choice(own_keys)
        aggregates = [self.aggregate(columns) for _ in range(self.rng.choice((1, 2, 3)))]
        items = [*keys, *aggregates]
        labels = [f"c{n}" for n in range(len(items))]
        picked = ", ".join(f"{item.text} as {label}" for item, label in zip(items, labels, strict=True))
        group = ", ".join(str(n + 1) for n in range(len(keys)))
        clause = f" group by {group}" if keys else ""
        if keys and self.chance(0.15):
            clause = f" group by rollup ({', '.join(key.text for key in keys)})"
        if keys and self.chance(0.3):
            clause += f" having {self.rng.choice(('count(*) > 1', 'count(*) <= 2', 'min(1) is not null'))}"
        out = [Column(label, item.type) for item, label in zip(items, labels, strict=True)]
        return f"select {picked} from {source}{where}{clause}", out

    def aggregate(self, columns: list[Column]) -> Column:
        if self.chance(0.25):
            return Column("count(*)", "int")
        argument = self.scalar(columns)
        form = self.rng.choice(_FORMS[argument.type].split())
        name = form.removesuffix("_distinct")
        text = f"{name}({'distinct ' if name != form else ''}{argument.text})"
        if self.chance(0.15):
            text += f" filter (where {self.predicate(columns, 0)})"
        return Column(text, _RESULTS.get(name, argument.type))
