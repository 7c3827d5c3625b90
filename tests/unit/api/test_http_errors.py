"""How the HTTP door refuses, and how it reads paths."""

from urllib.parse import quote

import orjson
import pytest
from starlette.requests import Request

from tape import errors
from tape.api.http.errors import detail_of, malformed_detail, refused
from tape.api.http.fields import _unkept
from tape.api.http.guard import _decoded, _is_own

NOTHING = Request({"type": "http"})


def request(host: str, served: str = "127.0.0.1") -> Request:
    headers = [(b"host", host.encode())] if host else []
    return Request({"type": "http", "headers": headers, "server": (served, 7879)})


def test_a_full_queue_says_when_to_come_back() -> None:
    answer = refused(NOTHING, errors.Overloaded(retry_after_ms=1_200))
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "2"


def test_a_store_is_not_quoted() -> None:
    for kind in (errors.StoreUnavailable, errors.OutcomeUnknown, errors.StoreFailed):
        answer = refused(NOTHING, kind("host db-7.internal: relation tape_journal"))
        error = orjson.loads(answer.body)["error"]
        assert error["reason"] == kind.reason
        assert "internal" not in error["message"]
        assert "tape_journal" not in error["message"]


def test_the_place_of_a_fault_is_told() -> None:
    fault = errors.InvalidArgument("must not be empty", field="event_type", position=3)
    assert detail_of(fault) == {
        "reason": "INVALID_ARGUMENT",
        "message": "event_type at position 3: must not be empty",
        "field": "event_type",
        "position": 3,
    }
    missing = {"loc": ("body", "many", "events", 2, "payload"), "msg": "Field required"}
    assert malformed_detail(missing)["field"] == "events[2].payload"


@pytest.mark.parametrize("name", ["a", "a/b", "%", "%2F", "a%25b/c%", "ä/ö", "%252F"])
def test_a_name_in_a_path_is_what_was_meant(name: str) -> None:
    path = _decoded(
        f"/api/values/{quote(name, safe='')}/{quote(name, safe='').replace('%2F', '%2f')}"
    )
    parts = path.split("/")
    assert [_unkept(part) for part in parts[3:]] == [name, name]


def test_hosts_that_are_this_machine() -> None:
    for host in ("localhost", "localhost:7879", "127.0.0.1:1", "[::1]", "[::1]:7879", ""):
        assert _is_own(request(host), "127.0.0.1")
    assert _is_own(request("desk.local:7879"), "desk.local")
    assert _is_own(request("127.0.0.9", served="127.0.0.9"), "loopback-nine")
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io:7879", "[::2]"):
        assert not _is_own(request(host), "127.0.0.1")
