"""Checks of the wallet: that each version was put, in order, and which of them are good.

Whether a sealed value is what was sealed, only who has the key can tell; that a version is there
which nobody put, or one that was put back, is seen here.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from tape.pipeline.jobs.audit.check import LATER, ROW, Check, RowRule, violation_rows
from tape.pipeline.jobs.audit.frames import ENTRY_COLUMNS, Frames, table_source

KINDS: Final = ("wallet",)
_JOURNAL: Final = {"journal": ENTRY_COLUMNS}
_CREDENTIALS: Final = {"credentials": "alias version previous_version deleted"}
_VERSIONS: Final = {"credential_versions": "alias version key_id"}
_SEALED: Final = "verb IN ('put', 'rotated')"
_QUIET: Final = "compares credentials that were not changed since before they were read"

forms_unknown: Final = RowRule(
    table_source("credential_versions", "alias version form key_id"),
    "form NOT IN ('text', 'object') OR key_id = ''",
    "CONCAT('its form is \"', form, '\", its key \"', key_id, '\"')",
    key="CONCAT_WS('/', alias, version)",
    global_seq="0",
    run_id="''",
)


def versions_skipped(frames: Frames) -> DataFrame:
    """Of those that are known: the first may come after entries that were pruned."""
    alias = Window.partitionBy("p.alias").orderBy("global_seq")
    sealed = frames.entries_of("wallet").where(_SEALED)
    numbered = sealed.withColumn("before", F.lag("p.version").over(alias))
    least = "COALESCE(before, 0) + 1" if frames.moment.is_whole else "before + 1"
    odd = numbered.where(f"p.version <> {least}")
    words = "CONCAT('version ', p.version, ' after version ', COALESCE(before, 0))"
    return violation_rows(odd, words, key="p.alias", run_id="''")


def versions_unknown(frames: Frames) -> DataFrame:
    """Find versions that no entry tells of, where the entry cannot have been pruned."""
    told = frames.entries_of("wallet").where(_SEALED)
    known = told.select(F.col("p.alias").alias("alias"), F.col("p.version").alias("version"))
    rows = frames.table("credential_versions").select("alias", "version")
    odd = rows.where(F.lit(frames.moment.is_whole)).join(known, ["alias", "version"], "left_anti")
    return violation_rows(
        odd,
        "'no entry says that this version was put'",
        key="CONCAT_WS('/', alias, version)",
        global_seq="0",
        run_id="''",
    )


def _last(frames: Frames, where: str, by: tuple[str, ...]) -> DataFrame:
    """What entries said last, by alias or by version; with none that is later than the rows."""
    keys = [F.col(f"p.{name}").alias(name) for name in by]
    said = ("verb", "p.version", "p.previous_version", "p.key_id")
    latest = [F.max_by(name, "global_seq").alias(f"said_{name.split('.')[-1]}") for name in said]
    return (
        frames.entries_of("wallet")
        .where(where)
        .groupBy(*keys)
        .agg(*latest, F.max("global_seq").alias("global_seq"))
    )


def rows_differ(frames: Frames) -> DataFrame:
    said = _last(frames, "verb <> 'rewrapped'", ("alias",))
    rows = frames.table("credentials").select("alias", "version", "previous_version", "deleted")
    faults = f"""CASE
        WHEN global_seq > {frames.moment.before} THEN NULL
        WHEN said_verb IS NULL THEN IF({frames.moment.is_whole}, 'it has a row and no entry', NULL)
        WHEN version IS NULL THEN 'it has no row'
        WHEN deleted <> (said_verb = 'deleted') THEN IF(deleted, 'its row is deleted, its journal '
            || 'says that it was not', 'it was deleted, and its row says that it was not')
        WHEN version <> said_version OR previous_version <> said_previous_version
            THEN CONCAT('its row is at ', version, ' and ', previous_version, ', its journal at ',
                said_version, ' and ', said_previous_version)
    END"""
    both = said.join(rows, "alias", "full").withColumn("fault", F.expr(faults))
    return violation_rows(both.where("fault <> ''"), "fault", key="alias", run_id="''")


def _changed_since(frames: Frames) -> DataFrame:
    """Aliases with an entry that the rows may not show yet."""
    later = frames.entries_of("wallet").where(f"global_seq > {frames.moment.before}")
    return later.select(F.col("p.alias").alias("alias")).distinct()


def versions_not_good(frames: Frames) -> DataFrame:
    """Hold the versions of an alias to those that its row names: one, or two after a rotation."""
    named = frames.table("credentials").selectExpr(
        "alias",
        """IF(deleted, CAST(ARRAY() AS ARRAY<BIGINT>),
            FILTER(ARRAY_SORT(ARRAY(version, previous_version)), n -> n > 0)) AS named""",
    )
    there = (
        frames.table("credential_versions")
        .groupBy("alias")
        .agg(F.array_sort(F.collect_list("version")).alias("there"))
    )
    both = named.join(there, "alias", "full").join(_changed_since(frames), "alias", "left_anti")
    odd = both.selectExpr(
        "alias",
        "COALESCE(named, CAST(ARRAY() AS ARRAY<BIGINT>)) AS named",
        "COALESCE(there, CAST(ARRAY() AS ARRAY<BIGINT>)) AS there",
    ).where("named <> there")
    words = "CONCAT('its row names the versions ', TO_JSON(named), ', there are ', TO_JSON(there))"
    return violation_rows(odd, words, key="alias", global_seq="0", run_id="''")


def keys_differ(frames: Frames) -> DataFrame:
    """Hold the key of a version to the entry that sealed or rewrapped it last."""
    said = _last(frames, f"{_SEALED} OR verb = 'rewrapped'", ("alias", "version"))
    rows = frames.table("credential_versions").select("alias", "version", "key_id")
    both = rows.join(said, ["alias", "version"])
    odd = both.where(f"global_seq <= {frames.moment.before} AND key_id <> said_key_id")
    words = "CONCAT('its row is under the key ', key_id, ', its journal says ', said_key_id)"
    return violation_rows(odd, words, key="CONCAT_WS('/', alias, version)", run_id="''")


CHECKS: Final[tuple[Check, ...]] = (
    Check("credential_versions", "The versions of a credential go up by one.", versions_skipped,
          reads=_JOURNAL, kinds=KINDS),
    Check("credential_entry", "An entry tells of every version of a credential.",
          versions_unknown, LATER, reads={**_JOURNAL, "credential_versions": "alias version"},
          kinds=KINDS),
    Check("credential_row", "A credential's row agrees with its last entry.", rows_differ, _QUIET,
          reads=_JOURNAL | _CREDENTIALS, kinds=KINDS),
    Check("credential_good", "The current version is there, at most one before it, and no other.",
          versions_not_good, _QUIET, kinds=KINDS,
          reads={**_JOURNAL, **_CREDENTIALS, "credential_versions": "alias version"}),
    Check("credential_key", "A version is under the key that its last entry names.", keys_differ,
          _QUIET, reads=_JOURNAL | _VERSIONS, kinds=KINDS),
    Check("credential_form", "A version has a form, and names its key.", forms_unknown, ROW),
)  # fmt: skip
