"""Checks of relays: whose turn it was to lead."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import Check, told
from tape.pipeline.jobs.audit.frames import Frames


def terms_out_of_order(frames: Frames) -> DataFrame:
    relay = Window.partitionBy("p.relay").orderBy("global_seq")
    elected = frames.entries.where("kind = 'relay' AND verb = 'elected'")
    elected = elected.withColumn("term_before", F.lag("p.term").over(relay))
    odd = elected.where("p.term <> term_before + 1")
    return told(odd, "CONCAT('term ', p.term, ' after term ', term_before)", key="p.relay")


CHECKS: Final[tuple[Check, ...]] = (
    Check("relay_terms", "The terms of a relay go up by one.", terms_out_of_order),
)
