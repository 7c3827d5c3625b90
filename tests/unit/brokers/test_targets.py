"""Targets: the good ones, and for each bad one what is wrong, never what is secret in it."""

import logging
import subprocess
import sys
from importlib import util
from importlib.machinery import ModuleSpec

import pytest

from tape.brokers import by_target
from tape.brokers.by_target import check_client, check_target, open_broker
from tape.brokers.reach import Reach
from tape.brokers.targets import KafkaTarget, NatsTarget, PubSubTarget, parse_target
from tape.errors import BrokerUnavailable, InvalidArgument
from tape.programs.sinks import KafkaSink, NatsSink, PubSubSink, WebhookSink, sink_for

SECRET = "whsec_" + "c2VjcmV0" * 5


@pytest.mark.parametrize(
    "target",
    [
        "log:", "nats://127.0.0.1:4222/tape", "nats://a,b:4222/tape.events.eu", "nats://[::1]:1/x",
        "kafka://a:9092,b:9092/tape.events-1", "pubsub://my-proj/incident-stream",
        "pubsub://example.com:my-proj/tape", "https://hooks.example/tape?x=1",
        "https://[2001:db8::1]:8443/", "http://127.0.0.1:8080/hook", "http://localhost/hook",
        "http://[::1]:1/",
    ],
)  # fmt: skip
def test_good_targets(target: str) -> None:
    check_target(target, Reach())


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("", "is not a target; use one of nats://"),
        ("nats", "is not a target"),
        ("log:x", "is not a target"),
        ("amqp://h/q", "'amqp' is not a kind of target; use one of nats://"),
        ("nats://h:4222", "names no subject; use nats://HOST:PORT/SUBJECT"),
        ("nats://h:4222/", "names no subject"),
        ("nats://h:4222/a b", "words joined by dots"),
        ("nats://h:4222/a..b", "words joined by dots"),
        ("nats://h:4222/a.*", "without wildcards"),
        ("nats://h:4222/>", "without wildcards"),
        ("nats://h:4222/$JS.API", "belong to the NATS server"),
        ("nats:///tape", "'' is not HOST:PORT"),
        ("nats://me:hunter2@h:4222/tape", "TAPE_NATS_USER"),
        ("nats://h:99999/tape", "'h:99999' is not HOST:PORT"),
        ("nats://h:0/tape", "is not HOST:PORT"),
        ("kafka://h:9092", "names no topic; use kafka://"),
        ("kafka://h:9092/a b", "a Kafka topic is"),
        ("kafka://h:9092/..", "a Kafka topic is"),
        ("kafka://h:9092,/t", "is not HOST:PORT"),
        ("kafka://me:hunter2@h:9092/t", "TAPE_KAFKA_CONFIG"),
        ("pubsub://", "names no project; use pubsub://PROJECT/TOPIC"),
        ("pubsub://proj", "names no topic"),
        ("pubsub://Proj/topic", "a project id is"),
        ("pubsub://proj/go", "a Pub/Sub topic is"),
        ("pubsub://proj/google-x", "not with goog"),
        ("http://hooks.example/x", "unencrypted; use https://"),
        ("http://127.0.0.1.evil.example/x", "unencrypted"),
        ("http://0.0.0.0/x", "unencrypted"),
        ("https:///x", "names no host"),
        ("https://me:hunter2@hooks.example/x", "TAPE_WEBHOOK_SECRET"),
        ("https://hooks.example/a b", "no spaces"),
        ("https://hooks.example/\r\nx", "no spaces"),
        ("https://hooks.example/x#y", "no fragment"),
        ("https://h:port/x", "is not a URL"),
        ("https://[::1/x", "is not a URL"),
    ],
)
def test_bad_targets(target: str, says: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        check_target(target, Reach())
    assert refusal.value.field == "publish_target"
    assert says in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


def test_the_parts_of_a_target() -> None:
    nats = parse_target("nats://me:hunter%402@a:1,b:2/tape.x")
    assert nats == NatsTarget(("a:1", "b:2"), "tape.x", "me", "hunter@2")
    assert parse_target("kafka://a:1,b:2/t") == KafkaTarget(("a:1", "b:2"), "t")
    assert parse_target("pubsub://proj/topic") == PubSubTarget("proj", "topic")


@pytest.mark.parametrize(
    "target", ["nats://me:hunter2@127.0.0.1:1/tape", "http://127.0.0.1:1/hunter2?key=hunter2"]
)
async def test_secrets_are_in_no_message(
    target: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.conformance.broker import outgoing

    monkeypatch.setenv("TAPE_WEBHOOK_SECRET", SECRET)
    with caplog.at_level(logging.INFO):
        broker = await open_broker(target)
        (failure,) = await broker.publish([outgoing(1)])
        await broker.close()
    assert isinstance(failure, BrokerUnavailable)
    assert failure.__cause__ is None
    said = f"{failure!r}{broker!r}{parse_target(target)!r}{caplog.text}"
    assert "127.0.0.1:1" in said
    assert "hunter2" not in said
    assert SECRET not in said


@pytest.mark.parametrize(
    ("target", "missing", "extra"),
    [
        ("nats://h:1/t", "nats", "nats"),
        ("kafka://h:1/t", "confluent_kafka", "kafka"),
        ("pubsub://proj/topic", "google.pubsub_v1", "pubsub"),
    ],
)
async def test_a_missing_client_says_how_to_get_it(
    target: str, missing: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str) -> ModuleSpec | None:
        return None if name == missing else util.find_spec(name)

    monkeypatch.setattr(by_target, "find_spec", find_spec)
    check_target(target, Reach())
    with pytest.raises(BrokerUnavailable, match=rf'pip install "tape-bus\[{extra}\]"'):
        check_client(target)
    with pytest.raises(BrokerUnavailable, match="pip install"):
        await open_broker(target)
    with pytest.raises(BrokerUnavailable, match="pip install"):
        sink_for(target)


def test_checking_loads_no_client() -> None:
    code = """
import sys
from tape.brokers.by_target import check_target
from tape.brokers.reach import Reach
for target in ("nats://h:1/t", "kafka://h:1/t", "pubsub://proj/topic", "https://h/"):
    check_target(target, Reach())
sys.exit(int(bool({"nats", "confluent_kafka", "google.pubsub_v1", "httpx"} & sys.modules.keys())))
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_sink_of_another_kind_of_target_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAPE_WEBHOOK_SECRET", raising=False)
    with pytest.raises(InvalidArgument, match="does not start with nats://"):
        NatsSink("kafka://h:1/t")
    with pytest.raises(InvalidArgument, match="does not start with kafka://"):
        KafkaSink("nats://h:1/t")
    with pytest.raises(InvalidArgument, match="not the URL of a webhook"):
        WebhookSink("nats://h:1/t")
    with pytest.raises(InvalidArgument, match="a Pub/Sub topic"):
        PubSubSink("proj", "t")
    with pytest.raises(InvalidArgument, match="TAPE_WEBHOOK_SECRET"):
        WebhookSink("https://hooks.example/x")
