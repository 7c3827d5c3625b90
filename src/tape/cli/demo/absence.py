"""Act 4: a follower goes away, misses part of the day, and comes back with one integer."""

from tape.cli.demo import desk
from tape.cli.demo.stage import Stage

TITLE = "A follower comes back"
STORY = (
    "The blotter is shut while the desk trades on. All it keeps is its cursor, the number of the "
    "last entry it has dealt with."
)
SHARE = 0.02


async def play(stage: Stage) -> None:
    blotter = stage.followers["blotter"]
    await stage.settle()
    await blotter.stop()
    kept, before = blotter.cursor, len(blotter.seen)
    missed = [
        desk.order(stage.rng, "late", number)
        for number in range(max(10, int(stage.events * SHARE)))
    ]
    await stage.record_many(missed)
    blotter.start(stage.client)
    await stage.settle()
    caught_up = len(blotter.seen) - before
    stage.say(f"it left at {kept:,} and found {caught_up:,} orders when it came back")
    stage.promise("it missed nothing and saw nothing twice", caught_up == len(missed))
