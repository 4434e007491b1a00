"""The page of a scheduler in a real browser: what it shows is what the API says, to whom it may be shown."""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest

from ballista_py import LocalCluster

sys.path.insert(0, str(Path(__file__).parent))
from chromium import browser as started_browser
from chromium import program

pytestmark = pytest.mark.cluster
TOKENS = {"ada": "ada-ada-ada-ada-ada-1", "bob": "bob-bob-bob-bob-bob-1", "eye": "eye-eye-eye-eye-eye-1"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("kind", pa.string())])
HOSTILE = '<img src=x onerror="document.title=1"><script>alert(1)</script>'
HOSTILE_VALUE = "<b onclick=alert(1)>bold</b>"
HARD = "kind"
for _ in range(20):
    HARD = f"md5(repeat({HARD}, 1000))"  # the executors compute it: 0.1 ms a row each
SLOW = f"select count(*) from events where {HARD} = 'x'"
JOIN = "select e.kind, k.name, count(*) as n from events e join kinds k on e.kind = k.kind group by all"
ROWS = 20_000
PATIENCE_MS = 30_000
REFUSED = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"


def asked(cluster, method, path, body=None, client="ada", kind="text/plain"):
    """What the API answers, as JSON."""
    said = {"authorization": f"Bearer {TOKENS[client]}", **({} if body is None else {"content-type": kind})}
    request = urllib.request.Request(cluster.http_url() + path, body and body.encode(), said, method=method)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.loads(reply.read())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    program()
    folder = tmp_path_factory.mktemp("page")
    (folder / "tokens").write_text("".join(f"{name} {TOKENS[name]}\n" for name in ("ada", "bob")))
    (folder / "viewers").write_text(f"eye {TOKENS['eye']}\n")
    options = {"flight-tokens-file": str(folder / "tokens"), "status-tokens-file": str(folder / "viewers")}
    with LocalCluster(schedulers=1, executors=2, token=TOKENS["ada"], node_options=options) as found:
        found.create_table("events", schema=SCHEMA, partition_by=["bucket(8, id)"])
        rows = {"id": list(range(ROWS)), "kind": [f"k{n % 3}" for n in range(ROWS)]}
        found.ingest("events", pa.table(rows, schema=SCHEMA))
        found.ingest("kinds", pa.table({"kind": ["k0", "k1", "k2"], "name": ["a", "b", "c"]}), mode="create")
        found.sql("create table values_of_others (s varchar) partitioned by (s)")
        found.sql(f"insert into values_of_others values ('{HOSTILE_VALUE}')")
        found.wait_until_loaded()
        found.tokens_file = folder / "tokens"
        yield found


@pytest.fixture(scope="module")
def chromium(cluster):
    with started_browser() as found:
        yield found


@pytest.fixture
def pages(cluster, chromium):
    """Open the page as somebody; at the end nothing was said in the console and nobody else was asked."""
    opened, said, elsewhere = [], [], []

    def open_page(
        client=None, width=1280, height=900, refused=False, node="scheduler-1", until="#nodes tbody tr", **options
    ):
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        opened.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda line: None if refused and line.text == REFUSED else said.append(line.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append("a dialog"), dialog.dismiss()))
        home = cluster.http_url(node)
        page.on("request", lambda one: None if one.url.startswith(home) else elsewhere.append(one.url))
        if client is not None:
            context.add_init_script(f"sessionStorage.setItem('ballista-token', {json.dumps(TOKENS[client])})")
        page.goto(home)
        if client is not None:
            page.wait_for_selector(until)
        return page

    yield open_page
    for context in opened:
        context.close()
    assert said == []
    assert elsewhere == []


def cancelled(cluster, sql):
    """Ask for something that is cancelled meanwhile; the status that says so."""
    try:
        asked(cluster, "POST", "/v1/sql", sql)
    except urllib.error.HTTPError as error:
        return error.code
    return 200


def texts(page, selector):
    return page.locator(selector).all_inner_texts()


def until(condition):
    """Wait until it holds, and give what it gave."""
    end = time.monotonic() + PATIENCE_MS / 1e3
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)
    return found


