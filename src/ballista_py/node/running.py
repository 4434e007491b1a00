"""What both roles of a node stand on, and a node that runs: whatever was started is ended in reverse order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Any

from attrs import asdict, evolve, frozen

from ballista_py.engines.apart.shares import least_budget
from ballista_py.errors import BallistaError
from ballista_py.logs import log_event
from ballista_py.memory_budget import MemoryBudget
from ballista_py.node.allocators import GivesBack
from ballista_py.node.config import NodeConfig
from ballista_py.node.engine_processes import GIVE_BACK_MS, WATCH_MS, node_memory, own_bytes, spilled_bytes
from ballista_py.node.http.feed import Part
from ballista_py.node.http.ports import HttpPorts, MoreRoutes, check_tokens
from ballista_py.node.http.routes_node import NodeShows
from ballista_py.node.location import open_state_location
from ballista_py.node.loops import Loop
from ballista_py.node.observed_store import observed_store
from ballista_py.node.status.exports import ExportingTracer, closed_in_time, metric_readers, tracer_of
from ballista_py.node.status.metrics import NodeMetrics, observe_node
from ballista_py.node.status.plans import leg_progress
from ballista_py.node.status.seen_tasks import VIEWER, may_see_plan
from ballista_py.node.status.tasks import RUNNING, Tasks
from ballista_py.runtime import Runtime
from ballista_py.state.members.identity import cluster_identity
from ballista_py.state.stores.store import ConditionalStore
from ballista_py.transport.flight.calls import OpenCalls
from ballista_py.transport.security.certificates import check_own
from ballista_py.transport.security.credentials import Removed

_log = logging.getLogger(__name__)
SHOWN_TASKS = 100
TASKS_MS = 900.0  # between two looks of a page
PAGE_ENDED = 60
PAGE_TEXT_CHARS = 400


@frozen
class RunningNode:
    """A node that answers. `stop` leaves the cluster and ends every call, loop and thread; ten seconds at most.

    `drain`, before it, begins nothing new, and returns whether nobody would miss this node now: ask it until then.
    `failed` gives the reason why it is of no use any more, if it found one.
    """

    stop: Callable[[], None]
    drain: Callable[[], bool]
    failed: Callable[[], BallistaError | None] = lambda: None


@frozen(kw_only=True)
class Foundation:
    """What a node of either role has before it listens. Whatever has an end is put on `up` as soon as it is there."""

    config: NodeConfig
    runtime: Runtime
    up: ExitStack
    removed: Removed
    store: ConditionalStore
    cluster_id: str
    metrics: NodeMetrics
    tasks: Tasks
    budget: MemoryBudget

    @classmethod
    def lay(cls, config: NodeConfig, runtime: Runtime, up: ExitStack) -> Foundation:
        """Look at what the node was given: its certificate, its files, the bucket.

        Raises `ConfigError` for what cannot be used, and what reading the bucket raises.
        """
        check_own(config.node_tls(), config.node_id, config.node_role, runtime)
        removed = Removed(config.node_mtls_removed_file)
        removed.listed()  # a list that cannot be used is no reason to start
        check_tokens(config, runtime)
        every_ms = config.otlp_interval_ms
        metrics = NodeMetrics(
            config.node_id, config.node_role, metric_readers(config.otlp_endpoint, every_ms), runtime
        )
        up.callback(closed_in_time, metrics.close)
        tracer = tracer_of(
            config.otlp_endpoint, config.node_id, config.node_role, config.trace_sample_ratio, runtime, every_ms
        )
        if isinstance(tracer, ExportingTracer):
            up.callback(tracer.close)
        store = observed_store(open_state_location(config, runtime), metrics, runtime)
        return cls(
            config=config,
            runtime=runtime,
            up=up,
            removed=removed,
            store=store,
            cluster_id=cluster_identity(store, runtime=runtime),
            metrics=metrics,
            tasks=Tasks(config.node_id, runtime, metrics.ended, tracer),
            budget=MemoryBudget(least_budget(node_memory(config)), runtime),
        )

    def loop(self, name: str, tick: Callable[[], object], interval_ms: float) -> Loop:
        """Call `tick` again and again from now on, until the node stops."""
        loop = Loop(name, tick, interval_ms=interval_ms, runtime=self.runtime)
        self.up.callback(loop.stop)
        return loop.start()

    def watch_memory(self, look: Callable[[], object]) -> None:
        """Look at what the processes of the engine take, and give back what this one does not need."""
        self.loop("memory", look, WATCH_MS)
        self.loop("free", GivesBack(own_bytes, self.runtime).tick, GIVE_BACK_MS)

    def show(
        self,
        ready: Callable[[], bool],
        status: Callable[[str | None], Any],
        routes: MoreRoutes = lambda _door: (),
        statements: OpenCalls | None = None,
        parts: Sequence[Part] = (),
        require_figures: Callable[[], object] = lambda: None,
        require_look: Callable[[], object] | None = None,
    ) -> None:
        """Open the ports for HTTP. `routes` are those of this role, `parts` what its page shows beside what every node
        does; what is done for clients is one of `statements`. `status` is told which client looks, None of a viewer.
        `require_figures` raises for a client who may not see all figures, and `require_look` for one who may see
        no more than whether the node is up.
        """
        self.metrics.watch_certificate(self.config.node_tls(), self.runtime)
        observe_node(self.metrics, self.tasks, self.budget, ready, self.spilled)
        shows = NodeShows(
            node_id=self.config.node_id,
            role=self.config.node_role,
            ready=ready,
            status=status,
            tasks=self.shown_tasks,
            parts=[
                Part(name="running", every_ms=TASKS_MS, make=self._running, differs=True),
                Part(name="ended", every_ms=TASKS_MS, make=self._ended, differs=True),
                *parts,
            ],
        )
        if require_look is not None:
            shows = _behind(require_look, shows)

        def figures() -> bytes:
            require_figures()
            return self.metrics.text()

        ports = HttpPorts(self.config, figures, self.runtime, shows, routes, statements)
        self.up.callback(ports.close)
        log_event(_log, "ports", node=self.config.node_id, http=ports.http.port, metrics=ports.metrics.port)

    def spilled(self) -> int:
        """Bytes that this node has spilled."""
        return spilled_bytes(self.config.data_dir)

    def _running(self, client: str | None) -> dict[str, Any]:
        """What runs now, and how far its legs are."""
        is_told = client is VIEWER or self.tasks.sees_all()
        plans = self.tasks.plans() if is_told else {}
        legs = {task_id: leg_progress(plan) for task_id, plan in plans.items()}
        tasks = [
            {
                **asdict(shown),
                "planned": task.task_id in legs and may_see_plan(task.user, task.job_id, client),
            }
            for task in self.tasks.last(SHOWN_TASKS)
            if task.outcome == RUNNING
            for shown in self.tasks.shown_of([task], client)
        ]
        return {"tasks": tasks, "legs": legs, "now_ms": self.runtime.wall_ms() if tasks else 0}

    def _ended(self, client: str | None) -> list[dict[str, Any]]:
        """What ended last, newest first, and whether its plan can be asked for; texts are cut, `/v1/tasks` has more."""
        ended = (task for task in self.tasks.last(SHOWN_TASKS) if task.outcome != RUNNING)
        found = ((task, shown) for task in ended for shown in self.tasks.shown_of([task], client))
        return [
            {
                **asdict(shown),
                "text": shown.text[:PAGE_TEXT_CHARS],
                "planned": self.tasks.has_plan(task, client),
            }
            for task, shown in islice(found, PAGE_ENDED)
        ]

    def shown_tasks(self, client: str | None) -> list[dict[str, Any]]:
        """The last statements and legs, as this client may see them; None: as a viewer may."""
        return [asdict(task) for task in self.tasks.seen(SHOWN_TASKS, client)]


def _behind(require_look: Callable[[], object], shows: NodeShows) -> NodeShows:
    """The same for those for whom `require_look` does not raise; by whom else they look they are made anew."""

    def looked(make: Callable[[str | None], Any]) -> Callable[[str | None], Any]:
        def look(client: str | None) -> Any:
            require_look()
            return make(client)

        return look

    parts = [evolve(part, make=looked(part.make), differs=True) for part in shows.parts]
    return evolve(shows, status=looked(shows.status), tasks=looked(shows.tasks), parts=parts)
