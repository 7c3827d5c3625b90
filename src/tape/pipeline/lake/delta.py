"""The commits of a lake told again in a Delta log, for readers of Delta tables.

Tape itself reads only its own log. The Delta log follows it: each Delta commit carries the number
of the commit it comes up to, as the version of the application `tape`, so one that a killed run did
not come to is made by the next run, and none is made twice.

In Delta the payload is text only. Spark writes its VARIANT column shredded, which the Delta feature
for variants does not describe; so that column is in the files, for `spark.read.parquet`, and not in
the Delta schema.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import orjson

from tape.errors import InvalidArgument, StoreFailed
from tape.model.entry import Entry
from tape.pipeline.lake.log import LakeLog
from tape.pipeline.lake.manifest import Lake, LakeFile

if TYPE_CHECKING:
    from deltalake import Schema
    from deltalake.transaction import AddAction

APPLICATION: Final = "tape"
TRIES: Final = 10


def require() -> None:
    if find_spec("deltalake") is None:
        raise InvalidArgument("delta needs an extra: pip install 'tape-bus[delta]'", field="format")


def mirror(log: LakeLog, lake: Lake) -> None:
    """Bring the Delta log to where the lake is."""
    if not lake.files:
        return None
    from deltalake.exceptions import CommitFailedError

    for _try in range(TRIES):
        try:
            return _mirror(log, lake)
        except CommitFailedError:
            lake = log.read()  # another archive run tells of the same
    raise StoreFailed(f"{log.path}: other processes keep writing to the Delta log: let them finish")


def _mirror(log: LakeLog, lake: Lake) -> None:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import RemoveAction, create_table_with_add_actions

    told = CommitProperties(
        custom_metadata={
            "tape.covered_after": str(lake.after),
            "tape.covered_through": str(lake.through),
            "tape.journal": lake.journal,
        },
        app_transactions=[Transaction(APPLICATION, lake.number)],
    )
    root = str(log.path)
    if not DeltaTable.is_deltatable(root):
        adds = [_add(file, new=True) for file in lake.files]
        return create_table_with_add_actions(root, _schema(), adds, commit_properties=told)
    table = DeltaTable(root)
    if (table.transaction_version(APPLICATION) or 0) >= lake.number:
        return None
    known = {f"data/{uri.rpartition('/')[2]}" for uri in table.file_uris()}
    kept = {file.path for file in lake.files}
    fresh = [file for file in lake.files if file.path not in known]
    gone = sorted(known - kept)
    adds = [_add(file, new=not gone) for file in fresh]
    at = max(lake.removed.values(), default=0)
    removes = [RemoveAction(path, data_change=False, deletion_timestamp=at) for path in gone]
    table.create_write_transaction(
        [*adds, *removes], "append", table.schema(), commit_properties=told
    )
    return None


def _add(file: LakeFile, *, new: bool) -> "AddAction":
    from deltalake.transaction import AddAction

    stats = {
        "numRecords": file.rows,
        "minValues": {"global_seq": file.first},
        "maxValues": {"global_seq": file.last},
        "nullCount": {"global_seq": 0},
    }
    return AddAction(
        file.path, file.bytes, {}, file.archived_at_ms, new, orjson.dumps(stats).decode()
    )


def _schema() -> "Schema":
    from deltalake import Field, Schema
    from deltalake.schema import PrimitiveType

    kinds = {str: "string", int: "long"}
    return Schema(
        [
            Field(
                name,
                PrimitiveType("integer" if name == "schema_version" else kinds[kind]),
                nullable=False,
            )
            for name, kind in Entry.__annotations__.items()
        ]
    )
