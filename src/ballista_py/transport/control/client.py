"""The executor's side of control: one stream to every scheduler, found and kept up by itself.

Carries values and decides nothing. A stream that breaks is opened again after a wait that grows by Fibonacci
numbers up to five seconds; its first message is a heartbeat with all that the executor holds, so a scheduler that
lost everything knows everything again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from ballista_py.errors import BallistaError, TransportError, Unauthenticated
from ballista_py.runtime import Runtime
from ballista_py.state.documents.object_state import Retry
from ballista_py.transport.control.grpc import aio
from ballista_py.transport.control.link import LINK_FAILURES, ControlledExecutor, ControlLink, until_one_ends
from ballista_py.transport.control.outages import Outages
from ballista_py.transport.endpoints import Address
from ballista_py.transport.security.credentials import Removed, Tls

DISCOVERY_MS = 5_000
RECONNECT_UNIT_MS = 100.0
RECONNECT_CAP_MS = 1_000.0
_TRIES_UNTIL_CAP = 12

_log = logging.getLogger(__name__)
T = TypeVar("T")


def reconnect_delay_ms(failures: int, chance: float) -> float:
    """The wait before the next try after `failures` in a row; `chance` is a random number in [0, 1).

    >>> [reconnect_delay_ms(failures, 0.5) for failures in (1, 2, 3, 4, 5, 1_000)]
    [50.0, 50.0, 100.0, 150.0, 250.0, 500.0]
    """
    retry = Retry(unit_ms=RECONNECT_UNIT_MS, longest_ms=RECONNECT_CAP_MS)
    return retry.delay_ms(min(failures, _TRIES_UNTIL_CAP), chance)


class ControlClient:
    """Keep `run` running on a loop; `poke` and `connected` may be called from any thread, `leave` on the loop.

    `seeds` are control addresses of schedulers; the others are learnt from them within `discovery_ms`. A heartbeat
    goes to every scheduler each `heartbeat_ms`, and at once after `poke`: that is how an update is acknowledged. A
    stream over which nothing came back for `silence_ms` counts as broken. `workers` run the executor's methods.
    With `tls` every scheduler must prove the id that it goes by before it is told anything; one in `removed` is neither
    told nor heard. A scheduler of another cluster than `cluster_id` is told nothing either; `foreign` is told when
    there are none but such at all `seeds`, and none of this cluster was ever heard.

    Raises `ConfigError` for a seed that is not an address.
    """

    def __init__(
        self,
        seeds: Sequence[str],
        executor: ControlledExecutor,
        workers: Executor,
        runtime: Runtime,
        *,
        heartbeat_ms: float,
        silence_ms: float | None = None,
        discovery_ms: float = DISCOVERY_MS,
        tls: Tls | None = None,
        removed: Removed | None = None,
        cluster_id: str = "",
        foreign: Callable[[BallistaError], None] = lambda _error: None,
    ) -> None:
        self._foreign = foreign
        self._removed = removed or Removed()
        self._cluster_id = cluster_id
        self._seeds = tuple(str(Address.parse(seed)) for seed in seeds)
        self._outages = Outages(self._seeds)
        self._executor = executor
        self._workers = workers
        self._runtime = runtime
        self._heartbeat_ms = heartbeat_ms
        self._silence_ms = silence_ms if silence_ms is not None else 4 * heartbeat_ms
        self._discovery_ms = discovery_ms
        self._tls = tls
        self._peer_ids: dict[str, str] = {}  # who a scheduler at an address said that it is
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._links: dict[str, ControlLink] = {}  # by scheduler id
        self._listed: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Keep a stream to every scheduler until cancelled; then close them all."""
        self._loop = asyncio.get_running_loop()
        try:
            for address in self._seeds:
                self._know(address)
            await asyncio.Event().wait()
        finally:
            keepers = tuple(self._keepers.values())
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)

    def poke(self) -> None:
        """Send a heartbeat to every scheduler now, because what the executor holds has changed."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._poke_all)

    def connected(self) -> tuple[str, ...]:
        """The ids of the schedulers that answer now."""
        return tuple(sorted(id_ for id_, link in tuple(self._links.items()) if link.answered))

    async def leave(self, executor_id: str, instance_id: str) -> bool:
        """Tell the schedulers, until one of them has committed it, that this executor serves no longer.

        Stop serving before. False if none did: then the executor counts as lost once its silence was long enough.
        """
        for address in sorted({*self._seeds, *self._listed}):
            try:
                async with self._link(address) as link:
                    await link.leave(executor_id, instance_id)
                    return True
            except LINK_FAILURES as error:
                _log.info("scheduler at %s was not told of the leave: %s", address, type(error).__name__)
        return False

    async def ask(self, question: Callable[[ControlLink], Awaitable[T]]) -> T:
        """The answer of the first scheduler that gives one, as in `ask(Link.definition)`. On the loop only.

        Raises `TransportError` when none does, and what `question` raises of our tree.
        """
        for _, link in sorted(self._links.items()):
            try:
                return await question(link)
            except LINK_FAILURES as error:
                _log.info("scheduler at %s did not answer: %s", link.address, _said(error))
        raise TransportError("no scheduler answers")

    def _link(self, address: str) -> ControlLink:
        return ControlLink(
            address,
            self._executor,
            self._workers,
            self._heartbeat_ms,
            self._silence_ms,
            tls=self._tls,
            peer_id=self._peer_ids.get(address),
            cluster_id=self._cluster_id,
        )

    def _know(self, address: str) -> None:
        if address not in self._keepers:
            self._keepers[address] = asyncio.create_task(self._keep(address))

    def _poke_all(self) -> None:
        for link in self._links.values():
            link.poke()

    async def _keep(self, address: str) -> None:
        """Converse with the scheduler at `address` again and again, until it is no longer listed anywhere."""
        failures = 0
        try:
            while True:
                link = self._link(address)
                try:
                    async with link:
                        if await self._introduced(link):
                            continue
                        await self._converse(link)
                except (*LINK_FAILURES, BallistaError) as error:
                    self._failed(link, error)
                except asyncio.CancelledError:
                    if _is_being_cancelled():
                        raise
                    _log.info("control stream to %s was cancelled by gRPC", address)
                except Exception:
                    _log.exception("control stream to %s broke", address)
                self._peer_ids.pop(address, None)  # another scheduler may live there next time
                failures = 1 if link.answered else failures + 1
                if address not in self._listed and address not in self._seeds:
                    self._outages.forget(address)
                    return
                await asyncio.sleep(reconnect_delay_ms(failures, self._runtime.random()) / 1e3)
        finally:
            self._keepers.pop(address, None)

    def _failed(self, link: ControlLink, error: BaseException) -> None:
        """Say that a stream broke, or that the scheduler is waited for: at first, and then each minute."""
        address, now_ms = link.address, self._runtime.monotonic_ms()
        if link.answered:
            self._outages.heard(address)
        if self._outages.says(address, now_ms):
            if link.answered:
                _log.info("control stream to %s broke: %s", address, _said(error))
            else:
                waited_s = self._outages.lasted_s(address, now_ms)
                _log.warning("waiting for the scheduler at %s for %.0f s: %s", address, waited_s, _said(error))
        vain = self._outages.failed(address, error)
        if vain is not None:
            self._foreign(vain)

    async def _introduced(self, link: ControlLink) -> bool:
        """Whether the scheduler has only now said who it is; then the next link lets it prove that."""
        if self._tls is None or link.peer_id is not None:
            return False
        said, _ = await link.schedulers()
        self._removed.check(said)
        self._peer_ids[link.address] = said
        return True

    async def _converse(self, link: ControlLink) -> None:
        scheduler_id = await self._learn(link)
        if scheduler_id in self._links:
            return  # another address leads to the same scheduler
        self._links[scheduler_id] = link
        try:
            await until_one_ends(link.converse(), self._discover(link))
        finally:
            del self._links[scheduler_id]

    async def _learn(self, link: ControlLink) -> str:
        """Start a conversation with every scheduler that this one lists; returns its own id."""
        scheduler_id, schedulers = await link.schedulers()
        self._outages.heard(link.address)
        self._removed.check(scheduler_id)
        if link.peer_id is not None and scheduler_id != link.peer_id:
            raise Unauthenticated(f"the scheduler '{link.peer_id}' calls itself '{scheduler_id}'")
        self._listed = frozenset(
            scheduler.control_address for scheduler in schedulers if scheduler.control_address
        )
        for address in sorted(self._listed):
            self._know(address)
        return scheduler_id

    async def _discover(self, link: ControlLink) -> None:
        while True:
            await asyncio.sleep(self._discovery_ms / 1e3)
            await self._learn(link)


def _is_being_cancelled() -> bool:
    """Whether a `CancelledError` is meant for this task; gRPC raises it for a call that it gave up, too."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _said(error: BaseException) -> str:
    if isinstance(error, aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
