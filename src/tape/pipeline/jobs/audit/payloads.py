"""What of the payloads of Tape's own entries an audit looks at, one flat list for all kinds."""

_FIELDS = {
    # a run's own life, and the lease on it
    "app_name": "STRING",
    "user_id": "STRING",
    "session_id": "STRING",
    "invocation_id": "STRING",
    "pool": "STRING",
    "app_version": "STRING",
    "parent_run_id": "STRING",
    "owner": "STRING",
    "fencing_token": "BIGINT",
    "lease_expires_at_ms": "BIGINT",
    "ending": "STRING",
    # decisions and effects
    "decision_index": "BIGINT",
    "call_index": "BIGINT",
    "idempotency_key": "STRING",
    "tool_name": "STRING",
    "status": "STRING",
    "semantics": "STRING",
    "dispatch_mode": "STRING",
    "connector": "STRING",
    "business_key": "STRING",
    # obligations; the kind is a timer's, too
    "obligation_seq": "BIGINT",
    "effect_key": "STRING",
    "kind": "STRING",
    "attempts": "BIGINT",
    "compensator_ref": "STRING",
    # gates and timers
    "gate_name": "STRING",
    "timer_id": "STRING",
    "fire_at_ms": "BIGINT",
    # values
    "value": "STRUCT<namespace: STRING, key: STRING, value_json: STRING, version: BIGINT, "
    "writer: STRING, deleted: BOOLEAN>",
    "prev_version": "BIGINT",
    "prev_value_json": "STRING",
    # budgets
    "usd_cap": "DOUBLE",
    "token_cap": "BIGINT",
    "usd_spent": "DOUBLE",
    "tokens_spent": "BIGINT",
    "last_charge": "STRING",
    "usd": "DOUBLE",
    "tokens": "BIGINT",
    # tasks
    "task_id": "STRING",
    "reaction_id": "STRING",
    "shard": "BIGINT",
    "source_global_seq": "BIGINT",
    # relays
    "relay": "STRING",
    "term": "BIGINT",
    # credentials
    "alias": "STRING",
    "version": "BIGINT",
    "previous_version": "BIGINT",
    "key_id": "STRING",
    # drainers and their subscriptions
    "drainer": "STRING",
    "drainer_id": "STRING",
    "subscription_id": "STRING",
    "event_type_glob": "STRING",
    "workflow_type": "STRING",
    "input_mapper": "STRING",
    "filter_expr": "STRING",
    "enabled": "BOOLEAN",
    "awaits_end": "BOOLEAN",
    # declared subscriptions, and what became of their messages
    "name": "STRING",
    "state": "STRING",
    "before": "STRING",
    "revision": "BIGINT",
    "id": "STRING",
    "place": "STRING",
    "run_id": "STRING",
    "applied": "ARRAY<STRUCT<header: STRING, controls: STRING, effective_value: STRING>>",
    "route_override": "STRUCT<playbook: STRING, pool: STRING>",
    # events of sessions
    "event": "STRUCT<id: STRING>",
}

PAYLOAD_FIELDS = ", ".join(f"{name} {kind}" for name, kind in _FIELDS.items())
"""A schema for FROM_JSON."""
