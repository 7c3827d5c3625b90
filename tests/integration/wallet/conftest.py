"""A key management service, started once, and two keys in it for each test."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

import pytest

from tests.servers.kms import KmsServer


class KmsKeys(NamedTuple):
    """Their ARNs, and an alias of the first one."""

    old: str
    new: str
    alias: str


@pytest.fixture(scope="session")
def _kms() -> Iterator[KmsServer]:
    for name in ("boto3", "moto"):
        if find_spec(name) is None:
            pytest.skip(f"KMS tests need {name}")
    with KmsServer() as server:
        yield server


@pytest.fixture
def kms(_kms: KmsServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[KmsServer]:
    for name, text in _kms.environment.items():
        monkeypatch.setenv(name, text)
    _kms.door.reset()
    yield _kms
    _kms.door.reset()


@pytest.fixture
def kms_keys(kms: KmsServer) -> KmsKeys:
    client = kms.client()
    old, new = (client.create_key()["KeyMetadata"] for _ in range(2))
    alias = f"alias/tape-{old['KeyId']}"
    client.create_alias(AliasName=alias, TargetKeyId=old["KeyId"])
    client.close()
    return KmsKeys(old["Arn"], new["Arn"], alias)


@pytest.fixture
def postgres_url(migrated_postgres_url: str) -> str:
    return migrated_postgres_url
