"""A session that is there stays as it is, but for what results rely on."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from tape.errors import SparkUnavailable
from tape.pipeline.session import session, silenced_java

PARTITIONS = "spark.sql.shuffle.partitions"
ZONE = "spark.sql.session.timeZone"


def test_a_session_that_is_there_is_not_configured(spark: SparkSession) -> None:
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(ZONE, "Asia/Tokyo")
    with ThreadPoolExecutor(1) as elsewhere:
        for found in (
            session(),
            session(config={PARTITIONS: "77", ZONE: "Asia/Tokyo"}, app_name="other"),
            elsewhere.submit(session).result(),
        ):
            assert found is spark
            assert spark.conf.get(PARTITIONS) == before
            assert spark.conf.get(ZONE) == "UTC"
    assert spark.sparkContext.appName == "tape"


@pytest.mark.parametrize(
    ("heard", "told"),
    [
        (
            (
                "WARNING: hello\nException in thread main java.lang.OutOfMemoryError: heap\n"
                "Caused by: java.io.IOException: no\n\tat a.b(C.java:1)\n\t... 3 more\n"
            ),
            "did not start (Caused by: java.io.IOException: no)",
        ),
        ("Unrecognized option: -x\nWARNING: last\n\tat a.b(C.java:1)\n",
         "did not start (WARNING: last)"),
        ("\tat a.b(C.java:1)\n", "did not start"),
        ("", "did not start"),
    ],
)  # fmt: skip
def test_the_last_words_of_java_are_no_stack_frame(
    heard: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def start() -> None:
        os.write(2, heard.encode())
        raise SparkUnavailable("did not start")

    with pytest.raises(SparkUnavailable) as refused, silenced_java():
        start()
    assert str(refused.value) == told
    assert capfd.readouterr().err == ""
