"""Where the logins of targets come from: a credential of the wallet, or else the environment.

A target may name a credential itself, as `TARGET#credential=ALIAS`. Otherwise it is the one that
the settings name for its kind under `tape.credentials`, and where they name none, what the
environment has. Who opens credentials is handed down by the program, so this room has no wallet.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar, assert_never

from tape.brokers.targets import (
    KafkaTarget,
    LogTarget,
    NatsTarget,
    PubSubTarget,
    Target,
    WebhookTarget,
)
from tape.errors import BrokerUnavailable, NoCredential, TapeError
from tape.ports.credentials import OpenCredential, OpenedCredential
from tape.settings import CredentialSettings

NO_ALIASES: Final = CredentialSettings()

NO_CREDENTIAL: Final = OpenedCredential("", 0, ())
T = TypeVar("T")

OpenLogin = Callable[[], Awaitable[OpenedCredential]]
"""The target's credential as it is now, without values if the environment has its login.
BrokerUnavailable says why it cannot be opened."""


async def from_environment() -> OpenedCredential:
    """An `OpenLogin` of a target without a credential."""
    return NO_CREDENTIAL


def alias_of(target: Target, aliases: CredentialSettings) -> str:
    """The credential that a target gets; empty if it has none."""
    if isinstance(target, LogTarget):
        return ""
    return target.credential or _setting_of(target, aliases)


class Logins:
    """`open_credential` is None where there is no wallet at hand."""

    def __init__(
        self, aliases: CredentialSettings, open_credential: OpenCredential | None = None
    ) -> None:
        self._aliases = aliases
        self._open = open_credential

    def of(self, target: Target) -> OpenLogin:
        """How a broker gets the login of its target, each time that it needs it."""
        alias = alias_of(target, self._aliases)
        if not alias:
            return from_environment

        async def opened() -> OpenedCredential:
            try:
                return await self._opened(alias)
            except TapeError as error:
                raise BrokerUnavailable(
                    f"{target.shown}: its login is not there: {error}"
                ) from None

        return opened

    async def check(self, target: Target) -> None:
        """Refuse a target whose credential cannot be opened now: NoCredential, WalletLocked, …"""
        await self.check_alias(alias_of(target, self._aliases))

    async def check_alias(self, alias: str) -> None:
        """Refuse a credential that cannot be opened now; an empty alias is none."""
        if alias:
            await self._opened(alias)

    async def _opened(self, alias: str) -> OpenedCredential:
        if self._open is None:
            raise NoCredential(
                f"the credential {alias!r} is named, and there is no wallet at hand here: run this "
                "with a store or a server"
            )
        return await self._open(alias)


ENVIRONMENT: Final = Logins(NO_ALIASES)


class LoginsInUse(Generic[T]):
    """The logins of one target as its broker uses them, read anew once they are others."""

    def __init__(
        self,
        open_login: OpenLogin,
        shown: str,
        read: Callable[[OpenedCredential], Sequence[T]],
    ) -> None:
        """`read` makes logins of a credential, or of one without values those of the environment;
        `shown` is the target."""
        self._open_login = open_login
        self._shown = shown
        self._read = read
        self._logins: Sequence[T] = ()
        self.revision = NO_CREDENTIAL.revision
        """Of the credential that the logins are of."""

    @property
    def others(self) -> Sequence[T]:
        """Those that are good besides the current one."""
        return self._logins[1:]

    async def renew(self) -> Sequence[T]:
        """Those to try, in this order. BrokerUnavailable if there is none that can be used."""
        opened = await self._open_login()
        if opened.revision != self.revision or not opened.values:
            try:
                self._logins = self._read(opened)
            except TapeError as error:
                raise BrokerUnavailable(f"{self._shown}: {error}") from None
            self.revision = opened.revision
        return self._logins


def _setting_of(target: Target, aliases: CredentialSettings) -> str:
    match target:
        case NatsTarget():
            return aliases.nats
        case KafkaTarget():
            return aliases.kafka
        case PubSubTarget():
            return aliases.pubsub
        case WebhookTarget():
            return aliases.webhook
        case LogTarget():
            return ""
        case _:
            assert_never(target)
