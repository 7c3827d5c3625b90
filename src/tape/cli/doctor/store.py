"""Checks of the store: reachable, up to date, durable, in time, with room left."""

from collections.abc import Iterator

from tape.cli.doctor.finding import Finding, fail, ok, warn
from tape.cli.doctor.work import check_work
from tape.errors import InvalidArgument, StoreUnavailable, TapeError
from tape.programs.connect import open_bus
from tape.settings import MIB, Settings
from tape.stores.by_url import Inspection, display, inspect_store
from tape.stores.migrations import CREATORS

# What each setting should be, for the stores that have it, and what happens otherwise.
DURABLE = (
    ("journal_mode", "wal", "readers would block the writer; is the file on a network drive?"),
    ("synchronous", "full", "an acknowledged write could be lost when the power fails"),
    ("synchronous_commit", "on", "an acknowledged write could be lost in a crash"),
    ("fsync", "on", "a crash can lose or corrupt the journal: set fsync = on"),
    ("full_page_writes", "on", "a power failure can corrupt pages: set full_page_writes = on"),
)
SKEW_MS = 1_000
ABSENT = f"is the name right? {CREATORS}"
ROOM = (100 * MIB, 1024 * MIB)


async def check_store(url: str, settings: Settings) -> list[Finding]:
    try:
        seen = await inspect_store(url, settings)
    except InvalidArgument:
        raise
    except StoreUnavailable as error:
        return [fail("store", str(error), "is the database running, and the URL right?")]
    except TapeError as error:
        return [fail("store", str(error), "point --store at a database of Tape's own")]
    found = list(_findings(url, seen))
    if seen.is_current and seen.facts.get("quick_check", "ok") == "ok":
        found += await _work(url, settings)
    return found


async def _work(url: str, settings: Settings) -> list[Finding]:
    """On a store that needs no migration, so that nothing is changed."""
    try:
        bus = await open_bus(url, settings, migrating=False)
        try:
            return await check_work(bus)
        finally:
            await bus.close()
    except TapeError as error:
        return [fail("work", f"cannot be read: {error}", "the log of the database may say why")]


def _findings(url: str, seen: Inspection) -> Iterator[Finding]:
    facts = seen.facts
    if "bytes" in facts:
        read_only = ", which can only be read here" if "reads_only" in facts else ""
        size = _size(int(facts["bytes"]))
        yield ok("store", f"{facts['server']} at {display(url)}, {size}{read_only}")
        yield _migrations(seen)
        yield from _soundness(seen)
    else:
        yield warn("store", f"{facts['server']}, and no store at {display(url)}", ABSENT)
    for name, wanted, advice in DURABLE:
        if name in facts:
            right = str(facts[name]).lower() == wanted
            found = str(facts[name])
            yield ok(name, found) if right else fail(name, found, f"should be {wanted}: {advice}")
    yield _clock(facts.get("skew_ms"))
    if "free_bytes" in facts:
        yield _room(int(facts["free_bytes"]))


def _migrations(seen: Inspection) -> Finding:
    if not any(step.applied for step in seen.steps):
        return warn("migrations", "none applied: this is no store yet", ABSENT)
    before = [step for step in seen.steps if not step.applied and step.phase == "pre"]
    after = [step for step in seen.steps if not step.applied and step.phase == "post"]
    if before:
        names = ", ".join(step.name for step in before)
        return warn("migrations", f"not applied: {names}", "tape migrate, or start a server")
    if after:
        names = ", ".join(step.name for step in after)
        return warn("migrations", f"waiting: {names}", "tape migrate --post, once all is upgraded")
    ours = [step for step in seen.steps if step.known]
    found = f"all {len(ours)} applied"
    if theirs := len(seen.steps) - len(ours):
        found += f", and {theirs} of a newer version of Tape, with which this one works"
    return ok("migrations", found)


def _soundness(seen: Inspection) -> Iterator[Finding]:
    faults = seen.facts.get("quick_check")
    if faults == "ok":
        yield ok("quick_check", "the file is sound")
    elif faults is not None:
        advice = "stop writing, and restore a back-up or use the recovery of the sqlite3 shell"
        yield fail("quick_check", str(faults), advice)
    behind = [each for each in seen.sequences if each.is_behind]
    if behind:
        found = ", ".join(f"{s.name} is at {s.given}, {s.used} is in use" for s in behind)
        yield fail("sequences", found, "the next write fails: tape migrate mends it")
    elif seen.sequences:
        yield ok("sequences", "none is behind what is in use")


def _clock(skew_ms: str | int | None) -> Finding:
    if skew_ms is None:
        return ok("clock", "the store uses this machine's clock")
    skew = int(skew_ms)
    found = f"the store is {abs(skew)} ms {'ahead' if skew >= 0 else 'behind'}"
    if abs(skew) < SKEW_MS:
        return ok("clock", found)
    return warn("clock", found, "entries carry the store's time: synchronise both machines")


def _room(free: int) -> Finding:
    few, some = ROOM
    found = f"{_size(free)} free"
    if free < few:
        return fail("disk", found, "a full disk refuses every write: make room")
    return ok("disk", found) if free >= some else warn("disk", found, "make room soon")


def _size(count: int) -> str:
    return f"{count / MIB:,.1f} MiB" if count < 1024 * MIB else f"{count / MIB / 1024:,.1f} GiB"
