"""A Spark that is not of this process: where it is, what it is given, and how its tasks open the state location; pure.

Nothing that such a Spark does may need a disk of this machine. So its tasks have to open the store themselves, with the
options that this process opened it with: these go along inside the work of each task, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson
from attrs import evolve, field, frozen

from ballista_py.errors import ConfigError
from ballista_py.secret import Secret
from ballista_py.spark.text.settings import PLAIN_TEXT
from ballista_py.state.stores.store import require_location

MAX_CONF = 1_000
MAX_JARS = 1_000
MAX_TEXT = 4_096

IN_FILE = "file:"
_HOST = r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])"
_MASTER = re.compile(rf"spark://{_HOST}:\d{{1,5}}(?:,{_HOST}:\d{{1,5}})*")
_REMOTE = re.compile(rf"sc://({_HOST}(?::\d{{1,5}})?)(?:/(?:;[A-Za-z0-9_-]+=[^;\s/?#]*)*;?)?")
_NAME = re.compile(r"[A-Za-z0-9_.:$-]+")
_PLACES = {
    "spark.master": "as spark: {master: spark://host:port}",
    "spark.remote": "as spark: {remote: 'sc://host:port'}",
    "spark.api.mode": "as master or remote",
    "spark.submit.deployMode": "nowhere: the driver is the node's own",
}


@frozen
class TaskStore:
    """How tasks of Spark open the state location: its URL, and the options of its client, which are never shown.

    >>> TaskStore.of("s3://bucket/state", {"key": "me", "secret": "hunter2"})
    TaskStore(location='s3://bucket/state')
    """

    location: str
    _options: Secret = field(repr=False, eq=False)

    @classmethod
    def of(cls, location: str, options: Mapping[str, Any] | None = None) -> TaskStore:
        """Raises `ConfigError` for a store that no other process can open, or options that cannot be sent to one."""
        require_location(location)
        if location.startswith("memory://"):
            raise ConfigError(
                "a Spark elsewhere cannot open a state location of memory://, which only this process sees: take a "
                "bucket, or a folder that every worker has"
            )
        try:
            text = orjson.dumps(dict(options or {})).decode()
        except TypeError:
            raise ConfigError(
                "the store has options that cannot be sent to tasks of Spark: take texts, numbers, lists and mappings"
            ) from None
        return cls(location, Secret(text))

    def as_file(self, name: str) -> TaskStore:
        """The same, whose options tasks find in a file of that name, which their session was given."""
        return TaskStore(self.location, Secret(f"{IN_FILE}{name}"))

    @property
    def is_in_file(self) -> bool:
        """Whether tasks find the options in a file."""
        return self._options.reveal().startswith(IN_FILE)

    def payload(self) -> tuple[str, str]:
        """Location and options as tasks get them. It must not be kept, logged or put into a setting of Spark."""
        return self.location, self._options.reveal()


@frozen(kw_only=True)
class SparkSettings:
    """Which Spark is used, and what it is given: its `conf`, and `jars` of drivers and formats.

    Without `master` and `remote` it is one of this process, on all cores of the machine. `master` is that of a
    standalone cluster (`spark://host:port`, several with commas), where this process is the driver. `remote` is a
    server of Spark Connect (`sc://host:port`, with `/;use_ssl=true;token=…` behind it as Spark takes them); it is never
    shown. Either needs `tasks`, by which its workers open the state location; nodes and `LocalCluster` fill it in.

    A conf says whatever Spark takes, but for where it runs (that is `master` or `remote`) and for the settings by which
    a text of SQL is more than it says. Raises `ConfigError` for these, and for whatever is no master, remote or name.
    """

    conf: Mapping[str, str] = field(factory=dict, repr=False)  # may hold keys of object stores
    jars: tuple[str, ...] = ()
    master: str | None = None
    remote: str | None = field(default=None, repr=False)  # may hold a token
    tasks: TaskStore | None = field(default=None, eq=False)

    def __attrs_post_init__(self) -> None:
        if self.master is not None and self.remote is not None:
            raise ConfigError("spark: master and remote are two places: keep one")
        if self.master is not None and not (
            len(self.master) <= MAX_TEXT and _MASTER.fullmatch(self.master) and _ports_are_right(self.master)
        ):
            raise ConfigError(
                f"spark: master: {self.master[:60]!a} is no standalone cluster: take spark://host:port, of other "
                "clusters a server of Spark Connect as remote, or neither for a Spark of each node"
            )
        if self.remote is not None and not (
            len(self.remote) <= MAX_TEXT and _REMOTE.fullmatch(self.remote) and _ports_are_right(self.place)
        ):
            raise ConfigError("spark: remote: it is no server of Spark Connect: take sc://host:port")
        _check_conf(self.conf, self.is_elsewhere)
        if len(self.jars) > MAX_JARS:
            raise ConfigError(f"spark: jars: there are more than {MAX_JARS:,}")
        for jar in self.jars:
            if not jar.strip() or "," in jar or not jar.isprintable():
                raise ConfigError(f"spark: jars: {jar[:60]!a} is no path or URL of a jar; one has no comma")

    @property
    def is_elsewhere(self) -> bool:
        """Whether its tasks run in processes that may not see a disk of this machine."""
        return self.master is not None or self.remote is not None

    @property
    def place(self) -> str:
        """What people call it: without the token of a server."""
        if self.remote is None:
            return self.master or "this machine"
        found = _REMOTE.fullmatch(self.remote)
        return f"sc://{found[1]}" if found else "sc://…"

    def options(self) -> dict[str, str]:
        """As Spark is told. Jars that `conf` names stay."""
        jars = [*filter(None, self.conf.get("spark.jars", "").split(",")), *self.jars]
        return {**self.conf, **({"spark.jars": ",".join(jars)} if jars else {})}

    def on(self, location: str, options: Mapping[str, Any] | None) -> SparkSettings:
        """With the store that tasks open, if they run elsewhere. Raises as `TaskStore.of`."""
        return evolve(self, tasks=TaskStore.of(location, options)) if self.is_elsewhere else self

    def written(self) -> dict[str, Any]:
        """As the configuration of a node says it."""
        places = {"master": self.master, "remote": self.remote}
        said = {name: value for name, value in places.items() if value is not None}
        return {"conf": dict(self.conf), "jars": list(self.jars), **said}

    def needed_tasks(self) -> TaskStore | None:
        """How tasks open the store; None for a Spark of this process. Raises `ConfigError` where it was left out."""
        if not self.is_elsewhere:
            return None
        if self.tasks is None:
            raise ConfigError(
                "a Spark elsewhere needs to know how its tasks open the store: give tasks=TaskStore.of(…)"
            )
        return self.tasks


def _check_conf(conf: Mapping[str, str], elsewhere: bool) -> None:
    if len(conf) > MAX_CONF:
        raise ConfigError(f"spark: conf: there are more than {MAX_CONF:,} settings")
    for name, value in conf.items():
        if not isinstance(value, str) or len(name) > MAX_TEXT or not _NAME.fullmatch(name):
            raise ConfigError(
                f"spark: conf: {name[:60]!a} is no setting: take names as spark.executor.memory, and texts"
            )
        if name in _PLACES and (elsewhere or not (name == "spark.master" and value.startswith("local"))):
            raise ConfigError(f"spark: conf: '{name}' does not stand there: say it {_PLACES[name]}")
        if name in PLAIN_TEXT and value.lower() != PLAIN_TEXT[name]:
            raise ConfigError(
                f"spark: conf: '{name}' is {PLAIN_TEXT[name]} here: a text of SQL would mean more than it says"
            )


def _ports_are_right(place: str) -> bool:
    return all(0 < int(port) < 65_536 for port in re.findall(r":(\d+)(?=,|$)", place.partition("://")[2]))


NO_SETTINGS = SparkSettings()
