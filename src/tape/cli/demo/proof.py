"""The last act: the day is read back from the start, and compared with what everyone was told."""

from collections import Counter
from typing import NamedTuple

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
