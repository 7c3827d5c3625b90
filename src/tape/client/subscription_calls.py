"""What a client says about declared subscriptions: a part of its face."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tape.bus import Operations
from tape.client.build import as_json
from tape.errors import InvalidArgument
from tape.model.subscription import SubscriptionDeadLetter
from tape.subscriptions.operations import (
    DROP,
    REPLAY,
    RegisteredSubscription,
    SubscriptionView,
)

LETTERS_PAGE: Final = 100
_FILES: Final = (".yaml", ".yml", ".json")


class SubscriptionMethods:
    _operations: Operations

    async def register_subscription(
        self, document: str | Path | Mapping[str, Any]
    ) -> RegisteredSubscription:
        """Register a document of kind: Subscription. If there is one of its path, make a revision.

        `document` is YAML or JSON text, the path of a file, or a mapping. The same document again
        changes nothing. A new subscription listens once it is activated.
        """
        text = document_text(document)
        return await self._operations.subscriptions.register_subscription(text)

    async def subscription(self, name: str) -> SubscriptionView:
        """Return a subscription as it stands; NotFound if there is none."""
        return await self._operations.subscriptions.get_subscription(name)

    async def subscriptions(self) -> list[SubscriptionView]:
        """Return all subscriptions, by name."""
        return await self._operations.subscriptions.list_subscriptions()

    async def move_subscription(self, name: str, verb: str) -> SubscriptionView:
        """Activate, pause, resume, drain or deactivate a subscription, and return it.

        WrongState if its state does not allow that. A repeat changes nothing. What drains is
        deactivated by itself, once nothing of it is in hand.
        """
        return await self._operations.subscriptions.move_subscription(name, verb)

    async def delete_subscription(self, name: str) -> bool:
        """Remove a subscription that is deactivated, or was never activated. Returns False if it
        does not exist. The runs that it made continue.
        """
        return await self._operations.subscriptions.delete_subscription(name)

    async def subscription_dead_letters(
        self, name: str, *, limit: int = 1_000, after: str = ""
    ) -> list[SubscriptionDeadLetter]:
        """Return at most `limit` messages that could not become runs, by id, those after one."""
        found: list[SubscriptionDeadLetter] = []
        listing = self._operations.subscriptions.list_subscription_dead_letters
        while (most := min(limit - len(found), LETTERS_PAGE)) > 0:
            page = await listing(name, after=after, limit=most)
            if not page:
                break
            found += page
            after = page[-1].letter_id
        return found

    async def subscription_dead_letter(
        self, name: str, letter_id: str
    ) -> SubscriptionDeadLetter | None:
        """Return a dead letter; None if it does not exist."""
        page = await self.subscription_dead_letters(name, limit=1, after=_just_before(letter_id))
        return page[0] if page and page[0].letter_id == letter_id else None

    async def replay_subscription_dead_letters(self, name: str, ids: Sequence[str] = ()) -> int:
        """Accept dead letters by the subscription's newest revision; without ids, all. Returns how
        many; those that are refused again stay.
        """
        settle = self._operations.subscriptions.settle_subscription_dead_letters
        return await settle(name, REPLAY, ids)

    async def drop_subscription_dead_letters(self, name: str, ids: Sequence[str] = ()) -> int:
        """Remove dead letters for good; without ids, all. Returns how many."""
        settle = self._operations.subscriptions.settle_subscription_dead_letters
        return await settle(name, DROP, ids)


def document_text(document: str | Path | Mapping[str, Any]) -> str:
    match document:
        case str():
            if "\n" not in document and document.endswith(_FILES):
                raise InvalidArgument(
                    f"{document!r} is the name of a file: give pathlib.Path({document!r})",
                    field="document",
                )
            return document
        case Path():
            try:
                return document.read_text("utf-8")
            except UnicodeDecodeError:
                raise InvalidArgument("is not UTF-8", field=str(document)) from None
        case Mapping():
            return as_json(document, field="document")
        case _:
            raise InvalidArgument(
                f"must be text, a path or a mapping, not {type(document).__name__}",
                field="document",
            )


def _just_before(letter_id: str) -> str:
    """A text below the id, so that no other id is between them: all are of one length."""
    if not letter_id.isascii() or ord(letter_id[-1:] or " ") <= ord(" "):
        return letter_id
    return f"{letter_id[:-1]}{chr(ord(letter_id[-1]) - 1)}"
