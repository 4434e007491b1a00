"""Take the pictures of the page that the guide shows: of a cluster of this machine that has something to do.

    .venv/bin/python scripts/page_pictures.py [docs/images]

Needs what `make test` installs: Playwright, and a Chromium in .venv or on the path.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow as pa

from ballista_py import LocalCluster

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cluster"))
from chromium import browser  # noqa: E402

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("kind", pa.string()), ("v", pa.float64())])
TABLES = {"events": (48, 40_000), "lineitem": (16, 120_000), "orders": (16, 30_000)}
KINDS = ["air", "mail", "rail", "ship", "truck"]
HARD = "kind"
for _ in range(12):
    HARD = f"md5(repeat({HARD}, 1000))"  # the executors compute it
SLOW = f"select count(*) as n from lineitem where {HARD} like '%00'"
FORECAST = f"select kind, count(*) as n from events where {HARD} like '%7' group by kind"
JOIN = (
    "select o.kind, k.name, sum(l.v) as value from orders o join lineitem l on o.id = l.id "
    "join kinds k on k.kind = o.kind group by all"
)
PICTURES = {
    "page-light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "page-dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "page-phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}


def main() -> None:
    """Start a cluster, let it work, and take the pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with LocalCluster(schedulers=2, executors=3, node_options={"replicas": "2"}) as cluster:
        fill(cluster)
        work(cluster.http_url())
        with browser() as chromium:
            for name, options in PICTURES.items():
                take(chromium, cluster.http_url(), folder / f"{name}.png", options)


def fill(cluster: LocalCluster) -> None:
    """Tables with rows."""
    for name, (buckets, count) in TABLES.items():
        cluster.create_table(name, schema=SCHEMA, partition_by=[f"bucket({buckets}, id)"])
        kinds = [KINDS[n % len(KINDS)] for n in range(count)]
        rows = {"id": range(count), "kind": kinds, "v": [n * 0.25 for n in range(count)]}
        cluster.ingest(name, pa.table(rows, schema=SCHEMA))
    cluster.ingest("kinds", pa.table({"kind": KINDS, "name": [k.title() for k in KINDS]}), mode="create")
    cluster.wait_until_loaded()


def work(url: str) -> None:
    """Statements that end well and badly, jobs, and one statement that still runs."""
    for sql in (
        "select kind, count(*) as n, sum(v) as value from lineitem group by kind order by 1",
        "select * from orders where id = 4711",
        "insert into events values (1000000, 'air', 1.5), (1000001, 'rail', 2.5)",
        "select nonsense from orders",
        "select count(*) from events where kind in (select kind from kinds where name = 'Rail')",
        JOIN,
    ):
        post(f"{url}/v1/sql", sql, "text/plain")
    for name, sql in (
        ("nightly", "select kind, count(*) as n from lineitem group by kind"),
        ("forecast", FORECAST),
    ):
        post(f"{url}/v1/jobs", json.dumps({"sql": sql, "name": name}), "application/json")
    threading.Thread(target=post, args=(f"{url}/v1/sql", SLOW, "text/plain"), daemon=True).start()
    time.sleep(1)


def post(url: str, body: str, kind: str) -> None:
    """Ask, whatever comes of it."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body.encode(), {"content-type": kind})) as reply:
            reply.read()
    except (urllib.error.URLError, OSError) as error:
        print(error)


def take(chromium: object, url: str, path: Path, options: dict) -> None:
    """One picture, with the plan of a statement unfolded."""
    context = chromium.new_context(**options)
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("#tables [role=gridcell]")
    page.wait_for_selector("#running .leg")
    if options["color_scheme"] == "light":
        line = page.locator("#ended .task", has_text="join lineitem").first
        line.locator(".unfold").click()
        line.locator(".box.answer").wait_for()
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
        height = page.evaluate(
            "Math.ceil(document.querySelector('.box.answer').getBoundingClientRect().bottom) + 24"
        )
        page.set_viewport_size({"width": options["viewport"]["width"], "height": height})
    page.wait_for_selector("#memory tbody tr")
    page.wait_for_timeout(2500)
    page.screenshot(path=str(path))
    print(path, path.stat().st_size)
    context.close()


if __name__ == "__main__":
    main()
