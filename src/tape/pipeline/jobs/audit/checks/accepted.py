"""Checks of what listeners have accepted: places, keys, dead letters, runs, and their counts.

Places go once their messages cannot come again, and keys once their window has passed: what is not
there is no violation. What is there belongs to something that is there.
"""

from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.model.subscription import MESSAGE_USER
from tape.pipeline.jobs.audit.check import BOUNDS, LATER, ROW, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.checks.subscriptions import (
    JOURNAL,
    KINDS,
    LINES,
    QUIET,
    last_said,
    settled,
)
from tape.pipeline.jobs.audit.frames import Frames, table_source
from tape.pipeline.jobs.audit.recheck import permitted_values

_RUNS: Final = "run_id user_id session_id"
_SOURCES: Final = "nats|kafka|pubsub|file|push"
_COUNTED: Final = {
    "deduplicated": "message_deduplicated",
    "dead_lettered": "message_dead_lettered",
    "replayed": "message_replayed",
}
"""What a listener counts one for one with entries."""
_LEFT: Final = ("accepted_places", "passed_positions", "seen_keys", "subscription_dead_letters")
"""Tables of what is left of a deleted subscription, until it is removed."""
_LETTER_END: Final = ("message_replayed", "message_dropped")

places_torn: Final = RowRule(
    table_source("accepted_places", "subscription place number"),
    f"""place NOT RLIKE '^({_SOURCES})/.+/.+$'
    OR (number >= 0 AND NOT ENDSWITH(place, CONCAT('/', number)))""",
    "CONCAT('its number is ', number)",
    key="CONCAT_WS('/', subscription, place)",
    global_seq="0",
    run_id="''",
)
positions_torn: Final = RowRule(
    table_source("passed_positions", "subscription origin reader position"),
    f"origin NOT RLIKE '^({_SOURCES})/.+$' OR position < -1 OR reader = ''",
    "CONCAT('its source is said to have passed ', position, ' for \"', reader, '\"')",
    key="CONCAT_WS('/', subscription, origin)",
    global_seq="0",
    run_id="''",
)


def _runs(frames: Frames) -> DataFrame:
    """Runs by their rows or their first entries, which were read later."""
    begun = frames.of("run").where("seq = 1").select("run_id", "p.user_id", "p.session_id")
    return frames.table("runs").select(*_RUNS.split()).union(begun).dropDuplicates(["run_id"])


def places_without_run(frames: Frames) -> DataFrame:
    rows = frames.table("accepted_places").where("run_id <> ''")
    both = rows.join(_runs(frames), "run_id", "left")
    odd = both.where(
        f"user_id IS NULL OR user_id <> '{MESSAGE_USER}' OR session_id <> subscription"
    )
    words = "IF(user_id IS NULL, 'its run is not there', 'its run is none of its subscription')"
    return violation_rows(odd, words, key="CONCAT_WS('/', subscription, place)", global_seq="0")


def runs_shared(frames: Frames) -> DataFrame:
    """Of places with one run, all but one were found to be repeats. Decided only where all entries
    that could say so are at hand."""
    run = Window.partitionBy("subscription", "run_id")
    rows = frames.table("accepted_places").where(
        F.lit(frames.moment.is_whole) & F.expr("run_id <> ''")
    )
    repeats = (
        frames.get(LINES)
        .where("verb = 'message_deduplicated'")
        .select(F.col("name").alias("subscription"), F.col("p.place").alias("place"),
                F.col("p.run_id").alias("run_id"), F.lit(True).alias("is_repeat"))
        .dropDuplicates()
    )  # fmt: skip
    own = rows.join(repeats, ["subscription", "place", "run_id"], "left").where("is_repeat IS NULL")
    odd = own.withColumn("places", F.count("*").over(run)).where("places > 1")
    words = "CONCAT('its run is that of ', places, ' places, and nobody found them to be repeats')"
    return violation_rows(odd, words, key="CONCAT_WS('/', subscription, place)", global_seq="0")


