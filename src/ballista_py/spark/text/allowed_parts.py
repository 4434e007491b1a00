"""What a statement for Spark may consist of: the reviewed list, by Spark's own names.

A plan that holds anything else is refused before it runs. What is not here was left out on purpose: commands and
scripts; what calls Java, Python or another program (`java_method`, `reflect`, `transform … using`); what reads a file
or names a schema in one (`read_files`, `from_avro`, `from_protobuf`, `xpath`, `from_xml`); what tells of the cluster,
its user or its files (`current_user`, `version`, `input_file_name`, `session_user`, `current_catalog`).

A function or kind of a newer Spark is refused until somebody has looked at it and put it here.
"""

from __future__ import annotations

_CATALYST = "org.apache.spark.sql.catalyst"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _named(package: str, names: str) -> frozenset[str]:
    return frozenset(f"{package}.{name}" for name in _names(names))


_PLANS = _named(
    f"{_CATALYST}.plans.logical",
    """
    Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join JoinHint LateralJoin LocalLimit LocalRelation
    Offset OneRowRelation Project Sample Sort SubqueryAlias Union UnresolvedWith WithWindowDefinition
    SampleMethod$Bernoulli$
    """,
)
_JOINS = _named(
    f"{_CATALYST}.plans",
    "Cross$ FullOuter$ Inner$ LeftAnti$ LeftOuter$ LeftSemi$ NaturalJoin RightOuter$ UsingJoin",
)
_UNRESOLVED = _named(
    f"{_CATALYST}.analysis",
    """
    MultiAlias UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator
    UnresolvedHaving UnresolvedInlineTable UnresolvedOrdinal UnresolvedRelation UnresolvedStar UnresolvedStarExcept
    UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction
    """,
)
_EXPRESSIONS = _named(
    f"{_CATALYST}.expressions",
    """
    Add Alias And Ascending$ AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Concat
    CreateArray CreateMap CreateNamedStruct Cube CurrentDate CurrentRow$ CurrentTimestamp Descending$
    Divide EqualNullSafe EqualTo Exists ExprId GenericInternalRow GreaterThan GreaterThanOrEqual GroupingSets ILike If
    In InSubquery IntegralDivide IsNotNull IsNull IsNotUnknown IsUnknown LambdaFunction LateralSubquery LessThan
    LessThanOrEqual Like LikeAll LikeAny ListQuery
    Literal LocalTimestamp Multiply NamePlaceholder$ Not NotLikeAll NotLikeAny NullsFirst$ NullsLast$ NumericEvalContext
    Or RLike RangeFrame$ Remainder Rollup RowFrame$ ScalarSubquery ShiftLeft ShiftRight ShiftRightUnsigned SortOrder
    SpecifiedWindowFrame StringTrim StringTrimLeft StringTrimRight Subtract TimestampAdd TimestampDiff
    UnaryMinus UnaryPositive UnboundedFollowing$ UnboundedPreceding$ UnresolvedNamedLambdaVariable
    UnresolvedWindowExpression UnspecifiedFrame$ WindowExpression WindowSpecDefinition WindowSpecReference
    """,
)
_TYPES = _named(
    "org.apache.spark.sql.types",
    """
    ArrayType BinaryType$ BooleanType$ ByteType$ CalendarIntervalType$ DateType$ DayTimeIntervalType Decimal
    DecimalType DoubleType$ FloatType$ IntegerType$ LongType$ MapType Metadata NullType$ ShortType$ StringType
    StringType$ StructField StructType TimeType TimestampNTZType$ TimestampType$ YearMonthIntervalType
    """,
)
_VALUES = _named("java.lang", "Boolean Byte Character Double Float Integer Long Short String") | {
    "[B",
    "java.util.UUID",
    "org.apache.spark.sql.catalyst.AliasIdentifier",
    "org.apache.spark.sql.catalyst.FunctionIdentifier",
    "org.apache.spark.sql.util.CaseInsensitiveStringMap",
    "org.apache.spark.unsafe.types.CalendarInterval",
    "org.apache.spark.unsafe.types.UTF8String",
    "scala.Enumeration$Val",
    "scala.None$",
    "scala.Some",
    "scala.Tuple2",
    "scala.Tuple3",
}

