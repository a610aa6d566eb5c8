"""Count the results of health checks for /metrics/slis, from which availability is computed.

Upstream: staging/src/k8s.io/component-base/metrics/prometheus/slis/metrics.go ObserveHealthcheck
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest


class HealthcheckMetrics:
    """The two metrics of health checks, and the start time of the process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._last = Gauge(
            "kubernetes_healthcheck",
            "[STABLE] This metric records the result of a single healthcheck.",
            ("name", "type"),
            registry=self._registry,
        )
        self._results = Counter(
            "kubernetes_healthchecks",
            "[STABLE] This metric records the results of all healthcheck.",
            ("name", "type", "status"),
            registry=self._registry,
        )
        process = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=process)
        self._started = process.restricted_registry(["process_start_time_seconds"])

    def observe(self, check: str, page: str, *, is_well: bool) -> None:
        """Count one result of a check of a page, which is `livez`, `healthz` or `readyz`."""
        self._last.labels(check, page).set(is_well)
        self._results.labels(check, page, "success" if is_well else "error").inc()

    def render(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry) + generate_latest(self._started)
