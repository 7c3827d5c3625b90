"""The timeline: live, in order, filtered, by keyboard, light and dark, and never markup."""

import time
from itertools import pairwise
from typing import Literal

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

import tape
from tests.browser.view import TO_THE_END, open_timeline, record, row, walk
from tests.servers.tape_server import ServerProcess

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.middle
def test_1000_events_appear_in_order(sqlite_url: str, page: Page) -> None:
    with ServerProcess(sqlite_url) as server:
        open_timeline(page, server.http)
        last = 0
        for start in range(0, 1000, 50):
            events = [{"event_type": "tick", "payload": n} for n in range(start, start + 50)]
            last = record(server.http, *events)[-1]
        expect(row(page, last)).to_be_visible()
        seqs, most = walk(page)
        assert seqs == list(range(last, 0, -1))
        assert len(seqs) == 1000
        assert most < 100


@pytest.mark.middle
def test_older_entries_come_by_scrolling_and_the_view_stays(sqlite_url: str, page: Page) -> None:
    with ServerProcess(sqlite_url) as server:
        last = record(server.http, *({"event_type": f"old.{n}"} for n in range(900)))[-1]
        open_timeline(page, server.http)
        page.wait_for_function(TO_THE_END, arg=last)
        seqs, _ = walk(page)
        assert seqs == list(range(last, 0, -1))
        before = page.locator("#rows").evaluate("rows => rows.scrollTop")
        record(server.http, {"event_type": "new"}, {"event_type": "new"})
        expect(page.locator("#newer")).to_have_text("↑ 2 new")
        assert page.locator("#rows").evaluate("rows => rows.scrollTop") == before + 2 * 28
        page.locator("#newer").click()
        expect(row(page, last + 2)).to_be_visible()
        expect(page.locator("#newer")).to_be_hidden()


def test_a_restart_misses_nothing(sqlite_url: str, page: Page) -> None:
    with ServerProcess(sqlite_url) as server:
        open_timeline(page, server.http)
        record(server.http, {"event_type": "before"})
        expect(row(page, 1)).to_be_visible()
        server.kill()
        expect(page.locator("#status-text")).to_have_text("disconnected, trying again")
        with tape.connect(sqlite_url) as client:
            client.record_many([tape.event("meanwhile")] * 30)
        server.start()
        expect(page.locator("#status-text")).to_have_text("live")
        record(server.http, {"event_type": "after"})
        expect(row(page, 32)).to_be_visible()
        seqs, _ = walk(page)
        assert seqs == list(range(32, 0, -1))


@pytest.mark.middle
def test_after_a_long_absence_the_view_is_loaded_anew(sqlite_url: str, page: Page) -> None:
    page.clock.install()
    with ServerProcess(sqlite_url) as server:
        open_timeline(page, server.http)
        record(server.http, {"event_type": "before"})
        expect(row(page, 1)).to_be_visible()
        server.kill()
        expect(page.locator("#status-text")).to_have_text("disconnected, trying again")
        with tape.connect(sqlite_url) as client:
            client.record_many([tape.event("meanwhile")] * 1_000)
        page.clock.fast_forward(120_000)
        asked = page.expect_request("**/api/events/recent*")
        with asked:
            server.start()
            page.clock.fast_forward(10_000)
        expect(page.locator("#status-text")).to_have_text("live")
        page.wait_for_function(TO_THE_END, arg=1_001)
        assert walk(page)[0] == list(range(1_001, 0, -1))


def test_filters_are_in_the_address(http: str, page: Page, browser: Browser) -> None:
    mine = "filters"
    seqs = record(
        http,
        {"event_type": "f.placed", "entity_type": mine, "entity_id": "7"},
        {"event_type": "f.filled", "entity_type": mine, "entity_id": "8"},
        {"event_type": "g.changed", "entity_type": mine, "payload": {"amount": 200}},
    )
    open_timeline(page, http)
    rows = page.locator("#canvas .row")
    for name, text, wanted in (
        ("entity", mine, seqs[::-1]),
        ("type", "f.*", seqs[1::-1]),
        ("type", "", seqs[::-1]),
        ("subject", "/tape/event/recorded/g.changed/**", seqs[2:]),
        ("subject", "", seqs[::-1]),
        ("where", "has(payload.amount)", seqs[2:]),
        ("where", "", seqs[::-1]),
        ("entity", f"{mine}/7", seqs[:1]),
    ):
        page.locator(f"input[name={name}]").fill(text)
        page.keyboard.press("Enter")
        expect(rows).to_have_count(len(wanted))
        assert walk(page)[0] == wanted
    with browser.new_context() as shared:
        other = shared.new_page()
        other.goto(page.url)
        expect(other.locator("#canvas .row")).to_have_count(1)
    page.locator("#clear").click()
    page.locator("input[name=type]").fill("f.*")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(2)
    (_, newest) = record(http, {"event_type": "other"}, {"event_type": "f.new"})
    expect(row(page, newest)).to_be_visible()
    assert walk(page)[0] == [newest, seqs[1], seqs[0]]
    page.locator("input[name=subject]").fill("nonsense")
    page.keyboard.press("Enter")
    expect(page.locator("#fault")).to_contain_text("subject at position 0")


