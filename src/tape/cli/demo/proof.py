"""The last act: the day is read back from the start, and compared with what everyone was told.

The closing words follow: what happened, in figures a newcomer can read, and what to type next.
"""

from collections import Counter
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tape.cli.demo.stage import Stage

TITLE = "The books are checked"
STORY = "The whole journal is read once more and set against what producers and followers saw."


class Day(NamedTuple):
    """What the journal holds at the end."""

    entries: int
    types: Counter[str]


async def play(stage: Stage) -> Day:
    await stage.settle()
    types: Counter[str] = Counter()
    places: dict[str, int] = {}
    events: dict[str, int] = {}
    keys: Counter[str] = Counter()
    last, ordered, causal = 0, True, True
    async with stage.client.follow(live=False) as entries:
        async for entry in entries:
            ordered = ordered and entry.global_seq > last
            last = entry.global_seq
            types[entry.event_type or " ".join(entry.subject.split("/")[2:4])] += 1
            events[entry.event_id] = entry.global_seq
            if entry.idempotency_key:
                keys[entry.idempotency_key] += 1
                places[entry.idempotency_key] = entry.global_seq
            causal = causal and (not entry.caused_by or entry.caused_by in events)
    stage.promise(f"{types.total():,} entries in one order, no number twice", ordered)
    stage.promise("no cause comes after its effect", causal)
    told = stage.acknowledged
    stage.promise(
        f"all {len(told):,} acknowledged events are where their producers were told",
        all(places.get(key) == place for key, place in told.items()),
    )
    stage.promise("no idempotency key is there twice", max(keys.values()) == 1)
    for name, follower in stage.followers.items():
        stage.promise(
            f"{name} saw live what a reader sees afterwards: {len(follower.seen):,} entries",
            follower.seen == await follower.replay(stage.client),
        )
    return Day(types.total(), types)


def print_summary(stage: Stage, day: Day, seconds: float, kept: str) -> None:
    out = stage.out
    out.rule("The day in figures")
    out.print(_recorded(day))
    out.print(
        f"\n{day.entries:,} entries in {seconds:.1f} s with all the checking, each on the disk "
        "before its\nproducer was answered."
    )
    out.print(
        f"{stage.sent:,} events were sent; {stage.collapsed:,} of them were retries and "
        "became no second entry.\n"
    )
    out.print(_followers(stage))
    _undecided(stage, out)
    broken = [promise for promise in stage.promises if not promise.held]
    if broken:
        out.print(f"\n[bold red]{len(broken)} of {len(stage.promises)} promises were broken:[/]")
        for promise in broken:
            out.print(f"  ✗ {promise.text}")
        return
    out.print(f"\n[bold green]All {len(stage.promises)} promises held.[/]\n")
    _next(out, kept)


def _recorded(day: Day) -> Table:
    table = _table("recorded", "entries")
    for name, count in day.types.most_common():
        table.add_row(name, f"{count:,}")
    return table


def _followers(stage: Stage) -> Table:
    table = _table("follower", "saw", "undecided")
    table.add_column("asked for", overflow="fold")
    for name, follower in stage.followers.items():
        asked = follower.pattern + (f"\nwhere {follower.where}" if follower.where else "")
        table.add_row(name, f"{len(follower.seen):,}", f"{follower.undecided:,}", Text(asked))
    return table


def _table(names: str, *counts: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(names)
    for count in counts:
        table.add_column(count, justify="right")
    return table


def _undecided(stage: Stage, out: Console) -> None:
    count = stage.followers["risk"].undecided
    if count:
        out.print(
            f"\n{count:,} fills came without a notional. A predicate has no answer for those: they "
            "are\ncounted and shown, not quietly taken for false."
        )


def _next(out: Console, kept: str) -> None:
    out.print("[bold]What to type next[/]")
    if kept:
        pattern = "/tape/event/recorded/risk.breached/**"
        out.print(f"  tape tail --store {kept} --no-follow '{pattern}'", markup=False)
        out.print(f"  tape values history desk exposure_limit --store {kept}", markup=False)
        out.print(f"  tape runs --store {kept}", markup=False)
    else:
        out.print("  tape demo --keep day        keep the journal of the day and look around in it")
    out.print(
        "  tape serve                  a server, its timeline on http://127.0.0.1:7879/; then"
    )
    out.print("                              in two other terminals:")
    out.print("  tape tail")
    out.print("""  tape record hello --payload '{"from": "me"}'""", markup=False)
