"""`model.reaction.shard_of` by the column."""

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from tape.model.reaction import FNV_OFFSET, FNV_PRIME


def _hashes(keys: pa.Array) -> pa.Array:  # type: ignore[type-arg]  # Spark looks at it
    """Of each distinct key once: a run's entries, or a subject's, come together."""
    encoded: Any = keys.dictionary_encode()
    hashed = fnv1a_all(encoded.dictionary)
    indices = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
    found: pa.Array[Any] = pa.array(hashed[indices] if len(hashed) else np.zeros(len(keys), int))
    return found


def fnv1a_all(texts: "pa.Array[Any]") -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """64-bit FNV-1a of each text in UTF-8, its bits as a signed number.

    Byte by byte over all texts at once, the longest first, so that those not yet at their end are
    always the first ones.
    """
    data: Any = texts.cast(pa.large_binary())
    offsets = np.frombuffer(data.buffers()[1], np.int64)[data.offset : data.offset + len(data) + 1]
    body = np.frombuffer(data.buffers()[2] or b"\0", np.uint8)
    lengths = np.diff(offsets)
    longest_first = np.argsort(-lengths, kind="stable")
    starts, ascending = offsets[:-1][longest_first], lengths[longest_first][::-1]
    hashed = np.full(len(data), FNV_OFFSET, np.uint64)
    prime = np.uint64(FNV_PRIME)
    for place in range(int(lengths.max(initial=0))):
        unfinished = len(data) - int(np.searchsorted(ascending, place, side="right"))
        some = hashed[:unfinished]
        some ^= body[starts[:unfinished] + place]
        some *= prime
    result = np.empty(len(data), np.uint64)
    result[longest_first] = hashed
    return result.view(np.int64)


def key_hash(needed: Column) -> Column:
    """The hash by which an entry's shard goes, NULL where it is not needed."""
    key = F.when(F.col("run_id") != "", F.col("run_id")).otherwise(F.col("subject"))
    hashes = F.arrow_udf(_hashes, LongType())  # type: ignore[attr-defined]  # its stub lacks it
    return hashes(F.when(needed, key))  # type: ignore[no-any-return]


def shard_of_hash(hashed: Column, shards: Column) -> Column:
    """The remainder of an unsigned number, with signed ones."""
    halved = F.pmod(F.shiftrightunsigned(hashed, 1), shards)
    odd = hashed.bitwiseAND(F.lit(1).cast("long"))
    return F.when(shards > 1, F.pmod(halved * 2 + odd, shards)).otherwise(0).cast("int")