def keys_without_run(frames: Frames) -> DataFrame:
    """A key that was given for a run of an app is under a name with a slash, of no place, and found
    by no rule."""
    rows = frames.table("seen_keys")
    known = _runs(frames).select("run_id", F.lit(True).alias("is_there"))
    both = rows.join(known, "run_id", "left")
    odd = both.where(
        """is_there IS NULL OR until_ms < seen_at_ms OR (place = '') <> CONTAINS(subscription, '/')
        OR (rule = '') <> CONTAINS(subscription, '/')"""
    )
    words = """IF(is_there IS NULL, 'its run is not there', CONCAT('seen at "', place,
        '", by the rule "', rule, '", from ', seen_at_ms, ' until ', until_ms))"""
    return violation_rows(odd, words, key="CONCAT_WS('/', subscription, key)", global_seq="0")


def entries_without_run(frames: Frames) -> DataFrame:
    told = frames.entries_of("subscription").where("p.run_id <> ''").select(
        "global_seq", F.col("p.run_id").alias("named"), "subject"
    )  # fmt: skip
    odd = told.join(_runs(frames).select(F.col("run_id").alias("named")), "named", "left_anti")
    return violation_rows(
        odd, "'the run that it names is not there'", key="subject", run_id="named"
    )


def letters_lost(frames: Frames) -> DataFrame:
    """Find dead letters that are gone, and that nobody has settled or deleted with everything."""
    lines = frames.get(LINES)
    letter = F.col("p.id").alias("letter_id")
    buried = lines.where(
        f"verb = 'message_dead_lettered' AND global_seq <= {frames.moment.before}"
    ).select("global_seq", "name", letter)
    settle = lines.where(f"verb IN {_LETTER_END}").select("name", letter)
    kept = frames.table("subscription_dead_letters").selectExpr("subscription AS name", "letter_id")
    deleted = lines.where("verb = 'deleted'").groupBy("name").agg(F.max("global_seq").alias("end"))
    odd = (
        buried.join(settle.union(kept), ["name", "letter_id"], "left_anti")
        .join(deleted, "name", "left")
        .where("end IS NULL OR end < global_seq")
    )
    words = "CONCAT('letter ', letter_id, ' is gone, and nobody has replayed or dropped it')"
    return violation_rows(odd, words, key="name", run_id="''")


def letters_unsaid(frames: Frames) -> DataFrame:
    """Hold each letter to its entry, where that cannot have been pruned."""
    told = frames.get(LINES).where("verb = 'message_dead_lettered'").select(
        F.col("name").alias("subscription"), F.col("p.id").alias("letter_id"),
        F.col("p.place").alias("said"), "global_seq",
    )  # fmt: skip
    rows = frames.table("subscription_dead_letters")
    both = rows.join(told, ["subscription", "letter_id"], "left")
    odd = both.where(
        f"""(global_seq IS NULL AND {frames.moment.is_whole}) OR said <> place
        OR place <> CONCAT(origin, '/', position) OR NOT STARTSWITH(origin, CONCAT(source, '/'))
        OR reason = '' OR attempts < 1"""
    )
    words = """CASE
        WHEN global_seq IS NULL THEN 'no entry tells of it'
        WHEN said <> place THEN CONCAT('it is of ', place, ', its entry of ', said)
        ELSE CONCAT('of ', source, ', ', origin, ' and ', position, ', place ', place, ', refused ',
            attempts, ' times as "', reason, '"')
    END"""
    return violation_rows(odd, words, key="CONCAT_WS('/', subscription, letter_id)", run_id="''")


def _begun(frames: Frames) -> DataFrame:
    """Beginnings of runs under the user of messages; `is_message` where the input says so, too.
    Their children have the same user, and may have the same input, but no message became them."""
    first = frames.of("run").where(
        f"seq = 1 AND p.user_id = '{MESSAGE_USER}' AND COALESCE(p.parent_run_id, '') = ''"
    )
    texts = frames.journal.where("kind = 'run' AND seq = 1").select(
        "global_seq",
        F.get_json_object("payload_json", "$.input.message.subscription").alias("of_message"),
    )
    return first.join(texts, "global_seq").selectExpr(
        "global_seq", "p.session_id AS name", "of_message <=> p.session_id AS is_message"
    )


