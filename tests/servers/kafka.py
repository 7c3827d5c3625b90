"""A Kafka for tests: a real broker in KRaft mode where Java and Maven are, else a stand-in.

The broker's jars come from Maven once and stay in the user's cache. The stand-in is librdkafka's
own mock cluster: it speaks the protocol over TCP but keeps nothing, so what is shown with it is
less, and tests that kill the broker need the real one.
"""

import re
import shutil
import signal
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

from confluent_kafka import Producer

from tests.servers.maven import Coordinates, JarsUnavailable, fetched_jars
from tests.servers.ports import await_port, free_port

VERSION = "4.3.1"
_BROKER = Coordinates("org.apache.kafka", "kafka_2.13", VERSION)
LEAST_JAVA = 17
START_S = 60.0
PORTS_TRIED = 3

_SETTINGS = """
process.roles=broker,controller
node.id=1
listeners={protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
num.partitions=4
"""
# Whoever connects logs in, the broker to itself too. Among themselves controllers do not.
_LOGINS = """
listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required \
username="broker" password="broker" user_broker="broker" {users};
"""
_JVM = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Listener(NamedTuple):
    """Another way in. Clients are told to come to `advertised`, a port that leads here, if it is
    not 0."""

    name: str
    protocol: str = "PLAINTEXT"
    settings: str = ""
    advertised: int = 0


class KafkaUnavailable(RuntimeError):
    """A real Kafka broker cannot be had here."""


class Kafka(Protocol):
    """What tests need of either kind."""

    real: bool

    @property
    def address(self) -> str: ...

    def __enter__(self) -> "Kafka": ...

    def __exit__(self, *_error: object) -> None: ...


@cache
def kafka_classpath() -> str:
    """The broker's jars, fetched where the cache lacks them; KafkaUnavailable says why not."""
    _require_java()
    try:
        jars = fetched_jars(f"kafka-{VERSION}", [_BROKER])
    except JarsUnavailable as error:
        raise KafkaUnavailable(str(error)) from None
    return f"{jars}/*"


def start_kafka() -> "KafkaServer | MockKafka":
    """The real one where it can be had."""
    try:
        kafka_classpath()
    except KafkaUnavailable:
        return MockKafka()
    return KafkaServer()


class KafkaServer:
    """Start with `with KafkaServer() as server:`; it can be killed and started on the same data.
    With `users`, names and passwords, everybody has to log in by SASL. `more` are other listeners
    beside the plain one; `ports` has theirs."""

    real = True

    def __init__(
        self, users: Mapping[str, str] = MappingProxyType({}), more: Sequence[Listener] = ()
    ) -> None:
        self._users = users
        self._more = more
        self.ports: dict[str, int] = {}
        self._classpath = kafka_classpath()
        self._folder = Path(tempfile.mkdtemp(prefix="tape-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> "KafkaServer":
        for tried in range(PORTS_TRIED):
            self.port = free_port()
            self._write_settings()
            if tried == 0:
                self._format()
            try:
                self.start()
            except RuntimeError:  # somebody else may have taken a port in the meantime
                if tried == PORTS_TRIED - 1:
                    raise
            else:
                break
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, also again after a kill, on the same data and port; nothing if it runs."""
        if self._process is not None:
            return
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._settings)), stdout=log, stderr=log
            )
        await_port(self.port, self._process, START_S)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    @property
    def _settings(self) -> Path:
        return self._folder / "server.properties"

    def _write_settings(self) -> None:
        named = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
        controller = free_port()
        self.ports = {each.name: free_port() for each in self._more}
        self._settings.write_text(
            _SETTINGS.format(
                protocol="SASL_PLAINTEXT" if self._users else "PLAINTEXT",
                port=self.port,
                controller=controller,
                data=self._folder / "data",
            )
            + (_LOGINS.format(users=named) if self._users else "")
            + self._listeners(controller)
        )

    def _listeners(self, controller: int) -> str:
        """What is said again counts."""
        if not self._more:
            return ""
        places = [("PLAINTEXT", self.port, self.port)]
        places += [
            (each.name, self.ports[each.name], each.advertised or self.ports[each.name])
            for each in self._more
        ]
        at = [f"{name}://127.0.0.1:{port}" for name, port, _ in places]
        told = [f"{name}://127.0.0.1:{port}" for name, _, port in places]
        kinds = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
        kinds += [f"{each.name}:{each.protocol}" for each in self._more]
        return (
            f"listeners={','.join(at)},CONTROLLER://127.0.0.1:{controller}\n"
            f"advertised.listeners={','.join(told)}\n"
            f"listener.security.protocol.map={','.join(kinds)}\n"
            f"inter.broker.listener.name=PLAINTEXT\n"
            + "\n".join(each.settings for each in self._more)
        )

    def _format(self) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # As one word: an id may begin with a dash, and would be taken for another option.
        command = self._java(
            "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}",
            "-c", str(self._settings),
        )  # fmt: skip
        done = subprocess.run(command, capture_output=True, check=False, timeout=START_S)
        if done.returncode:
            raise RuntimeError(f"Kafka's storage was not made: {done.stderr.decode()[-300:]}")

    def _java(self, *arguments: str) -> list[str]:
        return ["java", *_JVM, "-cp", self._classpath, *arguments]


class MockKafka:
    """librdkafka's mock cluster. It lives as long as the producer that made it."""

    real = False

    def __init__(self) -> None:
        self._owner: Producer | None = None

    def __enter__(self) -> "MockKafka":
        self._owner = Producer(
            {"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0}
        )
        return self

    def __exit__(self, *_error: object) -> None:
        self._owner = None

    @property
    def address(self) -> str:
        if self._owner is None:
            raise RuntimeError("the mock cluster is not running")
        (broker,) = self._owner.list_topics(timeout=10).brokers.values()
        return f"{broker.host}:{broker.port}"


def _require_java() -> None:
    java = shutil.which("java")
    if java is None:
        raise KafkaUnavailable("Java is not installed")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < LEAST_JAVA:
        raise KafkaUnavailable(f"Kafka {VERSION} needs Java {LEAST_JAVA} or later")
