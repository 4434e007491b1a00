"""`ballista-py shell`: statements typed one after the other, with history, completion and paging.

A statement ends with a semicolon and may take several lines; a line that begins with a dot is a command of the shell.
Ctrl-C ends the statement that runs, and not the shell. What comes from others is shown with nothing in it that a
terminal would obey.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from attrs import define, field
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from rich.console import Console

from ballista_py.errors import BallistaError, ConfigError
from ballista_py.node.cli.connecting import MAX_SHOWN_ROWS, escaped, rows_shown, visible
from ballista_py.runtime import Runtime, SystemRuntime
from ballista_py.sql.parse.kind import statement_kind
from ballista_py.sql.parse.scripts import is_whole, statements_of

MAX_PAGED_ROWS = 1_000
KEYWORDS = """
select from where group by having order limit offset join left right full inner cross on using with as union all
intersect except distinct case when then else end and or not in is null between like exists insert into values update
set delete merge create or replace table if partitioned drop alter add column rename to truncate explain analyze
describe summarize show tables columns prepare execute deallocate reset copy returning conflict do nothing
"""
HELP = """A statement ends with ';'. Ctrl-C ends one that runs, or clears what is typed; Ctrl-D leaves.
.tables            the tables of the cluster
.schema TABLE      its columns
.timing on|off     say how long each statement took
.help              this
.quit              leave"""


def history_file() -> Path:
    """Where what was typed is kept: a file of the user's own, that nobody else may read."""
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    file = home / "ballista_py" / "history"
    file.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(file, os.O_CREAT | os.O_APPEND, 0o600))
    file.chmod(0o600)
    return file


@define
class Names(Completer):
    """Completes keywords, tables, columns of the tables that a statement names, and commands of the shell."""

    columns: dict[str, tuple[str, ...]] = field(factory=dict)  # by table

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """See `Completer`."""
        before = document.text_before_cursor
        if before.startswith("."):
            commands = (".tables", ".schema ", ".timing ", ".help", ".quit")
            yield from _fitting(commands, before)
            if before.startswith(".schema "):
                yield from _fitting(self.columns, before.removeprefix(".schema "))
            return
        word = document.get_word_before_cursor()
        if word:
            yield from _fitting(self.candidates(document.text), word)

    def candidates(self, statement: str) -> list[str]:
        """What a word of this statement may be, the nearest first."""
        words = set(statement.lower().split())
        named = [table for table in self.columns if table.lower() in {word.strip("(),;") for word in words}]
        columns = dict.fromkeys(column for table in named for column in self.columns[table])
        return [*columns, *self.columns, *KEYWORDS.split()]


def _fitting(names: Iterable[str], begun: str) -> Iterator[Completion]:
    for name in names:
        if name.lower().startswith(begun.lower()) and name != begun:
            yield Completion(name, start_position=-len(begun), display=visible(name))


@define
class Shell:
    """One shell over a client of a cluster. `run` returns when its user leaves."""

    client: Any
    console: Console = field(factory=Console)
    runtime: Runtime = field(factory=SystemRuntime)
    timing: bool = True
    names: Names = field(factory=Names)

    def run(self) -> None:
        """Ask for statements and answer them, until there are no more."""
        session: PromptSession[str] = PromptSession(
            "ballista> ",
            history=FileHistory(str(history_file())),
            completer=self.names,
            complete_while_typing=False,
            multiline=True,
            key_bindings=_keys(),
            lexer=_lexer(),
            prompt_continuation=lambda width, _number, _is_soft: "... ".rjust(width),
        )
        self._learn_names()
        self.console.print("Statements end with ';', '.help' says what else there is.", highlight=False)
        while True:
            try:
                text = session.prompt()
            except KeyboardInterrupt:  # what was typed is thrown away
                continue
            except EOFError:
                return
            if text.strip().startswith("."):
                try:
                    if not self.command(text.strip()):
                        return
                except BallistaError as error:
                    self._say(str(error))
            elif text.strip():
                self.statements(text)

    def command(self, text: str) -> bool:
        """Carry out a command of the shell; False leaves it. Raises `ConfigError` for one that there is not."""
        name, _, rest = text.rstrip(";").partition(" ")
        rest = rest.strip()
        if name in (".quit", ".exit"):
            return False
        if name == ".tables":
            self._learn_names()
            for table in sorted(self.names.columns):
                self.console.print(escaped(table), highlight=False)
        elif name == ".schema" and rest:
            quoted = '"' + rest.strip('"').replace('"', '""') + '"'
            self.statements(f"describe {quoted};")
        elif name == ".timing" and rest in ("on", "off"):
            self.timing = rest == "on"
        elif name == ".help":
            self.console.print(HELP, highlight=False, markup=False)
        else:
            raise ConfigError(f"there is no command '{text}': .help lists them")
        return True

    def statements(self, text: str) -> None:
        """Run each statement of a text; the first error ends it."""
        try:
            for statement in statements_of(text):
                self._run(statement.text)
        except BallistaError as error:
            self._say(str(error))
        except KeyboardInterrupt:
            self._say("ended")

    def _run(self, statement: str) -> None:
        started_ms = self.runtime.monotonic_ms()
        with self.console.status("running, Ctrl-C ends it"):
            result = self.client.query(statement)
        took_ms = self.runtime.monotonic_ms() - started_ms
        self._show(result.table)
        if self.timing:
            self.console.print(f"{took_ms / 1e3:.3f} s", style="dim", highlight=False)
        if statement_kind(statement) == "change":
            self._learn_names()

    def _show(self, table: Any) -> None:
        fits = table.num_rows + 6 <= self.console.height
        if fits or not self.console.is_terminal:
            self.console.print(*rows_shown(table, MAX_SHOWN_ROWS), sep="\n", highlight=False)
            return
        with self.console.pager(styles=True):
            self.console.print(*rows_shown(table, MAX_PAGED_ROWS), sep="\n", highlight=False)

    def _learn_names(self) -> None:
        self.names.columns = {
            row["table"]: tuple(column["name"] for column in row["columns"]) for row in self.client.tables()
        }

    def _say(self, error: str) -> None:
        self.console.print("[red]error:[/red] " + escaped(error), highlight=False, soft_wrap=True)


def _keys() -> KeyBindings:
    """Enter ends what is whole, and begins a new line in what is not."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text.strip()
        if not text or text.startswith(".") or is_whole(text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _lexer() -> PygmentsLexer:
    from pygments.lexers.sql import SqlLexer  # rich brings it

    return PygmentsLexer(SqlLexer)
