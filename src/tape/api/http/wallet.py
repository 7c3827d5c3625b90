"""Credentials. Values come in, on loopback or over TLS alone, and never go out."""

from typing import Annotated, Any

import orjson
from fastapi import Request
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from tape.api.auth import check_private
from tape.api.http.fields import Body, PathText, Reply
from tape.api.http.routes import Routes, TheDoor
from tape.calls.role import Role
from tape.model.credential import CredentialForm, CredentialState

routes = Routes("wallet")


def _text_or_object(value: Any) -> Any:
    """What pydantic says of a union names each of its parts, and may repeat the input."""
    if not isinstance(value, str | dict):
        raise PydanticCustomError("text_or_object", "must be a text or an object")
    return value


class CredentialBody(Body):
    """A text is kept as a text here, an object as an object."""

    value: Annotated[
        str | dict[str, Any],
        BeforeValidator(_text_or_object),
        Field(examples=[{"user": "tape", "password": "…"}]),
    ]


class CredentialReply(Reply):
    """`previous_version` is 0 unless a rotation has left one that is still good. `key_id` is the
    key-encryption key of the current version, `previous_key_id` that of the one before. `opened` is
    how often it was opened, and may lag by some seconds.
    """

    alias: str
    version: int
    previous_version: int
    form: str
    key_id: str
    previous_key_id: str
    created_at_ms: int
    changed_at_ms: int
    opened: int

    @classmethod
    def of(cls, state: CredentialState) -> "CredentialReply":
        return cls(**state._asdict())


class CredentialsReply(Reply):
    credentials: list[CredentialReply]


class CredentialDeletedReply(Reply):
    """`deleted` is false if there was none."""

    deleted: bool


class RewrappedReply(Reply):
    """How many data keys are under another key-encryption key now."""

    rewrapped: int


class RewrapBody(Body):
    """No field is required."""


class RetireBody(Body):
    """No field is required."""


REWRAP = RewrapBody()
RETIRE = RetireBody()


@routes.add("GET", "/api/wallet", role=Role.ADMIN, reply=CredentialsReply)
async def list_credentials(door: TheDoor) -> CredentialsReply:
    """List what may be known of all credentials, by alias."""
    found = await door.operations.wallet.list_credentials()
    return CredentialsReply(credentials=[CredentialReply.of(state) for state in found])


@routes.add("PUT", "/api/wallet/{alias}", role=Role.ADMIN, reply=CredentialReply)
async def put_credential(
    door: TheDoor, request: Request, alias: PathText, body: CredentialBody
) -> CredentialReply:
    """Seal a value as a new version; the one before is refused at once."""
    _check_private(request)
    value, form = _sealable(body)
    return CredentialReply.of(await door.operations.wallet.put_credential(alias, value, form=form))


@routes.add("POST", "/api/wallet/{alias}/rotate", role=Role.ADMIN, reply=CredentialReply)
async def rotate_credential(
    door: TheDoor, request: Request, alias: PathText, body: CredentialBody
) -> CredentialReply:
    """Seal a value as a new version; the one before stays good until the next rotation."""
    _check_private(request)
    value, form = _sealable(body)
    rotate = door.operations.wallet.rotate_credential
    return CredentialReply.of(await rotate(alias, value, form=form))


@routes.add("POST", "/api/wallet/{alias}/retire", role=Role.ADMIN, reply=CredentialReply)
async def retire_credential(
    door: TheDoor, alias: PathText, _body: RetireBody = RETIRE
) -> CredentialReply:
    """Refuse the version before the current one from now on."""
    return CredentialReply.of(await door.operations.wallet.retire_credential(alias))


@routes.add("DELETE", "/api/wallet/{alias}", role=Role.ADMIN, reply=CredentialDeletedReply)
async def delete_credential(door: TheDoor, alias: PathText) -> CredentialDeletedReply:
    """Forget the values of a credential."""
    return CredentialDeletedReply(deleted=await door.operations.wallet.delete_credential(alias))


@routes.add("POST", "/api/wallet/rewrap", role=Role.ADMIN, reply=RewrappedReply)
async def rewrap_credentials(door: TheDoor, _body: RewrapBody = REWRAP) -> RewrappedReply:
    """Put every data key under the server's newest key-encryption key."""
    return RewrappedReply(rewrapped=await door.operations.wallet.rewrap_credentials())


def _check_private(request: Request) -> None:
    peer = request.client.host if request.client else ""
    check_private(peer, tls=request.scope["scheme"] == "https")


def _sealable(body: CredentialBody) -> tuple[str, str]:
    if isinstance(body.value, str):
        return body.value, CredentialForm.TEXT
    return orjson.dumps(body.value).decode(), CredentialForm.OBJECT
