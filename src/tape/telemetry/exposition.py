"""The metrics as Prometheus reads them, with those of the process, from a registry of our own."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from tape.telemetry.instruments import Counter, Family, Histogram
from tape.telemetry.metrics import FAMILIES


def _shown(family: Family[Any]) -> Metric:
    if issubclass(family.kind, Histogram):
        return _histogram(family)
    kind = CounterMetricFamily if family.kind is Counter else GaugeMetricFamily
    shown = kind(family.name, family.text, labels=family.label_names)
    for values, series in family.series().items():
        shown.add_metric(values, series.value)
    return shown


def _histogram(family: Family[Any]) -> Metric:
    bounds = (*map(str, map(float, family.kind.bounds)), "+Inf")
    shown = HistogramMetricFamily(family.name, family.text, labels=family.label_names)
    for values, series in family.series().items():
        shown.add_metric(
            values, list(zip(bounds, accumulate(series.counts), strict=True)), series.sum
        )
    return shown


class _TapeCollector(Collector):
    def collect(self) -> Iterator[Metric]:
        return map(_shown, FAMILIES)


REGISTRY = CollectorRegistry(auto_describe=True)
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)
REGISTRY.register(_TapeCollector())


def render(accept: str = "") -> tuple[bytes, str]:
    """All of it as text, and its content type: OpenMetrics where `accept` asks for that."""
    encode, content_type = choose_encoder(accept)
    return encode(REGISTRY), content_type
