"""The servers that pages say must be running, on the addresses that the pages name."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from tests.servers.collector import SpanReceiver
from tests.servers.postgres import PostgresServer


@contextmanager
def servers_of(text: str, ports: Mapping[int, int]) -> Iterator[None]:
    with ExitStack() as running:
        if "127.0.0.1:5432/desk" in text:
            postgres = PostgresServer()
            postgres.port = ports[5432]
            running.enter_context(postgres).create_database("desk")
            if postgres.port != ports[5432]:
                raise RuntimeError(f"port {ports[5432]} of Postgres is taken")
        if "127.0.0.1:4317" in text:
            running.enter_context(SpanReceiver(ports[4317]))
        yield
