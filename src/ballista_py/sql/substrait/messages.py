"""The messages of Substrait: read from bytes of anybody within bounds, and loaded at the first use alone.

`plan_of` promises that a plan is small enough to be walked, names each extension once, and holds nothing that this
release of the messages does not know: what a newer Substrait has added may change what a relation means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from attrs import field, frozen

from ballista_py.errors import InvalidData, MissingExtra, UnsupportedExpression
from ballista_py.protobuf_sizes import require_unpackable

MAX_PLAN_BYTES = 1 << 20
MAX_MESSAGES = 60_000  # within a plan; a list of 10,000 numbers is 20,000
_MAX_UNPACKED_BYTES = 32 << 20
_MAX_NAMES = 16_384
# Fields of newer releases that are read here or change nothing: URNs, the moment of variables (which are refused).
_HARMLESS = {"Plan": {8, 10}, "ExtensionFunction": {4}, "ExtensionType": {4}, "ExtensionTypeVariation": {4}}
_OF_LATER = {"Rel": {23: "top_n", 24: "lateral_join"}, "Expression": {15: "lambda", 16: "lambda", 17: "variable"}}
_PASSED_OVER = frozenset(["hint", "optimization"])  # fields that only help to run a plan
_URNS, _URN_REFERENCE = 8, 4
_NOBODYS = (0, (1 << 32) - 1)  # anchors of functions without an extension; the second is what DataFusion writes


@frozen(kw_only=True)
class Declared:
    """A function that a plan declares: its name, and the extension that it says it is of, if any."""

    name: str
    origin: str


@frozen(kw_only=True, eq=False)
class GivenPlan:
    """A plan whose extensions are found: the message, its functions by their anchors, its one relation."""

    message: Any
    root: Any
    functions: Mapping[int, Declared] = field(factory=dict)


@frozen
class _Messages:
    """The generated modules."""

    plan: Any
    algebra: Any
    type: Any
    extensions: Any
    unknown: Any


@cache
def messages() -> _Messages:
    """The generated modules. Raises `MissingExtra` without the package `substrait`."""
    try:
        from google.protobuf.unknown_fields import UnknownFieldSet
        from substrait.gen.proto import algebra_pb2, plan_pb2, type_pb2  # type: ignore[import-untyped]
        from substrait.gen.proto.extensions import extensions_pb2  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra.of("substrait", "node") from error
    return _Messages(plan_pb2, algebra_pb2, type_pb2, extensions_pb2, UnknownFieldSet)


def plan_of(data: bytes) -> GivenPlan:
    """The plan in these bytes, which may be anybody's.

    Raises `InvalidData` for what is no plan, is larger than `MAX_PLAN_BYTES` or holds more than `MAX_MESSAGES`
    values, and `UnsupportedExpression` for one with several relations, or with pieces of a later Substrait.
    """
    kind = messages().plan.Plan
    if len(data) > MAX_PLAN_BYTES:
        raise InvalidData(f"the plan has more than {MAX_PLAN_BYTES >> 20} MiB: make it smaller")
    require_unpackable(data, kind.DESCRIPTOR, _MAX_UNPACKED_BYTES)
    try:
        found = kind.FromString(data)
    except Exception:  # DecodeError; protobuf's own are not stable across its releases
        raise InvalidData("the bytes are no plan of Substrait") from None
    _survey(found)
    return GivenPlan(message=found, root=_root_of(found), functions=_functions_of(found))


def unset(name: str) -> InvalidData:
    """The error for a piece that a plan needs and leaves out."""
    return InvalidData(f"the plan is malformed: it leaves out {name}")


def _root_of(plan: Any) -> Any:
    if not plan.relations:
        raise unset("its relation")
    if len(plan.relations) > 1:
        raise UnsupportedExpression("a plan with several relations is not taken: send one root over one table")
    one = plan.relations[0]
    if one.WhichOneof("rel_type") != "root":
        raise UnsupportedExpression("a plan without a root is not taken: send one with the names of its columns")
    if len(one.root.names) > _MAX_NAMES:
        raise InvalidData(f"the plan names more than {_MAX_NAMES:,} columns")
    return one.root


def _functions_of(plan: Any) -> dict[int, Declared]:
    origins = {one.extension_uri_anchor: one.uri for one in plan.extension_uris}
    urns = dict(_urns(plan))
    found: dict[int, Declared] = {}
    for one in plan.extensions:
        if one.WhichOneof("mapping_type") != "extension_function":
            continue
        function = one.extension_function
        if function.function_anchor in found:
            raise InvalidData(f"the plan is malformed: two functions have the anchor {function.function_anchor}")
        origin = _origin(function, origins, urns)
        found[function.function_anchor] = Declared(name=function.name, origin=origin)
    return found


def _origin(function: Any, uris: Mapping[int, str], urns: Mapping[int, str]) -> str:
    """What a function says it is of: nothing, if no extension has the anchor of nobody's."""
    urn = next((f.data for f in messages().unknown(function) if f.field_number == _URN_REFERENCE), 0)
    uri = function.extension_uri_reference
    for anchor, known in ((urn, urns), (uri, uris)):
        if anchor in known:
            return known[anchor]
        if anchor not in _NOBODYS:
            raise InvalidData(f"the plan is malformed: no extension has the anchor {anchor!r}")
    return ""


def _urns(plan: Any) -> Iterator[tuple[int, str]]:
    """The names of extensions in a form that is newer than the messages: {1: anchor, 2: name}."""
    like = messages().extensions.SimpleExtensionURI
    for one in messages().unknown(plan):
        if one.field_number == _URNS and isinstance(one.data, bytes):
            try:
                read = like.FromString(one.data)
            except Exception:
                raise InvalidData("the plan is malformed: an extension has no readable name") from None
            yield read.extension_uri_anchor, read.uri


def _survey(plan: Any) -> None:
    """Refuse a plan that is too large to be walked, or that says what nobody here can know."""
    unknown, waiting = messages().unknown, [plan]
    for count, message in enumerate(waiting):  # which grows meanwhile
        if count >= MAX_MESSAGES:
            raise InvalidData(f"the plan holds more than {MAX_MESSAGES:,} values: make it smaller")
        kind = message.DESCRIPTOR.name
        for strange in unknown(message):
            if strange.field_number not in _HARMLESS.get(kind, ()):
                name = _OF_LATER.get(kind, {}).get(strange.field_number, f"field {strange.field_number}")
                raise UnsupportedExpression(f"'{name}' of {kind} is of a Substrait that is not known here")
        for known, value in message.ListFields():
            if known.message_type is None or known.name in _PASSED_OVER:
                continue
            if known.name == "enhancement":
                raise UnsupportedExpression(
                    "a relation with an enhancement is not taken: send the plan without it"
                )
            waiting.extend(value if known.is_repeated else [value])
            if len(waiting) > 2 * MAX_MESSAGES:
                raise InvalidData(f"the plan holds more than {MAX_MESSAGES:,} values: make it smaller")
