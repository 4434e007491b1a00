"""DuckDB itself, or one sentence that says how to install it. Whatever needs DuckDB takes it from here."""

from ballista_py.errors import MissingExtra

try:
    import duckdb as duckdb
except ModuleNotFoundError:
    raise MissingExtra.of("duckdb", "node") from None

__all__ = ["duckdb"]
