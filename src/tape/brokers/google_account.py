"""Who logs in to Pub/Sub, of a credential's value.

{"type": "service_account", "project_id": …, …}   the file of a service account, as it is
{"emulator_host": "HOST:PORT"}                     Google's emulator, without TLS or login
{"application_default": true}                      what this machine or process already is
"""

from typing import Final, NamedTuple

from google.auth.credentials import Credentials
from google.auth.exceptions import GoogleAuthError
from google.oauth2.service_account import Credentials as ServiceAccount

from tape.brokers.credential_fields import CredentialFields

SCOPES: Final = ("https://www.googleapis.com/auth/pubsub",)


class GoogleAccount(NamedTuple):
    """Without either it is whoever this process already is."""

    emulator_host: str = ""
    credentials: Credentials | None = None


def read_account(given: CredentialFields) -> GoogleAccount:
    """NoCredential, without any of the values, if it is not of that form."""
    if given.has("emulator_host"):
        given.only("emulator_host")
        return GoogleAccount(given.text("emulator_host"))
    if not given.has("application_default"):
        return GoogleAccount(credentials=_service_account(given))
    given.only("application_default")
    if given.value("application_default") is not True:
        raise given.refused("application_default", "is not true")
    return GoogleAccount()


def _service_account(given: CredentialFields) -> Credentials:
    if given.value("type") != "service_account":
        raise given.refused(
            "type", 'is not service_account; or give {"application_default": true}, or '
            '{"emulator_host": "HOST:PORT"}'
        )  # fmt: skip
    try:
        return ServiceAccount.from_service_account_info(  # type: ignore[no-untyped-call,no-any-return]
            dict(given.fields), scopes=SCOPES
        )
    except (GoogleAuthError, ValueError, TypeError, KeyError):  # its text may repeat the key
        raise given.refused("private_key", "or another field is not as Google wrote it") from None