def counts_differ(frames: Frames) -> DataFrame:
    """Hold counts to entries: no less than those before the row was read, no more than all there
    are. A run may have been begun by hand under the name of one, and a replayed letter's run counts
    as replayed alone; where the beginning was pruned, only too small a count is found."""
    before = frames.moment.before
    whose = last_said(frames).where(f"said_state <> 'deleted' AND COALESCE(born, 0) <= {before}")
    told = frames.get(LINES).selectExpr("name", "global_seq", "verb", "TRUE AS is_message")
    begun = _begun(frames).selectExpr("name", "global_seq", "'begun' AS verb", "is_message")
    since = told.unionByName(begun).join(
        whose.select("name", F.coalesce("born", F.lit(0)).alias("born")), "name"
    ).where("global_seq > born")  # fmt: skip
    sums = []
    for verb in ("begun", *_COUNTED.values()):
        sums.append(F.expr(f"COUNT_IF(verb = '{verb}') AS {verb}_most"))
        least = f"COUNT_IF(verb = '{verb}' AND is_message AND global_seq <= {before})"
        sums.append(F.expr(f"{least} AS {verb}_least"))
    counted = since.groupBy("name").agg(*sums)
    bounds = [(f"{name}_least", f"{name}_most", name) for name in _COUNTED.values()]
    rows = settled(frames, frames.table("listeners").select("name", "accepted", *_COUNTED))
    both = rows.join(whose.selectExpr("name", "born IS NOT NULL AS is_known"), "name").join(
        counted, "name", "left"
    )
    both = both.na.fill(0, [c for low, high, _ in bounds for c in (low, high)])
    both = both.na.fill(0, ["begun_least", "begun_most"])
    faults = " ".join(
        f"WHEN {column} < {verb}_least OR (is_known AND {column} > {verb}_most) "
        f"THEN CONCAT('{column} is ', {column}, ', of entries there are ', {verb}_most)"
        for column, verb in _COUNTED.items()
    )
    odd = both.withColumn(
        "fault",
        F.expr(f"""CASE {faults}
            WHEN accepted + replayed < begun_least OR (is_known AND accepted > begun_most)
                THEN CONCAT('accepted is ', accepted, ', of runs there are ', begun_most)
        END"""),
    ).where("fault <> ''")
    return violation_rows(odd, "fault", key="name", global_seq="0", run_id="''")


def routes_not_taken(frames: Frames) -> DataFrame:
    """Hold each route that a header has overridden to the run that was begun by it."""
    told = frames.get(LINES).where("verb = 'message_directives_applied'").select(
        F.col("global_seq").alias("told_at"), "name", F.col("p.run_id").alias("run_id"),
        F.col("p.route_override.playbook").alias("playbook"),
        F.col("p.route_override.pool").alias("said_pool"),
    )  # fmt: skip
    first = frames.of("run").where("seq = 1").select(
        "run_id", "p.app_name", "p.user_id", "p.session_id", "p.pool"
    )  # fmt: skip
    odd = told.join(first, "run_id").where(
        f"""user_id <> '{MESSAGE_USER}' OR session_id <> name
        OR app_name <> playbook OR pool <> said_pool"""
    )
    words = """CONCAT('it sends its run to ', COALESCE(playbook, 'the same app'), ' in ',
        COALESCE(said_pool, 'the same pool'), ', its run is of ', session_id, ': ', app_name,
        ' in ', pool)"""
    return violation_rows(odd, words, key="name", global_seq="told_at")


