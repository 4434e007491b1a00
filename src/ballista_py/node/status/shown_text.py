"""The text of a statement as the history shows it: one line, cut, with `***` in place of what looks like a secret.

What looks like one: a literal behind a word like password, secret, token or access key, the password of a connection
string, the user and password in a URL, and signatures in the parameters of one. It is a help for who pastes keys into
statements, not a promise: secrets belong into the options of the store, or into the `secrets_file`.
"""

from __future__ import annotations

import re

MAX_TEXT_CHARS = 1_000
MAX_ERROR_CHARS = 500
HIDDEN = "***"
_READ_CHARS = 4 * MAX_TEXT_CHARS  # blanks become one, so that more than is shown is looked at
_SECRETIVE = (
    r"\w{0,64}(?:passw(?:or)?d|passphrase|secret|credentials?|"
    r"(?:access|account|api|private|auth|session|sas|bearer|aws|shared)[_ ]?(?:key|token)(?:[_ ]?id)?|token)\w{0,64}+"
)
_BEHIND_A_WORD = re.compile(
    rf"""(\b["']?{_SECRETIVE}["']?(?:\s*(?:=>|:=|=|:)\s*|\s+(?:is\s+)?))(''[^']+(?:''|$)|'(?:[^']|'')*(?:'|$)|"[^"]*(?:"|$))""",
    re.IGNORECASE,
)
_IN_A_LITERAL = re.compile(  # of a connection string, as libpq reads it, and of a header
    r"(\b\w{0,64}(?:passw(?:or)?d|pwd|passphrase|secret_access_key)\w{0,64}+[=:] ?|\bbearer\s+(?=\S{8}))[^\s'\"&;,()]+",
    re.IGNORECASE,
)
_IN_A_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://)[^\s/'\"@]{1,512}@", re.IGNORECASE)
_PARAMETER = re.compile(
    r"([?&](?:sig|signature|x-amz-[a-z-]+|token|access_?token|key|secret)=)[^\s&'\"]+", re.IGNORECASE
)


def shown_text(text: str, most_chars: int = MAX_TEXT_CHARS) -> str:
    """The text as it is shown.

    >>> shown_text("set  secret_key = 'abc'")
    "set secret_key = '***'"
    >>> shown_text("select dblink('host=h password=abc', 'x')")
    "select dblink('host=h password=***', 'x')"
    >>> shown_text("copy t from 'https://me:pw@host/f?sig=1%2F&v=2'")
    "copy t from 'https://***@host/f?sig=***&v=2'"
    """
    line = " ".join(text[:_READ_CHARS].split())
    line = _BEHIND_A_WORD.sub(rf"\1'{HIDDEN}'", line)
    line = _IN_A_LITERAL.sub(rf"\1{HIDDEN}", line)
    line = _IN_A_URL.sub(rf"\1{HIDDEN}@", line)
    return _PARAMETER.sub(rf"\1{HIDDEN}", line)[:most_chars]
