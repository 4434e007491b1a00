"""Which statements a node runs in its own process, and which in one that may be ended: decided from the syntax tree.

DuckDB counts what its operators and aggregates keep, spills it, and looks for an interrupt between vectors of 2,048
values. It neither counts nor interrupts what one function makes of one vector: `repeat`, `generate_series`, `replace`
and their like make gigabytes of one value. Nor does it interrupt itself while it plans. A statement is *steady* when
every function in it is one of those below, whose results are not larger than what they read and take time in
proportion to it, and when its plan has no more pieces than its text. Whatever is not known here is not steady, so a
function of a newer DuckDB runs apart until somebody has looked at it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from attrs import define, field

MAX_GROWTH = 64  # of a value, through all that is put together in one statement
MAX_TEXT = 4_096  # characters of one constant, which may stand in every row
MAX_SOURCES = 32  # that are joined or united, those of a WITH as often as it is named
MAX_COPIES = 256  # of an expression, where a name that stands for it occurs twice
MAX_GROUPING_SETS = 64
MAX_SAMPLE = 2_048  # rows
MAX_SEARCHED = 64  # characters of what is searched for in a text: each of its places is compared with all of them
MAX_PATTERN = 64  # characters of a regular expression
MAX_CHOICES = 8  # signs of one after which more than one thing may follow: states are as many as two to that power
MAX_PATTERNS = 16  # each is compiled, and keeps what it has seen, uncounted
MAX_CALLS = 1_000  # of functions: nothing looks for an interrupt between those over one vector


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPERATORS = _words("- * / // % & | ^ ~ << >> ** ! != < <= = > >= @ ^@ && ~~ !~~ -> ->> <@ @>")
_NUMBERS = _words(
    "abs acos acosh asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide even exp"
    " fdiv floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm least"
    " least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians random round"
    " round_even roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc xor"
)
_TEXTS = _words(
    "ascii bit_length char_length character_length contains ends_with hash instr lcase left len length lower ltrim"
    " md5 md5_number octet_length ord position prefix regexp_full_match regexp_matches reverse right rtrim sha1 sha256"
    " starts_with strip_accents strlen strpos substr substring suffix trim ucase unicode upper"
)
_TIMES = _words(
    "age century current_date current_localtime current_localtimestamp current_timestamp date_add date_diff date_part"
    " date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear decade epoch"
    " epoch_ms epoch_ns epoch_us era get_current_time get_current_timestamp hour isodow isoyear julian last_day"
    " make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz microsecond millennium"
    " millisecond minute month monthname nanosecond normalized_interval now quarter second time_bucket timezone"
    " timezone_hour timezone_minute to_centuries to_days to_decades to_hours to_microseconds to_millennia"
    " to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years today"
    " transaction_timestamp week weekday weekofyear year yearweek"
)
_OTHERS = _words(
    "array_contains array_extract array_has array_length coalesce constant_or_null element_at error"
    " gen_random_uuid if ifnull json_array_length json_exists json_extract json_extract_path json_extract_path_text"
    " json_extract_string json_type json_valid list_contains list_element list_extract list_has map_extract"
    " map_extract_value nullif struct_extract struct_extract_at try typeof union_extract union_tag unnest uuid uuidv4"
    " uuidv7"
)
# Their results are numbers, or one of the values that they read; DuckDB counts and spills the rest.
_AGGREGATES = _words(
    "any_value approx_count_distinct arbitrary arg_max arg_max_null arg_min arg_min_null argmax argmin avg bit_and"
    " bit_or bit_xor bool_and bool_or corr count count_if count_star countif covar_pop covar_samp favg first fsum"
    " geomean geometric_mean kahan_sum kurtosis kurtosis_pop last mad max max_by mean median min min_by product"
    " regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy sem skewness stddev"
    " stddev_pop stddev_samp sum sum_no_overflow sumkahan var_pop var_samp variance weighted_avg wavg"
)
# Not `reservoir_quantile`: it keeps as many values as it is told to, and DuckDB does not count them.
_WITH_NUMBER = _words("approx_quantile quantile quantile_cont quantile_disc")
_WINDOWS = _words(
    "cume_dist dense_rank first first_value lag last last_value lead nth_value ntile percent_rank rank rank_dense"
    " row_number"
)
STEADY_FUNCTIONS = _OPERATORS | _NUMBERS | _TEXTS | _TIMES | _OTHERS | _AGGREGATES
STEADY_WINDOWS = _WINDOWS | (_AGGREGATES - _words("mad median"))
# What they give is small however large what they read is. (Aggregates keep values where DuckDB counts them.)
_GIVE_SMALL = (
    (_OPERATORS - _words("-> ->>"))
    | _NUMBERS
    | _TIMES
    | _AGGREGATES
    | _WITH_NUMBER
    | _words(
        "array_contains array_has array_length ascii bit_length char_length character_length contains ends_with"
        " gen_random_uuid hash instr json_array_length json_exists json_type json_valid len length list_contains"
        " list_has md5 md5_number octet_length ord position prefix regexp_full_match regexp_matches sha1 sha256"
        " starts_with strlen strpos suffix typeof unicode union_tag uuid uuidv4 uuidv7"
    )
)
# The time of the first grows with both of their texts, that of the others with the size of an automaton, too.
_SEARCHES = _words("contains instr position strpos ~~ !~~")
_PATTERNS = _words("regexp_full_match regexp_matches ~")
_CHOICES = frozenset(".[(|\\?*+")
# Texts become values of these in time that is in proportion to their length, and small for each character of it.
_QUICK_TYPES = _words(
    "bigint binary bit bitstring blob bool boolean bpchar bytea char date datetime dec decimal double float float4"
    " float8 guid hugeint int int1 int128 int16 int2 int32 int4 int64 int8 integer integral interval json logical"
    " long null numeric nvarchar oid real short signed smallint string text time time_ns timestamp timestamp_ms"
    " timestamp_ns timestamp_s timestamp_us timestamptz timetz tinyint ubigint uhugeint uint128 uint16 uint32"
    " uint64 uint8 uinteger usmallint utinyint uuid varbinary varchar"
) | {"time with time zone", "timestamp with time zone"}
# They put values together (`+` those of two lists): each is counted, because names for their results let them multiply.
JOINING = _words("|| + add concat concat_ws list_value row struct_pack")
# At most so many arguments: with one more they give lists.
FEW_ARGUMENTS = {"max": 1, "min": 1} | dict.fromkeys(
    ("arg_max", "arg_max_null", "arg_min", "arg_min_null", "argmax", "argmin", "max_by", "min_by"), 2
)
# They give rows one after the other.
_TABLE_FUNCTIONS = _words("generate_series range repeat repeat_row unnest")
_CLASSES = _words(
    "BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION DEFAULT PARAMETER POSITIONAL_REFERENCE STAR SUBQUERY"
)
_KINDS = _words(
    "ARRAY_EXTRACT ARRAY_SLICE COMPARE_IN COMPARE_NOT_IN GROUPING_FUNCTION OPERATOR_COALESCE OPERATOR_IS_NOT_NULL"
    " OPERATOR_IS_NULL OPERATOR_NOT OPERATOR_NULLIF OPERATOR_TRY STRUCT_EXTRACT"
)
_CONDITIONS = _words("BETWEEN COLUMN_REF COMPARISON CONJUNCTION")
_CONDITION_KINDS = _words("COMPARE_IN COMPARE_NOT_IN OPERATOR_IS_NOT_NULL OPERATOR_IS_NULL OPERATOR_NOT")
_SOURCES = _words("BASE_TABLE EXPRESSION_LIST SUBQUERY")
_SOURCES_APART = _words("PIVOT SHOW_REF")
_KEEP_ROWS = _words("DISTINCT_MODIFIER RECURSIVE_CTE_NODE SET_OPERATION_NODE")
_KEEP_VALUES = _WITH_NUMBER | _words("mad median")


@define
class Steadiness:
    """What is seen of one statement, element by element, those that hold others first."""

    _steady: bool = True
    _recursive: bool = False
    _gathers: bool = False
    _growth: int = 1
    _copies: int = 1
    _made: int = 0
    _patterns: int = 0
    _calls: int = 0
    _names: set[str] | None = field(factory=set)  # of columns, if only columns with these names are read
    _alone: set[str] = field(factory=set)  # names of columns without that of a table
    _aliases: set[str] = field(factory=set)
    _counted: set[int] = field(factory=set)  # elements that are part of one that was looked at
    _sources: list[tuple[str | None, str | None]] = field(
        factory=list
    )  # name, if it has one, and the WITH it is in

    @property
    def verdict(self) -> bool:
        """Whether the statement is steady, when all of it was seen."""
        grows = self._growth > (1 if self._recursive else MAX_GROWTH) or self._copies > MAX_COPIES
        works = self._patterns > MAX_PATTERNS or self._calls > MAX_CALLS
        return self._steady and not (grows or works) and self._scans() <= MAX_SOURCES

    @property
    def copies(self) -> int:
        """How often, at most, the values that are read stand in what is made of them at once, without the answer."""
        between = self._growth * (self._growth + 1) // 2  # each `||` of a row of them has a result
        return self._made + (between if self._growth > 1 else 0)

    @property
    def gathers(self) -> bool:
        """Whether it keeps rows that it has read until it has read others: sorts, groups, joins, windows."""
        return self._gathers or self._scans() > 1

    @property
    def growth(self) -> int:
        """How many values of those that are read one value of the answer consists of, at most."""
        return self._growth

    @property
    def names(self) -> frozenset[str] | None:
        """The lower names among which are those of all columns that are read; None: any may be."""
        if self._names is None or not self._aliases.isdisjoint(self._alone):  # the row of a table is a value
            return None
        return frozenset(self._names)

    @property
    def sources(self) -> int:
        """How many sources of rows the statement has, at least."""
        return self._scans()

    def visit(self, element: dict[str, Any], home: str | None) -> None:
        """Take in one element of the tree, which is in the WITH of the name `home`."""
        kind, cls = _kind(element), element.get("class")
        self._note_names(element)
        self._made += _makes(kind, str(cls), element)
        self._gathers = self._gathers or _keeps_rows(kind, str(cls), element)
        self._steady = self._steady and _is_small(element.get("sample"))
        if cls is not None:
            if id(element) not in self._counted and not self._is_steady(str(cls), kind, element):
                self._steady = False
        elif kind == "TABLE_FUNCTION":
            self._sources.append((None, home))
            self._counted.add(id(element["function"]))
            self._steady = self._steady and _name(element["function"]) in _TABLE_FUNCTIONS
        elif kind in _SOURCES:
            self._sources.append((str(element.get("table_name", "")).lower() or None, home))
        elif kind == "SELECT_NODE":
            self._select(element)
        elif kind == "RECURSIVE_CTE_NODE":
            self._recursive = True
        elif kind in _SOURCES_APART:
            self._steady = False

    def _note_names(self, element: dict[str, Any]) -> None:
        if element.get("class") == "STAR" or _kind(element) in _SOURCES_APART or "NATURAL" in _joined(element):
            self._names = None
        if self._names is not None:
            parts = [str(name).lower() for name in element.get("column_names", ())]
            self._names.update(parts)
            self._alone.update(parts if len(parts) == 1 else ())
            self._names.update(str(name).lower() for name in element.get("using_columns", ()))
        if "class" not in element:
            self._aliases |= {str(element[key]).lower() for key in ("alias", "table_name") if element.get(key)}

    def _select(self, node: dict[str, Any]) -> None:
        """Count how often an expression is copied, where a name for it occurs twice in what again has a name."""
        if len(node.get("group_sets", ())) > MAX_GROUPING_SETS:
            self._steady = False
        most, named = 1, set[str]()
        for item in node.get("select_list", ()):
            counts = Counter(_columns(item))
            self._copies *= max((counts[name] for name in counts.keys() & named), default=1)
            most = max(most, *counts.values(), 1)
            named.add(str(item.get("alias", "")).lower())
        self._copies *= most

    def _scans(self) -> int:
        """How many sources there are when each WITH stands wherever it is named."""
        homes: dict[str | None, list[str | None]] = {}
        for name, home in self._sources:
            homes.setdefault(name, []).append(home)
        known: dict[str | None, int] = {None: 1}

        def times(name: str | None) -> int:
            if name not in known:
                known[name] = 0  # one that names itself
                known[name] = min(sum(map(times, homes.get(name, ()))), MAX_SOURCES + 1)
            return known[name]

        return sum(times(home) for _, home in self._sources)

    def _is_steady(self, cls: str, kind: str, element: dict[str, Any]) -> bool:
        if cls == "CONSTANT":
            return len(_text(element)) <= MAX_TEXT
        if cls == "OPERATOR":
            return kind in _KINDS
        if cls == "TYPE":  # values of a fixed size take their room whether they are there or not
            return str(element.get("type_name")).lower() != "array"
        if cls == "CAST":
            return _is_quick(element)
        if cls == "WINDOW":
            return _name(element) in STEADY_WINDOWS and _few_arguments(element)
        if cls != "FUNCTION":
            return cls in _CLASSES
        name = _name(element)
        self._calls += 1
        if name in JOINING:
            return self._join(element)
        if name in _SEARCHES and not _is_short(_arguments(element)):
            return False
        if name in _PATTERNS:
            self._patterns += 1
            return _is_simple_pattern(_arguments(element))
        if name in _WITH_NUMBER:
            return all(_class(argument) == "CONSTANT" for argument in _arguments(element)[1:])
        return name in STEADY_FUNCTIONS and _few_arguments(element)

    def _join(self, element: dict[str, Any]) -> bool:
        """Count how many values are put together. One that stands for any number of columns has no count."""
        values, pending = 0, [element]
        while pending:
            one = pending.pop()
            self._counted.add(id(one))
            for argument in _arguments(one):
                if _class(argument) == "FUNCTION" and _name(argument) in JOINING:
                    pending.append(argument)
                elif _class(argument) == "STAR" or argument.get("type") == "OPERATOR_UNPACK":
                    return False
                else:
                    values += _class(argument) != "CONSTANT"
        self._growth *= max(1, values)
        return True


def is_plain_condition(condition: Any) -> bool:
    """Whether a condition only compares columns and constants: the same rows pass whenever it is looked at."""
    pending, element = [condition], None
    while pending:
        element = pending.pop()
        if isinstance(element, list):
            pending.extend(element)
        elif isinstance(element, dict):
            cls, kind = element.get("class"), _kind(element)
            if cls == "CONSTANT" or (cls == "CAST" and _class(element.get("child", {})) == "CONSTANT"):
                continue
            if cls is not None and cls not in _CONDITIONS and not (cls == "OPERATOR" and kind in _CONDITION_KINDS):
                return False
            pending.extend(element.values())
    return True


def _makes(kind: str, cls: str, element: dict[str, Any]) -> bool:
    """Whether the element makes values that may be as large as those it reads, beside them."""
    if cls == "FUNCTION":
        name = _name(element)
        return name not in JOINING and name not in _GIVE_SMALL
    sorts = kind == "ORDER_MODIFIER" and bool(element.get("orders"))
    return cls in ("CAST", "WINDOW") or kind == "ARRAY_SLICE" or sorts


def _keeps_rows(kind: str, cls: str, element: dict[str, Any]) -> bool:
    """Whether rows are kept for the element. Of a plain aggregate over all rows it is one value."""
    if cls == "FUNCTION":
        return bool(element.get("distinct")) or _name(element) in _KEEP_VALUES
    sorts = kind == "ORDER_MODIFIER" and bool(element.get("orders"))
    groups = kind == "SELECT_NODE" and bool(element.get("group_expressions"))
    return sorts or groups or cls == "WINDOW" or kind in _KEEP_ROWS


def _is_small(sample: Any) -> bool:
    """Whether a sample of rows is none, a share, or few of them: DuckDB keeps them, and does not count that."""
    if not isinstance(sample, dict) or sample.get("is_percentage"):
        return True
    size = sample.get("sample_size", {}).get("value")
    return isinstance(size, int | float) and size <= MAX_SAMPLE


def _joined(element: dict[str, Any]) -> str:
    return str(element.get("ref_type", ""))


def _kind(element: dict[str, Any]) -> str:
    kind = element.get("type")
    return kind if isinstance(kind, str) else ""


def _name(element: dict[str, Any]) -> str:
    return str(element.get("function_name", "")).lower()


def _class(element: dict[str, Any]) -> str:
    return str(element.get("class"))


def _arguments(element: dict[str, Any]) -> list[dict[str, Any]]:
    return [argument.get("expression", argument) for argument in element.get("arguments", ())]


def _is_short(arguments: list[dict[str, Any]]) -> bool:
    """Whether what is searched for in a text is known and short."""
    return all(_class(one) == "CONSTANT" and len(_text(one)) <= MAX_SEARCHED for one in arguments[1:])


def _is_simple_pattern(arguments: list[dict[str, Any]]) -> bool:
    """Whether a regular expression is known, short, and one whose automaton is small."""
    if len(arguments) < 2 or not all(_class(one) == "CONSTANT" for one in arguments[1:]):
        return False
    text = _text(arguments[1])
    repeated = "{" in text or "\\p" in text.lower()  # written out, so many times; a class of thousands of letters
    return len(text) <= MAX_PATTERN and not repeated and sum(sign in _CHOICES for sign in text) <= MAX_CHOICES


def _is_quick(cast: dict[str, Any]) -> bool:
    """Whether a cast takes time in proportion to what it reads. Texts of lists take 1,000 times as long as others."""
    return _class(cast.get("child", {})) == "CONSTANT" or all(
        str(one.get("type_name")).lower() in _QUICK_TYPES for one in _types(cast.get("type_expr", {}))
    )


def _types(element: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A type and those that it is made of, but for numbers: of digits, for example."""
    pending = [element]
    while pending:
        one = pending.pop()
        if _class(one) != "CONSTANT":
            yield one
            pending.extend(one.get("children", ()))


def _text(constant: dict[str, Any]) -> str:
    return str(constant.get("literal", {}).get("text", ""))


def _few_arguments(element: dict[str, Any]) -> bool:
    return len(_arguments(element)) <= FEW_ARGUMENTS.get(_name(element), 99)


def _columns(expression: Any) -> Iterator[str]:
    """The name of each column that an expression mentions, as often as it does."""
    pending = [expression]
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            pending.extend(one)
        elif isinstance(one, dict):
            if one.get("class") == "COLUMN_REF":
                yield str(one["column_names"][-1]).lower()
            if one.get("class") != "SUBQUERY":
                pending.extend(one.values())
