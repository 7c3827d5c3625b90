"""What is in trouble is red, and is helped on by a click; what cannot be taken back asks first."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
from playwright.sync_api import Page, expect

import tape
from tape.programs.serve import Addresses
from tape.programs.worker import WorkerOptions, work
from tape.reactions.declare import Registry
from tape.runs.declare import Apps
from tests.browser.view import open_timeline, record
from tests.integration.http.some_of_everything import fill
from tests.servers.tape_server import ServerProcess

RED = "rgb(179, 38, 30)"


@contextmanager
def working(url: str, mended: threading.Event) -> Iterator[None]:
    """A worker whose app fails until it is mended."""
    apps = Apps()

    @tape.app("route", registry=apps)
    async def route(_run: tape.Context, given: Any) -> Any:
        if not mended.is_set():
            raise tape.GiveUp("the desk is closed")
        return given

    stop, ready = asyncio.Event(), threading.Event()
    loop = asyncio.new_event_loop()
    options = WorkerOptions(url=url, apps=apps, registry=Registry())
    doing = work(options, on_ready=lambda _ready: ready.set(), stop=stop)
    thread = threading.Thread(target=lambda: loop.run_until_complete(doing))
    thread.start()
    try:
        assert ready.wait(20)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_halted_drainers_are_helped_on_by_a_click(sqlite_url: str, page: Page) -> None:
    mended = threading.Event()
    with ServerProcess(sqlite_url) as server, working(server.url, mended):
        for drainer, glob in (("resumed", "order.*"), ("skipped", "order.1")):
            subscribe(server.http, drainer, glob)
        open_timeline(page, server.http)
        orders = record(server.http, *({"event_type": f"order.{n}"} for n in range(3)))
        resumed, skipped = (
            page.locator(f"[data-drainer={name}]") for name in ("resumed", "skipped")
        )
        for card, halting in ((resumed, orders[0]), (skipped, orders[1])):
            expect(card.locator(".state")).to_have_text("halted")
            expect(card).to_have_css("border-top-color", RED)
            expect(card).to_contain_text("the desk is closed")
            expect(card.get_by_role("link")).to_have_text(f"no. {halting}")

        skipped.get_by_role("button", name="skip skipped", exact=True).click()
        dialog = page.locator("#ask-dialog")
        expect(dialog).to_be_visible()
        dialog.get_by_role("button", name="Cancel").click()
        expect(dialog).to_be_hidden()
        expect(skipped.locator(".state")).to_have_text("halted")
        skipped.get_by_role("button", name="skip skipped", exact=True).click()
        page.locator("#ask-reason").fill("cancelled by hand")
        page.locator("#ask-yes").click()
        expect(skipped.locator(".state")).to_have_text("up to date")
        expect(page.locator("#canvas")).to_contain_text("cancelled by hand")
        expect(resumed.locator(".state")).to_have_text("halted")

        mended.set()
        resumed.get_by_role("button", name="resume resumed", exact=True).click()
        expect(resumed.locator(".state")).to_have_text("up to date")
        expect(resumed).not_to_have_css("border-top-color", RED)
        expect(resumed).to_contain_text("3 runs")
        ended = httpx.get(
            f"http://{server.http}/api/runs", params={"status": "terminal"}, timeout=60
        ).json()
        assert len(ended["runs"]) == 3
        expect(page.locator("#canvas")).to_contain_text("run/done/route/")
        expect(page.locator("#canvas")).not_to_contain_text("terminal")
        open_timeline(page, server.http, f"#event={orders[2]}")
        expect(page.locator("#details")).to_contain_text("route done")


def subscribe(http: str, drainer_id: str, glob: str) -> None:
    body = {"event_type_glob": glob, "workflow_type": "route", "drainer_id": drainer_id}
    made = httpx.put(f"http://{http}/api/event-subscriptions/{drainer_id}", json=body, timeout=60)
    made.raise_for_status()


def test_dead_letters_are_replayed_and_dropped(sqlite_url: str, page: Page) -> None:
    with ServerProcess(sqlite_url) as server:
        addresses = Addresses(server.url.removeprefix("tape://"), server.http)
        with ThreadPoolExecutor(1) as thread:  # the browser has a loop in this one
            thread.submit(lambda: asyncio.run(fill(addresses))).result()
        open_timeline(page, server.http)
        card = page.locator("[data-reaction=route_orders]")
        expect(card).to_have_css("border-top-color", RED)
        expect(card.locator(".state")).to_contain_text("dead letter")
        expect(card).to_contain_text("no luck")
        where = card.get_by_text("at the desk").first
        expect(where).to_be_hidden()
        card.locator("summary").first.click()
        expect(where).to_be_visible()
        card.get_by_role("button", name="drop route_orders", exact=True).click()
        dialog = page.locator("#ask-dialog")
        expect(dialog).to_contain_text("cannot be taken back")
        dialog.get_by_role("button", name="Cancel").click()
        expect(card).to_have_css("border-top-color", RED)
        card.get_by_role("button", name="replay route_orders", exact=True).click()
        expect(card).not_to_have_css("border-top-color", RED)
        dead = httpx.get(
            f"http://{server.http}/api/tasks", params={"status": "dlq"}, timeout=60
        ).json()
        assert dead["tasks"] == []
