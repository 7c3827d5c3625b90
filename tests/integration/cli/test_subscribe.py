"""`tape subscribe`: one document from its registration to its end, in one process."""

import json
import signal
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.integration.cli.command import tape
from tests.integration.cli.subscribing import SHORT_LEASES, SubscribeDesk, said_beside, words_of

WHOLE = ["registered", "activated", "draining", "deactivated"]
ONCE = ("-m", "shop", "--once")
EVENTS = ("--events", "events.jsonl")


@pytest.fixture
def desk(tmp_path: Path, sqlite_url: str) -> SubscribeDesk:
    return SubscribeDesk(tmp_path, sqlite_url)


def numbered(first: int, upto: int) -> list[str]:
    return [json.dumps({"n": n}) for n in range(first, upto)]


def test_five_messages_leave_a_trail_of_lines(desk: SubscribeDesk) -> None:
    desk.put(*numbered(1, 6))
    done = desk.subscribe(*ONCE, *EVENTS)
    assert (done.code, said_beside(done)) == (0, "")
    assert done.out.splitlines() == [
        "listening for inbox (file), revision 1",
        "inbox is deactivated: 5 accepted, 5 runs ended",
    ]
    told = desk.told()
    assert Counter(words_of(told)) == Counter(
        {**dict.fromkeys(WHOLE, 1), "message_received": 5, "runnable": 5, "running": 5}
        | {"terminal": 5}
    )
    assert [word for word in words_of(told) if word in WHOLE] == WHOLE
    tail = tape("tail", "--no-follow", "--json", "--store", desk.store, folder=desk.folder)
    assert desk.events.read_text() == tail.out
    received = [entry for entry in told if "message_received" in entry["subject"]]
    begun = [entry for entry in told if "/runnable/" in entry["subject"]]
    assert {entry["subject"] for entry in received} == {"/tape/subscription/message_received/inbox"}
    assert {entry["kind"] for entry in received} == {"subscription"}
    assert [entry["payload"]["run_id"] for entry in received] == [e["run_id"] for e in begun]
    assert [entry["global_seq"] + 1 for entry in received] == [e["global_seq"] for e in begun]
    assert [entry["payload"].keys() for entry in received] == [
        {"message_id", "place", "run_id"}
    ] * 5  # fmt: skip
    assert {run["status"] for run in desk.runs()} == {"terminal"}


def test_probes_are_answered_while_it_listens(desk: SubscribeDesk) -> None:
    with desk.subscribing("--health", "0.0.0.0:0") as process:
        assert process.stderr is not None
        name, _, address = process.stderr.readline().strip().partition(" ")
        assert name == "health"
        port = address.rpartition(":")[2]
        for path, code in (("/healthz", 200), ("/readyz", 200), ("/metrics", 404)):
            assert httpx.get(f"http://127.0.0.1:{port}{path}", timeout=60).status_code == code, path


@pytest.mark.middle
def test_the_trail_is_the_same_on_postgres(tmp_path: Path, migrated_postgres_url: str) -> None:
    desk = SubscribeDesk(tmp_path, migrated_postgres_url)
    desk.put(*numbered(1, 6), "no json")
    done = desk.subscribe(*ONCE, *EVENTS)
    assert (done.code, len(said_beside(done).splitlines())) == (1, 2)
    assert "5 accepted, 1 dead lettered, 5 runs ended" in done.out
    assert Counter(words_of(desk.told())) == Counter(
        {**dict.fromkeys(WHOLE, 1), "message_received": 5, "runnable": 5, "running": 5}
        | {"terminal": 5, "message_dead_lettered": 1}
    )
    assert desk.told() == desk.journal()


def test_again_there_is_nothing_left(desk: SubscribeDesk) -> None:
    desk.put(*numbered(1, 6))
    assert desk.subscribe(*ONCE, *EVENTS).code == 0
    done = desk.subscribe(*ONCE, *EVENTS, "--json")
    assert done.err == "listening for inbox (file), revision 1\n"
    (record,) = done.records
    assert record == {
        "name": "inbox",
        "state": "deactivated",
        "revision": 1,
        "counts": dict.fromkeys(
            ("fetched", "accepted", "redelivered", "deduplicated", "dead_lettered"), 0
        ),
        "runs": {"begun": 0, "ended": 0, "failed": 0},
        "trouble": "",
    }
    assert words_of(desk.told())[-3:] == WHOLE[1:]
    assert desk.told() == desk.journal()  # the file goes on where it ended
    assert len(desk.runs()) == 5


