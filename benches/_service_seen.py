"""A lookup while nobody looks, while metrics are scraped, and while traces are sent: three clusters, asked in turns."""

from __future__ import annotations

import statistics
import threading
import urllib.request
from contextlib import ExitStack

from ballista_py import LocalCluster
from seeing import Collector, fill, lookups

SCRAPES_EVERY_S = 1.0


def run(rounds: int, count: int) -> None:
    """Measure and print."""
    with ExitStack() as over:
        collector = Collector()
        over.callback(collector.close)
        sent = {"otlp-endpoint": collector.endpoint, "otlp-interval-ms": "1000"}
        options = {"nobody looks": {}, "metrics scraped each second": {}, "traces and metrics sent": sent}
        clusters = {
            name: over.enter_context(LocalCluster(schedulers=1, executors=1, node_options=given))
            for name, given in options.items()
        }
        scrapes = scraped(clusters["metrics scraped each second"], over)
        clients = {name: over.enter_context(cluster.client()) for name, cluster in clusters.items()}
        for name, cluster in clusters.items():
            fill(cluster)
            lookups(cluster, clients[name], count)
        names = list(clusters)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for turn in range(rounds):
            for name in names[turn % 3 :] + names[: turn % 3]:
                found[name].append(lookups(clusters[name], clients[name], count))
        assert scrapes, "nothing was scraped"
    base = statistics.median(cpu for cpu, _ in found[names[0]])
    print("\na lookup that is seen")
    for name in names:
        cpu_ms, took_ms = (statistics.median(column) for column in zip(*found[name], strict=True))
        print(f"  {name:<30}{cpu_ms:>7.2f} ms of processor ({cpu_ms / base - 1:+.1%})  {took_ms:>7.2f} ms")


def scraped(cluster: LocalCluster, over: ExitStack) -> list[int]:
    """Ask every node for its metrics, again and again; the sizes of what they said."""
    sizes: list[int] = []
    done = threading.Event()
    urls = [cluster.status_url(node_id, metrics=True) for node_id in cluster.node_ids]

    def scrape() -> None:
        while not done.wait(SCRAPES_EVERY_S):
            for url in urls:
                with urllib.request.urlopen(url) as answer:
                    sizes.append(len(answer.read()))

    thread = threading.Thread(target=scrape)
    thread.start()
    over.callback(thread.join)
    over.callback(done.set)
    return sizes
