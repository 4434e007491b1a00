"""When a name must be quoted in the SQL that the planner writes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from sqlglot import exp

_MAX_REMEMBERED_CHARACTERS = 128
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*\Z")

# DuckDB's keywords that are not free to be used as any kind of name.
_KEYWORDS = frozenset((
    "all", "analyse", "analyze", "and", "anti", "any", "array", "as", "asc", "asof", "asymmetric", "at",
    "authorization", "between", "bigint", "binary", "bit", "boolean", "both", "by", "case", "cast", "char",
    "character", "check", "coalesce", "collate", "collation", "column", "columns", "concurrently", "constraint",
    "create", "cross", "dec", "decimal", "default", "deferrable", "desc", "describe", "distinct", "do", "else",
    "end", "except", "exists", "extract", "false", "fetch", "float", "for", "foreign", "freeze", "from", "full",
    "generated", "glob", "group", "grouping", "grouping_id", "having", "ilike", "in", "initially", "inner",
    "inout", "int", "integer", "intersect", "interval", "into", "is", "isnull", "join", "lambda", "lateral",
    "leading", "left", "like", "limit", "map", "national", "natural", "nchar", "none", "not", "notnull", "null",
    "nullif", "numeric", "offset", "on", "only", "or", "order", "out", "outer", "over", "overlaps", "overlay",
    "pivot", "pivot_longer", "pivot_wider", "placing", "position", "positional", "precision", "primary",
    "qualify", "real", "references", "returning", "right", "row", "select", "semi", "setof", "show", "similar",
    "smallint", "some", "struct", "substring", "summarize", "symmetric", "table", "tablesample", "then", "time",
    "timestamp", "to", "trailing", "treat", "trim", "true", "try_cast", "tuple", "union", "unique", "unpack",
    "unpivot", "using", "values", "varchar", "variadic", "verbose", "when", "where", "window", "with",
    "xmlattributes", "xmlconcat", "xmlelement", "xmlexists", "xmlforest", "xmlnamespaces", "xmlparse", "xmlpi",
    "xmlroot", "xmlserialize", "xmltable",
))  # fmt: skip


def needs_quotes(name: str) -> bool:
    """Whether `name` would be read as something else without quotes.

    >>> needs_quotes("l_orderkey"), needs_quotes("Order Key"), needs_quotes("order")
    (False, True, True)
    """
    return _quoted(name) if len(name) <= _MAX_REMEMBERED_CHARACTERS else _PLAIN.match(name) is None


@lru_cache(maxsize=4096)
def _quoted(name: str) -> bool:
    return _PLAIN.match(name) is None or name in _KEYWORDS


def free_name(wanted: str, names: Iterable[str], text: str = "") -> str:
    """`wanted`, or something like it, that is none of `names` and occurs nowhere in `text`, whatever the case.

    >>> free_name("hit", ["id", "Hit"]), free_name("hit", ["id"], "select hit_2, hit")
    ('hit_2', 'hit_3')
    """
    taken, text = {name.lower() for name in names}, text.lower()
    found, number = wanted, 1
    while found in taken or found in text:
        number += 1
        found = f"{wanted}_{number}"
    return found


def identifier(name: str) -> exp.Identifier:
    """The identifier that reads as exactly `name`."""
    return exp.Identifier(this=name, quoted=needs_quotes(name))