def test_keys(http: str, page: Page) -> None:
    mine = {"entity_type": "keys"}
    (cause,) = record(http, {"event_type": "first", "payload": {"deep": [1]}, **mine})
    event_id = httpx.get(f"http://{http}/api/events/{cause}", timeout=60).json()["event_id"]
    (effect,) = record(http, {"event_type": "second", "caused_by": event_id, **mine})
    open_timeline(page, http, "#entity=keys")
    expect(page.locator("#canvas .row")).to_have_count(2)
    page.keyboard.press("j")
    expect(row(page, effect)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(row(page, cause)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    details = page.locator("#details")
    expect(details.locator("h2")).to_have_text("second")
    page.keyboard.press("j")
    expect(details.locator("h2")).to_have_text("first")
    page.keyboard.press("k")
    expect(details.locator("h2")).to_have_text("second")
    details.get_by_role("link", name="first").click()
    expect(details.locator("pre")).to_have_text('{\n  "deep": [\n    1\n  ]\n}')
    expect(details).to_contain_text("Led to")
    assert page.url.endswith(f"#entity=keys&event={cause}")
    page.keyboard.press("Escape")
    expect(details).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("input[name=type]")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#rows")).to_be_focused()
    page.keyboard.press("?")
    expect(page.locator("#help-dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help-dialog")).to_be_hidden()


def test_text_stays_text(http: str, page: Page) -> None:
    hostile = "<img src=x onerror='window.hit=1'><script>window.hit=2</script>"
    open_timeline(page, http)
    event = {
        "event_type": hostile, "entity_type": hostile, "entity_id": hostile,
        "payload": {hostile: hostile}, "source": hostile, "caused_by": hostile,
    }  # fmt: skip
    (global_seq,) = record(http, event)
    row(page, global_seq).click()
    expect(page.locator("#details pre")).to_contain_text(hostile)
    expect(page.locator("#details h2")).to_have_text(hostile)
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.hit") is None


@pytest.mark.middle
def test_light_and_dark(http: str, page: Page) -> None:
    open_timeline(page, http)
    shades = {}
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        shades[scheme] = page.evaluate(
            """() => ["backgroundColor", "color"].map((name) =>
              getComputedStyle(document.body)[name].match(/\\d+/g).map(Number)
                .reduce((sum, part) => sum + part))"""
        )
    (light_back, light_ink), (dark_back, dark_ink) = shades["light"], shades["dark"]
    assert light_back > 700 > 150 > light_ink
    assert dark_back < 100 < 600 < dark_ink


def test_a_token_is_asked_for_and_kept_for_the_tab(sqlite_url: str, page: Page) -> None:
    with ServerProcess(sqlite_url, env={"TAPE_TOKENS": "read:reader-token"}) as server:
        page.goto(f"http://{server.http}/")
        for token in ("wrong", "reader-token"):
            expect(page.locator("#token-dialog")).to_be_visible()
            page.locator("#token").fill(token)
            page.keyboard.press("Enter")
        expect(page.locator("#status-text")).to_have_text("live")
        page.reload()
        expect(page.locator("#status-text")).to_have_text("live")
        expect(page.locator("#token-dialog")).to_be_hidden()
        kept = page.evaluate(
            "[Object.values(sessionStorage), localStorage.length, document.cookie]"
        )
        assert kept == [["reader-token"], 0, ""]
        assert "reader-token" not in page.url


@pytest.mark.long
def test_a_thousand_events_a_second_do_not_freeze_it(sqlite_url: str, page: Page) -> None:
    with ServerProcess(sqlite_url) as server:
        open_timeline(page, server.http)
        page.evaluate(
            """() => {
              window.frames_seen = [];
              const note = (at) => { window.frames_seen.push(at); requestAnimationFrame(note); };
              requestAnimationFrame(note);
            }"""
        )
        begun, last = time.monotonic(), 0
        for batch in range(200):
            events = ({"event_type": "tick", "payload": {"n": n}} for n in range(50))
            last = record(server.http, *events)[-1]
            ahead = begun + (batch + 1) * 0.05 - time.monotonic()
            page.wait_for_timeout(max(0, 1000 * ahead))
        expect(row(page, last)).to_be_visible()
        seen: list[float] = page.evaluate("window.frames_seen")
        gaps = [after - before for before, after in pairwise(seen)]
        assert last == 10_000
        assert max(gaps) < 500
        assert sorted(gaps)[len(gaps) // 2] < 50
        assert page.locator("#canvas .row").count() < 100


@pytest.mark.long
def test_a_filter_that_seldom_matches_asks_before_it_looks_further(
    sqlite_url: str, page: Page
) -> None:
    with ServerProcess(sqlite_url) as server:
        (rare,) = record(server.http, {"event_type": "x", "payload": {"rare": True}})
        for _ in range(8):
            record(server.http, *({"event_type": "x", "payload": {}} for _ in range(5_000)))
        open_timeline(page, server.http, "#where=has(payload.rare)")
        expect(page.locator("#older")).to_contain_text("Look further back")
        expect(row(page, rare)).to_have_count(0)
        page.locator("#older").click()
        expect(row(page, rare)).to_be_visible()
        expect(page.locator("#older")).to_be_hidden()
