"""`tape serve`: a server on one store."""

import asyncio
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import click

from tape.cli.command_tree import ExampleCommand
from tape.cli.health_option import health_option
from tape.cli.logs import start_logging
from tape.cli.target import Target, announcing_created_store, target_options
from tape.errors import Unsafe
from tape.programs.event_loop import stopping_on_signals
from tape.programs.heap import set_heap_aside
from tape.programs.listening import ANY_POOL
from tape.programs.serve import DEFAULT_GRPC, DEFAULT_HTTP, Addresses, ServeOptions
from tape.programs.serve import serve as serve_app
from tape.telemetry.tracing import export_spans

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    cls=ExampleCommand,
    example="""\
tape serve --store sqlite:desk.db
tape serve --grpc 0.0.0.0:7878 --tokens tokens.txt --tls-cert cert.pem --tls-key key.pem""",
)
@click.option(
    "--grpc",
    default=DEFAULT_GRPC,
    show_default=True,
    metavar="HOST:PORT",
    help="Listen for gRPC clients here; port 0 picks a free one.",
)
@click.option(
    "--http",
    default=DEFAULT_HTTP,
    show_default=True,
    metavar="HOST:PORT",
    help="Serve the timeline page, the HTTP API and /metrics here; port 0 picks a free one.",
)
@click.option("--no-http", is_flag=True, help="Do not serve HTTP.")
@health_option
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Certificate chain, PEM.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Private key of the certificate, PEM.")
@click.option(
    "--tokens",
    type=_FILE,
    metavar="FILE",
    help="File with a line `ROLE TOKEN` per token; roles: read, write, admin. Or TAPE_TOKENS.",
)
@click.option(
    "--listen",
    default=ANY_POOL,
    metavar="POOL",
    help="Listen only for subscriptions whose `runtime.pool` is this; by default for all but those "
    "with `target: cloud-run`.",
)
@click.option("--no-listen", is_flag=True, help="Listen for no subscription.")
@click.option(
    "--insecure",
    is_flag=True,
    help="Serve without TLS, because something else encrypts the connections.",
)
@target_options
@click.pass_obj
def serve(
    target: Target, *, grpc: str, http: str, no_http: bool, health: str | None,
    tls_cert: Path | None, tls_key: Path | None, tokens: Path | None, insecure: bool, listen: str,
    no_listen: bool,
) -> None:  # fmt: skip
    """Serve a store to clients over gRPC and HTTP, until SIGTERM or Ctrl-C.

    Prints `grpc HOST:PORT` and `http HOST:PORT` when it is ready, and then `health HOST:PORT` with
    --health. The store is --store, TAPE_STORE or sqlite:tape.db, and is created if it does not
    exist. An address that other machines can reach needs tokens, and TLS or --insecure; the one of
    --health needs neither. Messages of active subscriptions become runs. Spans are sent to
    OTEL_EXPORTER_OTLP_ENDPOINT.
    """
    if listen and no_listen:
        raise click.UsageError("--listen and --no-listen exclude each other")
    if target.url:
        raise click.UsageError("a server has a store: give --store, not --url")
    start_logging(verbose=target.verbose)
    options = ServeOptions(
        store_url=target.store_url,
        settings=target.settings,
        grpc_address=grpc,
        http_address=None if no_http else http,
        health_address=health,
        tokens=None if tokens else os.environ.get("TAPE_TOKENS"),
        token_file=tokens,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=insecure,
        listen=None if no_listen else listen,
    )
    send_spans = export_spans("tape")
    try:
        with announcing_created_store(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(options))
    except Unsafe as fault:
        raise Unsafe(f"{fault} (--tokens, --tls-cert, --tls-key, --insecure)") from None
    finally:
        send_spans()


async def _serve(options: ServeOptions) -> None:
    stop = asyncio.Event()
    with stopping_on_signals(stop):
        await serve_app(options, on_ready=_announce, stop=stop)


def _announce(addresses: Addresses) -> None:
    set_heap_aside()
    print(f"grpc {addresses.grpc}", flush=True)
    if addresses.http is not None:
        print(f"http {addresses.http}", flush=True)
    if addresses.health is not None:
        print(f"health {addresses.health}", flush=True)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop
