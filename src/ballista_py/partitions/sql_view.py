"""What a view is: the text of a query under a name, with the columns that it had when it was made."""

from __future__ import annotations

import pyarrow as pa
from attrs import field, frozen

from ballista_py.errors import ConfigError
from ballista_py.partitions.table import require_table_name

MAX_VIEWS = 1_000  # of a cluster: everybody reads all of them with the catalog
CLIENT_SHARE = 2  # a client that is known by a token has half of them at most
MAX_VIEW_CHARS = 100_000
MAX_ALL_VIEWS_CHARS = 4_000_000
MAX_VIEW_DEPTH = 16  # of views that read views
MAX_VIEW_COLUMNS = 1_000
TABLE_TYPE, VIEW_TYPE = "TABLE", "VIEW"  # what each is called where both are listed
VIEW_MARK = "view."  # what no mark of a table begins with


@frozen(kw_only=True)
class SqlView:
    """The declaration of one view, as `cluster.json` keeps it among the tables.

    `sql` is its query, in the engine's dialect (`dialect` names it), which is read wherever the view is read. `schema`
    are its columns, in their order, as answers have them, and `types` what the engine's SQL calls their types;
    `answers` are the names that the query itself gave them. `reads` are the tables and views that the query names.
    `named` is the number of the commit that gave the view its name, or another query, among all that named a table.
    `comment` is for people. `maker` is a digest of the client who gave it its query, where clients show tokens.

    Raises `ConfigError` for an unusable name, and columns that do not fit those of the query.
    """

    name: str = field()
    sql: str
    schema: pa.Schema
    types: tuple[str, ...]
    answers: tuple[str, ...]
    reads: tuple[str, ...] = ()
    dialect: str = "duckdb"
    named: int = 0
    comment: str | None = None
    maker: str = field(default="", eq=False)

    @property
    def mark(self) -> str:
        """Another text for each view that ever has the name, and each query of it; no table has it."""
        return f"{VIEW_MARK}{self.named}"

    def __attrs_post_init__(self) -> None:
        if not len(self.answers) == len(self.types) == len(self.schema):
            raise ConfigError(
                f"view '{self.name}' has {len(self.schema)} columns, and its query gives {len(self.answers)}"
            )

    @name.validator
    def _check_name(self, _attribute: object, name: str) -> None:
        require_table_name(name)
