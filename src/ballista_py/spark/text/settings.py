"""The settings of Spark by which a text means what it says, and the proof that a session has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ballista_py.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# `${…}` in a text is replaced before it is parsed, by variables of the environment too.
NO_SUBSTITUTION = {"spark.sql.variable.substitute": "false"}
PLAIN_TEXT = NO_SUBSTITUTION | {
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.runSQLOnFiles": "false",
}


def require_settings(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Give a session these settings, and see that it has them: somebody may have forbidden it to change.

    Works over Spark Connect, too. Raises `ConfigError` naming the setting.
    """
    for name, value in settings.items():
        try:
            spark.conf.set(name, value)
            kept = spark.conf.get(name)
        except Exception as error:  # Spark's errors have no common class here
            raise ConfigError(
                f"the Spark session does not let '{name}' be set to {value}: set it there"
            ) from error
        if str(kept).lower() != value:
            raise ConfigError(
                f"the Spark session has '{name}' at {kept} and keeps it there: no text can be given to it safely; "
                f"set it to {value}"
            )
