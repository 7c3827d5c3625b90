"""`tape schema`: payload types beside their recorded history."""

import json
from pathlib import Path

import pytest

from tests.integration.cli.command import Done, tape
from tests.unit.subscriptions.documents import PULL

V1 = """
from tape.payloads import Payload

class KlineEvent(Payload, subject="market.klines.>"):
    schema_version: int = 1
    symbol: str = ""
    close: float = 0.0
"""
V2 = V1.replace("= 1", "= 2") + "    trades: int = 0\n"
FILE = "schemas/KlineEvent.json"


class Desk:
    """A folder with a module of payload types."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, verb: str, source: str, *more: str) -> Done:
        (self.folder / "events.py").write_text(source)
        return tape("schema", verb, "-m", "events", *more, folder=self.folder)

    def versions(self) -> list[int]:
        told = json.loads((self.folder / FILE).read_text())
        return [version["schema_version"] for version in told["versions"]]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_types_are_recorded_version_by_version(desk: Desk) -> None:
    done = desk.run("check", V1)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[1].split() == ["KlineEvent", "market.klines.>", "1", "new"]
    assert not (desk.folder / "schemas").exists()
    assert desk.run("record", V1).out.splitlines()[1].split()[-1] == "recorded"
    assert desk.versions() == [1]
    first = (desk.folder / FILE).read_text()
    assert desk.run("record", V1).code == 0
    assert (desk.folder / FILE).read_text() == first

    assert desk.run("check", V2).out.splitlines()[1].endswith("2        recorded up to 1")
    assert desk.run("record", V2, "--json").records == [
        {"type": "KlineEvent", "subject": "market.klines.>", "schema_version": 2, "recorded": 2}
    ]
    assert desk.versions() == [1, 2]
    fields = json.loads((desk.folder / FILE).read_text())["versions"][1]["fields"]
    assert list(fields) == ["schema_version", "symbol", "close", "trades"]
    assert fields["trades"] == {"default": 0, "type": "integer"}
    assert sorted(path.name for path in (desk.folder / "schemas").iterdir()) == ["KlineEvent.json"]


REFUSED = {
    "removed": (V2.replace('    symbol: str = ""\n', ""), "symbol: was removed"),
    "renamed": (V2.replace("symbol:", "ticker:"), "symbol: seems to be renamed to ticker"),
    "type": (V2.replace("close: float = 0.0", "close: int = 0"), "from number to integer"),
    "default": (V2.replace("= 0.0", "= 1.0"), "has the default 1.0, and had 0.0"),
    "added": (V2.replace("= 2", "= 1"), "was added without raising schema_version: make it 2"),
    "subject": (V2.replace("market.klines.>", "klines.>"), "is for klines.>, and was for"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_old_consumers_cannot_read_is_refused(desk: Desk, what: str) -> None:
    desk.run("record", V1)
    source, message = REFUSED[what]
    done = desk.run("record", source)
    assert done.code == 1
    assert done.err == "error: 1 finding in KlineEvent; nothing was recorded\n"
    assert message in done.out
    assert desk.versions() == [1]
    checked = desk.run("check", source, "--json")
    assert (checked.code, checked.err) == (1, "error: 1 finding in KlineEvent\n")
    (kind, finding) = checked.records
    assert (kind["recorded"], finding["finding"]) == (1, what)


def test_all_findings_are_told(desk: Desk) -> None:
    desk.run("record", V2)
    done = desk.run("check", V1.replace('    symbol: str = ""\n', "").replace("0.0", "1.0"))
    assert done.err == "error: 4 findings in KlineEvent\n"
    assert [line.split(":")[0] for line in done.out.splitlines()[2:]] == [
        "KlineEvent.schema_version", "KlineEvent.symbol", "KlineEvent.trades", "KlineEvent.close",
    ]  # fmt: skip


def test_a_version_that_is_not_recorded_can_be_refused(desk: Desk) -> None:
    """What is not recorded could be changed without anybody's notice."""
    assert desk.run("check", V1, "--recorded").err == "error: 1 finding in KlineEvent\n"
    desk.run("record", V1)
    assert desk.run("check", V1, "--recorded").code == 0
    done = desk.run("check", V2, "--recorded")
    assert "version 2 is not recorded; run `tape schema record`" in done.out


def test_a_type_does_not_go_away(desk: Desk) -> None:
    desk.run("record", V1)
    done = desk.run("check", V1.replace("KlineEvent", "BarEvent"))
    assert done.code == 1
    assert "KlineEvent: is in the history, but none of the given modules declares it" in done.out


def test_types_are_shown(desk: Desk) -> None:
    done = desk.run("show", V2)
    assert done.out.splitlines()[1].split() == [
        "KlineEvent", "market.klines.>", "2", "schema_version,", "symbol,", "close,", "trades",
    ]  # fmt: skip
    (record,) = desk.run("show", V2, "--json").records
    assert record["fields"]["close"] == {"default": 0.0, "type": "number"}


def test_wrong_input(desk: Desk) -> None:
    for source, message in (
        ("", "events: no class there is a tape.payloads.Payload"),
        (V1.replace('= ""', ""), "KlineEvent.symbol: has no default"),
    ):
        done = desk.run("check", source)
        assert (done.code, message in done.err) == (2, True), done.err
    (desk.folder / "more.py").write_text(V2)
    done = desk.run("check", V1, "-m", "more")
    assert done.code == 2
    assert "more and events both declare a KlineEvent" in done.err
    assert "there is no module 'nowhere'" in desk.run("check", V1, "-m", "nowhere").err


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"type": "KlineEvent", "versions": []}'])
def test_a_damaged_history_is_not_taken_for_an_empty_one(desk: Desk, text: str) -> None:
    (desk.folder / "schemas").mkdir()
    (desk.folder / FILE).write_text(text)
    done = desk.run("record", V1)
    assert done.code == 2
    assert "schemas/KlineEvent.json is not a history" in done.err
    assert (desk.folder / FILE).read_text() == text
    assert "is not a folder" in desk.run("check", V1, "--history", FILE).err


def test_the_form_of_a_subscription_is_printed(tmp_path: Path) -> None:
    done = tape("schema", "subscription", folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    schema = json.loads(done.out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["kind"]["const"] == "Subscription"


def test_a_subscription_on_standard_input_is_checked(tmp_path: Path) -> None:
    done = tape("schema", "subscription", "--check", "-", folder=tmp_path, stdin=PULL)
    assert (done.code, done.err) == (0, "")
    assert done.out == "-: subscriptions/orders is in order\n"
    typo = PULL.replace("nats", "natz", 1)
    done = tape("schema", "subscription", "--check", "-", folder=tmp_path, stdin=typo)
    assert done.code == 2
    assert "spec.source: natz is not known here" in done.err


def test_a_subscription_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(PULL)
    done = tape("schema", "subscription", "--check", "orders.yaml", folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out == "orders.yaml: subscriptions/orders is in order\n"

    file.write_text(PULL.replace("mode: pull", "mode: push"))
    done = tape("schema", "subscription", "--check", "orders.yaml", folder=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: spec.mode: source nats has no mode push; write pull (line 8)\n"

    file.write_bytes(b"a: \xff")
    done = tape("schema", "subscription", "--check", "orders.yaml", folder=tmp_path)
    assert (done.code, done.err) == (2, "error: orders.yaml: is not UTF-8\n")

    done = tape("schema", "subscription", "--check", "nowhere.yaml", folder=tmp_path)
    assert (done.code, done.err) == (1, "error: nowhere.yaml: No such file or directory\n")
