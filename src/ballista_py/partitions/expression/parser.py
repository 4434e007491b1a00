"""Text to expression tree: a small parser of its own, because the grammar of partition keys is a whitelist.

Whatever is not in the grammar is refused by the piece that is not, before any engine sees it.
"""

from __future__ import annotations

import re

import pyarrow as pa
from attrs import define, frozen

from ballista_py.errors import UnsupportedExpression
from ballista_py.partitions.bucket_hash import check_bucket_type
from ballista_py.partitions.expression.functions import CAST_TO_DATE, FUNCTIONS, Function, call
from ballista_py.partitions.expression.nodes import ColumnNode, LiteralNode, Node, columns_of
from ballista_py.partitions.expression.operators import OPERATORS
from ballista_py.partitions.type_names import type_name

MAX_DEPTH = 32
MAX_CHARACTERS = 4_096
MAX_TOKENS = 500

_NAMES = ", ".join(sorted([*FUNCTIONS, "cast"]))
_BINDING = {"=": 1, "<>": 1, "!=": 1, "<": 1, "<=": 1, ">": 1, ">=": 1, "+": 2, "-": 2, "*": 3}

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
    if len(text) > MAX_CHARACTERS:
        raise UnsupportedExpression(f"a partition key has {len(text):,} characters, more than {MAX_CHARACTERS:,}")
    tokens = _tokens(text)
    if len(tokens) > MAX_TOKENS:
        raise UnsupportedExpression(f"a partition key has {len(tokens):,} elements, more than {MAX_TOKENS:,}")
    parser = _Parser(text, schema, tokens)
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

    def expression(self, depth: int, binding: int = 0) -> Node:
        if depth > MAX_DEPTH:
            raise self.refusal(f"it is nested deeper than {MAX_DEPTH}")
        left = self.operand(depth)
        while (mark := self.peek()) in _BINDING and _BINDING[mark] > binding:
            self.expect(mark)
            # Comparisons do not chain: a = b = c has no meaning here.
            right = self.expression(depth + 1, _BINDING[mark])
            left = self.build(OPERATORS["<>" if mark == "!=" else mark], (left, right))
            if _BINDING[mark] == 1 and _BINDING.get(self.peek() or "") == 1:
                raise self.refusal(f"'{self.peek()}' is not expected after a comparison")
        return left

    def operand(self, depth: int) -> Node:
        token = self.take()
        if token.value == "(" and token.kind == "mark":
            inner = self.expression(depth + 1)
            self.expect(")")
            return inner
        if token.value == "-" and token.kind == "mark" and self.next_kind() == "number":
            return self.number("-" + self.take().value)
        if token.kind == "number":
            return self.number(token.value)
        if token.kind == "text":
            return LiteralNode(token.value, pa.string())
        if token.kind == "quoted":
            return self.column(token.value, exact=True)
        if token.kind == "name":
            if token.value.lower() in ("true", "false"):
                return LiteralNode(token.value.lower() == "true", pa.bool_())
            return self.call(token.value, depth) if self.peek() == "(" else self.column(token.value, exact=False)
        raise self.refusal(f"'{token.source}' is not expected")

    def call(self, name: str, depth: int) -> Node:
        if name.lower() == "cast":
            return self.cast(depth)
        function = FUNCTIONS.get(name.lower())
        if function is None:
            raise self.refusal(f"function '{name}' is not allowed: partition keys take {_NAMES}")
        self.expect("(")
        arguments: list[Node] = []
        while self.peek() != ")":
            if arguments:
                self.expect(",")
            arguments.append(self.expression(depth + 1))
        self.expect(")")
        return self.build(function, tuple(arguments))

    def cast(self, depth: int) -> Node:
        self.expect("(")
        argument = self.expression(depth + 1)
        for word in ("as", "date"):
            token = self.take()
            if token.kind != "name" or token.value.lower() != word:
                raise self.refusal("the only cast of partition keys is cast(column as date)")
        self.expect(")")
        return self.build(CAST_TO_DATE, (argument,))

    def build(self, function: Function, arguments: tuple[Node, ...]) -> Node:
        try:
            node = call(function, arguments)
        except UnsupportedExpression as error:
            raise self.refusal(error.message) from None
        if not columns_of(node):
            raise self.refusal(f"{node.text()} reads no column: write its value as a literal")
        return node

    def number(self, digits: str) -> Node:
        if not digits.removeprefix("-").isdecimal() or not -(1 << 63) <= int(digits) < 1 << 63:
            raise self.refusal(f"'{digits}' is not a 64-bit integer")
        return LiteralNode(int(digits), pa.int64())

    def column(self, name: str, exact: bool) -> Node:
        names = self.schema.names
        found = [index for index, other in enumerate(names) if other == name]
        if not found and not exact:
            found = [index for index, other in enumerate(names) if other.lower() == name.lower()]
        if len(found) != 1:
            problem = f"column '{name}' is ambiguous" if found else f"there is no column '{name}'"
            raise self.refusal(f"{problem}; the columns are {', '.join(names)}")
        column = self.schema.field(found[0])
        if not _may_be_read(column.type):
            raise self.refusal(
                f"column '{column.name}' has type {type_name(column.type)}, which partition keys do not take"
            )
        return ColumnNode(column.name, column.type, column.nullable)

    def peek(self) -> str | None:
        if self.position < len(self.tokens) and self.tokens[self.position].kind == "mark":
            return self.tokens[self.position].value
        return None

    def next_kind(self) -> str | None:
        return self.tokens[self.position].kind if self.position < len(self.tokens) else None

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


def _may_be_read(arrow_type: pa.DataType) -> bool:
    try:
        check_bucket_type(arrow_type)
    except UnsupportedExpression:
        return False
    return not pa.types.is_null(arrow_type)
