"""Credentials of Pub/Sub, as far as they need nobody to answer."""

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tape.brokers.credential_fields import CredentialFields
from tape.brokers.google_account import read_account
from tape.sources.pubsub_client import close_client, endpoint_of, make_client

ACCOUNT = "tape@project.iam.gserviceaccount.com"


async def test_a_service_account_as_google_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment of this process says of an emulator."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    key = generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    info = {
        "type": "service_account", "project_id": "project", "private_key_id": "1",
        "private_key": key.decode(), "client_email": ACCOUNT, "client_id": "2",
        "token_uri": "https://oauth2.googleapis.com/token",
    }  # fmt: skip
    account = read_account(CredentialFields("desk", "pubsub", info))
    client = await make_client(account, "a name")
    assert endpoint_of(account) == "pubsub.googleapis.com"
    assert client.transport._host == "pubsub.googleapis.com:443"
    assert getattr(client.transport._credentials, "service_account_email", "") == ACCOUNT
    await close_client(client)
