"""The matcher: follows the journal once for all reactions and makes their tasks.

It works only while it holds the matcher's lease. It reads a page, decides what the page makes, and
hands that to the store as one step (`ports.matching`): tasks, cursors and its own position, or
nothing. A step for an outdated book is thrown away and the page decided again; a lost lease ends
the work at once. So nothing here needs to be remembered over a crash.

Reactions that *follow* are matched together, and come first. One that starts in the past is
*late*, and so is one whose predicate takes so long that the others would wait for it; those are
matched beside the others, each alone (`reactions.late`). A late one joins the others in the very
step in which it stands where the matcher stands.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

from tape.journal.pacer import Pacer
from tape.model.reaction import HandlerKind, Reaction, ReactionCursor
from tape.ports.matching import CursorStep, MatcherLease, MatchStep, NewTask
from tape.ports.store import PAGE_BYTES, EntryRange, ReadEntries, Store
from tape.reactions.late import LateRules
from tape.reactions.rules import Matched, Matching, ReactionRule, ReactionRules, late_steps
from tape.settings import MatcherSettings
from tape.telemetry import metrics

log = logging.getLogger("tape.matcher")
AGAIN_S = 60.0


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
        self._rules: dict[str, ReactionRule] = {}
        self._common = ReactionRules([])
        self._pacer = pacer or Pacer()
        self._late = LateRules(store, settings, self._pacer)
        self._told_of: set[str] = set()
        self._report = _MatchReport()
        self._turns = self._pacer.service_turns(comes_first=True)
        self._stepped_at = 0.0
        self.agents: list[str] = []
        """The reactions whose tasks are runs to begin."""

    async def run(self) -> None:
        """Until the lease is lost, which raises LeaseLost."""
        try:
            await self._read_book()
            while True:
                try:
                    if not await self._go_on():
                        await self._await_news()
                except Outdated:
                    await self._read_book()
        finally:
            await self._late.stop()

    async def _go_on(self) -> bool:
        """A page of those that follow, then of a late one; False if there was nothing to do."""
        self._late.begin_bout(self._lease.position)
        is_new = await self._match_page()
        late = self._late.ended_bout()
        if late is None:
            late = await self._late.match_quick(self._lease.position, self._turns)
        if late is not None:
            await self._step_late(*late)
        return is_new or late is not None

    async def _await_news(self) -> None:
        """Until there is a new entry, a bout has ended, or a step is due."""
        patience = max(0.0, self._patience())
        bout = self._late.bout
        beyond = self._store.await_beyond(self._through)
        if bout is None:
            try:
                async with asyncio.timeout(patience):
                    await beyond
            except TimeoutError:
                pass
        else:
            news = asyncio.ensure_future(beyond)
            try:
                await asyncio.wait(
                    (news, bout), timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                news.cancel()
        if self._store.head <= self._through and self._is_due():
            await self._step(self._through, (), ())

    async def _read_book(self) -> None:
        book = await self._store.matching.read_reactions()
        made = await self._made(book.reactions)
        if made:  # that took its time: here is how things stand now
            book = await self._store.matching.read_reactions()
        cursors: dict[str, list[ReactionCursor]] = {}
        for cursor in book.cursors:
            cursors.setdefault(cursor.reaction_id, []).append(cursor)
        rules = [
            self._rule(reaction, cursors.get(reaction.reaction_id, [])[: reaction.num_shards], made)
            for reaction in book.reactions
            if reaction.engine == "server"
        ]
        self._version = book.version
        self._rules = {rule.reaction_id: rule for rule in rules}
        self._late.place(rule for rule in rules if not rule.following)
        self._common = ReactionRules([rule for rule in rules if rule.following])
        self._through = self._lease.position
        self.agents = [
            reaction.reaction_id
            for reaction in book.reactions
            if reaction.handler_kind == HandlerKind.AGENT
        ]

    async def _made(self, reactions: Sequence[Reaction]) -> dict[str, ReactionRule]:
        """Rules of reactions that are new or have changed. Their predicates are compiled, which can
        take long, so it is done in a thread."""
        new = [each for each in reactions if each.engine == "server" and not self._knows(each)]
        if not new:
            return {}
        return await asyncio.to_thread(
            lambda: {each.reaction_id: ReactionRule(each, ()) for each in new}
        )

    def _knows(self, reaction: Reaction) -> bool:
        known = self._rules.get(reaction.reaction_id)
        return known is not None and known.reaction == reaction

    def _rule(
        self, reaction: Reaction, cursors: Sequence[ReactionCursor], made: dict[str, ReactionRule]
    ) -> ReactionRule:
        """Keep the rule of a reaction that has not changed: what it owes is remembered."""
        if not self._knows(reaction):
            rule = made.get(reaction.reaction_id)
            if rule is None or rule.reaction != reaction:
                return ReactionRule(reaction, cursors)
            rule.place(cursors)
            return rule
        known = self._rules[reaction.reaction_id]
        if not self._late.is_in_bout(known):
            known.counts = {}
        known.place(cursors)
        return known

    async def _match_page(self) -> bool:
        """Match what is new; False if there is nothing."""
        if self._store.head <= self._through:
            return False
        matched = Matched([], [], self._store.head)
        if self._common:
            page = await self._store.read_entries(
                ReadEntries(
                    self._through, self._store.head, self._settings.page_entries, PAGE_BYTES
                )
            )
            matched = await self._match(page)
        self._through = matched.through
        if matched.cursors or self._is_due():
            await self._step(matched.through, matched.cursors, matched.tasks, matched.put_off)
            self._common.advance(matched.cursors)
            self._report.report(matched)
        for reaction_id in matched.put_off:
            self._put_off(self._common.take_out(reaction_id))
        return True

    def _put_off(self, rule: ReactionRule) -> None:
        self._late.add(rule)
        if rule.reaction_id not in self._told_of:  # it may come and go with every entry
            self._told_of.add(rule.reaction_id)
            log.warning("matched separately, because its predicate is slow: %s", rule.reaction_id)

    async def _match(self, page: EntryRange) -> Matched:
        """In turns with others that evaluate predicates. The lease is kept meanwhile."""
        page_s = self._pacer.settings.page_s
        matching = Matching(
            self._common, page.entries, page.through, self._settings.step_tasks, page_s
        )
        matching.is_watching = self._turns.owes
        steps = matching.steps()
        while not await self._turns.run(steps, page_s, is_light=self._common.are_light):
            matching.is_watching = self._turns.owes
            if self._lease_patience() <= 0:
                await self._step(self._lease.position, (), ())
        return matching.matched()

    async def _step_late(self, rule: ReactionRule, matched: Matched) -> None:
        """Move a late reaction on. If it has caught up, it follows from now on."""
        position = self._lease.position
        caught_up = matched.through >= position
        steps = late_steps(rule, matched, caught_up=caught_up)
        await self._step(position, steps, matched.tasks)
        self._report.report(matched)
        ReactionRules([rule]).advance(steps)
        if caught_up:
            self._late.take_out(rule)
            self._common.add(rule)
            # What was looked at since without it is looked at again, with it.
            self._through = position

    async def _step(
        self,
        position: int,
        cursors: Sequence[CursorStep],
        tasks: Sequence[NewTask],
        put_off: Sequence[str] = (),
    ) -> None:
        step = MatchStep(
            self._lease, self._ttl_ms, self._version, position, cursors, tasks, put_off
        )
        result = await self._store.matching.make_step(step)
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
        if self._through > self._lease.position:
            return self._since(self._settings.settle_s)
        return self._lease_patience()

    def _lease_patience(self) -> float:
        return self._since(self._settings.ttl_s / 3)

    def _since(self, pause_s: float) -> float:
        return self._stepped_at + pause_s - asyncio.get_running_loop().time()


class _MatchReport:
    """Metrics of what was matched, and a line in the log for a reaction whose predicate fails: at
    once, and after that every `AGAIN_S` with how often it failed meanwhile."""

    def __init__(self) -> None:
        self._quiet_until: dict[str, float] = {}
        self._unreported: Counter[str] = Counter()

    def report(self, matched: Matched) -> None:
        for step in matched.cursors:
            if step.matched:
                metrics.MATCHES.labels(step.reaction_id).inc(step.matched)
            if step.coalesced:
                metrics.COALESCED.labels(step.reaction_id).inc(step.coalesced)
            if step.predicate_errors:
                metrics.PREDICATE_ERRORS.labels(step.reaction_id).inc(step.predicate_errors)
                self._log_failed(step)

    def _log_failed(self, step: CursorStep) -> None:
        reaction_id, now = step.reaction_id, asyncio.get_running_loop().time()
        self._unreported[reaction_id] += step.predicate_errors
        if now >= self._quiet_until.get(reaction_id, 0.0):
            self._quiet_until[reaction_id] = now + AGAIN_S
            log.warning(
                "reaction %s: its predicate failed for %d entries, the last: %s",
                reaction_id, self._unreported.pop(reaction_id), step.last_error,
            )  # fmt: skip
