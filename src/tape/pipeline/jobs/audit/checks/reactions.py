"""Checks of reactions: their cursors, the matcher's position, and the tallies of their tasks."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import LATER, TWICE, Check, told
from tape.pipeline.jobs.audit.frames import Frames

_SHARD: Final = "CONCAT(reaction_id, '/', shard)"


def cursors_ahead(frames: Frames) -> DataFrame:
    odd = frames.table("reaction_cursors").where(F.col("last_global_seq") > frames.moment.head)
    words = f"CONCAT('it is at ', last_global_seq, ', the journal ends at {frames.moment.head}')"
    return told(odd, words, key=_SHARD, global_seq="last_global_seq", run_id="''")


def matcher_ahead(frames: Frames) -> DataFrame:
    odd = frames.table("matcher").where(F.col("position") > frames.moment.head)
    words = f"CONCAT('it is at ', position, ', the journal ends at {frames.moment.head}')"
    return told(odd, words, key="name", global_seq="position", run_id="''")


def cursors_behind(frames: Frames) -> DataFrame:
    through = frames.moment.pruned_through
    # What follows the matcher is where the matcher is, and that only goes forward.
    odd = frames.table("reaction_cursors").where(f"following = 0 AND last_global_seq < {through}")
    words = f"CONCAT('it is at ', last_global_seq, ', and entries up to {through} are pruned')"
    return told(odd, words, key=_SHARD, global_seq="last_global_seq", run_id="''")


def shards_differ(frames: Frames) -> DataFrame:
    reactions = frames.table("reactions").intersect(frames.table("reactions_again"))
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
    return told(odd, words, key="reaction_id", global_seq="0", run_id="''")


def tallies_differ(frames: Frames) -> DataFrame:
    names = ["reaction_id", "queued", "in_flight", "dead_letters"]
    tallies = (
        frames.table("reaction_tallies")
        .select(names)
        .intersect(frames.table("reaction_tallies_again").select(names))
    )
    # Tasks that came and went meanwhile would leave a tally as it was.
    matched = ["reaction_id", "shard", "matched", "last_global_seq"]
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
    return told(odd, words, key="reaction_id", global_seq="0", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("cursor_ahead", "No cursor of a reaction is ahead of the journal.", cursors_ahead, LATER),
    Check("matcher_ahead", "The matcher is not ahead of the journal.", matcher_ahead, LATER),
    # A reaction may ask to begin where entries are pruned; it will never see them.
    Check("cursor_pruned", "No entry is pruned that a reaction has yet to consider.",
          cursors_behind, "what is pruned was read before the cursors, which only go forward",
          severity="warning"),
    Check("cursor_shards", "A reaction has a cursor for each of its shards.", shards_differ, TWICE),
    Check("reaction_tally", "A reaction's tally counts its tasks.", tallies_differ, TWICE),
)  # fmt: skip
