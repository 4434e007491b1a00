"""Text to expression tree: a small parser of its own, because the grammar of partition keys is a whitelist.

Whatever is not in the grammar is refused by the piece that is not, before any engine sees it.
"""

from __future__ import annotations

import re

import pyarrow as pa
from attrs import define, frozen

from ballista_py.errors import UnsupportedExpression
from ballista_py.planning.expression import ColumnNode, LiteralNode, Node
from ballista_py.planning.expression_functions import FUNCTIONS, call

MAX_DEPTH = 32

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d]\w*)
      | "(?P<quoted>(?:[^"]|"")+)"
      | '(?P<text>(?:[^']|'')*)'
      | (?P<mark><=|>=|<>|!=|[(),+\-*=<>])
    )""",
    re.VERBOSE,
)


def parse_expression(text: str, schema: pa.Schema) -> Node:
    """The tree of one key expression over the columns of `schema`.

    Names match a column exactly or, when exactly one column does so, regardless of case; quoted names match
    exactly.

    Raises `UnsupportedExpression` naming the piece that is outside of the grammar, or the unknown column.

    >>> parse_expression("bucket(16, id)", pa.schema([("id", pa.int64())])).text()
    'bucket(16, id)'
    """
    parser = _Parser(text, schema, _tokens(text))
    node = parser.expression(0)
    if parser.position < len(parser.tokens):
        raise UnsupportedExpression(
            f"partition key '{text}': '{parser.tokens[parser.position].source}' is not expected"
        )
    return node


@frozen
class _Token:
    kind: str
    value: str
    source: str


def _tokens(text: str) -> tuple[_Token, ...]:
    tokens: list[_Token] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            piece = text[position:].split()[0]
            raise UnsupportedExpression(f"partition key '{text}': '{piece}' is not part of a partition key")
        kind = str(match.lastgroup)
        value = match.group(kind)
        if kind in ("quoted", "text"):
            mark = '"' if kind == "quoted" else "'"
            value = value.replace(mark * 2, mark)
        tokens.append(_Token(kind, value, match.group().strip()))
        position = match.end()
    return tuple(tokens)


@define
class _Parser:
    text: str
    schema: pa.Schema
    tokens: tuple[_Token, ...]
    position: int = 0

    def expression(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.refusal(f"it is nested deeper than {MAX_DEPTH}")
        token = self.take()
        if token.kind == "number":
            if not token.value.isdigit():
                raise self.refusal(f"'{token.value}' is not an integer")
            return LiteralNode(int(token.value), pa.int64())
        if token.kind == "text":
            return LiteralNode(token.value, pa.string())
        if token.kind == "quoted":
            return self.column(token.value, exact=True)
        if token.kind == "name":
            return self.call(token.value, depth) if self.peek() == "(" else self.column(token.value, exact=False)
        raise self.refusal(f"'{token.source}' is not expected")

    def call(self, name: str, depth: int) -> Node:
        function = FUNCTIONS.get(name.lower())
        if function is None:
            raise self.refusal(
                f"function '{name}' is not allowed: partition keys take {', '.join(sorted(FUNCTIONS))}"
            )
        self.expect("(")
        arguments: list[Node] = []
        while self.peek() != ")":
            if arguments:
                self.expect(",")
            arguments.append(self.expression(depth + 1))
        self.expect(")")
        try:
            return call(function, tuple(arguments))
        except UnsupportedExpression as error:
            raise self.refusal(error.message) from None

    def column(self, name: str, exact: bool) -> Node:
        names = self.schema.names
        found = [index for index, other in enumerate(names) if other == name]
        if not found and not exact:
            found = [index for index, other in enumerate(names) if other.lower() == name.lower()]
        if len(found) != 1:
            problem = f"column '{name}' is ambiguous" if found else f"there is no column '{name}'"
            raise self.refusal(f"{problem}; the columns are {', '.join(names)}")
        column = self.schema.field(found[0])
        if pa.types.is_nested(column.type):
            raise self.refusal(f"column '{column.name}' has the nested type {column.type}")
        return ColumnNode(column.name, column.type, column.nullable)

    def peek(self) -> str | None:
        if self.position < len(self.tokens) and self.tokens[self.position].kind == "mark":
            return self.tokens[self.position].value
        return None

    def take(self) -> _Token:
        if self.position == len(self.tokens):
            raise self.refusal("it ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def expect(self, mark: str) -> None:
        token = self.take()
        if token.kind != "mark" or token.value != mark:
            raise self.refusal(f"'{mark}' is expected where '{token.source}' stands")

    def refusal(self, reason: str) -> UnsupportedExpression:
        return UnsupportedExpression(f"partition key '{self.text}': {reason}")
