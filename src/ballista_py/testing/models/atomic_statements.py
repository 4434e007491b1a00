"""A model of statements that become visible over several partitions at one instant, each rule switchable.

Money moves between partitions. Clients prepare their part in each manifest and append the statement to the commit
document; owners fold and compact; a collector forgets; readers add up. All of them stop at every access to the
store and may stay there for ever. Judged are: every snapshot adds up and reads the same again, what was acknowledged
is there once, and what was refused is not. In a second history of the same seed rows are added and all are replaced;
there, what is seen of a statement is seen in all of its partitions, of two replacements one is left, and what one
replaces was everything that a client could see when it began.

    python -m ballista_py.testing.models.atomic_statements [SEEDS]
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

from attrs import evolve, field, frozen

from ballista_py.runtime import seeded_chance

PARTITIONS, STATEMENTS, STEPS = 4, 40, 6_000
CHANGES, CHANGE_STEPS = 24, 2_000
DEADLINE, LONGEST_QUERY = 250, 200
NEVER = 1 << 30
Step = Generator[None, None, None]


@frozen(kw_only=True)
class Rules:
    """What the protocol demands. Each one off must break a judgement in some seed."""

    sequence_first: bool = True  # a reader takes the last sequence before it reads any manifest
    committed_counts: bool = True  # a reader counts what is prepared under a committed token
    one_rewrite: bool = True  # at most one prepared rewrite a partition at a time
    one_document: bool = True  # commit and abort meet in one document, and the first one stands
    prepared_everywhere: bool = True  # a statement commits only when every partition has it prepared
    stamped: bool = True  # a compaction is stamped with a sequence not below anything it replaces
    compaction_waits: bool = True  # files that a prepared rewrite replaces are not compacted
    folded_before_forgotten: bool = True  # the document forgets a statement when every manifest has folded it
    floor: bool = True  # a statement begun before the last forgotten one can no longer commit
    kept_for_readers: bool = True  # replaced files stay until no query can be as old
    tokens_kept: bool = True  # a manifest knows what it has applied, so that a resend prepares nothing
    changes_catch_up: bool = True  # a change has folded in what is committed before it reads
    one_moment: bool = True  # a change reads every partition as of the sequence that it began with
    one_replacement: bool = True  # what replaces everything is alone, though there be nothing to replace
    none_since: bool = True  # nor was another one folded in since it began, which it does not see


@frozen(kw_only=True)
class File:
    """Part of a partition's money, visible from sequence `added` until `removed`."""

    name: int
    amount: int
    added: int
    removed: int = NEVER
    by: frozenset[int] = frozenset()  # the statements whose rows it holds


@frozen(kw_only=True)
class Prepared:
    """One statement's part in one partition: a new file and those that it replaces."""

    token: int
    begun: int  # the last sequence when the statement began
    amount: int
    replaces: frozenset[int] | None  # None: it only adds
    by: frozenset[int] = frozenset()


@frozen(kw_only=True)
class Manifest:
    """One partition. `oldest` is the first sequence that can still be read, `alone` that of the last statement folded
    in that had to be alone."""

    files: tuple[File, ...] = ()
    prepared: tuple[Prepared, ...] = ()
    applied: frozenset[int] = frozenset()
    oldest: int = 0
    alone: int = 0


@frozen(kw_only=True)
class Commits:
    """The commit document: what each listed token came to, in order. `floor` is the last sequence forgotten."""

    last: int = 0
    listed: tuple[tuple[int, int, bool], ...] = ()  # token, sequence, committed
    floor: int = 0

    def fate(self, token: int) -> tuple[int, bool] | None:
        return next(((sequence, done) for known, sequence, done in self.listed if known == token), None)


