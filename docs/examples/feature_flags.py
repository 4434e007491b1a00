"""A feature-flag document that several services change at once without losing an update."""

import sys
from concurrent.futures import ThreadPoolExecutor

from attrs import Factory, evolve, frozen

from ballista_py import ObjectState, open_store


@frozen
class Flags:
    """What is on, and for how many percent of the users."""

    percent: dict[str, int] = Factory(dict)


def service(url: str, flag: str) -> None:
    """Each service opens the document by itself; nothing but the store is shared."""
    flags = ObjectState(open_store(url), "flags.json", Flags, committed_by=flag)
    for percent in (10, 50, 100):
        flags.update(lambda old: evolve(old, percent={**old.percent, flag: percent}))  # noqa: B023


if __name__ == "__main__":
    url = sys.argv[1] if len(sys.argv) > 1 else "memory://feature-flags"
    ObjectState(open_store(url), "flags.json", Flags).create(Flags())
    names = ["search", "checkout", "dark-mode", "export"]
    with ThreadPoolExecutor(len(names)) as services:
        list(services.map(lambda name: service(url, name), names))
    end = ObjectState(open_store(url), "flags.json", Flags).read()
    print(f"revision {end.header.revision}: {dict(sorted(end.document.percent.items()))}")
    assert end.document.percent == dict.fromkeys(names, 100)
