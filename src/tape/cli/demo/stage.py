"""What the acts share: the client, who follows, what was acknowledged and what was promised."""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.console import Console
from rich.progress import Progress

from tape.cli.demo.follower import Follower
from tape.client import AsyncTapeClient
from tape.model.event import NewEvent, Recorded


class Promise(NamedTuple):
    text: str
    held: bool


@dataclass(slots=True)
class Stage:
    """`events` is about how many the whole day has. `acknowledged` is where each idempotency key
    is, as its producer was told; `contradicted` counts producers that were told two places."""

    url: str
    client: AsyncTapeClient
    out: Console
    progress: Progress
    events: int
    rng: random.Random
    followers: dict[str, Follower] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    collapsed: int = 0
    contradicted: int = 0
    promises: list[Promise] = field(default_factory=list)

    def promise(self, text: str, held: bool) -> None:
        self.promises.append(Promise(text, held))
        mark = "[green]✓[/]" if held else "[bold red]✗ BROKEN:[/]"
        self.out.print(f"  {mark} {text}")

    def say(self, text: str) -> None:
        self.out.print(f"  [dim]{text}[/]")

    def note(self, key: str, recorded: Recorded) -> None:
        """A producer was told where its event is."""
        self.sent += 1
        self.collapsed += recorded.duplicate
        if self.acknowledged.setdefault(key, recorded.global_seq) != recorded.global_seq:
            self.contradicted += 1

    async def record(self, event: NewEvent) -> Recorded:
        (recorded,) = await self.record_many([event])
        return recorded

    async def record_many(self, events: list[NewEvent]) -> list[Recorded]:
        results = await self.client.record_many(events)
        for event, recorded in zip(events, results, strict=True):
            self.note(event.idempotency_key, recorded)
        return results

    async def settle(self) -> int:
        """Wait until every follower has seen all there is, what followers wrote included."""
        while True:
            head = (await self.client.info()).head_global_seq
            for follower in self.followers.values():
                await follower.reach(head)
            if (await self.client.info()).head_global_seq == head:
                return head
