"""Whose function a name is: one of Substrait's own extensions, or of nobody's, as DataFusion writes them."""

from __future__ import annotations

import re

from ballista_py.errors import UnsupportedExpression
from ballista_py.sql.substrait.messages import Declared

_URN = re.compile(r"(urn:)?extension:io\.substrait:functions_[a-z_]+")
_URI = re.compile(r"(https://github\.com/substrait-io/substrait/.{0,80}|/|)functions_[a-z_]+\.yaml")


def is_standard(declared: Declared) -> bool:
    """Whether the plan says that the function is of an extension of Substrait.

    Raises `UnsupportedExpression` if it is of anybody else's: the name alone says nothing then.

    >>> is_standard(Declared(name="add:i64_i64", origin="extension:io.substrait:functions_arithmetic"))
    True
    """
    if declared.origin in ("", "urn:", "/"):
        return False
    if _URN.fullmatch(declared.origin) or _URI.fullmatch(declared.origin):
        return True
    raise UnsupportedExpression(
        f"the function '{declared.name[:80]}' of '{declared.origin[:120]}' is not known: take one of Substrait's own"
    )


def plain_name(declared: Declared) -> str:
    """The name without the types that it may end in.

    >>> plain_name(Declared(name="add:i64_i64", origin=""))
    'add'
    """
    return declared.name.partition(":")[0][:80]
