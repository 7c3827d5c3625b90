"""What an entry of a run says by itself, without those before it."""

from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

import orjson

from tape.model.decision import DRAWN, RECORDED
from tape.model.entry import Entry
from tape.model.error_record import error_words, traceback_in

Tone = Literal["", "good", "warning", "bad"]

_POLL = "poll"
_OURS = {
    "ack": "acknowledges",
    "admit": "asks its budget for",
    "cancel_timer": "cancels timer",
    "delete_value": "deletes value",
    "failed": "failed to decide with",
    _POLL: "polls",
    "patched": "takes the patched branch at",
    "set_value": "sets value",
    "start": "starts a run of",
    "value": "reads value",
}


class EntryWords(NamedTuple):
    """An entry in words, and what it carries."""

    text: str
    detail: str = ""
    tone: Tone = ""


def decision_words(verb: str, payload: Any, _entry: Entry) -> EntryWords:
    policy = f", policy {payload['policy_version']}" if payload["policy_version"] else ""
    because = f", because {payload['rationale']}" if payload["rationale"] else ""
    what = "draw" if verb == DRAWN else "decision"
    model = deciding(payload["model"], verb)
    text = f"{what} {payload['decision_index']}: {model}{policy}{because}"
    if payload["model"].startswith(f"{_POLL}/"):
        count = len(payload["response"])
        text += f", which brings {count} message{'' if count == 1 else 's'}"
    return EntryWords(text, json_words(payload["response"]))


def deciding(model: str, verb: str = RECORDED) -> str:
    """What a run does that has a decision by this model: some are Tape's own."""
    kind, slash, name = model.partition("/")
    if slash and kind in _OURS:
        if kind == "failed" and name.startswith(f"{_POLL}/"):
            return name.replace(f"{_POLL}/", "failed to poll ", 1)
        return f"{_OURS[kind]} {name}"
    return f"draws {model}" if verb == DRAWN else f"decides with {model}"


def value_words(_verb: str, payload: Any, _entry: Entry) -> EntryWords:
    value = payload["value"]
    name, version = f"value {value['namespace']}/{value['key']}", f"version {value['version']}"
    if value["deleted"]:
        return EntryWords(f"{name} deleted, {version}")
    return EntryWords(f"{name} set, {version}", value["value_json"])


def event_words(verb: str, payload: Any, entry: Entry) -> EntryWords:
    if verb == "appended":
        session = unquote(entry.subject.split("/", 4)[4])
        return EntryWords(f"event appended to session {session}", json_words(payload))
    about = "/".join(filter(None, (entry.entity_type, entry.entity_id)))
    return EntryWords(
        f"event {entry.event_type} recorded{about and f' of {about}'}", json_words(payload)
    )


def budget_words(verb: str, payload: Any, _entry: Entry) -> EntryWords:
    usd, tokens = payload["usd_cap"], payload["token_cap"]
    caps = [f"{usd:g} USD"] * (usd > 0) + [f"{tokens} tokens"] * (tokens > 0)
    of = f" of {' and '.join(caps)}" if caps else ""
    if verb == "set":
        return EntryWords(f"budget{of} set" if caps else "budget lifted")
    spent = f"{payload['usd_spent']:g} USD and {payload['tokens_spent']} tokens"
    charge = f"{payload['usd']:g} USD and {payload['tokens']} tokens"
    return EntryWords(f"charged {charge}: {spent}{of} are spent")


def anything_words(verb: str, payload: Any, entry: Entry) -> EntryWords:
    return EntryWords(f"{entry.kind} {verb}", json_words(payload))


def traceback_at(kind: str, verb: str, payload: Any) -> str:
    """Where a program's own code raised what an entry is about; empty where none did."""
    match kind, verb:
        case "decision", "failed":
            return traceback_in(payload["response"])
        case "run", "failed" | "compensating" | "stuck":
            return traceback_in(payload.get("detail"))
        case "effect" | "obligation", _:
            return payload.get("traceback") or traceback_in(payload.get("error"))
    return ""


def as_call(request: Any) -> str:
    """Arguments as they are written in a call: `(100, to="DE1")`."""
    if not (isinstance(request, dict) and request.keys() == {"args", "kwargs"}):
        return json_words(request)
    args = [_json(value) for value in request["args"]]
    kwargs = [f"{name}={_json(value)}" for name, value in request["kwargs"].items()]
    return f"({', '.join(args + kwargs)})"


def json_words(value: Any) -> str:
    """JSON as it is, an error by its kind and words, nothing for null."""
    if value is None:
        return ""
    return error_words(value)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
