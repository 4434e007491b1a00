"""Read jobs over tables that are changed, merged, moved, dropped and made again meanwhile, in virtual time.

Real are schedulers' read jobs (instants, cuts, leases), executors' parts, the collector, and all that is real in the
simulation of owners, which goes on around them; SQL and the network are played. Agents and Clients are slow, stand
still, die, renew through any scheduler or forget to; so do schedulers and collectors. Objects of jobs are lost, put
back, or put in each other's place.

Judged are: what a job names is its table at one instant since it was asked for, with statements over several partitions
in it as a whole (R1); what is read of it is just that, each row once, for as long as anybody reads (R2); as long as it
is renewed in time, it does not end and nothing is removed that it names (R3); and once nobody renews them, jobs end,
leave nothing behind, and keep no file any more (R4).
"""

from __future__ import annotations

from attrs import define, field

from ballista_py.storage.manifest import all_files
from ballista_py.storage.partition_storage import PartitionStorage
from ballista_py.storage.reads.leases import ORPHANED_MS, READS_PREFIX
from ballista_py.storage.upkeep.garbage import MAX_WRITE_MS
from ballista_py.testing.simulation.owners.actors import OwnerActors
from ballista_py.testing.simulation.owners.simulation import Act, OwnerResult, OwnerSimulation
from ballista_py.testing.simulation.owners.statements import EVERYWHERE
from ballista_py.testing.simulation.owners.troubles import OwnerTroubles
from ballista_py.testing.simulation.reads.actors import ReadActors
from ballista_py.testing.simulation.reads.site import ReadSite
from ballista_py.testing.simulation.reads.troubles import ReadTroubles
from ballista_py.testing.simulation.time import World

AGENTS, KEEPERS = 4, 3
QUICK_MINUTES, SLOW_MINUTES, SLOW_PACE = 8.0, 240.0, 20.0
QUICK_MS, SLOW_MS = 10_000.0, 2_400_000.0  # of a Client between two parts, at most
CROWD, CROWD_MS = 4, 1_000.0  # so that appends end and begin between two looks at manifests
STILL_MS = 7_200_000.0
EVERY_MS = 8_000.0
CALM_MS = 300_000.0
REST_MS = 2 * ORPHANED_MS
COLLECTIONS = 3


@define
class ReadSimulation(OwnerSimulation):
    """One run; it ends at the first thing that is wrong. The same seed replays.

    Of two seeds one is of minutes in which much happens, the other one of hours, in which files become garbage.

    >>> ReadSimulation(1, minutes=1).run().wrong
    ()
    """

    minutes: float = 0.0  # what is usual for the seed
    _jobs: ReadTroubles = field(init=False)

    def __attrs_post_init__(self) -> None:
        slow = self.seed % 2 == 0
        self.pace = SLOW_PACE if slow else 1.0
        self.minutes = self.minutes or (SLOW_MINUTES if slow else QUICK_MINUTES)
        OwnerSimulation.__attrs_post_init__(self)
        self._site = ReadSite(World(self.seed), self._site.tables, pace=self.pace)

    def run(self) -> OwnerResult:
        """Live through the minutes, let everything come to rest, and judge."""
        site, world, book = self._reads, self._site.world, self._site.book
        slow = self.pace > 1.0
        actors, self._troubles = OwnerActors(site), OwnerTroubles(site, MAX_WRITE_MS)
        self._jobs = jobs = ReadTroubles(site, STILL_MS if slow else STILL_MS / 60)
        readers = ReadActors(site, SLOW_MS if slow else QUICK_MS, 1.2 * STILL_MS if slow else STILL_MS / 60)
        site.found()
        self._troubles.start()
        jobs.start()
        kinds: dict[str, Act] = {
            "append": actors.append, "insert": actors.insert, "transfer": actors.transfer, "merge": actors.merge,
            "delete": actors.delete, "replace": actors.replace, "refresh": self._troubles.refresh,
        }  # fmt: skip
        around: dict[str, tuple[float, Act]] = {
            "define": (60_000.0, self._troubles.define), "owners": (60_000.0, self._troubles.succeed),
            "settler": (30_000.0, self._troubles.settle_left_over), "spoiler": (150_000.0, self._troubles.spoil),
            "remake": (30_000.0, jobs.remake), "schedulers": (120_000.0, jobs.exchange),
            "others": (20_000.0, jobs.close_others), "vandal": (90_000.0, jobs.spoil),
        }  # fmt: skip
        try:
            self._once("founder", actors.found)
            world.run(60_000.0)
            site.break_things(seldom=True)
            for name, act in kinds.items():
                self._again(f"{name}-0", EVERY_MS * self.pace, act)
            for number in range(0 if slow else CROWD):
                self._again(f"append-of-crowd-{number}", CROWD_MS, actors.append)
            for number in range(AGENTS):
                self._again(f"job-{number}", EVERY_MS * self.pace, readers.read)
            for number in range(KEEPERS if slow else 0):
                self._again(f"keeper-{number}", EVERY_MS * self.pace, readers.keep)
            for name, (every_ms, act) in around.items():
                self._again(name, every_ms * self.pace, act)
            for number in range(2):
                self._again(f"collector-{number}", 600_000.0 if slow else 60_000.0, jobs.collect)
            self._live(world.now_ms + self.minutes * 60_000.0)
            if not book.wrong:
                self._come_to_rest_of(readers.read)
        finally:
            world.close()
        return OwnerResult(seed=self.seed, done=tuple(sorted(book.done.items())), wrong=tuple(book.wrong))

    @property
    def _reads(self) -> ReadSite:
        assert isinstance(self._site, ReadSite)
        return self._site

    def _come_to_rest_of(self, read: Act) -> None:
        """Nothing fails any more: a job goes through, those that nobody renews end, and what is left is counted."""
        site, world, book = self._reads, self._site.world, self._site.book
        site.rest()
        for one in site.schedulers:
            one.machine.dead = True
        self._jobs.start()
        self._live(world.now_ms + CALM_MS)
        self._once("last-settler", self._troubles.settle_left_over)
        before = book.done["job read"]
        self._once("last-job", read)
        self._live(world.now_ms + CALM_MS)
        book.expect(book.done["job read"] > before, "nothing fails, and no job goes through")
        self._live(world.now_ms + REST_MS)
        for _ in range(COLLECTIONS):
            self._once("last-collector", self._jobs.collect)
            self._live(world.now_ms + 1.2 * MAX_WRITE_MS)
        if not book.wrong:
            self._judge()
            self._judge_what_is_left()

    def _judge_what_is_left(self) -> None:
        site, book = self._reads, self._site.book
        left = [entry.key for entry in site.store.list(READS_PREFIX)]
        book.expect(not left, f"{len(left)} object(s) of read jobs are left, such as {min(left, default='')}")
        named: set[str] = set()
        for table in site.tables.values():
            for partition in EVERYWHERE:
                path = table.spec.path((partition,))
                storage = PartitionStorage(site.store, table.folder, path, runtime=site.god)
                named.update(path for file in all_files(storage.read().document) for path in file.paths)
        folders = tuple(f"snapshots/{table.folder}/" for table in site.tables.values())
        kept = {path for path in site.named - named if path.startswith(folders) and any(site.store.list(path))}
        book.expect(
            not kept, f"{len(kept)} file(s) of jobs that are over are kept, such as {min(kept, default='')}"
        )