def test_without_a_file_received_messages_have_no_entries_of_their_own(desk: SubscribeDesk) -> None:
    desk.put(*numbered(1, 3))
    assert desk.subscribe(*ONCE).code == 0
    assert "message_received" not in words_of(desk.journal())
    assert len(desk.runs()) == 2


def test_events_on_standard_output_leave_it_to_them(desk: SubscribeDesk) -> None:
    desk.put(*numbered(1, 3))
    done = desk.subscribe(*ONCE, "--events", "-")
    assert done.records == desk.journal()
    assert said_beside(done).splitlines() == [
        "listening for inbox (file), revision 1",
        "inbox is deactivated: 2 accepted, 2 runs ended",
    ]


def test_entries_of_others_are_not_in_the_file(desk: SubscribeDesk) -> None:
    (desk.folder / "shop.py").write_text(
        (desk.folder / "shop.py").read_text() + "\n@tape.effect\ndef charge(): return 1\n"
        "\n@tape.app('charging')\nasync def charging(ctx, given):\n"
        "    await ctx.call(charge)\n    await tape.set_value('bills', 'last', 1)\n"
    )
    desk.write("charging")
    store = ("--store", desk.store)
    assert tape("record", "order", "--entity", "order/1", *store, folder=desk.folder).code == 0
    started = tape("runs", "start", "charging", *store, folder=desk.folder)
    other = desk.folder / "other.yaml"
    other.write_text((desk.folder / "inbox.yaml").read_text().replace("inbox,", "other,")
                     .replace("subscriptions/inbox", "subscriptions/other"))  # fmt: skip
    tape("subscriptions", "register", "other.yaml", *store, folder=desk.folder)
    desk.put(*numbered(1, 3))
    done = desk.subscribe(*ONCE, *EVENTS)
    assert (done.code, started.code) == (0, 0), started
    runs = {run["run_id"] for run in desk.runs()}
    journal = desk.journal()
    assert len(desk.told()) < len(journal)
    assert desk.told() == [
        entry for entry in journal
        if entry["run_id"] in runs
        or (entry["kind"] == "subscription" and entry["subject"].endswith("/inbox"))
    ]  # fmt: skip
    assert {"pending", "confirmed"} <= set(words_of(desk.told()))


def test_a_message_that_cannot_become_a_run_is_named(desk: SubscribeDesk) -> None:
    desk.put('{"n": 1}', "no json", '{"n": 3}')
    done = desk.subscribe(*ONCE, *EVENTS)
    assert done.code == 1
    letter, error = said_beside(done).splitlines()
    (entry,) = [e for e in desk.told() if "message_dead_lettered" in e["subject"]]
    named = entry["payload"]
    assert letter.startswith(f"dead letter {named['id']} of message {named['place']}: not_json: ")
    assert error == (
        "error: 1 dead letter; `tape dlq list --subscription inbox` shows why"
    )  # fmt: skip
    assert done.out.splitlines()[-1] == (
        "inbox is deactivated: 2 accepted, 1 dead lettered, 2 runs ended"
    )
    assert desk.subscribe(*ONCE).code == 0  # it is none of the next one's


def test_a_run_that_failed_is_named(desk: SubscribeDesk) -> None:
    desk.write("refuse_line")
    desk.put(*numbered(1, 4))
    done = desk.subscribe(*ONCE)
    assert done.code == 1
    (failed,) = [run["run_id"] for run in desk.runs() if run["status"] == "failed"]
    assert done.err.splitlines()[-1] == (
        f"error: 1 run has failed: {failed}; `tape runs show ID` shows why"
    )
    assert done.out.splitlines()[-1] == ("inbox is deactivated: 3 accepted, 3 runs ended, 1 failed")


def test_a_scheduled_one_fetches_a_batch_at_once(desk: SubscribeDesk) -> None:
    cadence = 'activation: scheduled\n  cadence: "0 0 1 1 *"'
    desk.write(change=lambda text: text.replace("activation: continuous", cadence))
    desk.put(*numbered(1, 16))
    assert "10 accepted" in desk.subscribe(*ONCE).out
    assert "5 accepted" in desk.subscribe(*ONCE).out
    assert "0 accepted" in desk.subscribe(*ONCE).out
    assert len(desk.runs()) == 15


def test_without_modules_runs_wait_for_a_worker(desk: SubscribeDesk) -> None:
    desk.put(*numbered(1, 4))
    done = desk.subscribe("--once")
    assert done.out.splitlines()[-1] == "inbox is deactivated: 3 accepted"
    assert [run["status"] for run in desk.runs()] == ["runnable"] * 3


