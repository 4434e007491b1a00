"""`ballista-py sim`: run the simulation over many seeds on all cores, replay one, or try the mutants.

A failing seed is printed with the guarantee that it violates, the last events before it as a timeline, and the
command that replays it; the exit code is 1 then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from attrs import asdict, frozen
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ballista_py.runtime import SystemRuntime
from ballista_py.testing.simulation.history import timeline
from ballista_py.testing.simulation.mutants.mutants import MUTANTS
from ballista_py.testing.simulation.mutants.owners import OWNER_MUTANTS, owner_caught_by
from ballista_py.testing.simulation.mutants.table import (
    Fault,
    caught_by,
    write_table,
    write_table_of_definitions,
    write_table_of_jobs,
    write_table_of_owners,
    write_table_of_reads,
    write_table_of_writes,
)
from ballista_py.testing.simulation.mutants.writes import WRITE_MUTANTS, write_caught_by
from ballista_py.testing.simulation.simulation import HOUR_MS, Simulation

MAX_SHOWN_EVENTS = 40
AFTER_MS = 1_000.0

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def simulate() -> None:
    """Attack a simulated cluster with faults."""


@frozen(kw_only=True)
class SeedReport:
    """What one seed came to, small enough to travel between processes."""

    seed: int
    guarantees: tuple[str, ...]
    what: tuple[str, ...]
    timeline: tuple[str, ...]
    virtual_ms: float
    served: float
    healed_ms: float | None


def run_seed(seed: int, hours: float) -> SeedReport:
    """Run one seed, until it has failed or is over."""
    result = Simulation(seed, hours=hours).run(stop_at_first=True)
    first = result.violations[0] if result.violations else None
    return SeedReport(
        seed=seed,
        guarantees=tuple(sorted({violation.guarantee for violation in result.violations})),
        what=tuple(str(violation) for violation in result.violations[:3]),
        timeline=(
            tuple(timeline(result.history, first.at_ms + AFTER_MS, first.about, MAX_SHOWN_EVENTS)) if first else ()
        ),
        virtual_ms=result.virtual_ms,
        served=result.served,
        healed_ms=result.healed_ms,
    )


@app.command()
def run(
    seeds: Annotated[int, typer.Option(help="how many seeds", min=1)] = 200,
    first_seed: Annotated[int, typer.Option(help="the first of them")] = 1,
    hours: Annotated[float, typer.Option(help="virtual hours full of faults, per seed", min=0.0)] = 1.0,
    jobs: Annotated[int | None, typer.Option(help="processes; default: one a core", min=1)] = None,
    for_seconds: Annotated[float | None, typer.Option(help="start no further seed after that time")] = None,
    done: Annotated[
        Path | None, typer.Option(help="a file of seeds that passed: they are skipped, and new ones appended")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON for programs")] = False,
) -> None:
    """Run the simulation from many seeds; exit 1 if one violates a guarantee."""
    passed = _passed(done, hours)
    todo = [seed for seed in range(first_seed, first_seed + seeds) if seed not in passed]
    clock = SystemRuntime()
    begun_ms = clock.monotonic_ms()
    until_ms = begun_ms + 1_000 * for_seconds if for_seconds is not None else float("inf")
    reports: list[SeedReport] = []
    with _progress(quiet=as_json) as progress:
        bar = progress.add_task("seeds", total=len(todo))
        for report in _reports(todo, hours, jobs or os.cpu_count() or 1, lambda: clock.monotonic_ms() < until_ms):
            reports.append(report)
            progress.advance(bar)
            if report.guarantees and not as_json:
                _print_failure(report, hours)
            elif not report.guarantees and done is not None:
                with done.open("a") as file:
                    file.write(f"{hours:g} {report.seed}\n")
    seconds = (clock.monotonic_ms() - begun_ms) / 1_000
    summary = _summary(reports, len(passed), seconds)
    if as_json:
        data = {**summary, "failures": [asdict(r) for r in reports if r.guarantees]}
        typer.echo(orjson.dumps(data, option=orjson.OPT_INDENT_2).decode())
    else:
        typer.echo(
            f"{summary['seeds']} seeds, {summary['virtual_hours']:.1f} virtual hours in {seconds:.0f} s "
            f"({summary['speed']:.0f} x real time on all processes); {summary['failed']} failed; partitions "
            f"served {summary['served']:.1%} of the time; healed after {summary['slowest_heal_s']:.0f} s at most"
        )
    if summary["failed"]:
        raise typer.Exit(1)


@app.command()
def mutants(
    seeds: Annotated[int, typer.Option(help="give up on a mutant after that many seeds", min=1)] = 60,
    hours: Annotated[float, typer.Option(help="virtual hours per seed", min=0.0)] = 1.0,
    name: Annotated[list[str] | None, typer.Option(help="only this one; may be repeated")] = None,
    write: Annotated[Path | None, typer.Option(help="put the tables into this file, between their marks")] = None,
    writes_only: Annotated[
        bool, typer.Option(help="only those of the write path, in minutes of their own")
    ] = False,
    jobs: Annotated[int | None, typer.Option(help="processes; default: one a core", min=1)] = None,
) -> None:
    """Break the code on purpose, fault by fault, and see which seed notices; exit 1 if none does.

    Faults of the write path are tried in the simulations of writes, of owners and of definitions, those of jobs and
    of read jobs in their own, the others in that of the whole cluster.
    """
    from ballista_py.testing.simulation.mutants.definitions import (  # needs what a scheduler needs
        DEFINITION_MUTANTS,
        definition_caught_by,
    )
    from ballista_py.testing.simulation.mutants.jobs import JOB_MUTANTS, job_caught_by
    from ballista_py.testing.simulation.mutants.reads import READ_MUTANTS, read_caught_by

    chosen = [mutant for mutant in MUTANTS if not writes_only and (not name or mutant.name in name)]
    of_writes = [mutant for mutant in WRITE_MUTANTS if not name or mutant.name in name]
    of_owners = [mutant for mutant in OWNER_MUTANTS if not name or mutant.name in name]
    of_jobs = [mutant for mutant in JOB_MUTANTS if not name or mutant.name in name]
    of_definitions = [mutant for mutant in DEFINITION_MUTANTS if not name or mutant.name in name]
    of_reads = [mutant for mutant in READ_MUTANTS if not name or mutant.name in name]
    found: dict[str, tuple[int, str] | None] = {}
    with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        futures: dict[Future[tuple[int, str] | None], Fault] = {
            **{pool.submit(read_caught_by, mutant.name, seeds): mutant for mutant in of_reads},
            **{pool.submit(job_caught_by, mutant.name, seeds): mutant for mutant in of_jobs},
            **{pool.submit(definition_caught_by, mutant.name, seeds): mutant for mutant in of_definitions},
            **{pool.submit(owner_caught_by, mutant.name, seeds): mutant for mutant in of_owners},
            **{pool.submit(write_caught_by, mutant.name, seeds): mutant for mutant in of_writes},
            **{pool.submit(caught_by, mutant.name, seeds, hours): mutant for mutant in chosen},
        }
        for future, mutant in futures.items():
            found[mutant.name] = future.result()
            _print_mutant(mutant, found[mutant.name], seeds)
    if write is not None:
        write_table_of_writes(write, found, seeds)
        write_table_of_owners(write, found, seeds)
        write_table_of_definitions(write, DEFINITION_MUTANTS, found, seeds)
        write_table_of_jobs(write, JOB_MUTANTS, found, seeds)
        write_table_of_reads(write, READ_MUTANTS, found, seeds)
        if chosen:
            write_table(write, found, seeds)
    if None in found.values():
        raise typer.Exit(1)


def _reports(todo: list[int], hours: float, jobs: int, go_on: Any) -> Iterator[SeedReport]:
    """The reports of the seeds as they come in. No seed is started once `go_on()` is false."""
    waiting = iter(todo)
    running: set[Future[SeedReport]] = set()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        while True:
            while len(running) <= jobs and go_on() and (seed := next(waiting, None)) is not None:
                running.add(pool.submit(run_seed, seed, hours))
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()


def _passed(done: Path | None, hours: float) -> set[int]:
    """The seeds that the file says have passed for that many hours."""
    if done is None or not done.exists():
        return set()
    rows = (line.split() for line in done.read_text().splitlines())
    return {int(row[1]) for row in rows if len(row) == 2 and row[0] == f"{hours:g}"}


def _summary(reports: list[SeedReport], skipped: int, seconds: float) -> dict[str, Any]:
    virtual_ms = sum(report.virtual_ms for report in reports)
    return {
        "seeds": len(reports),
        "skipped": skipped,
        "failed": sum(bool(report.guarantees) for report in reports),
        "virtual_hours": virtual_ms / HOUR_MS,
        "seconds": seconds,
        "speed": virtual_ms / 1_000 / max(seconds, 1e-9),
        "served": sum(report.served for report in reports) / max(1, len(reports)),
        "slowest_heal_s": max((report.healed_ms or 0.0 for report in reports), default=0.0) / 1_000,
    }


def _progress(*, quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=quiet)


def _print_failure(report: SeedReport, hours: float) -> None:
    typer.echo(f"seed {report.seed}: {', '.join(report.guarantees)} violated")
    for line in report.timeline:
        typer.echo(f"    {line}")
    for line in report.what:
        typer.echo(f"  {line}")
    typer.echo(f"  replay: ballista-py sim run --seeds 1 --first-seed {report.seed} --hours {hours:g}")


def _print_mutant(mutant: Fault, caught: tuple[int, str] | None, seeds: int) -> None:
    verdict = f"{caught[1]} at seed {caught[0]}" if caught is not None else f"NOT CAUGHT in {seeds} seeds"
    typer.echo(f"{mutant.name:<26} {verdict:<24} {mutant.what}")
