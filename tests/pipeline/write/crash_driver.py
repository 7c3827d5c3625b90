"""A driver to be killed: a stream of files into the journal, one file to a batch, no keys.

python crash_driver.py URL FOLDER CHECKPOINT
"""

import sys

from tape.pipeline.session import session


def main(url: str, folder: str, checkpoint: str) -> None:
    # A worker that is killed costs a task, and a task is tried again.
    spark = session(master="local[2,4]", config={"spark.driver.memory": "1g"})
    rows = (
        spark.readStream.schema("event_type string, entity_id string, payload_json string")
        .option("maxFilesPerTrigger", 1)
        .parquet(folder)
    )
    query = (
        rows.writeStream.format("tape")
        .options(url=url, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
