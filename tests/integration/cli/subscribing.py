"""A folder with a document, an inbox of files and a module of apps, for `tape subscribe`."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.cli.command import Done, start, tape

APPS = """
import tape

@tape.app("read_line")
async def read_line(ctx, given):
    return given["payload"]

@tape.app("wait_line")
async def wait_line(ctx, given):
    await ctx.gate("approved")

@tape.app("nap_line")
async def nap_line(ctx, given):
    await ctx.sleep(1)

@tape.app("refuse_line")
async def refuse_line(ctx, given):
    if given["payload"] == {"n": 2}:
        raise ValueError("two is refused")
"""
DOCUMENT = """\
apiVersion: tape/v1
kind: Subscription
metadata: {name: inbox, path: subscriptions/inbox}
spec:
  source: file
  mode: pull
  activation: continuous
  folder: "FOLDER"
  dispatch: {playbook: APP}
  runtime: {timeout_ms: 200, batch: 10}
"""
QUICK_S = 1.5
QUICK = """\
tape:
  listeners: {{lease_s: {lease_s}, look_s: 0.1}}
"""
SHORT_LEASES = "  reactors: {recovery: {lease_ttl_s: 2}}\n"
BOUND_S = 60


class SubscribeDesk:
    """Where `tape subscribe inbox.yaml` is typed, on one store."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder = folder
        self.store = store
        self.events = folder / "events.jsonl"
        self.inbox = folder / "inbox"
        self.inbox.mkdir()
        (folder / "shop.py").write_text(APPS)
        self.set()
        self.write()

    def write(
        self, app: str = "read_line", more: str = "", change: Callable[[str], str] = str
    ) -> None:
        text = DOCUMENT.replace("FOLDER", str(self.inbox)).replace("APP", app) + more
        (self.folder / "inbox.yaml").write_text(change(text))

    def set(self, more: str = "", lease_s: float = QUICK_S) -> None:
        """A listener that others must find alive needs a lease that outlasts busy cores."""
        (self.folder / "tape.yaml").write_text(QUICK.format(lease_s=lease_s) + more)

    def put(self, *lines: str, name: str = "a") -> None:
        with (self.inbox / f"{name}.jsonl").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def arguments(self, *more: str) -> list[str]:
        where = [] if "--url" in more else ["--store", self.store]
        return ["subscribe", "inbox.yaml", *where, *more]

    def subscribe(self, *more: str, **env: str) -> Done:
        return tape(*self.arguments(*more), folder=self.folder, **env)

    @contextmanager
    def subscribing(self, *more: str, **env: str) -> Iterator["subprocess.Popen[str]"]:
        """In a process of its own, that has said that it is ready."""
        process = start(*self.arguments(*more), folder=self.folder, **env)
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said.startswith("listening for inbox ("):
                process.kill()
                raise AssertionError((said, *process.communicate()))
            yield process
        finally:
            process.kill()
            process.communicate()

    def told(self) -> list[dict[str, Any]]:
        """What the file of events holds by now, but for a line that is being written."""
        text = self.events.read_bytes() if self.events.exists() else b""
        return [json.loads(line) for line in text.split(b"\n")[:-1]]

    def until_told(self, word: str, count: int) -> None:
        give_up = time.monotonic() + BOUND_S
        while sum(f"/{word}/" in entry["subject"] for entry in self.told()) < count:
            assert time.monotonic() < give_up, [entry["subject"] for entry in self.told()]
            time.sleep(0.02)

    def runs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        words = ("runs", "list", "--subscription", "inbox", "--limit", "1000", "--json")
        while page := self._typed(*words, *(("--after", found[-1]["run_id"]) if found else ())):
            found += page
        return found

    def shown(self) -> dict[str, Any]:
        (record,) = self._typed("subscriptions", "show", "inbox", "--json")
        return record

    def journal(self) -> list[dict[str, Any]]:
        return self._typed("tail", "--no-follow", "--json")

    def _typed(self, *words: str) -> list[dict[str, Any]]:
        done = tape(*words, "--store", self.store, folder=self.folder)
        assert (done.code, done.err) == (0, "")
        return done.records


def said_beside(done: Done) -> str:
    """On standard error, but for the runs that it waits for: they may have ended before."""
    return re.sub(r"^waiting for \d+ runs? to end\n", "", done.err, flags=re.MULTILINE)


def words_of(entries: Sequence[dict[str, Any]]) -> list[str]:
    """Their verbs."""
    return [entry["subject"].split("/")[3] for entry in entries]
