"""Checks of this installation: versions, the predicate engine, optional parts."""

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from tape import __version__
from tape.cli.doctor.finding import Finding, fail, ok, warn
from tape.errors import TapeError
from tape.predicates import check

OLDEST_PYTHON = (3, 11)
PACKAGES = ("cel-expr-python", "click", "google-re2", "grpcio", "orjson", "protobuf", "rich")
EXTRAS = (
    ("postgres", "asyncpg", "the Postgres store"),
    ("spark", "pyspark", "the data pipeline"),
    ("delta", "deltalake", "lakes in Delta's format"),
    ("nats", "nats", "NATS: subscriptions, publishing, the outbox"),
    ("kafka", "confluent_kafka", "Kafka: subscriptions and publishing"),
    ("pubsub", "google.cloud.pubsub_v1", "Pub/Sub: subscriptions and publishing"),
    ("otel", "opentelemetry.sdk", "sending spans to a collector"),
    ("kms", "boto3", "a wallet whose key is in AWS KMS"),
)


def check_installation() -> Iterator[Finding]:
    yield _python()
    yield from _packages()
    yield _predicates()
    yield from _extras()
    yield _event_loop()


def _python() -> Finding:
    found = f"{platform.python_version()} with tape-bus {__version__}"
    if sys.version_info < OLDEST_PYTHON:
        return fail("python", found, "Tape needs Python 3.11 or newer")
    return ok("python", found)


def _packages() -> Iterator[Finding]:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        yield fail("packages", f"missing {', '.join(missing)}", "pip install tape-bus")
    else:
        yield ok("packages", ", ".join(found))


def _predicates() -> Finding:
    """One expression that is true and one that must be refused."""
    try:
        holds = check("payload.price > 100.0").evaluate({"payload": {"price": 101.5}})
    except TapeError as error:
        return fail("predicates", str(error), "pip install --force-reinstall cel-expr-python")
    try:
        check("payload.price >")
    except TapeError:
        if holds is True:
            return ok("predicates", "CEL expressions are checked and decided")
    return fail("predicates", "a wrong result", "pip install --force-reinstall cel-expr-python")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it would be in
        return False


def _extras() -> Iterator[Finding]:
    for extra, module, purpose in EXTRAS:
        if not _is_installed(module):
            found = f"not installed; {purpose} needs it: pip install 'tape-bus[{extra}]'"
            yield ok(f"extra {extra}", found)
        else:
            yield ok(f"extra {extra}", f"installed, for {purpose}")


def _event_loop() -> Finding:
    if find_spec("uvloop") is None and sys.platform != "win32":
        return warn("event loop", "asyncio's own", "pip install uvloop makes tape serve faster")
    return ok("event loop", "uvloop" if find_spec("uvloop") else "asyncio's own")
