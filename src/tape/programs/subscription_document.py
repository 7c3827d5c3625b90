"""What a document asks of the process that is to listen for it and to drive its runs."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches

from tape.errors import InvalidArgument
from tape.model.subscription_spec import Control, SubscriptionSpec
from tape.runs.declare import Apps
from tape.sources.by_spec import require_client


def check_fetched(spec: SubscriptionSpec) -> None:
    """Refuse what nobody can listen for from here."""
    if spec.mode != "pull":
        raise InvalidArgument(
            f"{spec.name!r} is pushed to, and not fetched from a source: this command has nothing "
            "to listen to. A server will take what is pushed, by `tape serve --ingress`, which "
            "comes in a later version",
            field="spec.mode",
        )
    require_client(spec.source.kind)


def check_apps(spec: SubscriptionSpec, apps: Apps, note: Callable[[str], None]) -> None:
    """Refuse a document whose app is not declared here; note those that only headers choose."""
    wanted = spec.dispatch.app
    if wanted not in apps.apps:
        near = get_close_matches(wanted, apps.apps, n=1)
        meant = f". Did you mean {near[0]!r}?" if near else ""
        raise InvalidArgument(
            f"no app {wanted!r} is declared in this process{meant}", field="spec.dispatch.playbook"
        )
    for app in dict.fromkeys(_chosen_apps(spec)):
        if app not in apps.apps:
            note(f"no app {app!r} is declared here; what headers send there waits for a worker")


def pools_of(spec: SubscriptionSpec, apps: Apps) -> tuple[str, ...]:
    """Where the runs of a subscription may go, and those that they begin."""
    pools = [spec.dispatch.execution_pool]
    for directive in spec.headers.directives if spec.headers else ():
        if directive.controls is Control.EXECUTION_POOL:
            pools += directive.allowed
        elif directive.controls is Control.PRIORITY:
            pools += [pool for _value, pool in directive.pools]
    pools += [app.pool for app in apps]
    return tuple(dict.fromkeys(pools))


def _chosen_apps(spec: SubscriptionSpec) -> Iterator[str]:
    for directive in spec.headers.directives if spec.headers else ():
        if directive.controls is Control.PLAYBOOK:
            yield from directive.allowed
