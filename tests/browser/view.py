"""What a reader of the timeline sees and does."""

from typing import Any

import httpx
from playwright.sync_api import Page, expect

WALK = """
() => {
  const rows = document.getElementById("rows");
  const seen = new Map();
  let most = 0;
  for (rows.scrollTop = 0; ; rows.scrollTop += rows.clientHeight) {
    rows.dispatchEvent(new Event("scroll")); // now, and not with the browser's next frame
    const drawn = [...document.querySelectorAll("#canvas .row")];
    most = Math.max(most, drawn.length);
    for (const row of drawn) {
      const top = Math.round(row.getBoundingClientRect().top + rows.scrollTop);
      if (!seen.has(top)) seen.set(top, new Set());
      seen.get(top).add(Number(row.dataset.seq));
    }
    if (rows.scrollTop + rows.clientHeight >= rows.scrollHeight - 1) break;
  }
  const places = [...seen.keys()].sort((one, other) => one - other);
  return { most, seqs: places.flatMap((top) => [...seen.get(top)]) };
}
"""
TO_THE_END = """
(count) => {
  const rows = document.getElementById("rows");
  rows.scrollTop = rows.scrollHeight;
  return document.getElementById("canvas").offsetHeight === count * 28;
}
"""


def open_timeline(page: Page, http: str, view: str = "") -> None:
    page.goto(f"http://{http}/{view}")
    expect(page.locator("#status-text")).to_have_text("live")


def walk(page: Page) -> tuple[list[int], int]:
    """The numbers of all entries from the top down, and the most rows there were at once."""
    found: dict[str, Any] = page.evaluate(WALK)
    return found["seqs"], found["most"]


def row(page: Page, global_seq: int) -> Any:
    return page.locator(f"#entry-{global_seq}")


def record(http: str, *events: dict[str, Any]) -> list[int]:
    answer = httpx.post(
        f"http://{http}/api/events/record", json={"events": list(events)}, timeout=60
    )
    return [result["global_seq"] for result in answer.raise_for_status().json()["results"]]