def test_without_a_token_the_page_says_nothing_and_asks_for_one(pages, cluster):
    page = pages(refused=True)
    page.wait_for_selector("#token-form:not([hidden])")
    assert "executor-1" not in page.content()
    page.fill("#token", "wrong-wrong-wrong-wrong")
    with page.expect_response(lambda answer: answer.status == 401):
        page.keyboard.press("Enter")
    until(lambda: "wrong" not in page.input_value("#token") and page.inner_text("#token-said"))
    assert page.is_hidden("#main")
    page.fill("#token", TOKENS["ada"])
    page.keyboard.press("Enter")
    page.wait_for_selector("#nodes tbody tr")
    assert page.inner_text("#link") == "live"
    kept = page.evaluate(
        "[Object.values(sessionStorage), Object.keys(localStorage), document.cookie, location.href]"
    )
    assert kept == [[TOKENS["ada"]], [], "", f"{cluster.http_url()}/"]
    page.click("#forget")
    page.wait_for_selector("#token-form:not([hidden])")
    assert "executor-1" not in page.content()


def test_each_view_shows_what_the_api_says(pages, cluster):
    asked(cluster, "POST", "/v1/sql", JOIN)
    job = asked(
        cluster,
        "POST",
        "/v1/jobs",
        json.dumps({"sql": "select 41 + 1 as n", "name": "sum"}),
        kind="application/json",
    )
    until(lambda: asked(cluster, "GET", f"/v1/jobs/{job['job_id']}")["state"] == "SUCCEEDED")
    page = pages("ada")
    members = asked(cluster, "GET", "/v1/nodes")
    lines = texts(page, "#nodes tbody tr")
    assert len(lines) == len(members) == 3
    for member in members:
        (line,) = [one for one in lines if member["node_id"] in one]
        assert member["address"] in line
        assert "live" in line
        assert member["role"] == "scheduler" or str(member["partitions"]) in line.split()
    page.wait_for_selector("#tables h3")
    datasets = asked(cluster, "GET", "/v1/datasets")
    assert texts(page, "#tables h3") == [one["name"] for one in datasets]
    assert texts(page, "#tables .table-head .badge") == [
        f"{one['serving']}/{one['partitions']}" for one in datasets
    ]
    partitions = asked(
        cluster,
        "POST",
        "/v1/sql",
        "select * from runtime.partitions where table_name = 'events' order by partition",
    )
    cells = page.locator('#tables [role=grid][aria-label="Partitions of events"] [role=gridcell]')
    until(lambda: "serving" in cells.first.get_attribute("aria-label"))
    for cell, row in zip(cells.all(), partitions, strict=True):
        said = cell.get_attribute("aria-label").split(" · ")
        wanted = [f"partition {row['partition']}", f"owner {row['owner']}", row["state"], f"{row['rows']:,} rows"]
        assert set(wanted) <= set(said), (said, wanted)
    tasks = asked(cluster, "GET", "/v1/tasks")
    shown = until(lambda: len(found := texts(page, "#ended .task")) == len(tasks) and found)
    for line, task in zip(
        shown, sorted(tasks, key=lambda one: -one["started_at_ms"] - one["took_ms"]), strict=True
    ):
        assert task["text"] in line
        assert task["outcome"] in line
    (line,) = [one for one in until(lambda: texts(page, "#jobs .job")) if "sum" in one]
    assert "succeeded" in line
    assert "1 row" in line
    rows = until(lambda: texts(page, "#memory tbody tr"))
    names = texts(page, "#memory tbody th > span:last-child")
    assert names == ["scheduler-1", "executor-1", "executor-2"]
    assert all(" of " in row and " GB" in row for row in rows)


def test_what_runs_shows_each_leg_and_ends_by_its_button(pages, cluster):
    page = pages("ada")
    outcome = []

    asking = threading.Thread(target=lambda: outcome.append(cancelled(cluster, SLOW)))
    asking.start()
    line = page.locator("#running .task", has_text="md5")
    line.locator(".leg").nth(1).wait_for()
    assert {text.split()[0] for text in line.locator(".leg").all_inner_texts()} == {"executor-1", "executor-2"}
    bars = line.get_by_role("progressbar")
    assert (bars.get_attribute("aria-valuenow"), bars.get_attribute("aria-valuemax")) == ("0", "2")
    cancel = line.get_by_role("button", name="Cancel")
    cancel.click()
    assert asking.is_alive()
    assert "Really" in line.inner_text()
    line.get_by_role("button", name="Cancel").click()
    page.locator("#said", has_text="was cancelled").wait_for()  # it is said for some seconds
    asking.join(60)
    assert outcome == [400]
    page.locator("#ended .task", has_text="md5").locator(".badge", has_text="cancelled").wait_for()
    line.wait_for(state="detached")


