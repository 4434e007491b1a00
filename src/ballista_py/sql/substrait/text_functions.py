"""Functions of texts that mean the same to the engine; patterns and places must be written in the plan to be judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from ballista_py.sql.substrait.calls import BOOL, I64, TEXT, Call, Value, enclosed, function, joined

Builder = Callable[[Call], Value]
_MOST = 1 << 31


def literal_text(tree: exp.Expr) -> str | None:
    """The text, if a plan writes it."""
    return tree.name if isinstance(tree, exp.Literal) and tree.is_string else None


def literal_whole(tree: exp.Expr) -> int | None:
    """The whole number, if a plan writes it; casts of a number are looked through.

    >>> literal_whole(exp.cast(exp.Literal.string("-3"), "bigint"))
    -3
    """
    while isinstance(tree, exp.Cast) and tree.to.this.value in ("TINYINT", "SMALLINT", "INT", "BIGINT"):
        tree = tree.this
    try:
        return int(tree.name) if isinstance(tree, exp.Literal) else None
    except ValueError:
        return None


def _of_texts(name: str, count: int) -> Builder:
    def build(call: Call) -> Value:
        call.require(call.kinds == (TEXT,) * count, f"it takes {count} texts")
        return Value(function(name, *call.trees), TEXT)

    return build


def _asks(name: str) -> Builder:
    def build(call: Call) -> Value:
        call.require(call.kinds == (TEXT, TEXT), "it takes two texts")
        return Value(function(name, *call.trees), BOOL)

    return build


def _counts(name: str) -> Builder:
    def build(call: Call) -> Value:
        call.require(call.kinds == (TEXT,), "it takes one text")
        return Value(function(name, call.trees[0]), I64)

    return build


def _like(kind: type[exp.Binary]) -> Builder:
    """Backslashes in patterns escape for some, and are plain for others: a pattern without them means one thing."""

    def build(call: Call) -> Value:
        call.require(call.kinds in ((TEXT, TEXT), (TEXT, TEXT, TEXT)), "it takes a text and a pattern")
        pattern = literal_text(call.trees[1])
        call.require(pattern is not None and "\\" not in pattern, "the pattern must be a text without a backslash")
        if len(call.values) == 3:  # of DataFusion: a NULL
            bare = call.trees[2].unnest() if not isinstance(call.trees[2], exp.Cast) else call.trees[2].this
            call.require(isinstance(bare, exp.Null), "a character that escapes is not taken")
        return Value(kind(this=enclosed(call.trees[0]), expression=call.trees[1]), BOOL)

    return build


def _concat(call: Call) -> Value:
    """With an extension of Substrait NULL makes NULL, unless its option says otherwise; DataFusion's passes it over."""
    call.require(bool(call.values) and set(call.kinds) == {TEXT}, "it takes texts")
    wanted = [one.upper() for one in call.options.get("null_handling", ())]
    if "IGNORE_NULLS" in wanted[:1] or not (wanted or call.standard):
        return Value(function("concat", *call.trees), TEXT)
    return _strict_concat(call)


def _strict_concat(call: Call) -> Value:
    call.require(bool(call.values) and set(call.kinds) == {TEXT}, "it takes texts")
    return Value(joined(exp.DPipe, call.trees), TEXT)


def _joined(call: Call) -> Value:
    call.require(len(call.values) > 1 and set(call.kinds) == {TEXT}, "it takes texts")
    return Value(function("concat_ws", *call.trees), TEXT)


def _substring(call: Call) -> Value:
    call.require(len(call.values) in (2, 3) and call.kinds[0] == TEXT, "it takes a text, a place and a length")
    places = [literal_whole(tree) for tree in call.trees[1:]]
    known = all(place is not None and place < _MOST for place in places)
    least = (1, 0)
    fits = known and all(place is not None and place >= low for place, low in zip(places, least, strict=False))
    call.require(fits, "place and length must be numbers of the plan, from 1 and from 0")
    numbers = [exp.Literal.number(str(place)) for place in places]
    return Value(function("substring", call.trees[0], *numbers), TEXT)


def _end(name: str) -> Builder:
    def build(call: Call) -> Value:
        call.require(len(call.values) == 2 and call.kinds[0] == TEXT, "it takes a text and a length")
        length = literal_whole(call.trees[1])
        call.require(length is not None and 0 <= length < _MOST, "the length must be a number of the plan, from 0")
        return Value(function(name, call.trees[0], exp.Literal.number(str(length))), TEXT)

    return build


def _repeat(call: Call) -> Value:
    call.require(len(call.values) == 2 and call.kinds[0] == TEXT, "it takes a text and a number")
    count = literal_whole(call.trees[1])
    call.require(count is not None and 0 <= count <= 1000, "the number must be one of the plan, at most 1,000")
    return Value(function("repeat", call.trees[0], exp.Literal.number(str(count))), TEXT)


def _trim(name: str) -> Builder:
    """Without characters to be removed those are blanks, to the engine as in the specification."""

    def build(call: Call) -> Value:
        call.require(call.kinds in ((TEXT,), (TEXT, TEXT)), "it takes a text, and the characters to be removed")
        return Value(function(name, *call.trees), TEXT)

    return build


def _strpos(call: Call) -> Value:
    call.require(call.kinds == (TEXT, TEXT), "it takes two texts")
    return Value(function("strpos", *call.trees), I64)


def _octets(call: Call) -> Value:
    call.require(call.kinds == (TEXT,), "it takes one text")
    return Value(function("strlen", call.trees[0]), I64)


_CASE = {"case_sensitivity": "CASE_SENSITIVE"}
_CHARS = {"char_set": "UTF8"}
_NONE: Mapping[str, str] = {}
TEXT_FUNCTIONS: Mapping[str, tuple[Builder, Mapping[str, str], bool]] = {
    "like": (_like(exp.Like), _CASE, False),
    "ilike": (_like(exp.ILike), _NONE, True),
    "starts_with": (_asks("starts_with"), _CASE, False),
    "ends_with": (_asks("ends_with"), _CASE, False),
    "contains": (_asks("contains"), _CASE, False),
    "concat": (_concat, {"null_handling": "ACCEPT_NULLS IGNORE_NULLS"}, False),
    "str_concat": (_strict_concat, _NONE, True),
    "concat_ws": (_joined, _NONE, True),
    "upper": (_of_texts("upper", 1), _CHARS, False),
    "lower": (_of_texts("lower", 1), _CHARS, False),
    "replace": (_of_texts("replace", 3), _CASE, False),
    "substring": (_substring, _NONE, False),
    "left": (_end("left"), _NONE, False),
    "right": (_end("right"), _NONE, False),
    "repeat": (_repeat, _NONE, False),
    "trim": (_trim("trim"), _NONE, False),
    "btrim": (_trim("trim"), _NONE, True),
    "ltrim": (_trim("ltrim"), _NONE, False),
    "rtrim": (_trim("rtrim"), _NONE, False),
    "strpos": (_strpos, _CASE, False),
    "char_length": (_counts("length"), _NONE, False),
    "character_length": (_counts("length"), _NONE, True),
    "octet_length": (_octets, _NONE, False),
}