# Kinds of a parsed plan.
KINDS = _PLANS | _JOINS | _UNRESOLVED | _EXPRESSIONS | _TYPES | _VALUES

FUNCTIONS = _names(
    """
    ! != % & * + - / < << <= <=> <> = == > >= >> >>> ^ | || ~
    abs acos acosh add_months aggregate and any any_value approx_count_distinct approx_percentile array array_agg
    array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
    array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union
    arrays_overlap arrays_zip ascii asin asinh atan atan2 atanh avg base64 between bigint bin binary bit_and bit_count
    bit_get bit_length bit_or bit_xor bool_and bool_or boolean bround btrim cardinality case cast cbrt ceil ceiling
    char char_length character_length chr coalesce collect_list collect_set concat concat_ws contains conv
    convert_timezone corr cos cosh cot count count_if covar_pop covar_samp crc32 csc cume_dist curdate current_date
    current_timestamp current_timezone date date_add date_diff date_format date_from_unix_date date_part date_sub
    date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees dense_rank
    div double e element_at elt encode endswith equal_null every exists exp explode explode_outer expm1 extract
    factorial filter find_in_set first first_value flatten float floor forall format_number format_string
    from_unixtime from_utc_timestamp get get_json_object getbit greatest grouping grouping_id hash hex hour hypot if
    ifnull ilike in initcap inline inline_outer instr int isnan isnotnull isnull jaro_winkler_similarity
    json_array_length json_object_keys kurtosis lag last last_day last_value lcase lead least left len length
    levenshtein like listagg ln localtime localtimestamp locate log log10 log1p log2 lower lpad ltrim make_date
    make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval map
    map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values
    map_zip_with max max_by md5 mean median min min_by minute mod mode month monthname months_between named_struct
    nanvl negative next_day not now nth_value ntile nullif nullifzero nvl nvl2 octet_length or overlay percent_rank
    percentile percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer position positive
    pow power printf quarter quote radians raise_error rand randn random rank reduce regexp regexp_count
    regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right rint rlike
    round row_number rpad rtrim sec second sequence sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum
    sin sinh size skewness slice smallint some sort_array soundex space split split_part sqrt stack startswith std
    stddev stddev_pop stddev_samp str_to_map string string_agg struct substr substring substring_index sum tan tanh
    time timestamp timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds timestampadd timestampdiff
    tinyint to_binary to_char to_date to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
    to_unix_timestamp to_utc_timestamp to_varchar transform transform_keys transform_values translate trim trunc
    try_add try_avg try_cast try_divide try_element_at try_mod try_multiply try_subtract try_sum try_to_binary
    try_to_date try_to_number try_to_time try_to_timestamp typeof ucase unbase64 unhex uniform unix_date unix_micros
    unix_millis unix_seconds unix_timestamp upper url_decode url_encode uuid var_pop var_samp variance weekday
    weekofyear when width_bucket xxhash64 year zeroifnull zip_with
    """
)

TABLE_FUNCTIONS = _names("explode explode_outer inline inline_outer posexplode posexplode_outer range stack")

# What an analysed plan may begin with beside the files of tables: rows and values that it has of itself. A name that
# is no column may be a function (`user`), which only the analyser knows; whatever tells of its surroundings is a leaf.
LEAVES = _named(
    f"{_CATALYST}.plans.logical", "CTERelationRef EmptyRelation LocalRelation OneRowRelation Range"
) | _named(
    f"{_CATALYST}.expressions",
    """
    AttributeReference Concat CreateArray CreateMap CreateNamedStruct CumeDist CurrentDate CurrentRow$ CurrentTime
    CurrentTimeZone CurrentTimestamp DenseRank EulerNumber Exists LateralColumnAliasReference LateralSubquery ListQuery
    Literal LocalTimestamp NamedLambdaVariable Now OuterReference PercentRank Pi Rank RowNumber ScalarSubquery
    UnboundedFollowing$ UnboundedPreceding$ UnspecifiedFrame$ Uuid
    """,
)