@frozen
class World:
    """The store, what happened, and what was wrong."""

    rules: Rules
    chance: Any  # of `seeded_chance`
    manifests: list[Manifest]
    commits: list[Commits]  # one element: the document
    moved: dict[int, tuple[int, int, int]] = field(factory=dict)  # token: from, to, amount
    decided: dict[int, bool] = field(factory=dict)  # token: what the document first said of it
    told: dict[int, bool] = field(factory=dict)  # token: acknowledged or refused
    seen: dict[tuple[int, int], int] = field(factory=dict)  # sequence, partition: amount
    wrong: Counter[str] = field(factory=Counter)
    now: list[int] = field(factory=lambda: [0])

    def name(self) -> int:
        return int(self.chance.getrandbits(60))


def amount_at(world: World, manifest: Manifest, commits: Commits, sequence: int) -> int:
    """What a reader at `sequence` adds up in one manifest."""
    files = {file.name: file for file in manifest.files}
    total = 0
    gone: set[int] = set()
    for part in manifest.prepared:
        fate = commits.fate(part.token)
        if world.rules.committed_counts and fate is not None and fate[1] and fate[0] <= sequence:
            total += part.amount
            gone |= part.replaces or frozenset()
    return total + sum(
        file.amount for name, file in files.items() if file.added <= sequence < file.removed and name not in gone
    )


def fold(world: World, manifest: Manifest, commits: Commits) -> Manifest:
    """Make what was committed visible by itself, and drop what was aborted."""
    for part in manifest.prepared:
        fate = commits.fate(part.token)
        if fate is None and not (world.rules.floor and part.begun < commits.floor):
            continue
        rest = tuple(other for other in manifest.prepared if other is not part)
        manifest = evolve(manifest, prepared=rest)
        if fate is not None and fate[1]:
            gone = part.replaces or frozenset()
            files = tuple(
                evolve(file, removed=fate[0]) if file.name in gone and file.removed == NEVER else file
                for file in manifest.files
            )
            files += (File(name=world.name(), amount=part.amount, added=fate[0], by=part.by),)
            manifest = evolve(manifest, files=files)
            if part.replaces is not None:
                manifest = evolve(manifest, alone=fate[0])
            if world.rules.tokens_kept:
                manifest = evolve(manifest, applied=manifest.applied | {part.token})
    return manifest


def prepare(world: World, manifest: Manifest, part: Prepared, delta: int) -> Manifest | None:
    """The manifest with the part prepared, the same if it was already, or None if it must wait."""
    if part.token in manifest.applied or any(other.token == part.token for other in manifest.prepared):
        return manifest
    if part.replaces is None:
        return evolve(manifest, prepared=(*manifest.prepared, evolve(part, amount=delta)))
    if world.rules.one_rewrite and any(other.replaces is not None for other in manifest.prepared):
        return None
    live = [file for file in manifest.files if file.removed == NEVER]
    whole = evolve(
        part, amount=sum(file.amount for file in live) + delta, replaces=frozenset(f.name for f in live)
    )
    return evolve(manifest, prepared=(*manifest.prepared, whole))


def decide(world: World, token: int, begun: int, commit: bool) -> bool | None:
    """Append the token to the commit document, or say what stands there; None where it is too late to commit."""
    document = world.commits[0]
    fate = document.fate(token)
    if fate is not None and (world.rules.one_document or fate[1] == commit):
        return fate[1]
    if world.rules.floor and begun < document.floor:
        return None
    world.decided.setdefault(token, commit)
    sequence = document.last + 1
    listed = tuple(entry for entry in document.listed if entry[0] != token)
    world.commits[0] = evolve(document, last=sequence, listed=(*listed, (token, sequence, commit)))
    return commit


