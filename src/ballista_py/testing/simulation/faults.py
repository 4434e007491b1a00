"""What can go wrong in a simulated world, and how often."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Faults:
    """Chances and rates. Those of requests and messages are chances of each one; `…_every_s` are mean times
    between events, per machine unless they say `any`; 0 means never. Times in ms are bounds of a uniform draw.
    """

    # Requests to the store.
    latency_ms: float = 40.0
    slow_request: float = 0.01
    slow_ms: float = 20_000.0
    throttled: float = 0.01
    lost_request: float = 0.01
    late_request: float = 0.005  # given up by the sender, lands up to `slow_ms` later all the same
    lost_reply: float = 0.02
    echoed_conflict: float = 0.005  # landed, lost, and sent again below us: our own write is the conflict
    stalled_request: float = 0.001  # the machine pauses between its decision and the request
    long_write: float = 0.05  # an owner takes long between its check and its commit
    long_write_ms: float = 60_000.0
    # Messages between schedulers and executors.
    message_ms: float = 1_000.0
    late_message: float = 0.02
    late_ms: float = 40_000.0
    lost_message: float = 0.04
    # Machines.
    pause_every_s: float = 500.0
    pauses_ms: tuple[float, ...] = (5_000.0, 20_000.0, 40_000.0, 120_000.0)
    cut_from_store_every_s: float = 700.0
    cut_ms: float = 120_000.0
    slow_store_every_s: float = 400.0
    slow_store_ms: float = 120_000.0
    slow_store_latency_ms: float = 15_000.0
    any_link_cut_every_s: float = 60.0
    link_cut_ms: float = 200_000.0
    any_isolated_every_s: float = 240.0
    scheduler_crash_every_s: float = 1_500.0
    executor_crash_every_s: float = 2_500.0
    restart_ms: float = 60_000.0
    zombie: float = 0.5  # the crash was none: the former process was paused and wakes up beside its successor
    clean_leave: float = 0.2

    @classmethod
    def none(cls) -> Faults:
        """A world in which nothing goes wrong, though the clocks still drift."""
        return cls(
            slow_request=0.0,
            throttled=0.0,
            lost_request=0.0,
            late_request=0.0,
            lost_reply=0.0,
            echoed_conflict=0.0,
            stalled_request=0.0,
            long_write=0.0,
            late_message=0.0,
            lost_message=0.0,
            pause_every_s=0.0,
            cut_from_store_every_s=0.0,
            slow_store_every_s=0.0,
            any_link_cut_every_s=0.0,
            any_isolated_every_s=0.0,
            scheduler_crash_every_s=0.0,
            executor_crash_every_s=0.0,
        )
