"""Checks of declared subscriptions: nobody listens, a source refuses, a login is missing."""

import os
import time
from contextlib import suppress

from tape.bus import Operations
from tape.cli.doctor.finding import Finding, ok, some, warn
from tape.cli.output import span
from tape.errors import PermissionDenied, WalletLocked, WalletUnavailable
from tape.model.credential import CredentialState
from tape.model.subscription import SubscriptionState
from tape.subscriptions.operations import SubscriptionView, named_credentials
from tape.subscriptions.spec import spec_of_json
from tape.wallet.keys import Keys

UNHELD_MS = 60_000
"""So long a subscription may be without a listener: one process stops and another begins."""
IN_USE = (SubscriptionState.ACTIVE, SubscriptionState.PAUSED, SubscriptionState.DRAINING)


async def check_subscriptions(operations: Operations) -> list[Finding]:
    views = await operations.subscriptions.list_subscriptions()
    found = [_listeners(views), _dead_letters(views)]
    with suppress(PermissionDenied):  # only administrators see what the wallet has
        states = await operations.wallet.list_credentials() if views else []
        found.append(_credentials(views, states, await _key_fault()))
    return found


def _listeners(views: list[SubscriptionView]) -> Finding:
    now_ms = time.time_ns() // 1_000_000
    active = [view for view in views if view.subscription.state == SubscriptionState.ACTIVE]
    used = [view for view in views if view.subscription.state in IN_USE]
    troubles = [words for view in used if (words := _trouble(view, now_ms))]
    if not troubles:
        return ok("subscriptions", f"{len(views)}, {len(active)} of them active, none in trouble")
    advice = "tape subscriptions show says more; tape serve or tape worker --listen POOL listens"
    return warn("subscriptions", some(troubles), advice)


def _trouble(view: SubscriptionView, now_ms: int) -> str:
    row, listener = view.subscription, view.listener
    alone_ms = now_ms - max(row.changed_at_ms, listener.lease_expires_at_ms)
    is_wanted = row.mode == "pull" and row.state == SubscriptionState.ACTIVE
    words = []
    if is_wanted and not view.is_held and alone_ms > UNHELD_MS:
        of = f" of {row.listener_pool}" if row.listener_pool else ""
        words.append(f"no listener{of} for {span(alone_ms)}")
    if listener.last_error:
        paused = row.state == SubscriptionState.PAUSED
        words.append(f"paused, {listener.last_error}" if paused else listener.last_error)
    return f"{row.name}: {', '.join(words)}" if words else ""


def _dead_letters(views: list[SubscriptionView]) -> Finding:
    found = [
        f"{view.dead_letters} of {view.subscription.name}" for view in views if view.dead_letters
    ]
    if not found:
        return ok("dead messages", "none")
    advice = "tape dlq list --subscription, then tape dlq replay or drop"
    return warn("dead messages", some(found), advice)


async def _key_fault() -> str:
    """Why this process cannot read the key that its environment names, if it names one."""
    keys = Keys(os.environ)
    try:
        if keys.is_named:
            await keys.keyring()
    except (WalletLocked, WalletUnavailable) as fault:
        return str(fault)
    finally:
        await keys.close()
    return ""


def _credentials(
    views: list[SubscriptionView], states: list[CredentialState], key_fault: str
) -> Finding:
    named = {
        (view.subscription.name, alias)
        for view in views
        if view.subscription.state in IN_USE
        for _field, alias in named_credentials(spec_of_json(view.document_json))
    }
    known = {state.alias: state.key_id for state in states}
    missing = sorted(f"{alias} of {name}" for name, alias in named if alias not in known)
    if missing:
        found = f"not in the wallet: {some(missing)}"
        return warn("credentials", found, "tape wallet put, or no listener can log in")
    if key_fault:
        return warn("credentials", key_fault, "who listens needs the key, to log in")
    sealed = ", ".join(sorted({known[alias] for _name, alias in named}))
    told = f", sealed by {sealed}" if sealed else ""
    return ok("credentials", f"{len(named)} named by subscriptions, all in the wallet{told}")