def test_what_has_ended_is_unfolded_to_its_plan_and_what_each_leg_took(pages, cluster):
    sql = JOIN.replace("as n", "as unfolded")  # no other test's, which the page may still show
    asked(cluster, "POST", "/v1/sql", sql)
    task = next(one for one in asked(cluster, "GET", "/v1/tasks") if one["text"] == sql)
    plan = asked(cluster, "GET", f"/v1/tasks/{task['task_id']}/plan")
    assert plan["legs"]
    assert all(leg["ended"] for leg in plan["legs"])
    page = pages("ada")
    line = page.locator("#ended .task", has_text="as unfolded").first
    line.get_by_role("button").first.press("Enter")
    line.locator(".box.answer").wait_for()
    assert len(line.locator(".box").all()) == len(plan["fragments"]) + len(plan["broadcasts"]) + 1 + (
        plan["merge_sql"] is not None
    )
    legs = line.locator(".bars li").all_inner_texts()
    assert len(legs) == len(plan["legs"])
    rows = sorted(leg["rows"] for leg in plan["legs"])
    assert sorted(int(leg.split(" row")[0].split()[-1].replace(",", "")) for leg in legs) == rows
    reads = "edges"
    assert len(line.locator(f"svg.{reads} path").all()) >= len(plan["fragments"])
    assert task["trace_id"] in line.inner_text()
    line.get_by_role("button").first.press("Enter")
    line.locator(".box.answer").wait_for(state="hidden")


def test_no_plan_is_asked_for_where_there_is_none(pages, cluster):
    with pytest.raises(urllib.error.HTTPError):
        asked(cluster, "POST", "/v1/sql", "select nowhere from events")
    asked(cluster, "POST", "/v1/sql", "select 'a constant' as c")
    for node, selector in (("scheduler-1", "#tiles li"), ("executor-1", "#memory tbody tr")):
        page = pages("ada", node=node, until=selector)  # a 404 would stand in its console
        page.wait_for_selector("#ended .task")
        for line in page.locator("#ended .unfold:visible").all()[:15]:
            line.click()
        asking = (
            "[...document.querySelectorAll('#ended .detail:not([hidden]) .plan')]"
            ".filter((one) => !one.textContent && !one.childElementCount).length"
        )
        until(lambda page=page, asking=asking: page.evaluate(asking) == 0)
        assert page.locator("#ended .detail:not([hidden])").count() > 0
        said = page.inner_text("#ended")
        assert ("It has no plan" if node == "scheduler-1" else "a task of its own") in said


def test_a_key_without_a_name_is_said_as_the_table_declares_it(pages, cluster):
    cluster.sql("create table by_kind (id bigint, kind varchar) partitioned by (kind, bucket(2, id))")
    cluster.sql("insert into by_kind values (1, 'a kind')")
    try:
        page = pages("ada")
        cell = page.locator('[aria-label="Partitions of by_kind"] [role=gridcell]').first
        cell.wait_for()
        assert "kind=a kind/bucket(2, id)=" in cell.get_attribute("aria-label")
    finally:
        cluster.sql("drop table by_kind")


def test_nothing_is_left_of_what_was_shown_when_the_token_does_no_more(pages, cluster):
    page = pages("bob", refused=True)
    page.wait_for_selector("#tables h3")
    cell = page.locator('[aria-label="Partitions of events"] [role=gridcell]').first
    cell.focus()
    assert "executor-" in page.content()
    tokens = cluster.tokens_file
    before = tokens.read_text()
    tokens.write_text("".join(line for line in before.splitlines(keepends=True) if "bob" not in line))
    try:
        page.wait_for_selector("#token-form:not([hidden])")
        shown = page.content()
        assert not [word for word in ("executor-", "scheduler-1", "events", "select", "bucket") if word in shown]
        assert page.title() == "ballista_py"
    finally:
        tokens.write_text(before)

    def looks():
        if page.is_visible("#token-form"):  # the file counts within a second
            page.fill("#token", TOKENS["bob"])
            page.press("#token", "Enter")
        return page.locator("#nodes tbody tr").count()

    until(looks)
    assert page.inner_text("#node") == "scheduler-1"