def client(world: World, token: int) -> Step:
    """Move money between two partitions, resending whatever may have been lost."""
    source, target = world.chance.sample(range(PARTITIONS), 2)
    amount, adds = world.chance.randint(1, 9), world.chance.random() < 0.3
    world.moved[token] = (source, target, amount)
    begun = world.commits[0].last
    yield
    for partition, delta in ((source, -amount), (target, amount)):
        part = Prepared(token=token, begun=begun, amount=0, replaces=None if adds else frozenset())
        for _ in range(60):
            found = prepare(world, world.manifests[partition], part, delta)
            if found is not None:
                world.manifests[partition] = found
                yield
                if world.chance.random() < 0.8:  # else the reply was lost, and it is sent again
                    break
            yield
        else:
            if world.rules.prepared_everywhere:
                yield from settle(world, token, begun, commit=False)
                return
    yield from settle(world, token, begun, commit=True)
    while world.chance.random() < 0.2:  # a resend of a part, still under way from before
        partition = world.chance.choice((source, target))
        again = Prepared(token=token, begun=begun, amount=0, replaces=None if adds else frozenset())
        delta = -amount if partition == source else amount
        found = prepare(world, world.manifests[partition], again, delta)
        world.manifests[partition] = found or world.manifests[partition]
        yield


def settle(world: World, token: int, begun: int, *, commit: bool) -> Step:
    """Commit or give up, and tell the caller what the document says."""
    yield
    done = decide(world, token, begun, commit)
    yield
    world.told[token] = bool(done)


def owner(world: World, partition: int) -> Step:
    """Fold, compact and let go of old files, again and again."""
    rules = world.rules
    while True:
        before, commits = world.manifests[partition], world.commits[0]
        yield
        if world.manifests[partition] is not before:  # a conditional write
            continue
        manifest = fold(world, before, commits)
        live = [file for file in manifest.files if file.removed == NEVER]
        held = frozenset[int]().union(*(part.replaces or frozenset() for part in manifest.prepared))
        if len(live) > 2 and world.chance.random() < 0.5:
            chosen = [file for file in live if not rules.compaction_waits or file.name not in held]
            stamp = max([commits.last, *(file.added for file in chosen)]) if rules.stamped else 0
            if len(chosen) > 1:
                names = {file.name for file in chosen}
                files = tuple(evolve(f, removed=stamp) if f.name in names else f for f in manifest.files)
                by = frozenset[int]().union(*(file.by for file in chosen))
                amount = sum(file.amount for file in chosen)
                merged = File(name=world.name(), amount=amount, added=stamp, by=by)
                manifest = evolve(manifest, files=(*files, merged))
        world.manifests[partition] = manifest
        yield


def collector(world: World) -> Step:
    """Abort what is overdue, forget what all have folded, drop files that no query can need."""
    overdue: dict[int, int] = {}
    known: list[tuple[int, int]] = []
    while True:
        yield
        known.append((world.now[0], world.commits[0].last))
        for partition in range(PARTITIONS):
            for part in world.manifests[partition].prepared:
                first = overdue.setdefault(part.token, world.now[0])
                if world.commits[0].fate(part.token) is None and world.now[0] - first > DEADLINE:
                    decide(world, part.token, part.begun, commit=False)
                    yield
        document = world.commits[0]
        unfolded = set()
        for partition in range(PARTITIONS):
            yield
            unfolded |= {part.token for part in world.manifests[partition].prepared}
        if world.commits[0] is document and document.listed and world.chance.random() < 0.2:
            drop = 0
            for entry in document.listed:  # from the oldest on
                if world.rules.folded_before_forgotten and entry[0] in unfolded:
                    break
                drop += 1
            if drop:
                floor = document.listed[drop - 1][1]
                world.commits[0] = evolve(document, listed=document.listed[drop:], floor=floor)
        old = [last for at, last in known if at <= world.now[0] - LONGEST_QUERY] or [0]
        horizon = old[-1] if world.rules.kept_for_readers else world.commits[0].last
        for partition in range(PARTITIONS):
            manifest = world.manifests[partition]
            files = tuple(file for file in manifest.files if file.removed > horizon)
            oldest = max(manifest.oldest, horizon) if world.rules.kept_for_readers else manifest.oldest
            world.manifests[partition] = evolve(manifest, files=files, oldest=oldest)
            yield


