"""The reactive half of the bus: declared reactions, the matcher, the dispatcher.

The three functions here are the public ones. They put a running worker together, so they reach up
to `tape.worker` when they are called; nothing below does.
"""

from typing import TYPE_CHECKING

from tape.model.run import DEFAULT_POOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tape.model.reaction import Reaction
    from tape.settings import Settings

__all__ = ["register_all", "run_dispatcher", "run_pubsub_bridge"]


def run_dispatcher(
    url: str | None = None,
    *,
    token: str | None = None,
    settings: "Settings | None" = None,
    owner: str = "",
    reaction_ids: "Sequence[str]" = (),
    pool: str = DEFAULT_POOL,
) -> None:
    """Register the declared reactions and handle their tasks until SIGTERM or Ctrl-C.

    Without a URL it is TAPE_URL, else TAPE_STORE, else the default server. The URL of a store
    (`sqlite:`, `postgres:`) needs no server: then this process also matches. It also drives runs of
    `pool`.
    """
    from tape.programs.worker import WorkerOptions, refuse_inside_loop, run_worker
    from tape.settings import Settings

    refuse_inside_loop("run_dispatcher")
    run_worker(
        WorkerOptions(
            url=url,
            token=token,
            settings=settings or Settings(),
            owner=owner,
            reaction_ids=tuple(reaction_ids),
            pool=pool,
        )
    )


def run_pubsub_bridge(
    url: str | None = None,
    *,
    project: str,
    topic: str,
    token: str | None = None,
    settings: "Settings | None" = None,
    owner: str = "",
    reaction_ids: "Sequence[str]" = (),
) -> None:
    """Publish tasks to a Pub/Sub topic instead of handling them here, until SIGTERM or Ctrl-C.

    By default it publishes the tasks of every registered reaction that makes tasks. A task is done
    when Pub/Sub has acknowledged it.
    """
    from tape.programs.worker import WorkerOptions, refuse_inside_loop, run_worker
    from tape.settings import Settings

    refuse_inside_loop("run_pubsub_bridge")
    run_worker(
        WorkerOptions(
            url=url,
            token=token,
            settings=settings or Settings(),
            owner=owner,
            bridge=f"pubsub://{project}/{topic}",
            reaction_ids=tuple(reaction_ids),
        )
    )


def register_all(
    url: str | None = None, *, token: str | None = None, settings: "Settings | None" = None
) -> "list[Reaction]":
    """Register every declared reaction and event subscription, and do nothing else."""
    import asyncio

    from tape.programs.worker import refuse_inside_loop, register

    refuse_inside_loop("register_all", "await asyncio.to_thread(tape.reactions.register_all, url)")
    return asyncio.run(register(url, token, settings))
