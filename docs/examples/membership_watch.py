"""Who is here? Join a group, watch the others come and go, and take over from one that died."""

import sys

from ballista_py import Membership, Reaper, SchedulerInfo, SystemRuntime, open_store

TTL_MS, SKEW_MS = 300, 100


def join(url: str, name: str) -> Membership:
    """A member under `name`; a live process with the same name would make this raise `AlreadyRegistered`."""
    member = Membership(
        open_store(url), SchedulerInfo(scheduler_id=name, instance_id=""), ttl_ms=TTL_MS, skew_ms=SKEW_MS
    )
    member.join()
    return member


if __name__ == "__main__":
    url = sys.argv[1] if len(sys.argv) > 1 else "memory://membership-watch"
    watcher, runtime = join(url, "watcher"), SystemRuntime()
    members = {name: join(url, name) for name in ("a", "b")}
    reaper = Reaper(open_store(url), watcher)
    seen: set[str] = set()
    for step in range(40):
        watcher.beat()
        members["b"].beat() if step < 10 else members["b"].leave()  # b says good-bye, a just stops beating
        reaper.tick()
        now = {peer.scheduler_id for peer in watcher.peers()}
        for change, names in (("joined", now - seen), ("gone", seen - now)):
            print("".join(f"{name} {change}\n" for name in sorted(names)), end="")
        seen = now
        runtime.sleep_ms(TTL_MS / 6)
    assert seen == set()
