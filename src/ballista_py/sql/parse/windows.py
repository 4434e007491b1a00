"""How much text windows that have a name stand for: the engine's parser puts each in the place of its name.

`select sum(a) over w, sum(b) over w, … from t window w as (…)` is as long as the definition times its uses. It is made
while the text is read, in the node itself, where nothing interrupts it: 9,000 characters took half a minute and 1.4 GB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import Factory, define
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError

MAX_WRITTEN_WINDOWS = 20_000  # elements beyond those of the text
_SETS = frozenset((TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT))


@define
class _Level:
    """What stands between two parentheses so far, or outside of all: one SELECT and its windows, or a part of one."""

    elements: int = 0
    is_select: bool = False
    has_windows: bool = False
    defines: str = ""  # the window whose definition it is
    uses: Counter[str] = Factory(Counter)
    windows: dict[str, int] = Factory(dict)

    def written(self) -> int:
        """The elements that its windows become where they are used, beyond one time each."""
        return sum(size * max(0, self.uses[name] - 1) for name, size in self.windows.items())

    def next_select(self) -> None:
        """Forget the windows of a SELECT after which another one comes."""
        self.elements += self.written()
        self.has_windows = False
        self.uses, self.windows = Counter(), {}


def require_few_windows(tokens: Sequence[Token]) -> None:
    """Raise `SqlError` where windows that have a name become too many elements where they are used."""
    if not any(token.token_type == TokenType.WINDOW for token in tokens):
        return
    levels = [_Level()]
    for place, token in enumerate(tokens):
        kind, here = token.token_type, levels[-1]
        here.elements += 1
        if kind == TokenType.L_PAREN:
            levels.append(_opened(tokens, place, here))
        elif kind == TokenType.R_PAREN and len(levels) > 1:
            _close(levels.pop(), levels[-1])
        elif kind == TokenType.SELECT:
            here.is_select = True
        elif kind == TokenType.WINDOW:
            here.has_windows = True
        elif kind in _SETS:
            here.next_select()
        elif kind == TokenType.OVER and place + 1 < len(tokens):
            here.uses[tokens[place + 1].text.lower()] += 1
    while len(levels) > 1:
        _close(levels.pop(), levels[-1])
    levels[0].next_select()
    if levels[0].elements > len(tokens) + MAX_WRITTEN_WINDOWS:
        raise SqlError(
            f"windows that have a name stand for more than {MAX_WRITTEN_WINDOWS:,} elements where they are used: "
            "compute what they are made of in a subquery, or use them less often"
        )


def _opened(tokens: Sequence[Token], place: int, around: _Level) -> _Level:
    level = _Level()
    defines = around.has_windows and place >= 2 and tokens[place - 1].token_type == TokenType.ALIAS
    if defines:  # WINDOW name AS (
        level.defines = tokens[place - 2].text.lower()
    if (defines or tokens[place - 1].token_type == TokenType.OVER) and place + 1 < len(tokens):
        base = tokens[place + 1].text.lower()  # the window that it extends, if there is one of that name
        if defines:
            level.elements += around.windows.get(base, 0)
        else:
            around.uses[base] += 1
    return level


def _close(level: _Level, around: _Level) -> None:
    size = level.elements + level.written()
    around.elements += size
    if level.defines:
        around.windows[level.defines] = around.windows.get(level.defines, 0) + size
    if not level.is_select:  # a part of the SELECT around it
        around.uses.update(level.uses)
