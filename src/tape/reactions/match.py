"""The matcher: follows the journal once for all reactions and makes their tasks.

It works only while it holds the matcher's lease. It reads a page, decides what the page makes, and
hands that to the store as one step (`ports.matching`): tasks, cursors and its own position, or
nothing. A step for an outdated book is thrown away and the page decided again; a lost lease ends
the work at once. So nothing here needs to be remembered over a crash.

A reaction that starts in the past is *late*: it is matched alone, a page at a time between the
others' pages, until it stands where the matcher stands, and joins in that very step. One whose
predicate takes so long that the others would wait for it is made late, and takes its turns.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from tape.config import MatcherSettings
from tape.journal.pacer import Pacer
from tape.model.reaction import HandlerKind, Reaction, ReactionCursor
from tape.ports.matching import CursorStep, MatcherLease, NewTask, Step
from tape.ports.store import EntryRange, ReadEntries, Store
from tape.reactions.rules import Matched, Matching, Rule, Rules, late_steps
from tape.telemetry import metrics

log = logging.getLogger("tape.matcher")

PAGE_BYTES = 8 * 1024 * 1024


class LeaseLost(Exception):
    """Another process matches now."""


class Outdated(Exception):
    """A reaction was registered or deregistered meanwhile."""


class Matcher:
    """Matches for as long as the lease it was given is its own."""

    def __init__(
        self,
        store: Store,
        lease: MatcherLease,
        settings: MatcherSettings,
        pacer: Pacer | None = None,
    ) -> None:
        self._store = store
        self._lease = lease
        self._settings = settings
        self._ttl_ms = int(settings.ttl_s * 1000)
        self._version = -1
        self._through = lease.position
        self._common = Rules([])
        self._late: deque[Rule] = deque()
        self._turned: dict[str, int] = {}  # by late reaction, which turn was its last
        self._turn = 0
        self._pacer = pacer or Pacer()
        self._turns = self._pacer.turns()
        self._stepped_at = 0.0
        self.agents: list[str] = []
        """The reactions whose tasks are runs to begin."""

    async def run(self) -> None:
        """Until the lease is lost, which raises LeaseLost."""
        await self._read_book()
        while True:
            try:
                await self._catch_up_some()
                if not await self._match_page(wait=not self._late):
                    await self._keep_lease()
            except Outdated:
                await self._read_book()

    async def _read_book(self) -> None:
        book = await self._store.read_reactions()
        cursors: dict[str, list[ReactionCursor]] = {}
        for cursor in book.cursors:
            cursors.setdefault(cursor.reaction_id, []).append(cursor)
        # Their predicates are compiled, which can take long.
        rules = await asyncio.to_thread(_rules_of, book.reactions, cursors)
        self._version = book.version
        late = [rule for rule in rules if not rule.following]
        self._turned = {rule.reaction_id: self._turned.get(rule.reaction_id, 0) for rule in late}
        self._late = deque(sorted(late, key=lambda rule: self._turned[rule.reaction_id]))
        self._common = Rules([rule for rule in rules if rule.following])
        self._through = self._lease.position
        self.agents = [
            reaction.reaction_id
            for reaction in book.reactions
            if reaction.handler_kind == HandlerKind.AGENT
        ]

    async def _match_page(self, *, wait: bool) -> bool:
        """Match what is new, waiting a little for something new; False if there was nothing."""
        if self._store.head <= self._through:
            if not wait:
                return False
            try:
                async with asyncio.timeout(self._patience()):
                    await self._store.await_beyond(self._through)
            except TimeoutError:
                return False
        matched = Matched([], [], self._store.head)
        if self._common:
            page = await self._store.read_entries(
                ReadEntries(
                    self._through, self._store.head, self._settings.page_entries, PAGE_BYTES
                )
            )
            matched = await self._match(self._common, page)
        self._through = matched.through
        if matched.cursors or self._is_due():
            await self._step(matched.through, matched.cursors, matched.tasks, matched.put_off)
            self._common.advance(matched.cursors)
            _tell(matched)
        if matched.put_off:
            log.warning("matched apart, their predicates take long: %s", ", ".join(matched.put_off))
            raise Outdated
        return True

    async def _match(self, rules: Rules, page: EntryRange) -> Matched:
        """In turns with others that evaluate predicates. The lease is kept meanwhile."""
        matching = Matching(
            rules,
            page.entries,
            page.through,
            self._settings.step_tasks,
            self._pacer.settings.page_s,
        )
        steps = matching.steps()
        within_s = self._settings.ttl_s / 3
        while not await self._turns.run(steps, within_s, is_light=rules.are_light):
            await self._step(self._lease.position, (), ())
        return matching.matched()

    async def _catch_up_some(self) -> None:
        """One page of each late reaction, or of as many as there is time for."""
        began_s = self._turns.used_s
        for _ in range(len(self._late)):
            self._late.rotate(-1)
            rule = self._late[-1]
            self._turn += 1
            self._turned[rule.reaction_id] = self._turn
            await self._catch_up(rule)
            if self._turns.used_s - began_s > self._pacer.settings.page_s:
                return

    async def _catch_up(self, rule: Rule) -> None:
        """One page of a late reaction."""
        alone, position = Rules([rule]), self._lease.position
        after = min(rule.upto.values(), default=position)
        matched = Matched([], [], max(after, position))
        if after < position:
            page = await self._store.read_entries(
                ReadEntries(
                    after, position, self._settings.page_entries, PAGE_BYTES,
                    prefix=rule.pattern.prefix,
                    predicate=None if rule.evaluate is None else rule.predicate,
                )
            )  # fmt: skip
            matched = await self._match(alone, page)
        caught_up = matched.through >= position
        steps = late_steps(rule, matched, caught_up=caught_up)
        await self._step(position, steps, matched.tasks)
        _tell(matched)
        alone.advance(steps)
        if caught_up:
            # What was looked at since without it is looked at again, with it.
            raise Outdated

    async def _keep_lease(self) -> None:
        if self._is_due():
            await self._step(self._through, (), ())

    async def _step(
        self,
        position: int,
        cursors: Sequence[CursorStep],
        tasks: Sequence[NewTask],
        put_off: Sequence[str] = (),
    ) -> None:
        step = Step(self._lease, self._ttl_ms, self._version, position, cursors, tasks, put_off)
        result = await self._store.make_step(step)
        if result == "lost":
            raise LeaseLost
        if result == "outdated":
            raise Outdated
        self._lease = self._lease._replace(position=position)
        self._stepped_at = asyncio.get_running_loop().time()
        metrics.MATCHER_POSITION.set(position)

    def _is_due(self) -> bool:
        return self._patience() <= 0

    def _patience(self) -> float:
        """How long until a step is due: soon if entries were passed over, else for the lease."""
        pause = self._settings.ttl_s / 3
        if self._through > self._lease.position:
            pause = self._settings.settle_s
        return self._stepped_at + pause - asyncio.get_running_loop().time()


def _rules_of(
    reactions: Sequence[Reaction], cursors: dict[str, list[ReactionCursor]]
) -> list[Rule]:
    return [
        Rule(reaction, cursors.get(reaction.reaction_id, [])[: reaction.num_shards])
        for reaction in reactions
        if reaction.engine == "server"
    ]


def _tell(matched: Matched) -> None:
    for step in matched.cursors:
        if step.matched:
            metrics.MATCHES.labels(step.reaction_id).inc(step.matched)
        if step.coalesced:
            metrics.COALESCED.labels(step.reaction_id).inc(step.coalesced)
        if step.predicate_errors:
            metrics.PREDICATE_ERRORS.labels(step.reaction_id).inc(step.predicate_errors)
            log.warning("reaction %s: predicate failed: %s", step.reaction_id, step.last_error)