def reader(world: World) -> Step:
    """Add up all partitions at one sequence, and judge."""
    while True:
        yield
        manifests: list[Manifest] = []
        commits = world.commits[0]
        for partition in range(PARTITIONS):
            for _ in range(world.chance.randint(1, 6)):
                yield
            manifests.append(world.manifests[partition])
        if not world.rules.sequence_first:
            commits = world.commits[0]
        if any(manifest.oldest > commits.last for manifest in manifests):
            continue  # too old a snapshot: it is read anew
        amounts = [amount_at(world, manifest, commits, commits.last) for manifest in manifests]
        if sum(amounts) != 0:
            world.wrong["a snapshot does not add up"] += 1
        for partition, amount in enumerate(amounts):
            if world.seen.setdefault((commits.last, partition), amount) != amount:
                world.wrong["a snapshot changed"] += 1


def adder(world: World, token: int) -> Step:
    """Add rows to two partitions."""
    begun = world.commits[0].last
    places = world.chance.sample(range(PARTITIONS), 2)
    world.moved[token] = (*places, 0)
    yield
    for partition in places:
        part = Prepared(token=token, begun=begun, amount=0, replaces=None, by=frozenset({token}))
        manifest = world.manifests[partition]
        world.manifests[partition] = evolve(manifest, prepared=(*manifest.prepared, part))
        yield
    yield from settle(world, token, begun, commit=True)


def replacer(world: World, token: int) -> Step:
    """Put rows into the place of all that are there, in every partition."""
    rules, begun = world.rules, world.commits[0].last
    world.moved[token] = (-1, -1, begun)
    yield
    for partition in range(PARTITIONS):
        for _ in range(60):
            before, commits = world.manifests[partition], world.commits[0]
            yield
            if world.manifests[partition] is not before:  # a conditional write
                continue
            manifest = fold(world, before, commits) if rules.changes_catch_up else before
            part = replacement(world, manifest, token, begun)
            if part is not None:
                world.manifests[partition] = evolve(manifest, prepared=(*manifest.prepared, part))
                break
        else:
            yield from settle(world, token, begun, commit=False)
            return
    yield from settle(world, token, begun, commit=True)


def replacement(world: World, manifest: Manifest, token: int, begun: int) -> Prepared | None:
    """What replaces all rows of a partition, or None if it must wait."""
    rules = world.rules
    here = [file for file in manifest.files if file.removed == NEVER]
    if rules.one_moment:
        if manifest.oldest > begun or any(f.added <= begun < f.removed != NEVER for f in manifest.files):
            return None
        here = [file for file in here if file.added <= begun]
    gone = frozenset(file.name for file in here)
    alone = rules.one_replacement or bool(gone)
    if rules.none_since and manifest.alone > begun:
        return None
    if alone and any(other.replaces is not None for other in manifest.prepared):
        return None
    replaces = gone if alone else None
    return Prepared(token=token, begun=begun, amount=0, replaces=replaces, by=frozenset({token}))


def onlooker(world: World) -> Step:
    """Look at all partitions at one sequence, and judge whose rows are there."""
    while True:
        yield
        commits, by = world.commits[0], list[frozenset[int]]()
        for partition in range(PARTITIONS):
            for _ in range(world.chance.randint(1, 6)):
                yield
            if world.manifests[partition].oldest > commits.last:
                break
            by.append(rows_at(fold(world, world.manifests[partition], commits), commits.last))
        if len(by) == PARTITIONS:
            judge_rows(world, commits, by)


def rows_at(manifest: Manifest, sequence: int) -> frozenset[int]:
    """The statements whose rows a reader at `sequence` sees in a manifest."""
    files = (file.by for file in manifest.files if file.added <= sequence < file.removed)
    return frozenset[int]().union(*files)


def judge_rows(world: World, commits: Commits, by: list[frozenset[int]]) -> None:
    """What is seen in each partition must be what whole statements left."""
    seen = frozenset[int]().union(*by)
    replaced = [token for token in seen if world.moved[token][0] < 0]
    if len(replaced) > 1:
        world.wrong["two replacements count"] += 1
    for token in seen.difference(replaced):
        if any(token not in by[place] for place in world.moved[token][:2]):
            world.wrong["a statement is seen in part"] += 1
        fate = commits.fate(token)
        if fate is not None and any(fate[0] <= world.moved[other][2] for other in replaced):
            world.wrong["what was replaced is there"] += 1