def test_runs_that_sleep_are_waited_for(desk: SubscribeDesk) -> None:
    desk.write("nap_line")
    desk.put(*numbered(1, 4))
    done = desk.subscribe(*ONCE, *EVENTS)
    assert (done.code, done.err) == (0, "waiting for 3 runs to end\n")
    assert {run["status"] for run in desk.runs()} == {"terminal"}
    words = words_of(desk.told())
    assert words[-2:] == WHOLE[2:]
    assert words.count("terminal") == 3


def test_a_run_that_waits_is_waited_for_until_somebody_stops_it(desk: SubscribeDesk) -> None:
    desk.write("wait_line")
    desk.put(*numbered(1, 2))
    with desk.subscribing(*ONCE, *EVENTS) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "waiting for 1 run to end\n"
        desk.until_told("waiting", 2)  # of the run, and of its gate
        assert desk.shown()["runtime"]["owner"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out == "inbox is deactivated: 1 accepted\n"
    assert words_of(desk.told())[-2:] == WHOLE[2:]
    assert [run["status"] for run in desk.runs()] == ["waiting"]


def test_it_is_drained_while_messages_keep_coming(desk: SubscribeDesk) -> None:
    ended, sent = threading.Event(), 0

    def keep_sending() -> None:
        nonlocal sent
        while not ended.wait(0.005):
            desk.put(json.dumps({"n": sent}))
            sent += 1

    sending = threading.Thread(target=keep_sending)
    sending.start()
    try:
        with desk.subscribing("-m", "shop", *EVENTS) as process:
            desk.until_told("message_received", 50)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=30)
            assert (process.returncode, err) == (0, "")
    finally:
        ended.set()
        sending.join()
    told = desk.told()
    assert words_of(told)[:2] == WHOLE[:2]
    lifecycle = [entry for entry in told if entry["kind"] == "subscription"]
    assert words_of(lifecycle)[-1] == "deactivated"
    assert "draining" in words_of(lifecycle)
    places = {e["payload"]["place"] for e in told if "message_received" in e["subject"]}
    runs = {run["invocation_id"] for run in desk.runs()}
    assert places == runs
    shown = desk.shown()
    assert (shown["state"], shown["in_flight"], shown["runtime"]["owner"]) == ("deactivated", 0, "")
    assert f"{len(runs)} accepted" in out
    assert len(runs) < sent
    rest = desk.subscribe(*ONCE, *EVENTS)
    assert rest.code == 0, rest.err
    runs_now = [run["invocation_id"] for run in desk.runs()]
    assert len(runs_now) == len(set(runs_now)) == sent  # nothing lost, nothing twice
    assert desk.shown()["counts"]["accepted"] == sent
    assert desk.told() == desk.journal()


def test_a_paused_one_is_told_of_and_waits(desk: SubscribeDesk) -> None:
    store = ("--store", desk.store)
    with desk.subscribing(*EVENTS) as process:
        assert process.stderr is not None
        tape("subscriptions", "pause", "inbox", *store, folder=desk.folder)
        assert process.stderr.readline() == (
            "inbox is paused; `tape subscriptions resume inbox` lets it go on\n"
        )
        refused = desk.subscribe("--once")
        assert refused.code == 1
        assert refused.err.startswith("error: subscription 'inbox' is paused: `tape subscriptions")
        desk.put(*numbered(1, 3))
        tape("subscriptions", "resume", "inbox", *store, folder=desk.folder)
        desk.until_told("message_received", 2)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 0
    assert desk.shown()["state"] == "deactivated"


def test_who_deactivates_it_ends_the_process(desk: SubscribeDesk) -> None:
    with desk.subscribing(*EVENTS) as process:
        tape("subscriptions", "drain", "inbox", "--store", desk.store, folder=desk.folder)
        _out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (
        0,
        "subscription 'inbox' was deactivated by somebody else\n",
    )
    assert words_of(desk.told()) == WHOLE


