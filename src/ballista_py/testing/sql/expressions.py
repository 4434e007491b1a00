"""Random scalar expressions, predicates and aggregates over the columns in scope."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, frozen

from ballista_py.testing.sql.chooser import Chooser

COLUMNS = {
    "k": "int",
    "a": "int",
    "b": "int",
    "s": "text",
    "d": "dec",
    "x": "flt",
    "dt": "date",
    "ts": "stamp",
    "bo": "bool",
    "id": "int",
}
LITERALS = {
    "int": ("0", "1", "2", "3", "-1", "7", "null", "99", "cast('3' as integer)", "2 + 1"),
    "text": ("'a'", "''", "'ab'", "'é'", "'zz'", "null", "'A'"),
    "dec": ("0.15", "3.35", "5", "-7.5", "100.01", "null", "cast(3.35 as decimal(9, 4))"),
    "flt": ("0.0", "-0.0", "1.5e0", "3", "null", "cast('nan' as double)", "0.1"),
    "date": ("date '2020-01-10'", "date '2020-06-01'", "'2021-01-31'", "null::date", "date '2020-01-31' + 1"),
    "stamp": (
        "timestamp '2020-01-10 17:00:00'",
        "date '2020-02-01'",
        "timestamp '2020-01-01 10:00:00.000005'",
        "null::timestamp",
        "timestamp '2020-01-31 00:00:00' + interval 1 month",
    ),
    "bool": ("true", "false", "null::boolean"),
}
_AGGREGATES = {
    "int": "count sum min max avg count_distinct sum_distinct var_pop stddev bit_xor bit_and median avg_distinct",
    "text": "count min max count_distinct",
    "dec": "count sum min max avg stddev_pop count_distinct sum_distinct",
    "flt": "count min max",
    "date": "count min max count_distinct",
    "stamp": "count min max",
    "bool": "count bool_and bool_or count_if",
}
_DOUBLES = ("avg", "var_pop", "stddev", "stddev_pop", "median")
_RESULTS = {"count": "int", "count_if": "int", **dict.fromkeys(_DOUBLES, "dbl")}
_SHAPES = {  # expressions of each type over columns of a type
    "int": (
        ("int", "({0} + {1})"), ("int", "({0} - {1})"), ("int", "({0} * {1})"), ("int", "abs({0})"),
        ("int", "nullif({0}, {1})"), ("int", "greatest({0}, {1})"), ("text", "length({0})"),
        ("date", "year({0})"), ("date", "extract(month from {0})"), ("stamp", "hour({0})"),
        ("date", "date_diff('day', {0}, {1})"), ("text", "try_cast({0} as integer)"), ("int", "({0} % 3)"),
        ("int", "({0} // 2)"), ("bool", "cast({0} as integer)"),
    ),
    "text": (
        ("text", "upper({0})"), ("text", "lower({0})"), ("text", "({0} || {1})"), ("text", "substring({0}, 1, 1)"),
        ("int", "cast({0} as varchar)"), ("text", "replace({0}, 'a', 'b')"), ("date", "strftime({0}, '%Y-%m')"),
        ("text", "coalesce({0}, {1}, '-')"),
    ),
    "dec": (("dec", "({0} + {1})"), ("dec", "({0} * 2)"), ("dec", "abs({0})"), ("int", "cast({0} as decimal(12, 2))")),
    "flt": (("flt", "abs({0})"), ("int", "cast({0} as double)"), ("flt", "coalesce({0}, 0)")),
    "date": (
        ("date", "({0} + 7)"), ("stamp", "cast({0} as date)"), ("date", "last_day({0})"),
        ("date", "cast({0} + interval 1 month as date)"),
    ),
    "stamp": (
        ("stamp", "date_trunc('month', {0})"), ("stamp", "({0} + interval 36 hour)"),
        ("date", "cast({0} as timestamp)"), ("date", "({0} + interval 1 month)"),
    ),
    "bool": (("bool", "not {0}"), ("bool", "({0} and {1})"), ("bool", "({0} or {1})"), ("int", "({0} > {1})")),
}  # fmt: skip


@frozen
class Column:
    """A value in scope: how to write it, and its type. A `dbl` is a result only: floats of sums are inexact."""

    text: str
    type: str

    @property
    def is_key(self) -> bool:
        return self.text.endswith(".k")


@define
class Expressions:
    """Writes expressions; `rng` decides."""

    rng: Chooser

    def chance(self, probability: float) -> bool:
        """Whether something happens that does so with this probability."""
        return self.rng.random() < probability

    def literal(self, type_: str) -> str:
        """A constant that can be compared with that type."""
        return self.rng.choice(LITERALS[type_])

    def scalar(self, columns: Sequence[Column], type_: str | None = None) -> Column:
        """A value, of that type if any column allows it."""
        exact = [c for c in columns if c.type != "dbl"]
        usable = [c for c in exact if type_ in (None, c.type)]
        if not usable:
            return Column(self.rng.choice(LITERALS["int"][:5]), "int")
        column = self.rng.choice(usable)
        if self.chance(0.25):
            return self.shaped(column, exact)
        if self.chance(0.06):
            return Column(f"coalesce({column.text}, {self.literal(column.type)})", column.type)
        if self.chance(0.08):
            other = self.rng.choice(usable)
            alternative = other.text if other.type == column.type else "null"
            return Column(
                f"case when {self.predicate(columns)} then {column.text} else {alternative} end", column.type
            )
        return column

    def shaped(self, column: Column, columns: Sequence[Column]) -> Column:
        """An expression of the type of `column`, over columns of whatever type it takes."""
        source, shape = self.rng.choice(_SHAPES[column.type])
        usable = [c.text for c in columns if c.type == source]
        if not usable:
            return column
        return Column(shape.format(self.rng.choice(usable), self.rng.choice(usable)), column.type)

    def predicate(self, columns: Sequence[Column]) -> str:
        """A condition without subqueries, true, false or unknown."""
        roll = self.rng.random()
        column = self.scalar(columns)
        literal = self.literal(column.type)
        if roll < 0.08:
            return f"not ({self.predicate(columns)})"
        if roll < 0.2:
            joiner = self.rng.choice((" or ", " and "))
            return f"({self.predicate(columns)}{joiner}{self.predicate(columns)})"
        if roll < 0.3:
            return self._membership(columns, column)
        if roll < 0.38:
            return f"{column.text} is {self.rng.choice(('', 'not '))}null"
        if roll < 0.42:
            return f"({self.predicate(columns)}) is {self.rng.choice(('true', 'not true', 'not false', 'null'))}"
        if roll < 0.48 and column.type == "text":
            return f"{column.text} {self.rng.choice(('', 'not '))}like '{self.rng.choice(('a%', '%b', '_', '%'))}'"
        if roll < 0.56:
            return f"{column.text} between {literal} and {self.literal(column.type)}"
        if roll < 0.64:
            return f"{column.text} is {self.rng.choice(('', 'not '))}distinct from {literal}"
        if column.type == "bool":
            return column.text
        other = self.scalar(columns, column.type)
        right = other.text if other.type == column.type and self.chance(0.4) else literal
        return f"{column.text} {self.rng.choice(('=', '=', '=', '<>', '<', '>', '>=', '<='))} {right}"

    def _membership(self, columns: Sequence[Column], column: Column) -> str:
        keys = [c for c in columns if c.is_key and c.type == "int"]
        if keys and self.chance(0.6):
            column = self.rng.choice(keys)
        values = self.rng.sample(LITERALS[column.type], k=3)
        return f"{column.text} {self.rng.choice(('', '', 'not '))}in ({', '.join(values)})"

    def aggregate(self, columns: Sequence[Column], unique: bool = False) -> Column:
        """An aggregate call that has one right answer; `unique` says that no row of a table comes twice."""
        if self.chance(0.2):
            return Column("count(*)", "int")
        argument = self.scalar(columns)
        ids = [c.text for c in columns if c.text.endswith(".id")]
        if unique and len(ids) == 1 and self.chance(0.15):
            return Column(f"{self.rng.choice(('min_by', 'max_by'))}({argument.text}, {ids[0]})", argument.type)
        form = self.rng.choice(_AGGREGATES[argument.type].split())
        name = form.removesuffix("_distinct")
        text = f"{name}({'distinct ' if name != form else ''}{argument.text})"
        if self.chance(0.15):
            text += f" filter (where {self.predicate(columns)})"
        return Column(text, _RESULTS.get(name, argument.type))
