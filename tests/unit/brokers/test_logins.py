"""Files of logins: the log warns, once, of those that others can read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tape.brokers.kafka_config import read_config
from tape.brokers.nats_login import environment_login


def kafka(file: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    read_config(str(file))


def nats(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPE_NATS_CREDENTIALS", str(file))
    environment_login()


@pytest.mark.parametrize("read", [kafka, nats])
@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o640, 1), (0o604, 1)])
def test_a_login_that_others_can_read(
    read: Callable[[Path, pytest.MonkeyPatch], None],
    mode: int,
    warnings: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "login"
    file.write_text("sasl.password=s3cret\n")
    file.chmod(mode)
    for _ in range(2):
        read(file, monkeypatch)
    assert len(caplog.messages) == warnings
    for message in caplog.messages:
        assert message.startswith("other users can read the ")
        assert f"in {file} (mode {mode:o}): run chmod 600 on it" in message
        assert "s3cret" not in message