def test_a_second_process_says_who_listens(desk: SubscribeDesk) -> None:
    desk.set(lease_s=9)  # it says so at the first renewal, after three
    with desk.subscribing("-m", "shop", *EVENTS) as process:
        owner = desk.shown()["runtime"]["owner"]
        second = desk.subscribe(*ONCE)
        assert second.code == 1
        waiting, error = second.err.splitlines()
        assert waiting == f"inbox: {owner} holds it; waiting to see whether that one is alive"
        assert error.startswith(f"error: {owner} listens for subscription 'inbox'")
        desk.put(*numbered(1, 3))
        desk.until_told("terminal", 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert len(desk.runs()) == 2


def test_what_a_killed_one_was_to_drain_begins_anew(desk: SubscribeDesk) -> None:
    desk.set(lease_s=600)
    with desk.subscribing(*EVENTS) as process:
        process.kill()
        process.wait()
    draining = tape("subscriptions", "drain", "inbox", "--store", desk.store, folder=desk.folder)
    assert draining.out == "inbox is draining\n"
    path = desk.store.removeprefix("sqlite:")
    with closing(sqlite3.connect(path, timeout=30)) as file, file:
        file.execute("UPDATE tape_listeners SET lease_expires_at_ms = 1")  # it has run out
    desk.put(*numbered(1, 3))
    done = desk.subscribe(*ONCE, *EVENTS)
    assert done.code == 0, done.err
    lifecycle = [word for word in words_of(desk.told()) if word in WHOLE]
    assert lifecycle == [*WHOLE, *WHOLE[1:]]


@pytest.mark.parametrize("told_before", [1, 25])
def test_each_message_is_one_run_though_it_is_killed(desk: SubscribeDesk, told_before: int) -> None:
    desk.set(SHORT_LEASES)
    desk.put(*numbered(1, 401))
    with desk.subscribing("-m", "shop", *EVENTS) as process:
        desk.until_told("message_received", told_before)
        process.kill()
        process.wait()
    assert desk.shown()["state"] == "active"
    with desk.events.open("ab") as torn:
        torn.write(b'{"global_seq":9')
    done = desk.subscribe(*ONCE, *EVENTS)
    assert done.code == 0, done.err
    runs = [run["invocation_id"] for run in desk.runs()]
    assert len(runs) == len(set(runs)) == 400
    assert {run["status"] for run in desk.runs()} == {"terminal"}
    received = [e["payload"]["place"] for e in desk.told() if "message_received" in e["subject"]]
    assert sorted(received) == sorted(runs)
    assert desk.told() == desk.journal()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("mode: pull", "mode: push"), "error: spec.mode: line 6: "),
        (("source: file", "source: flie"), "error: spec.source: "),
        (("playbook:", "playbok:"), "error: spec.dispatch.playbok: "),
    ],
)
def test_a_fault_of_the_document_is_one_line(
    desk: SubscribeDesk, change: tuple[str, str], said: str
) -> None:
    desk.write(change=lambda text: text.replace(*change))
    refused = desk.subscribe(*ONCE)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(said.partition("line")[0])
    assert "line " in refused.err
    assert len(refused.err.splitlines()) == 1
    assert desk.journal() == []


def test_what_is_pushed_is_refused_with_what_to_do(desk: SubscribeDesk) -> None:
    push = {"gateway_path": "/ingress/x", "verify": {"type": "bearer", "secret": "s"}}
    spec = {"source": "webhook", "mode": "push", "ingress": push, "dispatch": {"playbook": "x"}}
    metadata = {"name": "hooks", "path": "subscriptions/hooks"}
    document = {
        "apiVersion": "tape/v1", "kind": "Subscription", "metadata": metadata, "spec": spec,
    }  # fmt: skip
    (desk.folder / "inbox.yaml").write_text(json.dumps(document))
    refused = desk.subscribe("--once")
    assert refused.code == 2
    assert refused.err.startswith("error: spec.mode: 'hooks' is pushed to, and not fetched")
    assert "`tape serve --ingress`" in refused.err
    assert desk.journal() == []


@pytest.mark.parametrize(
    ("module", "app", "said"),
    [
        ("none", "x", "error: --module: there is no module 'none' here or among the installed"),
        ("json", "x", "error: reactions: there is nothing to do: no app and no reaction is "),
        ("shop", "read_lime", "error: spec.dispatch.playbook: no app 'read_lime' is declared in t"),
    ],
)  # fmt: skip
def test_an_app_that_nobody_declares_is_refused_before_anything_is_registered(
    desk: SubscribeDesk, module: str, app: str, said: str
) -> None:
    desk.write(app)
    refused = desk.subscribe("-m", module, "--once")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(said)
    assert ("Did you mean 'read_line'?" in refused.err) == (app == "read_lime")
    assert desk.journal() == []


def test_a_file_of_events_that_cannot_be_written_is_named(desk: SubscribeDesk) -> None:
    refused = desk.subscribe("--once", "--events", "none/events.jsonl")
    assert refused.code == 1
    assert refused.err == "error: none/events.jsonl: No such file or directory\n"
    assert desk.journal() == []