def run(seed: int, rules: Rules) -> Counter[str]:
    """The two histories of a seed; what was wrong with them."""
    return run_money(seed, rules) + run_changes(seed, rules)


def run_changes(seed: int, rules: Rules) -> Counter[str]:
    """One history of rows that are added and replaced; what was wrong with it."""
    chance = seeded_chance(seed)
    world = World(rules, chance, [Manifest() for _ in range(PARTITIONS)], [Commits()])
    actors: list[Step] = [owner(world, partition) for partition in range(PARTITIONS)]
    actors += [onlooker(world), onlooker(world), collector(world)]
    for step in range(CHANGE_STEPS):
        world.now[0] = step
        if step < CHANGE_STEPS // 2 and chance.random() < 2 * CHANGES / CHANGE_STEPS:
            actors.append((replacer if chance.random() < 0.4 else adder)(world, step))
        actor = chance.choice(actors)
        if next(actor, step) == step:
            actors.remove(actor)
    return world.wrong


def run_money(seed: int, rules: Rules) -> Counter[str]:
    """One history of money that moves; what was wrong with it."""
    chance = seeded_chance(seed)
    world = World(rules, chance, [Manifest() for _ in range(PARTITIONS)], [Commits()])
    background = [owner(world, partition) for partition in range(PARTITIONS)]
    background += [reader(world) for _ in range(3)] + [collector(world)]
    actors: list[Step] = list(background)
    asleep: dict[Step, int] = {}
    for step in range(STEPS):
        world.now[0] = step
        if step < STEPS // 2 and chance.random() < 2 * STATEMENTS / STEPS:
            actors.append(client(world, step))
        actor = chance.choice(actors)
        if asleep.get(actor, 0) > step:
            continue
        if chance.random() < 0.01:
            asleep[actor] = step + chance.choice((50, 600, 300 if actor in background else NEVER))
        elif next(actor, step) == step:
            actors.remove(actor)
    _finish(world)
    return world.wrong


def _finish(world: World) -> None:
    """Abort what is open, fold everything, and compare with what the clients were told."""
    for manifest in world.manifests:
        for part in manifest.prepared:
            decide(world, part.token, part.begun, commit=False)
    world.manifests[:] = [fold(world, manifest, world.commits[0]) for manifest in world.manifests]
    got = [amount_at(world, manifest, world.commits[0], world.commits[0].last) for manifest in world.manifests]
    if sum(got) != 0:
        world.wrong["the end does not add up"] += 1
    want = [0] * PARTITIONS
    for token, done in world.decided.items():
        source, target, amount = world.moved[token]
        want[source] -= amount * done
        want[target] += amount * done
    if got != want:
        world.wrong["committed and applied differ"] += 1
    if any(done != world.decided.get(token, False) for token, done in world.told.items()):
        world.wrong["a client was told what is not so"] += 1


def broken(seeds: int, rules: Rules) -> tuple[int, Counter[str]]:
    """In how many of the seeds something was wrong, and what."""
    found: Counter[str] = Counter()
    hit = 0
    for seed in range(seeds):
        wrong = run(seed, rules)
        hit += bool(wrong)
        found += wrong
    return hit, found


def variants() -> dict[str, Rules]:
    """All rules, and all but one."""
    names = [attribute.name for attribute in Rules.__attrs_attrs__]
    return {"all rules": Rules(), **{f"without {name}": Rules(**{name: False}) for name in names}}


def main(show: Callable[[str], object] = print) -> None:
    """Print how each variant fares."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    for name, rules in variants().items():
        hit, found = broken(seeds, rules)
        show(f"{name:32} {hit:3} of {seeds} seeds  {dict(found)}")


if __name__ == "__main__":
    main()
