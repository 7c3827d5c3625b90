"""The key-encryption key in AWS KMS, at a server that speaks its protocol."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from tape.bus import Bus
from tape.errors import CredentialDamaged, WalletLocked, WalletUnavailable
from tape.model.credential import CredentialForm, CredentialVersion
from tape.ports.keyring import Keyring
from tape.settings import Settings
from tape.stores.by_url import open_store
from tape.wallet import kms as kms_module
from tape.wallet import operations as operations_module
from tape.wallet.envelope import open_version, rewrap, seal
from tape.wallet.keys import Keys
from tape.wallet.local_keys import new_key, written
from tests.integration.wallet.conftest import KmsKeys
from tests.servers.kms import KmsServer

OpenKeys = Callable[..., Keys]


@pytest.fixture
async def open_keys() -> AsyncIterator[OpenKeys]:
    opened: list[Keys] = []

    def open_them(*names: str, **others: str) -> Keys:
        environment = {"TAPE_WALLET_KMS": ",".join(f"aws:{name}" for name in names)}
        opened.append(Keys(environment | others))
        return opened[-1]

    yield open_them
    for keys in opened:
        await keys.close()


async def sealed(keyring: Keyring, alias: str = "a/é") -> CredentialVersion:
    return await seal(keyring, alias, 3, "value", CredentialForm.TEXT)


async def test_a_credential_under_a_key_of_kms(
    kms: KmsServer, kms_keys: KmsKeys, open_keys: OpenKeys
) -> None:
    keyring = await open_keys(kms_keys.old).keyring()
    assert await keyring.newest() == f"aws:{kms_keys.old}"
    row = await sealed(keyring)
    assert row.key_id == await keyring.newest()
    again = await open_keys(kms_keys.old).keyring()
    assert (await open_version(again, row)).text == "value"
    for field, other in (("version", 4), ("alias", "b"), ("form", "object")):
        changed: dict[str, object] = {field: other}
        with pytest.raises(CredentialDamaged, match="KMS wrapped"):
            await open_version(again, row._replace(**changed))  # type: ignore[arg-type]
    assert kms.door.asked[:3] == ["DescribeKey", "Encrypt", "DescribeKey"]
    # What the data key is for is told to KMS, and so stands in its own audit trail.
    assert b'"tape/wallet/1/a%2F%C3%A9/3/text"' in kms.door.bodies[1]


async def test_keys_by_alias_and_id_are_known_by_their_arn(
    kms_keys: KmsKeys, open_keys: OpenKeys
) -> None:
    by_alias = await open_keys(kms_keys.alias).keyring()
    by_id = await open_keys(kms_keys.old.rpartition("/")[2]).keyring()
    assert await by_alias.newest() == await by_id.newest() == f"aws:{kms_keys.old}"
    assert (await open_version(by_id, await sealed(by_alias))).text == "value"


async def test_a_key_is_rotated_while_older_ones_are_named(
    kms_keys: KmsKeys, open_keys: OpenKeys
) -> None:
    old = await open_keys(kms_keys.old).keyring()
    both = await open_keys(kms_keys.new, kms_keys.old).keyring()
    new = await open_keys(kms_keys.new).keyring()
    row = await sealed(old)
    assert (await open_version(both, row)).text == "value"
    with pytest.raises(WalletLocked, match="TAPE_WALLET_KMS names"):
        await open_version(new, row)
    moved = await rewrap(both, row)
    assert moved.key_id == await new.newest()
    assert (await open_version(new, moved)).text == "value"


async def test_a_wallet_moves_from_the_environment_to_kms(
    kms_keys: KmsKeys, open_keys: OpenKeys
) -> None:
    key = written(new_key())
    before = await Keys({"TAPE_WALLET_KEY": key}).keyring()
    both = await open_keys(kms_keys.old, TAPE_WALLET_KEY=key).keyring()
    row = await sealed(before)
    moved = await rewrap(both, row)
    assert moved.key_id == f"aws:{kms_keys.old}"
    assert (await open_version(await open_keys(kms_keys.old).keyring(), moved)).text == "value"


async def test_a_wallet_moves_out_of_kms(kms_keys: KmsKeys, open_keys: OpenKeys) -> None:
    key = written(new_key())
    row = await sealed(await open_keys(kms_keys.old).keyring())
    both = open_keys(kms_keys.old, TAPE_WALLET_KEY=key, TAPE_WALLET_SEAL_WITH="environment")
    moved = await rewrap(await both.keyring(), row)
    alone = await Keys({"TAPE_WALLET_KEY": key}).keyring()
    assert moved.key_id == await alone.newest()
    assert (await open_version(alone, moved)).text == "value"


async def test_what_is_under_another_key_opens_while_kms_is_away(
    kms: KmsServer, kms_keys: KmsKeys, open_keys: OpenKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kms_module, "ATTEMPTS", 1)
    key = written(new_key())
    row = await sealed(await Keys({"TAPE_WALLET_KEY": key}).keyring())
    in_kms = await sealed(await open_keys(kms_keys.old).keyring())
    kms.door.asked.clear()
    kms.door.fail_next = ["ThrottlingException"] * 2
    both = await open_keys(kms_keys.old, TAPE_WALLET_KEY=key).keyring()
    assert (await open_version(both, row)).text == "value"
    assert kms.door.asked == []
    with pytest.raises(WalletUnavailable, match=r"credential 'a/é', version 3.*Throttling"):
        await open_version(both, in_kms)
    with pytest.raises(WalletUnavailable):
        await sealed(both)
    assert (await open_version(both, in_kms)).text == "value"
    assert (await sealed(both)).key_id == f"aws:{kms_keys.old}"
    elsewhere = in_kms._replace(key_id=f"aws:{kms_keys.new}")
    with pytest.raises(WalletLocked, match="TAPE_WALLET_KMS names"):
        await open_version(both, elsewhere)


@pytest.mark.parametrize("wrapped", [b"", b"x", b"x" * 200, b"x" * 6_145], ids=len)
async def test_a_wrapped_key_that_is_none(
    kms: KmsServer, kms_keys: KmsKeys, open_keys: OpenKeys, wrapped: bytes
) -> None:
    keyring = await open_keys(kms_keys.old).keyring()
    row = (await sealed(keyring))._replace(wrapped_key=wrapped)
    if len(wrapped) == 200:
        kms.door.fail_next = ["ValidationException"]
    with pytest.raises(CredentialDamaged, match=r"credential 'a/é', version 3.*KMS wrapped"):
        await open_version(keyring, row)


async def test_one_that_kms_does_not_open_keeps_no_other_from_being_rewrapped(
    sqlite_url: str,
    kms: KmsServer,
    kms_keys: KmsKeys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kms_module, "ATTEMPTS", 1)
    settings = Settings()
    names = f"aws:{kms_keys.new},aws:{kms_keys.old}"
    for those in (f"aws:{kms_keys.old}", names):
        keys = Keys({"TAPE_WALLET_KMS": those})
        bus = Bus(await open_store(sqlite_url, settings), settings, keys=keys)
        if those != names:
            for number in range(5):
                await bus.wallet.put_credential(f"a{number}", "value")
            await bus.close()
    await keys.keyring()
    kms.door.fail_next = ["ThrottlingException"]
    assert await bus.wallet.rewrap_credentials() == 5  # the second pass has the first one's rest
    monkeypatch.setattr(operations_module, "REWRAP_AT_ONCE", 2)
    again = Keys({"TAPE_WALLET_KMS": f"aws:{kms_keys.old},aws:{kms_keys.new}"})
    await bus.close()
    bus = Bus(await open_store(sqlite_url, settings), settings, keys=again)
    await again.keyring()
    kms.door.asked.clear()
    kms.door.fail_next = ["ThrottlingException"] * 20
    with pytest.raises(WalletUnavailable, match="0 others were rewrapped"):
        await bus.wallet.rewrap_credentials()
    assert len(kms.door.asked) == 2  # it is away: the others need not ask
    await bus.close()


async def test_a_key_that_nobody_named_opens_nothing(
    kms: KmsServer, kms_keys: KmsKeys, open_keys: OpenKeys
) -> None:
    """Whoever writes into the store could wrap a data key of his own under a key of his own."""
    theirs = await sealed(await open_keys(kms_keys.new).keyring())
    ours = await open_keys(kms_keys.old).keyring()
    kms.door.asked.clear()
    with pytest.raises(WalletLocked):
        await open_version(ours, theirs)
    assert kms.door.asked == []
    with pytest.raises((WalletLocked, CredentialDamaged)):
        await open_version(ours, theirs._replace(key_id=await ours.newest()))


@pytest.mark.parametrize("bit", [0, 150, 400, 700])
async def test_a_wrapped_key_that_was_altered(
    kms_keys: KmsKeys, open_keys: OpenKeys, bit: int
) -> None:
    keyring = await open_keys(kms_keys.old).keyring()
    row = await sealed(keyring)
    altered = bytearray(row.wrapped_key)
    altered[bit // 8] ^= 1 << bit % 8
    with pytest.raises((WalletLocked, CredentialDamaged)):
        await open_version(keyring, row._replace(wrapped_key=bytes(altered)))


async def test_a_key_that_is_not_there(kms_keys: KmsKeys, open_keys: OpenKeys) -> None:
    del kms_keys
    with pytest.raises(WalletLocked, match="TAPE_WALLET_KMS: KMS refuses \\(NotFoundException"):
        await open_keys("no-such-key").keyring()


@pytest.mark.parametrize("code", ["ThrottlingException", "KMSInternalException"])
async def test_what_passes_is_tried_again(
    kms: KmsServer, kms_keys: KmsKeys, open_keys: OpenKeys, code: str
) -> None:
    keyring = await open_keys(kms_keys.old).keyring()
    kms.door.asked.clear()
    kms.door.fail_next = [code] * 2
    row = await sealed(keyring)
    assert kms.door.asked == ["Encrypt"] * 3
    assert (await open_version(keyring, row)).text == "value"


async def test_what_does_not_pass_is_told(
    kms: KmsServer,
    kms_keys: KmsKeys,
    open_keys: OpenKeys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kms_module, "ATTEMPTS", 2)
    keyring = await open_keys(kms_keys.old).keyring()
    kms.door.fail_next = ["ThrottlingException"] * 2
    with pytest.raises(WalletUnavailable, match="ThrottlingException"):
        await sealed(keyring)
    kms.door.fail_next = ["AccessDeniedException"]
    with pytest.raises(WalletLocked, match="AccessDeniedException: said"):
        await sealed(keyring)
    kms.door.fail_next = ["DisabledException"]
    with pytest.raises(WalletLocked, match="DisabledException"):
        await sealed(keyring)


async def test_a_service_that_says_nothing_keeps_nobody_else_waiting(
    kms: KmsServer,
    kms_keys: KmsKeys,
    open_keys: OpenKeys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kms_module, "ATTEMPTS", 1)
    monkeypatch.setattr(kms_module, "ANSWER_S", 3.0)
    keyring = await open_keys(kms_keys.old).keyring()
    kms.door.hangs.set()
    turns = 0
    sealing = asyncio.ensure_future(sealed(keyring))
    while not sealing.done():
        turns += 1
        await asyncio.sleep(0.01)
    assert turns > 5
    with pytest.raises(WalletUnavailable, match="did not answer \\(ReadTimeoutError\\)"):
        await sealing


async def test_a_service_that_is_not_there(
    kms_keys: KmsKeys, open_keys: OpenKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kms_module, "ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(WalletUnavailable, match="EndpointConnectionError"):
        await open_keys(kms_keys.old).keyring()


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (("AWS_DEFAULT_REGION",), "AWS is not set up here: You must specify a region"),
        (
            ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
            "AWS is not set up here: Unable to locate credentials",
        ),
    ],
)
async def test_without_a_set_up_of_aws(
    kms_keys: KmsKeys,
    open_keys: OpenKeys,
    monkeypatch: pytest.MonkeyPatch,
    missing: tuple[str, ...],
    said: str,
) -> None:
    for name in missing:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(WalletLocked, match=said):
        await open_keys(kms_keys.old).keyring()


async def test_without_its_client(
    kms_keys: KmsKeys, open_keys: OpenKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(WalletLocked, match=r'needs boto3: pip install "tape-bus\[kms\]"'):
        await open_keys(kms_keys.old).keyring()


async def test_data_keys_go_over_https_or_stay_on_this_machine(
    open_keys: OpenKeys, kms_keys: KmsKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://192.0.2.1:1")
    with pytest.raises(WalletLocked, match=r"KMS at http://192\.0\.2\.1.*use https"):
        await open_keys(kms_keys.old).keyring()


@pytest.mark.parametrize("at_first", [logging.DEBUG, logging.INFO, logging.WARNING])
async def test_no_data_key_is_logged(
    kms_keys: KmsKeys, open_keys: OpenKeys, caplog: pytest.LogCaptureFixture, at_first: int
) -> None:
    """The client logs at DEBUG what it sends; DEBUG may be turned on once it is there."""
    for name in ("boto3", "botocore"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    with caplog.at_level(at_first):
        keyring = await open_keys(kms_keys.old).keyring()
    with caplog.at_level(logging.DEBUG):
        for name in ("boto3", "botocore"):
            level = logging.getLogger(name).getEffectiveLevel()
            assert level == max(at_first, logging.INFO)
        data_key = b"0123456789abcdef" * 2
        key = await keyring.wrap(data_key, b"context")
        assert await keyring.unwrap(key, b"context") == data_key
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "Plaintext" not in told
    assert "0123456789abcdef" not in told
