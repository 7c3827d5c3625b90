"""Kafka: an idempotent producer with acks=all, a delivery report per message.

The client keeps the order itself: the broker takes a producer's batches for a partition only in
their sequence, and `enable.gapless.guarantee` ends the producer rather than let a later batch pass
one that failed. Messages never time out one by one inside the client, which would open such a gap:
when the wait for reports is over, all that is left is purged together and the producer is thrown
away. The next publish makes a new one.

A thread polls for reports, so the event loop never waits for the client.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tape.brokers.credential_fields import read_fields
from tape.brokers.in_order import Results
from tape.brokers.kafka_config import (
    CONFIG_VARIABLE,
    ClientSettings,
    read_config,
    read_settings,
)
from tape.brokers.logins import LoginsInUse, OpenLogin, from_environment
from tape.brokers.targets import KafkaTarget
from tape.errors import BrokerError, BrokerRefused, BrokerUnavailable
from tape.ports.broker import Outgoing
from tape.ports.credentials import OpenedCredential
from tape.wire.cloudevents import cloud_event, kafka_headers

log = logging.getLogger("tape.kafka")
REPORTS_S = 30.0
POLL_S = 0.1
CLOSE_S = 2.0

_PROMISES: ClientSettings = {
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "acks": "all",
    "message.timeout.ms": 0,
    # A batch that the broker finds too large fails whole. At this size only one of a single
    # message can be, so nobody is refused for a neighbour.
    "batch.size": 65_536,
    # As the Java clients do it, so that all producers of a topic agree; no key is a key too.
    "partitioner": "murmur2",
}
_DEFAULTS: ClientSettings = {
    "client.id": "tape",
    "linger.ms": 2,
    "message.max.bytes": 4_194_304,
    "queue.buffering.max.kbytes": 65_536,
    "topic.metadata.propagation.max.ms": 5_000,
    "socket.keepalive.enable": True,
    "reconnect.backoff.max.ms": 1_000,
    "log_level": 0,
}
_REFUSED = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.POLICY_VIOLATION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - the name librdkafka's own errors have
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001 - likewise
_LOGIN_REFUSED = {
    KafkaError._AUTHENTICATION: "the server refuses the login",  # noqa: SLF001 - likewise
    KafkaError.SASL_AUTHENTICATION_FAILED: "the server refuses the login",
    KafkaError._SSL: "the TLS handshake failed",  # noqa: SLF001 - likewise
}
_NO_ERROR = KafkaError(KafkaError.NO_ERROR)

Answer = asyncio.Future[KafkaError | None]


class _KafkaProducer:
    """One producer and the thread that polls it, until it is thrown away."""

    def __init__(self, config: ClientSettings) -> None:
        self.trouble = ""
        """Why it gets nowhere, as far as the client says it."""
        self.producer = Producer({**config, "logger": log, "error_cb": self._note})
        self.over = False
        self.publishing = 0
        self._polling = threading.Thread(target=self._poll, name="tape-kafka-poll", daemon=True)
        self._polling.start()

    def discard(self) -> None:
        """Give up what is queued and in flight; its reports still come."""
        if not self.over:
            self.over = True
            self.producer.purge(in_queue=True, in_flight=True, blocking=False)

    def join(self) -> None:
        self._polling.join(CLOSE_S)

    def _note(self, error: KafkaError) -> None:
        refused = _LOGIN_REFUSED.get(error.code())
        self.trouble = refused or self.trouble or "no server answers"

    def _poll(self) -> None:
        while not self.over or len(self.producer):
            try:
                self.producer.poll(POLL_S)
            except KafkaException:  # the producer has ended itself; what is left is reported
                self.discard()


class KafkaBroker:
    def __init__(
        self,
        target: KafkaTarget,
        *,
        config: ClientSettings | None = None,
        reports_s: float = REPORTS_S,
        open_login: OpenLogin = from_environment,
    ) -> None:
        """`config` are client settings such as SASL and TLS; else those of the target's credential,
        or of TAPE_KAFKA_CONFIG."""
        self._target = target
        self._reports_s = reports_s
        if config is not None:
            open_login = from_environment
        self._logins = LoginsInUse(open_login, target.shown, self._settings_to_try)
        self._given: ClientSettings = {}
        if open_login is from_environment:
            named = os.environ.get(CONFIG_VARIABLE, "")
            self._given = read_config(named) if config is None else config
        self._useless = 0
        """How many producers in a row have had nothing acknowledged."""
        self._revision = self._logins.revision
        """Of the credential that the producer has."""
        self._session: _KafkaProducer | None = None

    def __repr__(self) -> str:
        return f"KafkaBroker({self._target.shown})"

    async def publish(self, messages: Sequence[Outgoing]) -> Results:
        try:
            session = await self._current_session()
        except BrokerUnavailable as error:
            return [error] * len(messages)
        except KafkaException as error:  # its text may repeat a setting that is a secret
            name = error.args[0].name()
            failure = BrokerUnavailable(f"{self._target.shown}: bad client settings ({name})")
            return [failure] * len(messages)
        session.publishing += 1
        try:
            return await self._publish(session, messages)
        finally:
            session.publishing -= 1
            if session is not self._session and not session.publishing:
                session.discard()  # its login was changed meanwhile

    async def _publish(self, session: _KafkaProducer, messages: Sequence[Outgoing]) -> Results:
        answers: list[Answer | BrokerError] = []
        failures: dict[str, BrokerError] = {}
        for message in messages:
            key = message.ordering_key
            answer = failures.get(key) or self._produce(session, message)
            if isinstance(answer, BrokerError):
                failures[key] = answer
            answers.append(answer)
        await self._await_reports(session, [a for a in answers if isinstance(a, asyncio.Future)])
        return self._results(messages, answers, session.trouble)

    async def close(self) -> None:
        if self._session is not None:
            self._session.discard()
            await asyncio.to_thread(self._session.join)
            self._session = None

    async def _current_session(self) -> _KafkaProducer:
        """That of now; another one once the login was changed."""
        try:
            to_try = await self._logins.renew()
        except BrokerUnavailable:  # it was deleted, or cannot be used
            self._leave()
            raise
        if self._revision != self._logins.revision:
            self._leave()
            self._useless = 0
        if self._session is None or self._session.over:
            self._revision = self._logins.revision
            self._session = self._new_session(to_try)
        return self._session

    def _leave(self) -> None:
        """Use the producer no more; who has messages on their way ends it."""
        left, self._session = self._session, None
        if left is not None and not left.publishing:
            left.discard()

    def _new_session(self, to_try: Sequence[ClientSettings]) -> _KafkaProducer:
        """After a rotation the server may know the new login or the one before: a producer that got
        nowhere is followed by one with the other, as is one that the client does not make."""
        first = self._useless % len(to_try)
        *others, last = [*to_try[first:], *to_try[:first]]
        for settings in others:
            with contextlib.suppress(KafkaException):
                return _KafkaProducer(self._with_promises(settings))
        return _KafkaProducer(self._with_promises(last))

    def _with_promises(self, given: ClientSettings) -> ClientSettings:
        servers = {"bootstrap.servers": ",".join(self._target.hosts)}
        return {**_DEFAULTS, **given, **servers, **_PROMISES}

    def _settings_to_try(self, credential: OpenedCredential) -> list[ClientSettings]:
        return read_fields(credential, "kafka", read_settings) or [self._given]

    def _produce(self, session: _KafkaProducer, message: Outgoing) -> Answer | BrokerError:
        event = cloud_event(message)
        loop = asyncio.get_running_loop()
        answer: Answer = loop.create_future()

        def report(error: KafkaError | None, _message: Message) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(_resolve, answer, error)

        try:
            session.producer.produce(
                self._target.topic,
                event.data.encode(),
                message.ordering_key.encode(),
                on_delivery=report,
                headers=[*kafka_headers(event)],
            )
        except BufferError:
            return BrokerUnavailable(f"{self._target.shown}: the client's queue is full")
        except KafkaException as error:
            return self._translated(error.args[0])
        return answer

    async def _await_reports(self, session: _KafkaProducer, answers: Sequence[Answer]) -> None:
        if not answers:
            return
        try:
            _, late = await asyncio.wait(answers, timeout=self._reports_s)
        except asyncio.CancelledError:
            session.discard()
            raise
        fatal = any((a.result() or _NO_ERROR).fatal() for a in answers if a.done())
        is_taken = any(a.done() and a.result() is None for a in answers)
        self._useless = 0 if is_taken else self._useless + 1
        if is_taken:
            session.trouble = ""
        if late or fatal:
            session.discard()
            await asyncio.wait(answers, timeout=CLOSE_S)

    def _results(
        self, messages: Sequence[Outgoing], answers: Sequence[Answer | BrokerError], trouble: str
    ) -> Results:
        results: Results = []
        failures: dict[str, BrokerError] = {}
        for message, answer in zip(messages, answers, strict=True):
            result = failures.get(message.ordering_key) or self._result(answer, trouble)
            if result is not None:
                failures[message.ordering_key] = result
            results.append(result)
        return results

    def _result(self, answer: Answer | BrokerError, trouble: str) -> BrokerError | None:
        if isinstance(answer, BrokerError):
            return answer
        if not answer.done():
            return BrokerUnavailable(
                f"{self._target.shown}: {trouble or 'no acknowledgement in time'}"
            )
        error = answer.result()
        return None if error is None else self._translated(error, trouble)

    def _translated(self, error: KafkaError, trouble: str = "") -> BrokerError:
        where, name = self._target.shown, error.name()
        if error.code() in _PURGED:
            return BrokerUnavailable(f"{where}: {trouble or 'stopped before it was acknowledged'}")
        if error.code() in _REFUSED:
            return BrokerRefused(f"{where}: {name}")
        return BrokerUnavailable(f"{where}: {name}")


def _resolve(answer: Answer, error: KafkaError | None) -> None:
    if not answer.done():
        answer.set_result(error)
