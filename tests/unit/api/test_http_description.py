"""What the HTTP door says of itself agrees with gRPC and with the errors there are."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
from fastapi import FastAPI

from tape import errors
from tape.api.auth import Tokens
from tape.api.http.app import server_app
from tape.api.http.door import Door
from tape.api.http.errors import STATUSES, refused
from tape.api.http.openapi import ROLE, describe
from tape.api.http.routes import _GuardedRoute
from tape.bus import Operations
from tape.calls.table import ROLES

# Where both doors have a call of the same meaning: the operation's id and the method's name.
SAME = {
    "record_events": "RecordEvents",
    "follow_events": "FollowEntries",
    "list_values": "ListValues",
    "get_value": "GetValue",
    "write_value": "WriteValue",
    "delete_value": "DeleteValue",
    "list_reactions": "ListReactions",
    "list_tasks": "ListTasks",
    "replay_dead_letters": "ReplayDeadLetters",
    "drop_dead_letters": "DropDeadLetters",
    "list_runs": "ListRuns",
    "get_run": "GetRun",
    "cancel_run": "CancelRun",
    "send_signal": "SendSignal",
    "resume_run": "ResumeRun",
    "drain_events": "DrainEvents",
    "list_drainers": "ListDrainers",
    "skip_event": "SkipDrainerEvent",
    "resume_drainer": "ResumeDrainer",
    "put_event_subscription": "PutEventSubscription",
    "delete_event_subscription": "DeleteEventSubscription",
    "list_event_subscriptions": "ListEventSubscriptions",
    "get_outbox": "GetOutboxStatus",
    "skip_outbox_row": "SkipOutboxRow",
    "list_credentials": "ListCredentials",
    "put_credential": "PutCredential",
    "rotate_credential": "RotateCredential",
    "retire_credential": "RetireCredential",
    "delete_credential": "DeleteCredential",
    "rewrap_credentials": "RewrapCredentials",
    "register_subscription": "RegisterSubscription",
    "list_subscriptions": "ListSubscriptions",
    "get_subscription": "GetSubscription",
    "activate_subscription": "MoveSubscription",
    "pause_subscription": "MoveSubscription",
    "resume_subscription": "MoveSubscription",
    "drain_subscription": "MoveSubscription",
    "deactivate_subscription": "MoveSubscription",
    "delete_subscription": "DeleteSubscription",
    "list_subscription_dead_letters": "ListSubscriptionDeadLetters",
    "replay_subscription_dead_letters": "SettleSubscriptionDeadLetters",
    "drop_subscription_dead_letters": "SettleSubscriptionDeadLetters",
    "execute": "BeginRun",
    "execute_batch": "BeginRun",
}
DOCS = Path(__file__).parents[3] / "docs"
OPEN = {"get_alive", "get_ready"}


def document() -> dict[str, Any]:
    async def make() -> Any:
        async def refresh() -> None: ...

        door = Door(cast("Operations", None), Tokens(), refresh)
        return server_app(door, {})

    app = asyncio.run(make())
    return describe(app._app)


def described() -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: operation
        for path in document()["paths"].values()
        for operation in path.values()
    }


def test_every_endpoint_is_in_the_documents() -> None:
    pages = "".join((DOCS / name).read_text() for name in ("http.md", "observing.md"))
    for path, operations in document()["paths"].items():
        for method in operations:
            named = f"`{method.upper()} {path}`" in pages or f"| `{path}` |" in pages
            assert named, f"{method} {path}"


def test_roles_are_those_of_grpc() -> None:
    operations = described()
    for name, method in SAME.items():
        assert operations[name][ROLE] == ROLES[method].name.lower(), name


def test_every_operation_needs_a_role_and_names_its_refusals() -> None:
    for name, operation in described().items():
        if name in OPEN:
            continue
        assert operation["security"] == [{"bearer": []}], name
        assert {"400", "401", "403", "421", "503"} <= operation["responses"].keys(), name
        assert "422" not in operation["responses"], name
        for status, response in operation["responses"].items():
            if status >= "400":
                example = response["content"]["application/json"]["example"]
                assert set(example) == {"error"}


def references(part: Any) -> Iterator[str]:
    """Every `$ref` in a part of the document."""
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"]
        for inner in part.values():
            yield from references(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from references(inner)


def test_every_reference_is_to_a_schema_that_is_there() -> None:
    whole = document()
    there = {f"#/components/schemas/{name}" for name in whole["components"]["schemas"]}
    assert set(references(whole)) <= there


def test_a_document_is_described_in_both_its_forms() -> None:
    operation = described()["register_subscription"]
    body = operation["requestBody"]
    assert body["required"] is True
    kinds = {kind: said["schema"] for kind, said in body["content"].items()}
    assert kinds["application/json"] == {"$ref": "#/components/schemas/SubscriptionDocument"}
    assert kinds["application/yaml"]["type"] == "string"
    assert {"200", "201", "400", "409", "413", "415"} <= operation["responses"].keys()
    schema = document()["components"]["schemas"]["SubscriptionDocument"]
    assert set(schema["required"]) == {"apiVersion", "kind", "metadata", "spec"}


def test_every_error_has_a_status() -> None:
    def kinds(kind: type[errors.TapeError]) -> list[type[errors.TapeError]]:
        return [kind, *(each for child in kind.__subclasses__() for each in kinds(child))]

    own = {kind for kind in kinds(errors.TapeError) if kind.__module__ == errors.__name__}
    for kind in own - {errors.TapeError}:
        status = next(STATUSES[each] for each in kind.__mro__ if each in STATUSES)
        assert status != 500, kind.__name__


def test_an_endpoint_without_a_role_is_for_nobody() -> None:
    async def ask() -> int:
        app = FastAPI()
        app.router.route_class = _GuardedRoute
        app.add_api_route("/forgotten", lambda: "secret", methods=["GET"])
        app.add_exception_handler(errors.TapeError, refused)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return (await client.get("/forgotten")).status_code

    assert asyncio.run(ask()) == 403
