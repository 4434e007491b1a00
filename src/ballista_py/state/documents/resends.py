"""For how long a statement may be sent again, and for how long it is remembered: times that depend on each other.

A client sends a statement again for `RESEND_MS`; the scheduler that got it last asks owners again for `PATIENCE_MS`.
So an owner may be asked for the same thing once more that long after it did it. It remembers it twice as long, by its
own clock, from when it knows of it: the other half is for what is under way longer than anybody waits.
"""

from __future__ import annotations

RESEND_MS = 30_000.0
PATIENCE_MS = 30_000.0
TOKENS_KEPT_MS = 2 * (RESEND_MS + PATIENCE_MS)
