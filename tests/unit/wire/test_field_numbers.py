"""Field numbers are for ever: what was published before is pinned here, number by number."""

import re
from enum import IntEnum

import pytest

from tape.model.effect import DispatchMode, EffectStatus, Semantics
from tape.model.effect_claim import Resolution
from tape.model.obligation import ObligationStatus
from tape.model.reaction import HandlerKind
from tape.model.run import RunStatus
from tape.model.task import TaskStatus
from tape.wire.v1 import tape_pb2 as pb

BY_DRIVER = "fencing_token#41 trace_id#42 span_id#43 parent_span_id#44"
RUN_WRITES = (
    "record_decision#1 begin_effect#2 complete_effect#3 register_compensation#4 await_signal#5 "
    "set_timer#6 cancel_timer#7 set_budget#8 charge_budget#9 end_run#10"
)
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
    "RunState": "run_id#1 app_name#2 user_id#3 session_id#4 invocation_id#5 status#6 seq_cursor#7 "
    "lease_owner#8 lease_expires_at_ms#9 started_at_ms#10 ended_at_ms#11 waiting_on_gate#12",
    "BeginRunRequest": "app_name#1 user_id#2 session_id#3 invocation_id#4 lease_owner#5 "
    "lease_ttl_ms#6",
    "BeginRunResponse": "run_id#1 resumed#2 next_seq#3 status#4",
    "ResumeRunRequest": "run_id#1 lease_owner#2 lease_ttl_ms#3",
    "ResumeRunResponse": "run#1",
    "EndRunRequest": "run_id#1 status#2 detail_json#3",
    "EndRunResponse": "run#1",
    "GetRunRequest": "run_id#1",
    "ListRunsToRecoverRequest": "limit#1 now_ms#2",
    "ListRunsToRecoverResponse": "runs#1",
    "RecordDecisionRequest": "run_id#1 decision_index#2 model#3 request_json#4 response_json#5 "
    "rationale#6 policy_version#7",
    "GetDecisionRequest": "run_id#1 decision_index#2",
    "GetDecisionResponse": "found#1 decision#2",
    "DecisionRecord": "run_id#1 seq#2 decision_index#3 model#4 request_json#5 response_json#6 "
    "rationale#7 policy_version#8 ts_ms#9",
    "BeginEffectRequest": "run_id#1 decision_index#2 tool_name#3 call_index#4 request_json#5 "
    "custom_key#6 semantics#7 dispatch_mode#8 business_key#9 connector#10 scope#11",
    "BeginEffectResponse": "seq#1 idempotency_key#2 status#3 response_json#4 error_json#5",
    "CompleteEffectRequest": "run_id#1 idempotency_key#2 status#3 response_json#4 error_json#5",
    "GetEffectRequest": "run_id#1 idempotency_key#2",
    "GetEffectResponse": "found#1 effect#2",
    "ReconcileEffectRequest": "run_id#1 idempotency_key#2 resolved_status#3 response_json#4 "
    "error_json#5",
    "ListPendingEffectsRequest": "older_than_ms#1 limit#2 include_pending#3 include_unknown#4",
    "ListPendingEffectsResponse": "effects#1",
    "ListEffectsToDispatchRequest": "now_ms#1 limit#2 connector#3",
    "ListEffectsToDispatchResponse": "effects#1",
    "ClaimEffectDispatchRequest": "run_id#1 idempotency_key#2 claimer#3 lease_ttl_ms#4",
    "ClaimEffectDispatchResponse": "acquired#1 effect#2",
    "RecordDispatchAttemptRequest": "run_id#1 idempotency_key#2 error#3 next_dispatch_at_ms#4",
    "RecordExternalObservationRequest": "run_id#1 idempotency_key#2 resolution#3 external_ref#4 "
    "response_json#5 error_json#6 compensate_on_duplicate_kind#7",
    "EffectRecord": "run_id#1 seq#2 decision_index#3 tool_name#4 idempotency_key#5 status#6 "
    "request_json#7 response_json#8 error_json#9 ts_ms#10 semantics#11 dispatch_mode#12 "
    "business_key#13 connector#14 dispatch_attempts#15 next_dispatch_at_ms#16 external_ref#17 "
    "dispatch_claimed_by#18 dispatch_claim_expires_at_ms#19 last_dispatch_error#20 scope#21",
    "RegisterCompensationRequest": "run_id#1 effect_key#2 kind#3 payload_json#4 compensator_ref#5 "
    "max_attempts#6",
    "ListObligationsRequest": "run_id#1 only_unresolved#2 status_filter#3",
    "ListObligationsResponse": "obligations#1",
    "ResolveObligationRequest": "run_id#1 obligation_seq#2 status#3 result_json#4",
    "ListUnresolvedObligationsRequest": "limit#1 now_ms#2 include_pending#3 include_stuck#4 "
    "include_committed_expired#5",
    "ListUnresolvedObligationsResponse": "obligations#1",
    "ClaimObligationRequest": "run_id#1 obligation_seq#2 claimer#3 lease_ttl_ms#4",
    "ClaimObligationResponse": "acquired#1 obligation#2",
    "RecordObligationAttemptRequest": "run_id#1 obligation_seq#2 error#3 next_attempt_at_ms#4",
    "ObligationRecord": "run_id#1 seq#2 effect_key#3 kind#4 payload_json#5 status#6 ts_ms#7 "
    "compensator_ref#8 attempts#9 max_attempts#10 next_attempt_at_ms#11 last_error#12 "
    "claimed_by#13 claim_expires_at_ms#14 result_json#15",
    "SetBudgetRequest": "run_id#1 usd_cap#2 token_cap#3",
    "AdmitBudgetRequest": "run_id#1 usd_estimate#2 token_estimate#3",
    "AdmitBudgetResponse": "admitted#1 reason#2 budget#3",
    "ChargeBudgetRequest": "run_id#1 usd#2 tokens#3",
    "BudgetState": "run_id#1 usd_cap#2 token_cap#3 usd_spent#4 tokens_spent#5",
    "AwaitSignalRequest": "run_id#1 gate_name#2 payload_json#3",
    "AwaitSignalResponse": "delivered#1 resolution_json#2",
    "SendSignalRequest": "run_id#1 app_name#2 user_id#3 session_id#4 gate_name#5 resolution_json#6",
    "SendSignalResponse": "accepted#1 run_id#2 run_status#3",
    "SetTimerRequest": "run_id#1 timer_id#2 fire_at_ms#3 kind#4 payload_json#5",
    "CancelTimerRequest": "run_id#1 timer_id#2",
    "CancelTimerResponse": "cancelled#1",
    "ListDueTimersRequest": "now_ms#1 limit#2 claim#3",
    "ListDueTimersResponse": "timers#1",
    "TimerRecord": "run_id#1 timer_id#2 fire_at_ms#3 kind#4 payload_json#5 fired#6 created_at_ms#7",
}
OURS = {
    "Limits": "payload_bytes#1 json_depth#2 name_bytes#3 subject_bytes#4 predicate_bytes#5 "
    "request_events#6 request_bytes#7 page_entries#8 page_bytes#9 shards#10 claim_tasks#11",
    "NewEvent": "event_type#1 entity_type#2 entity_id#3 payload_json#4 schema_version#5 "
    "idempotency_key#6 caused_by#7 source#8 occurred_at_ms#9 run_id#10 fencing_token#11 "
    "trace_id#12 span_id#13 parent_span_id#14",
    "RecordedEvent": "event_id#1 global_seq#2 seq#3 duplicate#4",
    "RecordEventsRequest": "events#1",
    "RecordEventsResponse": "results#1",
    "FollowEntriesRequest": "subject_pattern#1 predicate_cel#2 from_global_seq#3 max_batch#4 "
    "to_global_seq#5 kind#6 run_id#7 from_ts_ms#8",
    "EntryBatch": "entries#1 cursor#2 skipped#3 last_error#4 more#5",
    "ListValuesRequest": "namespace#1 after_key#2 limit#3",
    "ListValuesResponse": "values#1",
    "ListNamesRequest": "after#1 limit#2",
    "ListNamesResponse": "names#1",
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
    "HeartbeatRunRequest": "run_id#1 fencing_token#2 lease_ttl_ms#3",
    "HeartbeatRunResponse": "run#1",
    "ReleaseRunRequest": "run_id#1 fencing_token#2 waiting_on#3 seen_seq#4",
    "ReleaseRunResponse": "run#1",
    "CancelRunRequest": "run_id#1 reason#2",
    "CancelRunResponse": "run#1",
    "ListRunsRequest": "status#1 app_name#2 pool#3 limit#4 after#5 parent_run_id#6 user_id#7 "
    "session_id#8",
    "ListRunsResponse": "runs#1 more#2",
    "ReadRunEntriesRequest": "run_id#1 after_seq#2 limit#3",
    "RunWrite": RUN_WRITES,
    "RunWriteResult": RUN_WRITES,
    "ExtendRunRequest": "run_id#1 fencing_token#2 writes#3 trace_id#4 span_id#5 parent_span_id#6",
    "ExtendRunResponse": "run#1 first_seq#2 results#3",
    "Compensation": "kind#1 payload_json#2 compensator_ref#3 max_attempts#4 effect_key#5 alone#6",
    "RenewEffectClaimRequest": "run_id#1 idempotency_key#2 fencing_token#3 lease_ttl_ms#4",
    "RenewObligationClaimRequest": "run_id#1 obligation_seq#2 fencing_token#3 lease_ttl_ms#4 "
    "effect_key#5 kind#6",
    "ListTimersRequest": "run_id#1 after_timer_id#2",
    "ListTimersResponse": "timers#1 more#2",
    "NextTimerRequest": "",
    "NextTimerResponse": "in_ms#1",
    "ListWaitingRunsRequest": "older_than_ms#1",
    "ListWaitingRunsResponse": "waiting#1 more#2",
    "WaitingRuns": "pool#1 app_name#2 waiting#3 running#4 run_id#5 since_ms#6",
    "EventSubscription": "subscription_id#1 event_type_glob#2 workflow_type#3 drainer_id#4 "
    "input_mapper#5 filter_expr#6 enabled#7 awaits_end#8 created_at_ms#9 pool#40",
    "DeleteEventSubscriptionRequest": "subscription_id#1",
    "DeleteEventSubscriptionResponse": "deleted#1",
    "ListEventSubscriptionsRequest": "drainer_id#1 after_subscription_id#2",
    "ListEventSubscriptionsResponse": "subscriptions#1 more#2",
    "DrainEventsRequest": "drainer_id#1 limit#2 await_s#3",
    "DrainEventsResponse": "drainer_id#1 processed#2 dispatched#3 triggered#4 last_global_seq#5 "
    "last_event_id#6 halted_on_event_id#7 error#8 waiting_on_run_id#9 skipped_due_to_lock#10 "
    "more#11 next_try_at_ms#12",
    "TriggeredRun": "event_id#1 global_seq#2 subscription_id#3 run_id#4",
    "ListDrainersRequest": "after_drainer_id#1",
    "ListDrainersResponse": "drainers#1 more#2",
    "DrainerRecord": "drainer_id#1 last_global_seq#2 last_event_id#3 last_drained_at_ms#4 "
    "events_processed_total#5 dispatched_total#6 failed_total#7 skipped_total#8 "
    "halted_on_event_id#9 halted_on_global_seq#10 halted_at_ms#11 last_error#12 attempts_json#13 "
    "lease_owner#14 lease_expires_at_ms#15 fencing_token#16 subscriptions#17 lag#18 is_held#19 "
    "next_try_at_ms#20 waiting_on_run_id#21 waiting_on_event_id#22 waiting_on_global_seq#23 "
    "waiting_since_ms#24 waiting_on_app#25 waiting_on_pool#26",
    "SkipDrainerEventRequest": "drainer_id#1 event_id#2 reason#3 by#4",
    "ResumeDrainerRequest": "drainer_id#1 by#2",
    "GetOutboxStatusRequest": "",
    "OutboxStatus": "waiting#1 unpromoted#2 oldest_ms#3 failing#4 terms#5 repeated_rows#6 "
    "repeats#7",
    "RepeatedRow": "id#1 event_id#2 subject#3 idempotency_key#4 created_at_ms#5 repeated_at_ms#6 "
    "repeat_of#7 repeat_of_seq#8",
    "FailingRow": "id#1 event_id#2 subject#3 created_at_ms#4 global_seq#5 attempts#6 last_error#7",
    "RelayTerm": "relay#1 term#2 owner#3 elected_at_ms#4 expires_at_ms#5",
    "SkipOutboxRowRequest": "row_id#1 reason#2 by#3",
    "OutboxPlace": "id#1 event_id#2 subject#3 global_seq#4 published_to_nats#5 last_error#6 "
    "has_entry#7 repeat_of#8 repeat_of_seq#9",
    "ReadRecentRequest": "before#1 limit#2 prefix#3 event_type#4 entity_type#5 entity_id#6 "
    "run_id#7 trace_id#8 event_id#9 caused_by#10 scan#11 source#12",
    "PutCredentialRequest": "alias#1 value#2 form#3",
    "RotateCredentialRequest": "alias#1 value#2 form#3",
    "RetireCredentialRequest": "alias#1",
    "CredentialState": "alias#1 version#2 previous_version#3 form#4 key_id#5 created_at_ms#6 "
    "changed_at_ms#7 opened#8 previous_key_id#9",
    "ListCredentialsRequest": "after_alias#1",
    "ListCredentialsResponse": "credentials#1 more#2",
    "DeleteCredentialRequest": "alias#1",
    "DeleteCredentialResponse": "deleted#1",
    "RewrapCredentialsRequest": "",
    "RewrapCredentialsResponse": "rewrapped#1",
    "GetSealedCredentialRequest": "alias#1",
    "SealedCredential": "alias#1 versions#2",
    "SealedVersion": "version#1 form#2 key_id#3 wrapped_key#4 nonce#5 ciphertext#6",
    "BeginRunOnceRequest": "app_name#1 user_id#2 session_id#3 invocation_id#4 pool#5 input_json#6 "
    "app_version#7 trace_id#8 span_id#9 parent_span_id#10 traceparent#11 tracestate#12 baggage#13 "
    "key#14 window_ms#15",
    "BeginRunOnceResponse": "run#1 resumed#2 duplicate#3",
    "RegisterSubscriptionRequest": "document#1",
    "RegisterSubscriptionResponse": "subscription#1 is_new#2 is_changed#3",
    "GetSubscriptionRequest": "name#1",
    "ListSubscriptionsRequest": "after_name#1",
    "ListSubscriptionsResponse": "subscriptions#1 more#2",
    "MoveSubscriptionRequest": "name#1 verb#2",
    "DeleteSubscriptionRequest": "name#1",
    "DeleteSubscriptionResponse": "deleted#1",
    "SubscriptionRecord": "name#1 path#2 state#3 revision#4 digest#5 source#6 mode#7 activation#8 "
    "cadence#9 gateway_path#10 target#11 listener_pool#12 created_at_ms#13 changed_at_ms#14 "
    "document_json#15 listener#16 is_held#17 dead_letters#18",
    "ListenerRecord": "name#1 lease_owner#2 lease_expires_at_ms#3 fencing_token#4 revision#5 "
    "fetched#6 redelivered#7 accepted#8 deduplicated#9 dead_lettered#10 rejected#11 spooled#12 "
    "replayed#13 in_flight#14 backlog#15 last_accepted_at_ms#16 last_error#17 due_at_ms#18 "
    "free_at_us#19 throttled_at_ms#20",
    "ListSubscriptionDeadLettersRequest": "name#1 after#2 limit#3",
    "ListSubscriptionDeadLettersResponse": "dead_letters#1",
    "SubscriptionDeadLetter": "subscription#1 letter_id#2 place#3 message_id#4 reason#5 detail#6 "
    "attempts#7 at_ms#8 source#9 origin#10 position#11 key#12 timestamp_ms#13 source_subject#14 "
    "headers#15 body#16",
    "SettleSubscriptionDeadLettersRequest": "name#1 verb#2 ids#3",
    "SettleSubscriptionDeadLettersResponse": "count#1",
    "HoldSubscriptionRequest": "name#1 lease_owner#2 lease_ttl_ms#3 fencing_token#4 letting_go#5 "
    "fetched#6 in_flight#7 backlog#8 last_error#9 passed#10 refused#11 revision#12",
    "PassedOrigin": "origin#1 position#2",
    "HoldSubscriptionResponse": "is_granted#1 fencing_token#2 state#3 revision#4 document_json#5 "
    "due_at_ms#6 now_ms#7 newest_revision#8",
    "ReserveDispatchesRequest": "name#1 fencing_token#2 most#3 unused#4 held_up#40",
    "ReserveDispatchesResponse": "granted#1 again_in_ms#2",
    "TickSubscriptionRequest": "name#1 fencing_token#2 due_at_ms#3",
    "TickSubscriptionResponse": "due_at_ms#1",
    "AcceptMessagesRequest": "name#1 revision#2 fencing_token#3 messages#4 tells_received#5",
    "SourceMessage": "source#1 origin#2 position#3 body#4 headers#5 message_id#6 key#7 "
    "timestamp_ms#8 subject#9 deliveries#10",
    "MessageHeader": "name#1 value#2",
    "AcceptMessagesResponse": "messages#1",
    "AcceptedMessage": "place#1 outcome#2 run_id#3",
}
ADDED = {
    "CreateSessionRequest": "trace_id#42 span_id#43 parent_span_id#44",
    "DeleteSessionRequest": "trace_id#42 span_id#43 parent_span_id#44",
    "EventEntry": "event_id#40 event_type#41 entity_type#42 entity_id#43 caused_by#44 source#45 "
    "occurred_at_ms#46 idempotency_key#47",
    "JournalEntry": "event_id#40 event_type#41 entity_type#42 entity_id#43 caused_by#44 source#45 "
    "occurred_at_ms#46 idempotency_key#47",
    "WriteValueRequest": "run_id#40 fencing_token#41 trace_id#42 span_id#43 parent_span_id#44 "
    "request_id#45",
    "DeleteValueRequest": "run_id#40 fencing_token#41 trace_id#42 span_id#43 parent_span_id#44 "
    "writer#45 request_id#46",
    "AppendEventRequest": "run_id#40 fencing_token#41 trace_id#42 span_id#43 parent_span_id#44",
    "Session": "event_count#40 created_at_ms#41",
    "Reaction": "from_global_seq#40 engine#41 pool#42",
    "GetJournalInfoResponse": "limits#40 exposed#41",
    "ListReactionsResponse": "progress#40",
    "SourceMessage": "whole_bytes#40 whole_sha256#41",
    "Task": "claimed_at_ms#40 completed_at_ms#41 source_seq#42 source_kind#43 schema_version#44 "
    "source_parent_span_id#45 source_ts_ms#46 event_id#47 event_type#48 entity_type#49 "
    "entity_id#50 caused_by#51 source#52 occurred_at_ms#53 idempotency_key#54 last_traceback#55",
    "NackTaskRequest": "traceback#40",
    "TaskOutcome": "traceback#40",
    "ClaimTasksRequest": "task_ids#40 wants#41 wait_ms#42",
    "ClaimTasksResponse": "extended#40",
    "ListTasksRequest": "after_task_id#40 task_id#41",
    "RunState": "fencing_token#40 pool#41 reactor_name#42 app_version#43 parent_run_id#44 "
    "cancel_reason#45 outcome_json#46 top_obligation#47 ending#48",
    "BeginRunRequest": "pool#40 reactor_name#41 trace_id#42 span_id#43 parent_span_id#44 "
    "input_json#45 app_version#46 parent_run_id#47 parent_fencing_token#48 "
    "writes#49 traceparent#50 tracestate#51 baggage#52",
    "BeginRunResponse": "fencing_token#40 run#41 first_seq#42 results#43",
    "ResumeRunRequest": "reactor_name#40 expected_token#41 pool#42",
    "ResumeRunResponse": "fencing_token#40",
    "EndRunRequest": f"{BY_DRIVER} parent_run_id#45",
    "ListRunsToRecoverRequest": "pool#40 app_names#41",
    "RecordDecisionRequest": f"{BY_DRIVER} verb#45",
    "GetDecisionRequest": "as_entry#40",
    "GetDecisionResponse": "entry#40",
    "BeginEffectRequest": BY_DRIVER,
    "BeginEffectResponse": "effect#40",
    "CompleteEffectRequest": f"{BY_DRIVER} compensation#45",
    "ReconcileEffectRequest": "fencing_token#41",
    "ListPendingEffectsRequest": "connectors#40",
    "ListEffectsToDispatchRequest": "connectors#40",
    "ClaimEffectDispatchResponse": "fencing_token#40",
    "RecordDispatchAttemptRequest": "traceback#40 fencing_token#41",
    "RecordExternalObservationRequest": "fencing_token#41 compensation#45 on_duplicate#46",
    "EffectRecord": "fencing_token#40 call_index#41",
    "RegisterCompensationRequest": f"{BY_DRIVER} alone#45",
    "ListObligationsRequest": "before_seq#40",
    "ListObligationsResponse": "more#40",
    "ResolveObligationRequest": "fencing_token#41 effect_key#45 kind#46",
    "ClaimObligationRequest": "effect_key#45 kind#46",
    "ClaimObligationResponse": "fencing_token#40",
    "RecordObligationAttemptRequest": "traceback#40 fencing_token#41 effect_key#45 kind#46",
    "ObligationRecord": "fencing_token#40 below#41",
    "SetBudgetRequest": BY_DRIVER,
    "ChargeBudgetRequest": f"{BY_DRIVER} charge_id#45",
    "BudgetState": "last_charge#40",
    "AwaitSignalRequest": BY_DRIVER,
    "AwaitSignalResponse": "payload_json#40",
    "SendSignalResponse": "run#40",
    "SetTimerRequest": f"{BY_DRIVER} after_ms#45",
    "CancelTimerRequest": BY_DRIVER,
    "TimerRecord": "cancelled#40",
}
ENUMS = {
    "HandlerKind": "UNSPECIFIED#0 AGENT#1 TASK#2 PUBLISH#3",
    "TaskStatus": "UNSPECIFIED#0 PENDING#1 CLAIMED#2 DONE#3 FAILED#4 DLQ#5",
    "Verdict": "UNSPECIFIED#0 DONE#1 FAILED#2 REFUSED#3 GIVEN_BACK#4",
    "RunStatus": "UNSPECIFIED#0 RUNNABLE#1 RUNNING#2 WAITING#3 TERMINAL#4 FAILED#5 COMPENSATING#6 "
    "STUCK#7 CANCELLED#8",
    "EffectStatus": "UNSPECIFIED#0 PENDING#1 CONFIRMED#2 FAILED#3 UNKNOWN#4",
    "EffectSemantics": "UNSPECIFIED#0 IDEMPOTENT#1 NON_IDEMPOTENT#2 OBSERVE_ONLY#3",
    "EffectDispatchMode": "UNSPECIFIED#0 INLINE#1 OUTBOX#2",
    "EffectResolution": "UNSPECIFIED#0 CONFIRMED#1 FAILED#2 ABSENT#3 DUPLICATE#4 STUCK#5",
    "ObligationStatus": "UNSPECIFIED#0 PENDING#1 COMMITTED#2 COMPENSATED#3 STUCK#4",
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


MODELS = {
    "HandlerKind": HandlerKind,
    "TaskStatus": TaskStatus,
    "RunStatus": RunStatus,
    "EffectStatus": EffectStatus,
    "EffectSemantics": Semantics,
    "EffectDispatchMode": DispatchMode,
    "EffectResolution": Resolution,
    "ObligationStatus": ObligationStatus,
}


@pytest.mark.parametrize(("name", "model"), MODELS.items())
def test_the_model_counts_alike(name: str, model: type[IntEnum]) -> None:
    named = " ".join(f"{member.name}#{member.value}" for member in model)
    assert ENUMS[name] == f"UNSPECIFIED#0 {named}"


def _prefix(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() + "_"
