"""A version written as white space behind the last byte of a file, where JSON readers do not see it."""

from __future__ import annotations

_BITS = 128
_MARKS = b" \t"

NONCE_BYTES = 1 + _BITS


def with_nonce(data: bytes, nonce: str) -> bytes:
    """`data` and behind it a line feed and the 128 bits of `nonce`, 32 hexadecimal digits, as spaces and tabs.

    >>> read_nonce(with_nonce(b"{}", "00" * 15 + "2a")[-NONCE_BYTES:])
    '0000000000000000000000000000002a'
    """
    bits = f"{int(nonce, 16):0{_BITS}b}"
    return data + b"\n" + bytes(_MARKS[bit == "1"] for bit in bits)


def read_nonce(tail: bytes) -> str | None:
    """The nonce that the last `NONCE_BYTES` bytes of a file are, or None if they are something else."""
    if len(tail) != NONCE_BYTES or tail[0:1] != b"\n" or tail[1:].strip(_MARKS):
        return None
    return f"{int(tail[1:].translate(_AS_DIGITS), 2):032x}"


_AS_DIGITS = bytes.maketrans(_MARKS, b"01")
