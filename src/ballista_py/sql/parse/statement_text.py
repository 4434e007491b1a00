"""One statement as text and tokens, to cut pieces out of it without changing a character of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen
from sqlglot.tokenizer_core import Token, TokenType

from ballista_py.errors import SqlError
from ballista_py.sql.parse.kind import blank

_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_NAMES = (TokenType.STRING, TokenType.IDENTIFIER)


@frozen
class StatementText:
    """A statement without its PARTITIONED BY, its tokens (with it), and the keys that stood there."""

    plain: str
    tokens: Sequence[Token]
    keys: tuple[str, ...] = ()

    def group_end(self, place: int) -> int:
        """Which token closes the bracket that the token at `place` opens."""
        depth = 0
        for number in range(place, len(self.tokens)):
            depth += _step(self.tokens[number])
            if depth == 0:
                return number
        raise SqlError("a bracket is not closed")

    def between(self, first: int, last: int) -> str:
        """What stands behind the token `first` and before the token `last`."""
        end = self.tokens[last].start if last < len(self.tokens) else len(self.plain)
        return self.plain[self.tokens[first].end + 1 : end].strip()

    def without(self, first: int, last: int) -> str:
        """The text with blanks in place of the tokens from `first` up to, not including, `last`."""
        start = self.tokens[first].start
        end = self.tokens[last].start if last < len(self.tokens) else len(self.plain)
        return self.plain[:start] + blank(self.plain[start:end]) + self.plain[end:]

    def top_level(self, start: int, end: int | None = None) -> Iterator[tuple[int, str]]:
        """The tokens outside of brackets, from `start` on and before `end`: place and word."""
        depth = 0
        for place in range(start, len(self.tokens) if end is None else end):
            token = self.tokens[place]
            depth -= token.token_type in _CLOSING
            if depth == 0 and token.token_type not in _NAMES:
                yield place, token.text.upper()
            depth += token.token_type in _OPENING

    def pieces(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Between which tokens the items of a list lie that begins behind `first` and ends before `last`."""
        start, depth = first, 0
        for place in range(first + 1, last + 1):
            if place == last or (depth == 0 and self.tokens[place].token_type == TokenType.COMMA):
                yield start, place
                start = place
            if place < last:
                depth += _step(self.tokens[place])

    def opens(self, place: int) -> bool:
        """Whether the token at `place`, if there is one, is an opening parenthesis."""
        return place < len(self.tokens) and self.tokens[place].token_type == TokenType.L_PAREN

    def says(self, place: int, word: str) -> bool:
        """Whether the token at `place` is a word, and no name in quotes."""
        token = self.tokens[place]
        return token.text.upper() == word and token.token_type not in _NAMES


def _step(token: Token) -> int:
    return (token.token_type in _OPENING) - (token.token_type in _CLOSING)
