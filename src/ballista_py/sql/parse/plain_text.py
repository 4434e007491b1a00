"""Which statements are plain: so ordinary that no parser or engine has ever failed over one like them.

Everything else is tried once in a process that may end before a node reads it (`engines.apart.trials`). The decision
is one pass over the text by rules so narrow that no two parsers can read it differently, and an allow-list: a word,
sign or call that is not known here makes a statement one that is tried.
"""

from __future__ import annotations

import re
from functools import cache

MAX_CHARACTERS = 4_096  # once lists of constants are one
MAX_PIECES = 400
MAX_DEPTH = 6
TEXT = "¤"  # in the place of each that is masked

_NARROW = re.compile(r"[\t\n\r -\"$-\[\]^_a-~\xa5-\u2000\u2030-\U0010ffff]*+\Z")  # no hash, backslash, backtick
_COMMENT = re.compile(r"--|/\*|\$[^0-9]|\$\Z|\w[¤']")
# A name or text in quotes, or a number of ordinary size: with a point, or without.
_CONSTANT = re.compile(
    r"(?P<name>\"[^\"]*+\")|(?P<text>'[^']*+')|(?<![\w.\"$])(?:[0-9]{1,9}(?P<point>\.[0-9]{1,9})?)(?![\w.])"
)
# A text that is the end of some type's range, or beyond it: a cast of it may do what that of another does not.
_EXTREME = re.compile(r"'\s*[-+]\s*[0-9i]|[0-9]{9}|[0-9]{5}-|inf|nan|bc\b", re.IGNORECASE)
_LIST = re.compile(r"(?<![\w.])(-?(?:¤|0\.0|0))(?:\s*+,\s*+\1(?![\w.]))++")
_ROWS = re.compile(r"(\((?:[-¤0.,…\s]|null\b|true\b|false\b)*+\))(?:\s*+,\s*+\1)++", re.IGNORECASE)
_PIECE = re.compile(
    r"\s++|\"[^\"]*\"|[A-Za-z_]\w*+|0\.0|0|¤|'[^']*+'|<=|>=|<>|!=|\|\||::|\$[0-9]++|[-=<>+*/%(),.;?…]|(?P<odd>.)"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEYWORDS = _words("""
    select distinct from where and or not in is null between like ilike order by asc desc nulls first last limit offset
    group having as insert into values update set delete join inner left right full outer cross on using case when then
    else end true false union all except intersect with exists default returning conflict do nothing only escape
    cast current_date current_timestamp over partition
""")
_TYPES = _words("""
    int integer bigint smallint tinyint double float real text varchar string boolean bool date timestamp time decimal
    numeric uuid timestamptz
""")
# Nobody takes these for anything but names, though some dialect has a use for them.
_NAMES = _words("""
    abs absolute access action admin aggregate always assertion assignment at attribute avg backward called
    cascade cascaded catalog ceil chain characteristics checkpoint close coalesce comment comments committed
    compression concat concurrently configuration connection constraints content continue conversion cost count
    csv current cursor data day deallocate defaults deferred definer delimiter delimiters depends destroy
    dictionary disable discard document domain enable encoding encrypted error event exclusive export_state
    extension extensions external family first flag floor forward functions granted greatest grouping_id handler
    header hold hour id identity immediate immutable implicit index indexes inherit inherits inline input
    insensitive invoker isolation key label language large last leakproof least length level listen location
    locked logged lower max maxvalue method min minute minvalue mode month move name names national new none
    notify nullif oids old option options others owned owner parallel parser partial password path persistent
    plans policy position prepared preserve prior privileges procedural publication quote read reassign
    referencing register relative release replica resource resources restrict returns role round row rows
    savepoint schema schemas scope scroll second secret secure sequences serializable server similarity simple
    snapshot source stable standalone state statistics status stddev storage stored strip subscription substring
    sum sysid system tables tablespace tag target template transaction trim trusted type types uncommitted
    unencrypted unlisten unlogged until upper user valid validate validator value variance version views virtual
    whitespace work wrapper write year yes zone
""")
_CALLS = _words("""
    count sum min max avg coalesce abs lower upper length round floor ceil nullif greatest least concat substring trim
    row_number rank dense_rank stddev variance
""")
_BEFORE_BRACKETS = _words("""
    in values and or not where on having then else when case select from by as exists over using set join limit
    between distinct all union except intersect is like
""")
_BEFORE_TEXTS = _words("""
    in values and or not where on having then else when case select by as set limit between like ilike date timestamp
    is distinct all escape default
""")


@cache
def _taken() -> frozenset[str]:
    """Every word that is more than a name to some dialect."""
    from sqlglot.dialects.dialect import Dialect  # a parser, which an executor is spared

    found: set[str] = set(_words(_OF_THE_ENGINE))
    for dialect in ("duckdb", "postgres", "spark"):
        for keyword in Dialect.get_or_raise(dialect).tokenizer_class.KEYWORDS:
            found.update(keyword.lower().split())
    return frozenset(found) - _KEYWORDS - _TYPES - _NAMES


_OF_THE_ENGINE = """
    abort after all also analyse analyze anti any approx array asof asymmetric at authorization before binary
    both bpchar centuries century char character check class collate collation column columns constraint create
    current_catalog current_role current_schema current_time cycle days decade decades deferrable desc describe
    distance each enum exact exclude excluding explain export extract fetch filter following for foreign freeze
    generated glob global grant grouping groups hours if ignore import include including increment initially
    instead interval isnull json lambda lateral leading list local localtime map mapping match matched
    materialized merge microsecond microseconds millennia millennium millisecond milliseconds minutes months
    natural nearest no notnull nowait of off overlaps overlay overriding passing pivot pivot_longer placing
    positional preceding primary program qualify quarter quarters range recheck recursive references repeatable
    replace respect restart rollup rule sample search seconds semi setof share show similar skip some sorted
    start statement stdin stdout strict struct summarize symmetric table tablesample ties timetz to trailing
    transform treat try_cast tuple unbounded union unique unnest unpack unpivot variable variadic variant
    verbose week weeks window within without xml xmlattributes xmlconcat xmlelement xmlexists xmlforest
    xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable years
"""


def masked(text: str) -> str | None:
    """The text without the values of its constants, lists of which are one; None where that cannot surely be told.

    Two texts that are the same here are read in the same way.

    >>> masked("insert into t values (1, 'a'), (22, 'b'), (3, 'c')")
    'insert into t values (0, ¤),…'
    >>> masked("select a from t where b in (1, 2, 3)") == masked("select a from t where b in (4, 5)")
    True
    >>> masked("select 1 -- it's")
    """
    if _NARROW.match(text) is None:
        return None
    marked = _CONSTANT.sub(_mark, text)
    if _COMMENT.search(marked) is not None:
        return None
    return _ROWS.sub(r"\1,…", _LIST.sub(r"\1,…", marked))


def _mark(found: re.Match[str]) -> str:
    kind, whole = found.lastgroup, found[0]
    if kind == "name" or (kind == "text" and _EXTREME.search(whole)):
        return whole
    return TEXT if kind == "text" else "0.0" if kind == "point" else "0"


def is_plain(marked: str | None) -> bool:
    """Whether a text (as `masked` gives it, in the engine's dialect) is made of ordinary pieces alone.

    >>> is_plain(masked("select count(*) from t where a = 5 and b like 'x%' group by c order by 1"))
    True
    >>> is_plain(masked("select date(date('2020-01-01'))")), is_plain(masked("from a asof join b using (c)"))
    (False, False)
    """
    if marked is None or len(marked) > MAX_CHARACTERS:
        return False
    depth, before, earlier, count = 0, "", "", 0
    for found in _PIECE.finditer(marked):
        piece = found[0].lower()
        if found["odd"] is not None:
            return False
        if piece.isspace():
            continue
        count += 1
        depth += (piece == "(") - (piece == ")")
        is_word = piece[0].isalpha() or piece[0] == "_"
        if depth > MAX_DEPTH or count > MAX_PIECES or (is_word and piece in _taken()):
            return False
        if piece == "(" and not _may_open(before, earlier):
            return False
        if piece[0] in "¤'" and _is_word(before) and before not in _BEFORE_TEXTS:
            return False
        earlier, before = before, piece
    return True


def _may_open(before: str, earlier: str) -> bool:
    """Whether a bracket may open behind this: it groups, lists columns of an INSERT, or is a call that is known."""
    if not _is_word(before):
        return before in "(,=<>+-*/%…" or before in ("<=", ">=", "<>", "!=", "||", "")
    return before in _BEFORE_BRACKETS or earlier == "into" or (before in _CALLS and earlier != ".")


def _is_word(piece: str) -> bool:
    return piece != "" and (piece[0].isalpha() or piece[0] in '_"')


__all__ = ["is_plain", "masked"]
