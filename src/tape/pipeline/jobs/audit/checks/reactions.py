"""Checks of reactions: their cursors, the matcher's position, and the tallies of their tasks."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import LATER, ROW, TWICE, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import Frames, table_source
from tape.pipeline.jobs.audit.recheck import reactions_not_compiling

_TALLY: Final = "reaction_id queued in_flight dead_letters"
_COUNTED: Final = "reaction_id shard matched last_global_seq"
_SHARD: Final = "CONCAT(reaction_id, '/', shard)"


_CURSORS: Final = table_source(
    "reaction_cursors",
    "reaction_id shard last_global_seq last_error_global_seq following predicate_errors",
)

cursors_ahead: Final = RowRule(
    _CURSORS,
    lambda moment: f"GREATEST(last_global_seq, last_error_global_seq) > {moment.head}",
    lambda moment: (
        f"""CONCAT('it is at ', GREATEST(last_global_seq, last_error_global_seq),
        ', the journal ends at {moment.head}')"""
    ),
    key=_SHARD,
    global_seq="last_global_seq",
    run_id="''",
)
errors_uncounted: Final = RowRule(
    _CURSORS,
    "(predicate_errors > 0) <> (last_error_global_seq > 0)",
    "CONCAT(predicate_errors, ' errors are counted, the last at entry ', last_error_global_seq)",
    key=_SHARD,
    global_seq="last_error_global_seq",
    run_id="''",
)
matcher_ahead: Final = RowRule(
    table_source("matcher", "name position"),
    lambda moment: f"position > {moment.head}",
    lambda moment: f"CONCAT('it is at ', position, ', the journal ends at {moment.head}')",
    key="name",
    global_seq="position",
    run_id="''",
)
# What follows the matcher is where the matcher is, and that only goes forward.
cursors_behind: Final = RowRule(
    _CURSORS,
    lambda moment: f"following = 0 AND last_global_seq < {moment.pruned_through}",
    lambda moment: (
        f"""CONCAT('it is at ', last_global_seq,
        ', and entries up to {moment.pruned_through} are pruned')"""
    ),
    key=_SHARD,
    global_seq="last_global_seq",
    run_id="''",
)
_SETTING: Final = """CASE
    WHEN handler_kind NOT IN (1, 2, 3) THEN CONCAT('its handler is of kind ', handler_kind)
    WHEN (handler_kind = 1) <> (agent_app <> '') OR (handler_kind = 3) <> (publish_target <> '')
        THEN CONCAT('its handler is of kind ', handler_kind, ', its app is "', agent_app,
            '", its target "', publish_target, '"')
    WHEN engine NOT IN ('server', 'spark') THEN CONCAT('nobody knows the engine ', engine)
    WHEN num_shards < 1 OR max_concurrency < 1
        THEN CONCAT('it has ', num_shards, ' shards and room for ', max_concurrency)
END"""
set_otherwise: Final = RowRule(
    table_source(
        "reactions",
        "reaction_id handler_kind agent_app publish_target engine num_shards max_concurrency",
    ),
    f"deleted = 0 AND {_SETTING} <> ''",
    _SETTING,
    key="reaction_id",
    global_seq="0",
    run_id="''",
)


def not_compiling(frames: Frames) -> DataFrame:
    rows = frames.table("reactions").where("deleted = 0")
    found = rows.select("reaction_id", "subject_pattern", "predicate_cel").mapInArrow(
        reactions_not_compiling, "reaction_id STRING, fault STRING"
    )
    return violation_rows(found, "fault", key="reaction_id", global_seq="0", run_id="''")


def shards_differ(frames: Frames) -> DataFrame:
    names = ["reaction_id", "num_shards", "deleted"]
    reactions = (
        frames.table("reactions")
        .select(names)
        .intersect(frames.table("reactions_again").select(names))
    )
    shards = (
        frames.table("reaction_cursors")
        .groupBy("reaction_id")
        .agg(F.count("*").alias("cursors"), F.max("shard").alias("last_shard"))
    )
    odd = reactions.join(shards, "reaction_id", "left").where(
        """COALESCE(cursors, 0) <> IF(deleted = 0, num_shards, 0)
        OR COALESCE(last_shard, -1) <> IF(deleted = 0, num_shards, 0) - 1"""
    )
    words = (
        "CONCAT('it has ', COALESCE(cursors, 0), ' cursors and ', "
        "IF(deleted = 0, num_shards, 0), ' shards')"
    )
    return violation_rows(odd, words, key="reaction_id", global_seq="0", run_id="''")


def tallies_differ(frames: Frames) -> DataFrame:
    names = _TALLY.split()
    tallies = (
        frames.table("reaction_tallies")
        .select(names)
        .intersect(frames.table("reaction_tallies_again").select(names))
    )
    # Tasks that came and went meanwhile would leave a tally as it was.
    matched = _COUNTED.split()
    cursors = frames.table("reaction_cursors").select(matched)
    changed = frames.table("reaction_cursors_again").select(matched).exceptAll(cursors)
    counts = (
        frames.table("tasks")
        .groupBy("reaction_id")
        .agg(
            F.expr("COUNT_IF(status IN (1, 2))").alias("are_queued"),
            F.expr("COUNT_IF(status = 2)").alias("are_in_flight"),
            F.expr("COUNT_IF(status = 5)").alias("are_dead"),
        )
    )
    odd = (
        tallies.join(changed, "reaction_id", "left_anti")
        .join(counts, "reaction_id", "left")
        .na.fill(0)
        .where("queued <> are_queued OR in_flight <> are_in_flight OR dead_letters <> are_dead")
    )
    words = """CONCAT('its tally says ', queued, ' queued, ', in_flight, ' in hand, ',
        dead_letters, ' dead letters; there are ', are_queued, ', ', are_in_flight, ', ',
        are_dead)"""
    return violation_rows(odd, words, key="reaction_id", global_seq="0", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("reaction_settings", "A reaction has the settings of its kind of handler.",
          set_otherwise, ROW, reads={"reactions": "deleted"}),
    Check("reaction_compiles", "A reaction's pattern and predicate are valid.",
          not_compiling, ROW,
          reads={"reactions": "reaction_id subject_pattern predicate_cel deleted"}),
    Check("cursor_ahead", "No cursor of a reaction is ahead of the journal.", cursors_ahead, LATER),
    Check("matcher_ahead", "The matcher is not ahead of the journal.", matcher_ahead, LATER),
    Check("cursor_errors", "A cursor that counts errors names the entry of the last.",
          errors_uncounted, ROW),
    # A reaction may ask to begin where entries are pruned; it will never see them.
    Check("cursor_pruned", "No entry is pruned that a reaction has yet to consider.",
          cursors_behind, "what is pruned was read before the cursors, which only go forward",
          severity="warning"),
    Check("cursor_shards", "A reaction has a cursor for each of its shards.", shards_differ, TWICE,
          reads={"reactions": "reaction_id num_shards deleted",
                 "reactions_again": "reaction_id num_shards deleted",
                 "reaction_cursors": "reaction_id shard"}),
    Check("reaction_tally", "A reaction's tally counts its tasks.", tallies_differ, TWICE,
          reads={"tasks": "reaction_id status", "reaction_tallies": _TALLY,
                 "reaction_tallies_again": _TALLY, "reaction_cursors": _COUNTED,
                 "reaction_cursors_again": _COUNTED}),
)  # fmt: skip
