"""DuckDB itself, or one sentence that says how to install it. Whatever needs DuckDB takes it from here."""

from ballista_py.errors import MissingExtra
from ballista_py.sql.own_words import CATALOG

try:
    import duckdb as duckdb
except ModuleNotFoundError:
    raise MissingExtra.of("duckdb", "node") from None

__all__ = ["LOCKDOWN", "duckdb"]

# What every database of ours begins with: no way out of it, and the name that the catalog has everywhere.
LOCKDOWN = f"""
    set global enable_external_access = false;
    set global autoinstall_known_extensions = false;
    set global autoload_known_extensions = false;
    set global python_enable_replacements = false;
    set global TimeZone = 'UTC';
    create macro main.current_database() as '{CATALOG}';
    create macro main.current_catalog() as '{CATALOG}';
"""
