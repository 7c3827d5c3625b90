"""Log lines about what is tried again and again: a store, a server, a broker or a source that is
away.

Each loop that retries has a `Retrying`. All of them on one event loop share what they log about one
outage: a line at the first failure, lines at growing intervals while it lasts, and one line when
the first of them gets through, with how long it took. An error that is no outage is logged in the
same rhythm, by each of them for itself. What is not logged as a warning is logged for debugging.
"""

import asyncio
import logging
from weakref import WeakKeyDictionary

from tape.errors import (
    BrokerUnavailable,
    SourceUnavailable,
    StoreUnavailable,
    WalletUnavailable,
)

AGAIN_FIRST_S = 5.0
AGAIN_MOST_S = 60.0
KEPT = 256
SETTLED_S = 5.0
"""A failure so soon after the end of an outage is a straggler's, and no new outage."""
FORGOTTEN_S = 300.0
"""After so long without a failure nobody was waiting any more: the next one is a new outage."""


class _Outage:
    """When something went away, and when that is to be logged again."""

    def __init__(self) -> None:
        self.since: float | None = None
        self._ended = float("-inf")
        self._pause_s = AGAIN_FIRST_S
        self._next = 0.0
        self._is_logged = False
        self._failed_at = 0.0

    def is_due(self, now: float) -> bool:
        """Note a failure; whether to log it."""
        if now - self._failed_at > FORGOTTEN_S:
            self.since = None
        self._failed_at = now
        if self.since is None:
            self.since = now
            self._is_logged = now - self._ended >= SETTLED_S
            self._pause_s, self._next = AGAIN_FIRST_S, now + AGAIN_FIRST_S
            return self._is_logged
        if now < self._next:
            return False
        self._pause_s = min(2 * self._pause_s, AGAIN_MOST_S)
        self._next = now + self._pause_s
        self._is_logged = True
        return True

    def end(self, now: float) -> float | None:
        """How long it took; None if it has ended already or nothing was logged about it."""
        if self.since is None:
            return None
        took_s, self.since, self._ended = now - self.since, None, now
        return took_s if self._is_logged else None


_OUTAGES: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Outage]] = WeakKeyDictionary()


class Retrying:
    """`doing` says what is tried again, as in "claiming tasks": it is logged with the error."""

    def __init__(self, log: logging.Logger, doing: str) -> None:
        self._log = log
        self._doing = doing
        self._own = _Outage()
        self._failing: list[_Outage] = []

    def failed(self, error: BaseException, pause_s: float | None = None) -> None:
        """Note a failure, with how long is waited before the next try, if that is known."""
        outage = self._outage_of(error)
        if outage not in self._failing:
            del self._failing[: max(0, len(self._failing) + 1 - KEPT)]
            self._failing.append(outage)
        now = asyncio.get_running_loop().time()
        level = logging.WARNING if outage.is_due(now) else logging.DEBUG
        so_far = "" if outage.since in (None, now) else f" for {now - outage.since:.0f} s"
        again = "" if pause_s is None else f"; trying again in {pause_s:g} s"
        self._log.log(level, "%s waits%s: %s%s", self._doing, so_far, error, again)

    def succeeded(self) -> None:
        """Note that it got through."""
        if not self._failing:
            return
        now = asyncio.get_running_loop().time()
        took = [took_s for outage in self._failing if (took_s := outage.end(now)) is not None]
        self._failing.clear()
        if took:
            self._log.warning("%s goes on after %.1f s", self._doing, max(took))

    def _outage_of(self, error: BaseException) -> _Outage:
        what = _what_is_away(error)
        if not what:
            return self._own
        outages = _OUTAGES.setdefault(asyncio.get_running_loop(), {})
        if what not in outages and len(outages) >= KEPT:
            outages.clear()  # a broker's errors may differ each time; at worst a line comes again
        return outages.setdefault(what, _Outage())


def is_outage(error: BaseException | None) -> bool:
    """Whether it says that something is away which others may wait for as well."""
    return _what_is_away(error) != ""


def _what_is_away(error: BaseException | None) -> str:
    """The name by which an outage is shared; empty if the error is none."""
    match error:
        case StoreUnavailable():
            return "store"
        case WalletUnavailable():
            return "wallet"
        case BrokerUnavailable():
            return f"broker {error}"
        case SourceUnavailable(at=at) if at:
            return f"source {at}"
    return ""
