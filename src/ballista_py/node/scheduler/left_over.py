"""Statements that schedulers left half done when they went."""

from __future__ import annotations

import logging
from collections.abc import Callable

from attrs import define

from ballista_py.logs import log_event
from ballista_py.node.scheduler.core import SchedulerCore

_log = logging.getLogger(__name__)


@define
class LeftOver:
    """Ends what schedulers left that have gone since the last look, by `settle`; at the first look all there is."""

    core: SchedulerCore
    settle: Callable[[frozenset[str]], int]
    _settled_for: frozenset[str] = frozenset()

    def tick(self) -> None:
        """Look once. Raises what reading the bucket raises; the next look tries again."""
        schedulers = frozenset(info.instance_id for info in self.core.schedulers())
        if not self._settled_for or self._settled_for - schedulers:
            settled = self.settle(schedulers)
            if settled:
                log_event(_log, "settled", statements=settled)
        self._settled_for = schedulers