def values_not_allowed(frames: Frames) -> DataFrame:
    """Find applied values that no revision allows. What a deleted one allowed nobody knows."""
    allowed = frames.table("subscription_revisions").select("name", "document_json").mapInArrow(
        permitted_values, "name STRING, header STRING, controls STRING, value STRING"
    )  # fmt: skip
    whose = settled(frames, last_said(frames).where("said_state <> 'deleted'")).select(
        "name", F.coalesce("born", F.lit(0)).alias("last_born")
    )
    applied = (
        frames.get(LINES)
        .where("verb = 'message_directives_applied'")
        .join(whose, "name")
        .where("global_seq > last_born")
        .selectExpr("global_seq", "name", "p.run_id AS run_id", "INLINE(p.applied)")
    )
    a, b = applied.alias("a"), allowed.alias("b")
    same = F.expr("""a.name = b.name AND (b.header IS NULL OR (a.header = b.header
        AND a.controls = b.controls AND (b.value IS NULL OR a.effective_value = b.value)))""")
    words = "CONCAT(header, ' may not set ', controls, ' to \"', effective_value, '\"')"
    return violation_rows(a.join(b, same, "left_anti"), words, key="name")


def rows_left(frames: Frames) -> DataFrame:
    """Find rows of a subscription that is not there and was not deleted: nobody would remove them.
    The keys of an app's runs are under a name with a slash."""
    named = [
        frames.table(table).selectExpr("subscription AS name", f"'{table}' AS found_in")
        for table in _LEFT
    ]
    rows = reduce(DataFrame.unionByName, named).distinct()
    odd = (
        rows.where("name NOT LIKE '%/%'")
        .join(frames.table("listeners").select("name"), "name", "left_anti")
        .join(last_said(frames).select("name", "said_state"), "name", "left")
        .where(f"said_state <> 'deleted' OR (said_state IS NULL AND {frames.moment.is_whole})")
    )
    words = "CONCAT('rows of ', found_in, ' are of no subscription')"
    return violation_rows(odd, words, key="name", global_seq="0", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("accepted_place", "A place is of a source, and ends with its number.", places_torn, ROW),
    Check("accepted_run", "A place has a run of its subscription.", places_without_run, LATER,
          kinds=("run",), about=("accepted_places",),
          reads=JOURNAL | {"accepted_places": "subscription place run_id", "runs": _RUNS}),
    Check("accepted_once", "Places share a run only where they were found to be repeats.",
          runs_shared, LATER, kinds=KINDS,
          reads=JOURNAL | {"accepted_places": "subscription place run_id"}),
    Check("accepted_counts", "A listener's counts are those of its entries and runs.",
          counts_differ, BOUNDS, kinds=(*KINDS, "run"), about=("listeners",),
          reads=JOURNAL | {"listeners": f"name accepted {' '.join(_COUNTED)}"}),
    Check("accepted_left", "What was accepted is of a subscription that exists or was deleted.",
          rows_left, LATER, kinds=KINDS,
          reads=JOURNAL | {**dict.fromkeys(_LEFT, "subscription"), "listeners": "name"}),
    Check("passed_position", "A position that was passed is of a source and a reader of it.",
          positions_torn, ROW),
    Check("seen_key", "A key of a window has a run.", keys_without_run, LATER,
          kinds=("run",), about=("seen_keys",),
          reads=JOURNAL | {"seen_keys": "subscription rule key run_id place seen_at_ms until_ms",
                           "runs": _RUNS}),
    Check("message_run", "The run that an entry about a message names is there.",
          entries_without_run, LATER, kinds=(*KINDS, "run"), about=KINDS,
          reads=JOURNAL | {"runs": _RUNS}),
    Check("message_letter", "A dead letter stays until it is replayed or dropped.", letters_lost,
          LATER, kinds=KINDS,
          reads=JOURNAL | {"subscription_dead_letters": "subscription letter_id"}),
    Check("dead_letter_row", "A dead letter agrees with its entry, and names its place.",
          letters_unsaid, LATER, kinds=KINDS,
          reads=JOURNAL | {"subscription_dead_letters":
                           "subscription letter_id place origin position source reason attempts"}),
    Check("directives_route", "A run has the app and the pool that its directives say.",
          routes_not_taken, kinds=(*KINDS, "run"), about=KINDS, reads=JOURNAL),
    Check("directives_allowed", "A directive sets only what a revision allows.",
          values_not_allowed, QUIET, kinds=KINDS,
          reads=JOURNAL | {"subscription_revisions": "name document_json"}),
)  # fmt: skip
