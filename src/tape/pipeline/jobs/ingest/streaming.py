"""What ingest does with any stream of messages: wait for its end, and require its client."""

from importlib.util import find_spec

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from tape.errors import InvalidArgument
from tape.pipeline.spark_errors import as_tape_error


def await_stream(query: StreamingQuery) -> None:
    """Wait until it ends, or is interrupted."""
    try:
        query.awaitTermination()
    except KeyboardInterrupt:  # how a stream that goes on is ended
        query.stop()
    except StreamingQueryException as fault:
        told = as_tape_error(fault)
        told.args = (f"the stream stopped: {told}",)
        raise told from fault


def require_nats() -> None:
    if find_spec("nats") is None:
        raise InvalidArgument("nats needs its client: pip install 'tape-bus[nats]'", field="source")