def test_hostile_texts_are_texts(pages, cluster):
    asked(cluster, "POST", "/v1/sql", f"select '{HOSTILE}' as s from events limit 1")
    with pytest.raises(urllib.error.HTTPError):
        asked(cluster, "POST", "/v1/sql", f'select "{HOSTILE}" from events'.replace('="', "=''"))
    asked(
        cluster,
        "POST",
        "/v1/jobs",
        json.dumps({"sql": f"select '{HOSTILE}'", "name": HOSTILE}),
        kind="application/json",
    )
    page = pages("ada")
    line = page.locator("#ended .task", has_text=f"select '{HOSTILE}' as s").first
    line.get_by_role("button").first.click()
    line.locator(".box.answer").wait_for()
    page.locator("#jobs .job", has_text=HOSTILE).first.wait_for()
    cell = page.locator('[aria-label="Partitions of values_of_others"] [role=gridcell]')
    cell.hover()
    assert HOSTILE_VALUE in cell.get_attribute("aria-label")
    assert HOSTILE_VALUE in page.inner_text("#tables .cell-said")
    assert page.evaluate("document.querySelectorAll('img, main script, main b[onclick]').length") == 0
    assert page.title().startswith("scheduler-1")


def test_who_only_looks_and_another_client_can_end_nothing_of_hers(pages, cluster):
    job = json.dumps({"sql": "select 'hers' as s", "name": "of ada"})
    asked(cluster, "POST", "/v1/jobs", job, kind="application/json")
    asking = threading.Thread(target=cancelled, args=(cluster, SLOW))
    asking.start()
    try:
        for client in ("eye", "bob"):
            page = pages(client)
            page.locator("#running .task .leg").first.wait_for()
            assert ("md5" in page.inner_text("#running")) == (client == "eye")  # her text is hers
            assert page.locator("#running .danger:visible").count() == 0
            assert page.locator("#jobs .job").count() == 0
            assert page.is_visible("#jobs") == (client == "bob")
            assert (page.locator("#tables .danger:visible").count() > 0) == (client == "bob")
    finally:
        for task in asked(cluster, "GET", "/v1/tasks"):
            if task["outcome"] == "running" and task["text"] == SLOW:
                asked(cluster, "DELETE", f"/v1/tasks/{task['task_id']}")
        asking.join(60)


def test_keys_reach_all_of_it(pages, cluster):
    page = pages("ada")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.type("executor-2")
    until(lambda: len(texts(page, "#nodes tbody tr")) == 1)
    page.keyboard.press("Escape")
    until(lambda: len(texts(page, "#nodes tbody tr")) == 3)
    grid = page.locator('[role=grid][aria-label="Partitions of events"]')
    grid.locator('[tabindex="0"]').focus()
    for key, number in (("ArrowRight", 1), ("End", 7), ("ArrowLeft", 6), ("Home", 0)):
        page.keyboard.press(key)
        assert f"events · partition {number} " in page.inner_text("#tables .cell-said")
    names = page.evaluate(
        "[...document.querySelectorAll('button, a, input, summary')].filter((one) => one.checkVisibility() && "
        "!(one.innerText || one.ariaLabel || one.title || one.labels?.[0]?.innerText)).length"
    )
    assert names == 0


def test_it_fits_a_phone_by_day_and_by_night(pages, cluster):
    grounds = []
    for width, scheme in ((390, "light"), (320, "dark")):
        page = pages("ada", width=width, height=800, color_scheme=scheme)
        page.locator("#ended .unfold").first.click()
        page.wait_for_selector("#tables h3")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        grounds.append(sum(map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))))
    assert grounds[0] > 600 > 120 > grounds[1]


def test_an_executor_shows_its_own_work(pages, cluster):
    asked(cluster, "POST", "/v1/sql", JOIN)
    page = pages("ada", node="executor-1", until="#memory tbody tr")
    assert page.inner_text("#node") == "executor-1"
    page.locator("#ended .task", has_text="leg").first.wait_for()
    assert page.locator("main section:visible").count() == 3
    assert page.locator(".danger:visible").count() == 0


def test_a_killed_executor_is_seen(pages, cluster):
    page = pages("ada")
    page.locator("#nodes tbody tr", has_text="executor-2").locator(".badge.ok").wait_for()
    cluster.kill("executor-2")
    page.locator("#nodes tbody tr.gone", has_text="executor-2").wait_for()
    until(lambda: all("executor-1" in one.get_attribute("aria-label") and "serving" in one.get_attribute("aria-label")
          for one in page.locator('[role=grid][aria-label="Partitions of events"] [role=gridcell]').all()))  # fmt: skip
    assert "1 gone" in page.inner_text("#tiles")
    assert {one["node_id"] for one in asked(cluster, "GET", "/v1/nodes")} == {"scheduler-1", "executor-1"}
