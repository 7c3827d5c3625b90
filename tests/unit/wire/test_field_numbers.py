"""Field numbers are for ever: what was published before is pinned here, number by number."""

import re

import pytest

from tape.model.reaction import HandlerKind
from tape.model.task import TaskStatus
from tape.wire.v1 import tape_pb2 as pb

PUBLISHED = {
    "EventEntry": "run_id#1 seq#2 kind#3 payload_json#4 ts_ms#5 global_seq#6 subject#7 "
    "schema_version#8 trace_id#9 span_id#10 parent_span_id#11",
    "JournalEntry": "seq#1 kind#2 payload_json#3 ts_ms#4 global_seq#5 subject#6 schema_version#7 "
    "trace_id#8 span_id#9 parent_span_id#10",
    "SubscribeBySubjectRequest": "subject_pattern#1 predicate_cel#2 from_global_seq#3",
    "SubscribeEventsRequest": "from_ts_ms#1 run_id#2 kind#3 from_global_seq#4 subject_pattern#5",
    "SubscribeRunRequest": "run_id#1 from_seq#2",
    "WriteValueRequest": "namespace#1 key#2 value_json#3 if_version#4 writer#5",
    "GetValueRequest": "namespace#1 key#2",
    "GetValueResponse": "found#1 value#2",
    "WatchValueRequest": "namespace#1 key#2 from_version#3",
    "DeleteValueRequest": "namespace#1 key#2",
    "DeleteValueResponse": "deleted#1 version#2",
    "ValueRecord": "namespace#1 key#2 value_json#3 version#4 ts_ms#5 writer#6 deleted#7",
    "ValueEvent": "value#1 prev_version#2 prev_value_json#3",
    "CreateSessionRequest": "app_name#1 user_id#2 session_id#3 state_json#4",
    "GetSessionRequest": "app_name#1 user_id#2 session_id#3 max_events#4",
    "GetSessionResponse": "found#1 session#2",
    "ListSessionsRequest": "app_name#1 user_id#2",
    "ListSessionsResponse": "sessions#1",
    "DeleteSessionRequest": "app_name#1 user_id#2 session_id#3",
    "DeleteSessionResponse": "deleted#1",
    "AppendEventRequest": "app_name#1 user_id#2 session_id#3 event#4 state_delta_json#5",
    "AppendEventResponse": "event#1 last_update_time_ms#2",
    "Session": "app_name#1 user_id#2 session_id#3 state_json#4 events#5 last_update_time_ms#6",
    "EventRecord": "id#1 invocation_id#2 author#3 branch#4 content_json#5 actions_json#6 "
    "timestamp_ms#7",
    "Reaction": "reaction_id#1 name#2 subject_pattern#3 predicate_cel#4 handler_kind#5 agent_app#6 "
    "publish_target#7 max_concurrency#8 rate_limit_per_s#9 debounce_ms#10 retry_max#11 "
    "retry_backoff_ms#12 dlq_after_n#13 num_shards#14 created_at_ms#15 deleted#16 "
    "bootstrap_from_head#17",
    "DeregisterReactionRequest": "reaction_id#1",
    "DeregisterReactionResponse": "deregistered#1",
    "ListReactionsRequest": "subject_pattern#1",
    "ListReactionsResponse": "reactions#1",
    "Task": "task_id#1 reaction_id#2 shard#3 source_run_id#4 source_global_seq#5 subject#6 "
    "payload_json#7 status#8 attempts#9 next_attempt_at_ms#10 lease_owner#11 "
    "lease_expires_at_ms#12 last_error#13 created_at_ms#14 trace_id#15 parent_span_id#16",
    "ClaimTasksRequest": "reaction_id#1 shard#2 owner#3 lease_ms#4 max#5 now_ms#6",
    "ClaimTasksResponse": "tasks#1",
    "CompleteTaskRequest": "task_id#1 owner#2",
    "CompleteTaskResponse": "task#1",
    "NackTaskRequest": "task_id#1 owner#2 error#3 permanent#4",
    "NackTaskResponse": "task#1",
    "ListTasksRequest": "reaction_id#1 status#2 limit#3",
    "ListTasksResponse": "tasks#1",
}
OURS = {
    "NewEvent": "event_type#1 entity_type#2 entity_id#3 payload_json#4 schema_version#5 "
    "idempotency_key#6 caused_by#7 source#8 occurred_at_ms#9 run_id#10 fencing_token#11 "
    "trace_id#12 span_id#13 parent_span_id#14",
    "RecordedEvent": "event_id#1 global_seq#2 seq#3 duplicate#4",
    "RecordEventsRequest": "events#1",
    "RecordEventsResponse": "results#1",
    "FollowEntriesRequest": "subject_pattern#1 predicate_cel#2 from_global_seq#3 max_batch#4 "
    "to_global_seq#5 kind#6 run_id#7 from_ts_ms#8",
    "EntryBatch": "entries#1 cursor#2 skipped#3 last_error#4",
    "ListValuesRequest": "namespace#1 after_key#2 limit#3",
    "ListValuesResponse": "values#1",
    "GetJournalInfoRequest": "",
    "GetJournalInfoResponse": "store#1 first_global_seq#2 head_global_seq#3 migration#4 version#5",
    "ReactionProgress": "reaction_id#1 position#2 following#3 last_processed_at_ms#4 matched#5 "
    "coalesced#6 predicate_errors#7 last_error#8 pending#9 claimed#10 dead_letters#11",
    "Want": "reaction_id#1 shard#2 max#3",
    "TaskOutcome": "task_id#1 verdict#2 error#3",
    "SettleTasksRequest": "owner#1 outcomes#2",
    "SettledTask": "status#1 reason#2 message#3",
    "SettleTasksResponse": "tasks#1",
    "ListenForTasksRequest": "reaction_ids#1 heard#2 wait_ms#3",
    "ListenForTasksResponse": "heard#1",
    "ReplayDeadLettersRequest": "reaction_id#1 task_ids#2",
    "ReplayDeadLettersResponse": "count#1",
    "DropDeadLettersRequest": "reaction_id#1 task_ids#2",
    "DropDeadLettersResponse": "count#1",
}
ADDED = {
    "CreateSessionRequest": "trace_id#42 span_id#43 parent_span_id#44",
    "DeleteSessionRequest": "trace_id#42 span_id#43 parent_span_id#44",
    "EventEntry": "event_id#40 event_type#41 entity_type#42 entity_id#43 caused_by#44 source#45 "
    "occurred_at_ms#46 idempotency_key#47",
    "JournalEntry": "event_id#40 event_type#41 entity_type#42 entity_id#43 caused_by#44 source#45 "
    "occurred_at_ms#46 idempotency_key#47",
    "WriteValueRequest": "run_id#40 fencing_token#41 trace_id#42 span_id#43 parent_span_id#44",
    "DeleteValueRequest": "run_id#40 fencing_token#41 trace_id#42 span_id#43 parent_span_id#44 "
    "writer#45",
    "AppendEventRequest": "run_id#40 fencing_token#41 trace_id#42 span_id#43 parent_span_id#44",
    "Session": "event_count#40 created_at_ms#41",
    "Reaction": "from_global_seq#40 engine#41",
    "ListReactionsResponse": "progress#40",
    "Task": "claimed_at_ms#40 completed_at_ms#41 source_seq#42 source_kind#43 schema_version#44 "
    "source_parent_span_id#45 source_ts_ms#46 event_id#47 event_type#48 entity_type#49 "
    "entity_id#50 caused_by#51 source#52 occurred_at_ms#53 idempotency_key#54",
    "ClaimTasksRequest": "task_ids#40 wants#41 wait_ms#42",
    "ClaimTasksResponse": "extended#40",
    "ListTasksRequest": "after_task_id#40 task_id#41",
}
ENUMS = {
    "HandlerKind": "UNSPECIFIED#0 AGENT#1 TASK#2 PUBLISH#3",
    "TaskStatus": "UNSPECIFIED#0 PENDING#1 CLAIMED#2 DONE#3 FAILED#4 DLQ#5",
    "Verdict": "UNSPECIFIED#0 DONE#1 FAILED#2 REFUSED#3 GIVEN_BACK#4",
}


@pytest.mark.parametrize("name", sorted(pb.DESCRIPTOR.message_types_by_name))
def test_numbers(name: str) -> None:
    expected = [PUBLISHED.get(name) or OURS.get(name, ""), ADDED.get(name, "")]
    fields = pb.DESCRIPTOR.message_types_by_name[name].fields
    assert [f"{field.name}#{field.number}" for field in fields] == " ".join(expected).split()


def test_none_is_missing() -> None:
    assert set(pb.DESCRIPTOR.message_types_by_name) == PUBLISHED.keys() | OURS.keys()


def test_enumerations() -> None:
    found = {
        name: " ".join(
            f"{value.name.removeprefix(_prefix(name))}#{value.number}" for value in enum.values
        )
        for name, enum in pb.DESCRIPTOR.enum_types_by_name.items()
    }
    assert found == ENUMS
    assert [kind.value for kind in HandlerKind] == [1, 2, 3]
    assert [status.value for status in TaskStatus] == [1, 2, 3, 4, 5]


def _prefix(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() + "_"
