"""Decisions. The journal holds them, so that is where a record of one comes from."""

import json
import re

import orjson

from tape.model.decision import DecisionPlace, RecordDecision
from tape.model.entry import Entry
from tape.wire.mapping_entries import entry_from_wire, entry_to_wire
from tape.wire.records import DECISION_PLACE
from tape.wire.v1 import tape_pb2 as pb

# Only looks where a value ends: numbers stay text, however many digits they have.
_value = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode
_open = re.compile(r"\s*\{\s*").match
_colon = re.compile(r"\s*:\s*").match
_comma = re.compile(r"\s*,?\s*").match


def recorded_to_wire(place: DecisionPlace, write: RecordDecision) -> pb.DecisionRecord:
    """A decision that was just written."""
    message = DECISION_PLACE.to_wire(place)
    message.model = write.model
    message.request_json = write.request_json or "null"
    message.response_json = write.response_json or "null"
    message.rationale = write.rationale
    message.policy_version = write.policy_version
    return message


def decision_to_wire(entry: Entry) -> pb.DecisionRecord:
    """A decision from the entry that records it, with its JSON letter for letter."""
    texts = _members(entry.payload_json)
    return pb.DecisionRecord(
        run_id=entry.run_id,
        seq=entry.seq,
        decision_index=int(texts["decision_index"]),
        model=orjson.loads(texts["model"]),
        request_json=texts["request"],
        response_json=texts["response"],
        rationale=orjson.loads(texts["rationale"]),
        policy_version=orjson.loads(texts["policy_version"]),
        ts_ms=entry.ts_ms,
    )


def found_to_wire(entry: Entry | None, *, as_entry: bool) -> pb.GetDecisionResponse:
    if entry is None:
        return pb.GetDecisionResponse()
    if as_entry:
        return pb.GetDecisionResponse(found=True, entry=entry_to_wire(entry))
    return pb.GetDecisionResponse(found=True, decision=decision_to_wire(entry))


def found_from_wire(message: pb.GetDecisionResponse) -> Entry | None:
    return entry_from_wire(message.entry) if message.HasField("entry") else None


def _members(text: str) -> dict[str, str]:
    """The members of an object, each value as it is written there."""
    found: dict[str, str] = {}
    at = _past(_open(text))
    while text[at] != "}":
        name, end = _value(text, at)
        start = _past(_colon(text, end))
        _, end = _value(text, start)
        found[name] = text[start:end]
        at = _past(_comma(text, end))
    return found


def _past(matched: re.Match[str] | None) -> int:
    if matched is None:
        raise ValueError("the payload of a decision is not an object")
    return matched.end()
