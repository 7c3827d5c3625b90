"""What a listener counts, for whoever scrapes its process."""

import time
from collections.abc import Sequence

from tape.ports.source import ReceivedMessage
from tape.telemetry import metrics
from tape.telemetry.instruments import Age, Gauge


class ListenerMetrics:
    """Those of one subscription, from the opening of its source until `end`."""

    def __init__(self, name: str, source: str) -> None:
        self._name = metrics.subscription_label(name)
        self._fetched = metrics.SUBSCRIPTION_FETCHED.labels(self._name, source)
        self._batches = metrics.SUBSCRIPTION_BATCHES.labels(self._name)
        self._batch_messages = metrics.SUBSCRIPTION_BATCH_MESSAGES.labels(self._name)
        self._rate_limited = metrics.SUBSCRIPTION_RATE_LIMITED.labels(self._name)
        if self._name:
            self._in_flight = metrics.SUBSCRIPTION_IN_FLIGHT.labels(self._name)
            self._lag = metrics.SUBSCRIPTION_LAG.labels(self._name)
        else:  # of several together they would say nothing
            self._in_flight, self._lag = Gauge(), Age()

    def note_fetched(self, received: Sequence[ReceivedMessage], in_hand: int) -> None:
        """`in_hand` is with these. A source that gives nothing while nothing is in hand has no
        more."""
        if received:
            self._fetched.inc(len(received))
            if self._lag.since is None:
                self._lag.since = _sent_at(received[0])
        elif not in_hand:
            self._lag.since = None
        self._in_flight.set(in_hand)

    def note_accepted(self, chunk: Sequence[ReceivedMessage], in_hand: int) -> None:
        """`in_hand` is what is left."""
        self._batches.inc()
        self._batch_messages.inc(len(chunk))
        self._lag.since = _sent_at(chunk[-1])
        self._in_flight.set(in_hand)

    def note_rate_limited(self) -> None:
        self._rate_limited.inc()

    def end(self) -> None:
        """Nobody listens here any more."""
        self._in_flight.set(0)
        metrics.SUBSCRIPTION_LAG.forget(self._name)


def _sent_at(received: ReceivedMessage) -> float:
    """When the source got it, in seconds since 1970; now, if the source does not say."""
    timestamp_ms = received.message.timestamp_ms
    return timestamp_ms / 1000 if timestamp_ms else time.time()
