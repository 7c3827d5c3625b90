"""Checks of declared subscriptions: their life, their documents, and the rows that say the same.

What listeners have accepted for them is checked in `accepted`.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.model.subscription import SubscriptionState
from tape.pipeline.jobs.audit.check import LATER, ROW, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import (
    ENTRY_COLUMNS,
    LIFE_VERBS,
    Frames,
    FrameSource,
    decoded,
    table_source,
)
from tape.pipeline.jobs.audit.recheck import documents_unlike_rows

KINDS: Final = ("subscription",)
JOURNAL: Final = {"journal": ENTRY_COLUMNS}
QUIET: Final = "compares subscriptions whose life went no further since before they were read"
LEFT_MS: Final = 3_600_000
"""A subscription that drains, and that nobody holds, any server deactivates within minutes."""

_MOVES: Final = {
    "activated": (("registered", "deactivated"), "active"),
    "paused": (("active",), "paused"),
    "resumed": (("paused",), "active"),
    "draining": (("active", "paused"), "draining"),
    "deactivated": (("active", "paused", "draining"), "deactivated"),
    "deleted": (("registered", "deactivated"), "deleted"),
}
"""From which states a verb leads, and to which. To register changes no state."""
_LEADS_TO: Final = (
    "CASE "
    + " ".join(f"WHEN verb = '{verb}' THEN '{to}'" for verb, (_, to) in _MOVES.items())
    + " WHEN verb = 'registered' THEN p.state END"
)
_IS_LIFE: Final = f"verb IN {LIFE_VERBS}"
_LEGAL: Final = " OR ".join(
    f"(verb = '{verb}' AND state_before IN ({', '.join(map(repr, map(str, origins)))}))"
    for verb, (origins, _) in _MOVES.items()
)
_COLUMNS: Final = (
    "name path source mode activation cadence gateway_path target listener_pool digest"
)


def _lines(frames: Frames) -> DataFrame:
    """Entries about subscriptions, each with how its subscription stood before it.

    `born` is where its own registration begins: a namesake may have been there before. A key that
    was given for a run of an app stands under a name that is no subscription's.
    """
    in_order = Window.partitionBy("name").orderBy("global_seq")
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    is_life = F.expr(_IS_LIFE)
    is_birth = F.expr("verb = 'registered' AND p.revision = 1")
    return (
        frames.entries_of("subscription")
        .where("verb <> 'run_deduplicated'")
        .select("global_seq", "verb", "is_json", "p", F.expr(decoded(0)).alias("name"))
        .select(
            "*",
            is_life.alias("is_life"),
            F.last(F.when(is_life, F.expr(_LEADS_TO)), True).over(earlier).alias("state_before"),
            F.last(F.when(is_life, F.col("p.revision")), True)
            .over(earlier)
            .alias("revision_before"),
            F.max(F.when(is_birth, F.col("global_seq"))).over(so_far).alias("born"),
        )
    )


LINES: Final = FrameSource("subscription_lines", _lines, KINDS, JOURNAL)


def _illegal_moves(is_whole: bool) -> str:
    unknown = "verb <> 'registered' OR p.revision <> 1" if is_whole else "FALSE"
    return f"""is_json AND CASE
        WHEN state_before IS NULL THEN {unknown}
        WHEN state_before = 'deleted' THEN verb <> 'registered' OR p.state <> 'registered'
        WHEN NOT is_life THEN FALSE
        WHEN verb = 'registered' THEN p.state <> state_before
        ELSE NOT ({_LEGAL}) OR p.before <> state_before
            OR (verb <> 'deleted' AND p.state <> ({_LEADS_TO}))
    END"""


moves_illegal: Final = RowRule(
    LINES,
    lambda moment: _illegal_moves(moment.is_whole),
    "CONCAT(verb, IF(is_life, CONCAT(' (', COALESCE(p.before, 'none'), ' to ', "
    "COALESCE(p.state, 'none'), ')'), ''), ' where it is ', COALESCE(state_before, 'unknown'))",
    key="name",
    run_id="''",
)
revisions_skipped: Final = RowRule(
    LINES,
    """is_life AND is_json AND CASE
        WHEN state_before = 'deleted' THEN verb = 'registered' AND p.revision <> 1
        WHEN revision_before IS NULL THEN FALSE
        ELSE p.revision <> revision_before + IF(verb = 'registered', 1, 0)
    END""",
    "CONCAT(verb, ' with revision ', p.revision, ' after ', COALESCE(revision_before, 0))",
    key="name",
    run_id="''",
)


def last_said(frames: Frames) -> DataFrame:
    """How the life of each stands by its entries, and where that was said."""
    lived = frames.get(LINES).where("is_life").withColumn("said_state", F.expr(_LEADS_TO))
    latest = [
        F.max_by(name, "global_seq").alias(alias)
        for name, alias in (("said_state", "said_state"), ("p.revision", "said_revision"),
                            ("born", "born"))
    ]  # fmt: skip
    return lived.groupBy("name").agg(*latest, F.max("global_seq").alias("global_seq"))


def settled(frames: Frames, rows: DataFrame) -> DataFrame:
    """Rows with a name whose life went no further since before they were read."""
    later = last_said(frames).where(f"global_seq > {frames.moment.before}")
    return rows.join(later.select("name"), "name", "left_anti")


def rows_differ(frames: Frames) -> DataFrame:
    rows = frames.table("subscriptions").select("name", "state", "revision")
    faults = f"""CASE
        WHEN said_state IS NULL THEN IF({frames.moment.is_whole}, 'it has a row and no entry', NULL)
        WHEN said_state = 'deleted' THEN IF(state IS NULL, NULL, 'it was deleted and has a row')
        WHEN state IS NULL THEN 'it has no row'
        WHEN state <> said_state OR revision <> said_revision
            THEN CONCAT('its row is ', state, ' by revision ', revision, ', its journal says ',
                said_state, ' by ', said_revision)
    END"""
    both = last_said(frames).join(rows, "name", "full").withColumn("fault", F.expr(faults))
    odd = both.where(f"fault <> '' AND COALESCE(global_seq, 0) <= {frames.moment.before}")
    return violation_rows(odd, "fault", key="name", run_id="''")


def revisions_missing(frames: Frames) -> DataFrame:
    there = (
        frames.table("subscription_revisions")
        .groupBy("name")
        .agg(F.count("*").alias("count"), F.min("revision").alias("first"),
             F.max("revision").alias("newest"))
    )  # fmt: skip
    rows = frames.table("subscriptions").select("name", "revision")
    odd = settled(frames, rows.join(there, "name", "full")).where(
        "NOT (revision <=> newest) OR first <> 1 OR count <> newest"
    )
    words = """CONCAT('its row is at revision ', COALESCE(revision, 0), ', there are ',
        COALESCE(count, 0), ' from ', COALESCE(first, 0), ' to ', COALESCE(newest, 0))"""
    return violation_rows(odd, words, key="name", global_seq="0", run_id="''")


def documents_differ(frames: Frames) -> DataFrame:
    """Of each revision that an entry tells of, hold the document to what was registered."""
    told = frames.get(LINES).where("verb = 'registered' AND is_json")
    last = last_said(frames).select("name", F.col("born").alias("last_born"))
    told = told.join(last, "name").where("last_born IS NULL OR global_seq >= last_born")
    texts = frames.journal.where("kind = 'subscription'").select("global_seq", "payload_json")
    said = told.join(texts, "global_seq").select(
        "global_seq", "name", F.col("p.revision").alias("revision"),
        F.get_json_object("payload_json", "$.document").alias("said"),
    )  # fmt: skip
    rows = frames.table("subscription_revisions").select(
        "name", "revision", F.get_json_object("document_json", "$").alias("kept")
    )
    odd = settled(frames, said.withColumnRenamed("global_seq", "told_at").join(
        rows, ["name", "revision"]
    )).where("said <> kept")  # fmt: skip
    return violation_rows(
        odd,
        "'its row has another document than its entry'",
        key="CONCAT_WS('/', name, revision)",
        global_seq="told_at",
        run_id="''",
    )


def documents_misread(frames: Frames) -> DataFrame:
    """Hold the columns of each row to the document of its newest revision."""
    rows = frames.table("subscriptions").select(*_COLUMNS.split(), "revision")
    documents = frames.table("subscription_revisions").select("name", "revision", "document_json")
    both = settled(frames, rows.join(documents, ["name", "revision"]))
    found = both.select(*_COLUMNS.split(), "document_json").mapInArrow(
        documents_unlike_rows, "name STRING, fault STRING"
    )
    return violation_rows(found, "fault", key="name", global_seq="0", run_id="''")


def paths_differ(frames: Frames) -> DataFrame:
    rows = frames.table("subscriptions").select("name", F.col("gateway_path").alias("own"))
    paths = frames.table("gateway_paths").select("name", "gateway_path")
    both = settled(frames, rows.where("own <> ''").join(paths, "name", "full"))
    odd = both.where("NOT (own <=> gateway_path)")
    words = """CONCAT('its row has the path "', COALESCE(own, ''), '", the gateway "',
        COALESCE(gateway_path, ''), '"')"""
    return violation_rows(odd, words, key="name", global_seq="0", run_id="''")


def listeners_differ(frames: Frames) -> DataFrame:
    """Hold the listener's row to its subscription: it is there as long as that is, and works by a
    revision that there is. Tokens begin at the time of registration."""
    rows = frames.table("subscriptions").selectExpr("name", "created_at_ms", "revision AS newest")
    listeners = frames.table("listeners").select(
        "name", "lease_owner", "fencing_token", "revision"
    ).withColumn("listens", F.lit(True))  # fmt: skip
    both = settled(frames, rows.join(listeners, "name", "full")).join(
        last_said(frames).select("name", "said_state"), "name", "left"
    )
    # Something is left of what was deleted, and goes later.
    gone = f"said_state = 'deleted' OR (said_state IS NULL AND NOT {frames.moment.is_whole})"
    faults = f"""CASE
        WHEN listens IS NULL THEN 'no row of a listener is there'
        WHEN newest IS NULL THEN IF({gone}, NULL, 'it listens for no subscription')
        WHEN fencing_token < created_at_ms
            THEN CONCAT('its token ', fencing_token, ' is from before it was registered')
        WHEN revision > newest OR (revision < 1 AND lease_owner <> '')
            THEN CONCAT('its listener works by revision ', revision, ' of ', newest)
    END"""
    odd = both.withColumn("fault", F.expr(faults)).where("fault <> ''")
    return violation_rows(odd, "fault", key="name", global_seq="0", run_id="''")


listeners_torn: Final = RowRule(
    table_source(
        "listeners",
        "name lease_owner lease_expires_at_ms in_flight accepted last_accepted_at_ms",
    ),
    """(lease_owner = '' AND (lease_expires_at_ms <> 0 OR in_flight <> 0))
    OR (accepted > 0) <> (last_accepted_at_ms > 0)""",
    """CONCAT('held by "', lease_owner, '" until ', lease_expires_at_ms, ', ', in_flight,
    ' in hand, ', accepted, ' accepted, the last at ', last_accepted_at_ms)""",
    key="name",
    global_seq="0",
    run_id="''",
)


def drains_without_end(frames: Frames) -> DataFrame:
    rows = frames.table("subscriptions").where(f"state = '{SubscriptionState.DRAINING.value}'")
    holds = frames.table("listeners").select("name", "lease_expires_at_ms")
    since = "GREATEST(changed_at_ms, COALESCE(lease_expires_at_ms, 0))"
    odd = rows.join(holds, "name", "left").where(
        f"{since} < {frames.moment.audited_at_ms - LEFT_MS}"
    )
    words = f"CONCAT('it drains, and nobody has held it since ', {since})"
    return violation_rows(odd, words, key="name", global_seq="0", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("subscription_moves", "A declared subscription moves only as allowed, from registered to "
          "deleted.", moves_illegal),
    Check("subscription_revision", "Revisions of a subscription go up by one.", revisions_skipped),
    Check("subscription_row", "A declared subscription's row agrees with its last entry.",
          rows_differ, QUIET, kinds=KINDS,
          reads=JOURNAL | {"subscriptions": "name state revision"}),
    Check("subscription_revisions", "All revisions of a subscription are there.",
          revisions_missing, QUIET, kinds=KINDS,
          reads=JOURNAL | {"subscriptions": "name revision",
                           "subscription_revisions": "name revision"}),
    Check("subscription_document", "A revision has the document that was registered.",
          documents_differ, QUIET, kinds=KINDS,
          reads=JOURNAL | {"subscription_revisions": "name revision document_json"}),
    Check("subscription_columns_read", "A subscription's row says what its document says.",
          documents_misread, QUIET, kinds=KINDS,
          reads=JOURNAL | {"subscriptions": f"{_COLUMNS} revision",
                           "subscription_revisions": "name revision document_json"}),
    Check("subscription_path", "A path of the gateway belongs to the subscription that names it.",
          paths_differ, QUIET, kinds=KINDS,
          reads=JOURNAL | {"subscriptions": "name gateway_path",
                           "gateway_paths": "name gateway_path"}),
    Check("listener_row", "A listener has a subscription, and a token and a revision of it.",
          listeners_differ, QUIET, kinds=KINDS,
          reads=JOURNAL | {"subscriptions": "name created_at_ms revision",
                           "listeners": "name lease_owner fencing_token revision"}),
    Check("listener_hold", "What is in hand is in somebody's hands.", listeners_torn, ROW),
    Check("subscription_drains", "A subscription that drains does not stay so for an hour.",
          drains_without_end, LATER, "warning",
          reads={"subscriptions": "name state changed_at_ms",
                 "listeners": "name lease_expires_at_ms"}),
)  # fmt: skip
