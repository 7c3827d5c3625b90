"""The reactors of runs as a program: a worker without reactions."""

from tape.ledger.declare import EventSubscriptions
from tape.model.run import DEFAULT_POOL
from tape.programs.worker import WorkerOptions, refuse_inside_loop, run_worker
from tape.reactions.declare import Registry
from tape.runs.declare import DECLARED_APPS, Apps
from tape.settings import Settings


def run_reactors(
    url: str | None = None,
    *,
    token: str | None = None,
    settings: Settings | None = None,
    owner: str = "",
    pool: str = DEFAULT_POOL,
    apps: Apps = DECLARED_APPS,
) -> None:
    """Drive the runs of a pool until SIGTERM or Ctrl-C.

    This also dispatches, reconciles and compensates the effects that are declared here. It is a
    worker without reactions: `tape.reactions.run_dispatcher` handles those as well.
    """
    refuse_inside_loop("run_reactors")
    run_worker(
        WorkerOptions(
            url=url,
            token=token,
            registry=Registry(),
            event_subscriptions=EventSubscriptions(),
            settings=settings or Settings(),
            owner=owner,
            pool=pool,
            apps=apps,
        )
    )
