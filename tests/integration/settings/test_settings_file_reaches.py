"""The settings file where no command reads it: consumers, and the data source of Spark."""

from pathlib import Path

import pytest

from pyspark_tape import DefaultSource
from tape.errors import InvalidArgument
from tape.programs.consumers import Consumer
from tape.settings import ConsumerSettings, Settings

NATS = "nats://127.0.0.1:4222"


def consumer(settings: Settings | ConsumerSettings | None = None) -> Consumer:
    return Consumer(NATS, stream="s", durable="d", subject="a", settings=settings)


def test_a_consumer_goes_by_the_file_unless_it_is_given_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAPE_CONFIG", raising=False)
    assert consumer().settings == ConsumerSettings()
    Path("tape.yaml").write_text("tape: {consumers: {fetch: 7}}\n")
    assert consumer().settings == ConsumerSettings(fetch=7)
    assert consumer(ConsumerSettings(fetch=8)).settings.fetch == 8
    assert consumer(Settings(consumers=ConsumerSettings(fetch=9))).settings.fetch == 9


def test_the_data_source_goes_by_the_file_that_it_is_given(tmp_path: Path) -> None:
    file = tmp_path / "desk.yaml"
    file.write_text("tape: {limits: {payload_bytes: 4194304}}\n")
    url = f"sqlite:{tmp_path / 'tape.db'}"
    assert DefaultSource({"url": url}).stores.settings == Settings()
    given = DefaultSource({"url": url, "config": str(file)}).stores.settings
    assert given.limits.payload_bytes == 4_194_304
    file.write_text("tape: {limits: {payload_byte: 1}}\n")
    with pytest.raises(InvalidArgument, match="payload_byte"):
        DefaultSource({"url": url, "config": str(file)})
