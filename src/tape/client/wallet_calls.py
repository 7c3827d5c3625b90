"""What a client says about credentials: a part of its face. Values go in and never out."""

from collections.abc import Mapping
from typing import Any

from tape.bus import Operations
from tape.client.build import as_json
from tape.errors import InvalidArgument
from tape.model.credential import CredentialForm, CredentialState


class WalletMethods:
    _operations: Operations

    async def put_credential(
        self, alias: str, value: str | Mapping[str, Any], *, form: str = ""
    ) -> CredentialState:
        """Seal a text or an object of fields as a new version; the one before is refused at once.

        A text that is a JSON object is kept as an object, unless `form` is text.
        """
        text, form = _sealable(value, form)
        return await self._operations.wallet.put_credential(alias, text, form=form)

    async def rotate_credential(
        self, alias: str, value: str | Mapping[str, Any], *, form: str = ""
    ) -> CredentialState:
        """Seal a value as a new version; the one before stays good until the next rotation, or
        until it is retired.
        """
        text, form = _sealable(value, form)
        return await self._operations.wallet.rotate_credential(alias, text, form=form)

    async def retire_credential(self, alias: str) -> CredentialState:
        """Refuse the version before the current one from now on."""
        return await self._operations.wallet.retire_credential(alias)

    async def credentials(self) -> list[CredentialState]:
        """Return what may be known of all credentials, by alias."""
        return await self._operations.wallet.list_credentials()

    async def delete_credential(self, alias: str) -> bool:
        """Forget the values of a credential. Returns False if it does not exist."""
        return await self._operations.wallet.delete_credential(alias)

    async def rewrap_credentials(self) -> int:
        """Put every data key under the newest key-encryption key. Returns how many were moved."""
        return await self._operations.wallet.rewrap_credentials()


def _sealable(value: str | Mapping[str, Any], form: str) -> tuple[str, str]:
    if isinstance(value, str):
        return value, form
    if not isinstance(value, Mapping):
        raise InvalidArgument("is not a text or a mapping of fields", field="value")
    try:
        return as_json(dict(value), field="value"), form or CredentialForm.OBJECT.value
    except InvalidArgument:
        raise InvalidArgument("cannot be written as JSON", field="value") from None
