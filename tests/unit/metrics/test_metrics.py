"""Names, labels and buckets of instruments, which are kube-scheduler's (docs/metrics.md), and the page of requests and limits.

tests/e2e/test_metrics_pages.py compares the amounts of that page with kube-scheduler's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from scheduler.api.core_v1 import Pod
from scheduler.api.decode import from_manifest
from scheduler.core.feature_gates import WHOLE_LIMITS, defaults
from scheduler.kube.self_check import Finding
from scheduler.metrics.instruments import Description
from scheduler.metrics.metrics import MOST_HINTS, Metrics
from scheduler.metrics.scraped import pod_resource_pages
from simulator.builders.core import pod
from tools.metrics_page import reference


@dataclass
class Stats:
    """A reflector's counts."""

    objects: int = 0
    events: dict[str, int] = field(default_factory=dict)
    relists: dict[str, int] = field(default_factory=dict)
    silent_s: float = 0.0
    absent: bool = False
    synthesised_deletes: int = 0
    decode_errors: int = 0
    down_s: float = 0.0
    failures_total: int = 0


def used() -> Metrics:
    """Every instrument with one observation."""
    metrics = Metrics(process=False)
    metrics.attempt("scheduled", "kubestow", 0.003)
    metrics.algorithm(0.001)
    metrics.point("Filter", "Success", "kubestow", 0.0001)
    metrics.plugin("NodePorts", "Filter", "Success", 0.00001)
    metrics.evaluations("NodePorts", "Filter", "kubestow").calls += 1
    metrics.scheduled(2, 0.5)
    metrics.after_flush()
    metrics.incoming("active", "PodAdd")
    metrics.unschedulable("NodePorts", "kubestow", 1)
    metrics.hint("NodePorts", "NodeAdd", "Queue", 0.00001)
    metrics.event_handled("NodeAdd", 0.0001)
    metrics.permit_wait("Success", 1.0)
    metrics.preemption_attempt()
    metrics.preempted(3, others=2)
    metrics.preemption_done("success", 0.02)
    metrics.preemption_done("error", 0.5)
    metrics.preemption_lost()
    metrics.binding_conflict("node")
    metrics.admission_rejection("OutOfcpu", "kubestow")
    metrics.loop_lag(0.001)
    metrics.volumes.stage_error("bind")
    metrics.volumes.write_conflict("PersistentVolume")
    metrics.volumes.bind_wait("mixed", 0.3)
    metrics.volumes.long_wait(30)
    metrics.devices.conditions_allocation("kubestow", "gpu.example.com", "timeout")
    metrics.devices.conditions_wait("kubestow", "gpu.example.com", "success", 0.15)
    metrics.devices.claim_created("failure")
    metrics.devices.claim_conflict()
    metrics.devices.collision()
    metrics.devices.searched(17)
    metrics.devices.evaluated(is_known=True)
    metrics.traffic.answered("PATCH", "api:6443", 409, 0.02)
    metrics.traffic.answered("GET", "api:6443", 0, None)
    show_everything(metrics)
    return metrics


def show_everything(metrics: Metrics) -> None:
    """Every callback answers something."""
    shown = metrics.sources
    shown.bytes_in_flight, shown.capacity_version = lambda: {"fast": 2**30}, lambda: "v1beta1"
    shown.in_flight_oldest_s = lambda: {"flying": 700.0, "settling": 0.0}
    shown.audit_differences = lambda: {"requests": 2, "list-pods": 0}
    shown.in_flight_expired, shown.ledger_drift = lambda: {"settling": 5}, lambda: 17
    shown.device_kinds = lambda: {"ResourceClaim": 1, "DeviceTaintRule": 0}
    shown.devices_in_use = lambda: {"whole": 6, "shared": 2}
    shown.compiled_selector_bytes = lambda: 4096
    shown.pending, shown.inflight_events = lambda: {"active": 3, "gated": 0}, lambda: {"NodeAdd": 2}
    shown.cache, shown.healed = lambda: {"nodes": 5, "pods": 7, "assumed_pods": 1}, lambda: 1
    shown.bindings_in_flight, shown.writes_waiting = lambda: 4, lambda: 11
    shown.assumed_oldest_s = lambda: {"binding": 12.5, "bound": 0.0}
    stats, gone = Stats(9, {"ADDED": 10}, {"start": 1}, 0.5, False, 2, 3, 4.5, 7), Stats(silent_s=1e6, absent=True)
    shown.groups = lambda: {"gated": 3, "running": 4}
    shown.reflectors = lambda: {"Node": stats, "DeviceTaintRule": gone}
    shown.synced = lambda: {"Node": 0}
    shown.recorder, shown.recorder_queued = lambda: {"sent": 8, "failed": 0, "dropped": 0}, lambda: 21
    shown.may_write, shown.lease = lambda: True, "kubestow"
    shown.missing = lambda: [Finding("permissions", "x", is_needed=True), Finding("permissions", "y", is_needed=True)]


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Everything a scrape shows, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, /, **labels: str) -> float | None:
    """What a scrape shows of one series."""
    return samples(metrics).get((name, frozenset(labels.items())))


@pytest.mark.parametrize(
    ("name", "first", "last", "count"),
    [
        ("scheduler_scheduling_attempt_duration_seconds", 0.001, 16.384, 15),
        ("scheduler_scheduling_algorithm_duration_seconds", 0.001, 16.384, 15),
        ("scheduler_pod_scheduling_sli_duration_seconds", 0.01, 5242.88, 20),
        ("scheduler_pod_scheduling_attempts", 1, 16, 5),
        ("scheduler_framework_extension_point_duration_seconds", 0.0001, 0.2048, 12),
        ("scheduler_plugin_execution_duration_seconds", 0.00001, 0.0221683782005, 20),
        ("scheduler_queueing_hint_execution_duration_seconds", 0.00001, 0.0221683782005, 20),
        ("scheduler_event_handling_duration_seconds", 0.0001, 0.2048, 12),
        ("scheduler_permit_wait_duration_seconds", 0.001, 16.384, 15),
        ("scheduler_preemption_victims", 1, 64, 7),
        ("scheduler_preemption_goroutines_duration_seconds", 0.01, 5242.88, 20),
        ("scheduler_dra_bindingconditions_wait_duration_seconds", 0.1, 819.2, 14),
        ("kubestow_volume_bind_wait_seconds", 0.1, 600, 12),
        ("kubestow_device_search_steps", 1, 4**10, 11),
    ],
)
def test_buckets(name: str, first: float, last: float, count: int) -> None:
    """Bounds are upstream's where it has the metric, and +Inf."""
    bounds = sorted({float(dict(labels)["le"]) for shown, labels in samples(used()) if shown == f"{name}_bucket"})

    assert [first, last, float("inf")] == [bounds[0], bounds[-2], bounds[-1]]
    assert count + 1 == len(bounds)


@pytest.mark.parametrize(("attempts", "label"), [(1, "1"), (14, "14"), (15, "15+"), (400, "15+")])
def test_many_attempts_share_a_label(attempts: int, label: str) -> None:
    metrics = Metrics(process=False)
    metrics.scheduled(attempts, 1.0)

    assert value(metrics, "scheduler_pod_scheduling_sli_duration_seconds_count", attempts=label) == 1


def test_gauges_are_read_at_each_scrape() -> None:
    metrics, sizes = Metrics(process=False), {"active": 1}
    metrics.sources.pending = lambda: dict(sizes)

    assert value(metrics, "scheduler_pending_pods", queue="active") == 1
    sizes["active"] = 2
    metrics.sample()
    sizes["active"] = 3
    assert [value(metrics, "scheduler_pending_pods", queue="active") for _ in range(2)] == [2, 3]


def test_no_created_series_and_two_daemons_do_not_meet() -> None:
    used()
    names = {name for name, _ in samples(Metrics())}

    assert not [name for name in names if name.endswith("_created")]
    assert "scheduler_schedule_attempts_total" not in names
    assert {"kubestow_build_info", "process_resident_memory_bytes", "python_info"} <= names


@pytest.mark.parametrize("lease", ["", "kubestow"], ids=["no election", "an election"])
def test_the_gauges_of_leader_election(lease: str) -> None:
    """client-go's gauge where there is an election, and ours in any case; both follow the lease."""
    metrics, leads = Metrics(process=False), [False]
    assert not [name for name, _ in samples(metrics) if "lead" in name]
    metrics.sources.may_write, metrics.sources.lease = lambda: leads[0], lease
    for leads[0] in (False, True):
        assert value(metrics, "kubestow_leading") == leads[0]
        assert value(metrics, "leader_election_master_status", name=lease) == (leads[0] if lease else None)


def test_a_kind_that_is_not_served_is_not_silent() -> None:
    metrics = used()
    names = ("kubestow_watch_silent_seconds", "kubestow_watch_down_seconds", "kubestow_watch_decode_errors_total")

    assert [value(metrics, name, kind="DeviceTaintRule") for name in names] == [None, None, 0]


def test_what_was_not_checked_is_not_said_to_be_fine() -> None:
    metrics = Metrics(process=False)
    assert not [name for name, _ in samples(metrics) if name == "kubestow_self_check_findings"]
    metrics.sources.missing = tuple

    assert [value for (name, _), value in samples(metrics).items() if name == "kubestow_self_check_findings"] == [0] * 4


def test_zeros_from_the_start() -> None:
    metrics = Metrics(process=False)
    metrics.expect(["kubestow", "other"])

    for profile in ("kubestow", "other"):
        assert value(metrics, "scheduler_schedule_attempts_total", result="error", profile=profile) == 0
        assert value(metrics, "kubestow_admission_rejections_total", reason="OutOfcpu", profile=profile) == 0
    assert value(metrics, "kubestow_binding_conflicts_total", kind="node") == 0
    assert value(metrics, "kubestow_volume_write_conflicts_total", resource="PersistentVolume") == 0


def test_requests_have_the_names_of_client_go() -> None:
    metrics, host = used(), "api:6443"

    assert value(metrics, "rest_client_requests_total", code="409", method="PATCH", host=host) == 1
    assert value(metrics, "rest_client_requests_total", code="<error>", method="GET", host=host) == 1
    assert value(metrics, "rest_client_request_duration_seconds_sum", verb="PATCH", host=host) == 0.02
    assert value(metrics, "rest_client_request_duration_seconds_count", verb="GET", host=host) is None


def test_the_binder_cache_is_a_family_without_samples() -> None:
    """As upstream: registered, and never counted (docs/spec/volumes.md §10.2)."""
    families = {f.name: f for f in text_string_to_metric_families(used().render().decode())}
    family = families["scheduler_volume_binder_cache_requests"]

    assert (family.type, list(family.samples)) == ("counter", [])


def test_the_version_of_capacity_is_not_shown_before_it_is_known() -> None:
    """D9: then there is one sample, always 1."""
    metrics, versions = Metrics(process=False), [None, "v1", "none"]
    metrics.sources.capacity_version = lambda: versions.pop(0)

    shown = [
        [(dict(labels), value) for (name, labels), value in samples(metrics).items() if name.endswith("api_info")]
        for _ in range(3)
    ]
    assert shown == [[], [({"version": "v1"}, 1)], [({"version": "none"}, 1)]]


def test_rendering_in_pieces_changes_nothing() -> None:
    metrics = Metrics(process=False)
    for at in range(250):
        metrics.event_handled(f"Event{at}", 0.001)
        metrics.incoming("active", f"Event{at}")
    metrics.sample()
    text = metrics.render().decode()

    assert text == generate_latest(metrics._registry).decode()
    assert text.count("# TYPE scheduler_event_handling_duration_seconds histogram") == 1
    assert text.count("scheduler_event_handling_duration_seconds_bucket{") == 250 * 13


def test_many_hints_share_a_histogram() -> None:
    metrics = Metrics(process=False)
    for at in range(MOST_HINTS + 50):
        metrics.hint("NodePorts", f"Event{at}", "Queue", 0.00001)
        metrics.hint("NodePorts", "Event0", "Queue", 0.00001)

    counts = {
        k: n for (name, k), n in samples(metrics).items() if name.endswith("hint_execution_duration_seconds_count")
    }
    assert len(counts) == MOST_HINTS + 1
    assert sum(counts.values()) == 2 * (MOST_HINTS + 50)
    assert counts[frozenset({("plugin", "other"), ("event", "other"), ("hint", "Queue")})] == 50


def test_a_plugin_with_nothing_to_say_is_not_timed() -> None:
    """Else half of all series would be about nothing."""
    metrics = Metrics(process=False)
    metrics.plugin("NodePorts", "PreFilter", "Skip", 0.00001)
    metrics.plugin("NodePorts", "PreFilter", "Success", 0.00001)

    statuses = {
        dict(labels)["status"] for name, labels in samples(metrics) if name.endswith("execution_duration_seconds_count")
    }
    assert statuses == {"Success"}


# -- two versions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "before"),
    [
        pytest.param("UnscheduledPodAdd", "UnschedulablePodAdd", id="a new pod"),
        pytest.param("TargetPodUpdatePodLabel", "UnschedulablePodUpdatePodLabel", id="a label of the waiting pod"),
        pytest.param("TargetPodUpdatePodScaleUp", "UnschedulablePodUpdate", id="a raised request"),
        pytest.param("AssignedPodUpdatePodScaleUp", "AssignedPodUpdate", id="a raised request of a pod on a node"),
        pytest.param("AssignedPodUpdatePodScaleDown", "AssignedPodUpdatePodScaleDown", id="a lowered request"),
        pytest.param("NodeAdd", "NodeAdd", id="a node"),
    ],
)
def test_labels_of_events_are_those_of_the_version(label: str, before: str) -> None:
    for gates, shown in ((defaults("1.36"), before), (defaults("1.37"), label)):
        metrics = Metrics(process=False, feature_gates=gates)
        metrics.sources.inflight_events = lambda: {label: 2}
        metrics.incoming("active", label)
        metrics.hint("P", label, "Queue", 1)
        metrics.event_handled(label, 1)
        text = metrics.render().decode()

        assert f'scheduler_queue_incoming_pods_total{{event="{shown}",queue="active"}} 1.0' in text
        assert f'scheduler_queueing_hint_execution_duration_seconds_count{{event="{shown}",' in text
        assert f'scheduler_event_handling_duration_seconds_count{{event="{shown}"}} 1.0' in text
        assert f'scheduler_inflight_events{{event="{shown}"}} 2.0' in text


def test_events_with_one_label_in_1_36_are_added() -> None:
    metrics = Metrics(process=False)
    metrics.sources.inflight_events = lambda: {"TargetPodUpdate": 1, "UnscheduledPodUpdate": 2}

    assert 'scheduler_inflight_events{event="UnschedulablePodUpdate"} 3.0' in metrics.render().decode()


ENTITIES = [
    'scheduler_queue_incoming_entities_total{event="NodeAdd",queue="active",type="pod"} 1.0',
    'scheduler_queued_entities{queue="active",type="pod"} 3.0',
    'scheduler_pending_pods{queue="incomplete"} 0.0',
    'scheduler_pending_pods{queue="pending"} 0.0',
]
LABELLED = [
    'scheduler_queue_incoming_entities_total{entity="pod",event="NodeAdd",queue="active"} 1.0',
    'scheduler_queued_entities{entity="pod",queue="active"} 3.0',
    *ENTITIES[2:],
]


@pytest.mark.parametrize(("version", "shown"), [("1.36", []), ("1.37", ENTITIES), ("1.38", LABELLED)])
def test_metrics_of_entities_are_those_of_the_version(version: str, shown: list[str]) -> None:
    metrics = Metrics(process=False, feature_gates=defaults(version))
    metrics.sources.pending = lambda: {"active": 3}
    metrics.incoming_entity("active", "NodeAdd")
    text = metrics.render().decode()

    lines = text.splitlines()
    assert {line for line in (*ENTITIES, *LABELLED) if line in lines} == set(shown)
    assert 'scheduler_pending_pods{queue="active"} 3.0' in text


PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
ALL = Metrics(process=False).described()
OURS = [each for each in ALL if each.name.startswith("kubestow_")]
COUNTED = ("_steps", "_victims", "_attempts")
"""Histograms of numbers, which have no unit."""


def test_the_page_is_what_the_code_says() -> None:
    """Else: python -m tools.metrics_page > docs/metrics.md"""
    head, _, process = reference().partition("\n## The process\n")
    assert head == PAGE.read_text().partition("\n## The process\n")[0]
    assert "process_resident_memory_bytes" in process


def test_nothing_is_shown_that_is_not_described() -> None:
    described = {each.name: each for each in ALL}
    assert len(described) == len(ALL), "names are unique"
    for family in text_string_to_metric_families(used().render().decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        each = described[name]
        assert (each.kind, each.text) == (family.type, family.documentation)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(each.labels), name


@pytest.mark.parametrize("each", ALL, ids=lambda each: each.name)
def test_text_and_unit(each: Description) -> None:
    assert each.text.endswith(".")
    assert each.text[0].isupper() or each.text[0].isdigit()
    assert each.name.endswith("_total") == (each.kind == "counter")
    if each.kind == "histogram":
        assert each.name.endswith(("_seconds", *COUNTED))
        assert list(each.buckets) == sorted(each.buckets)
    assert not each.name.endswith(("_ms", "_minutes", "_gib", "_milliseconds"))
    assert not {"pod", "node", "namespace", "claim", "name"} & set(each.labels) or each.name.startswith(
        "leader_election"
    )


@pytest.mark.parametrize("each", OURS, ids=lambda each: each.name)
def test_ours_do_not_say_what_they_are_twice(each: Description) -> None:
    assert not {"gauge", "counter", "histogram"} & set(each.name.split("_"))


def page(*pods: Pod) -> list[str]:
    return [line for line in b"".join(pod_resource_pages(pods)).decode().splitlines() if not line.startswith("#")]


def read(requests: dict[str, str], *, scheduler_name: str = "kubestow") -> Pod:
    built = pod("a").scheduler(scheduler_name)
    for resource, amount in requests.items():
        built = built.req(resource, amount)
    return built.typed()


@pytest.mark.parametrize(
    ("resource", "amount", "unit", "value"),
    [
        ("cpu", "1500m", "cores", "1.5"),
        ("cpu", "0.0001", "cores", "0.0001"),
        ("memory", "1Gi", "bytes", "1.073741824e+09"),
        ("storage", "1", "bytes", "1.0"),
        ("ephemeral-storage", "1", "bytes", "1.0"),
        ("hugepages-2Mi", "2Mi", "bytes", "2.097152e+06"),
        ("attachable-volumes-x", "3", "integer", "3.0"),
        ("example.com/gpu", "2", "", "2.0"),
    ],
)
def test_units(resource: str, amount: str, unit: str, value: str) -> None:
    (line,) = page(read({resource: amount}))

    assert line == (
        'kube_pod_resource_request{namespace="default",node="",pod="a",priority="",'
        f'resource="{resource}",scheduler="kubestow",unit="{unit}"}} {value}'
    )


def test_an_amount_of_zero_has_no_series() -> None:
    assert page(read({"cpu": "0"})) == []


def test_a_text_cannot_end_its_label() -> None:
    (line,) = page(read({"cpu": "1"}, scheduler_name='x"} 1\n\\'))

    assert r'scheduler="x\"} 1\n\\",unit="cores"' in line


@pytest.mark.parametrize(("node", "phase", "shown"), [("n", "Succeeded", 0), ("n", "Failed", 0), ("", "Failed", 1)])
def test_pods_that_ended_on_a_node_are_not_shown(node: str, phase: str, shown: int) -> None:
    assert len(page(pod("a").req("cpu", "1").bound_to(node).phase(phase).typed())) == shown


CPU, BOTH = {"cpu": "1"}, {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("containers", "inits", "of_pod", "some", "whole"),
    [
        pytest.param([BOTH, BOTH], [], {}, {"cpu": 2, "memory": 2**31}, {"cpu": 2, "memory": 2**31}, id="each has both"),
        pytest.param([BOTH, CPU], [], {}, {"cpu": 2, "memory": 2**30}, {"cpu": 2}, id="one has no limit of memory"),
        pytest.param([BOTH, {**CPU, "memory": "0"}], [], {}, {"cpu": 2, "memory": 2**30}, {"cpu": 2}, id="one of zero"),
        pytest.param([BOTH], [{}], {}, {"cpu": 1, "memory": 2**30}, {}, id="an init container has none"),
        pytest.param([CPU, {}], [], {"memory": "3Gi"}, {"cpu": 1, "memory": 3 * 2**30}, {"memory": 3 * 2**30}, id="pod-level"),
        pytest.param([{"x.io/a": "1"}, {}], [], {}, {"x.io/a": 1}, {"x.io/a": 1}, id="another resource"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("version", ["1.37", "1.38"])
def test_limits_of_some_containers(
    containers: list[dict[str, str]],
    inits: list[dict[str, str]],
    of_pod: dict[str, str],
    some: dict[str, float],
    whole: dict[str, float],
    version: str,
) -> None:
    """From 1.38 on a limit of cpu or memory is shown only if all containers set one (docs/spec/changes-1.38.md §4)."""
    made = [
        [{"name": f"{kind}{n}", "resources": {"limits": limits}} for n, limits in enumerate(each)]
        for kind, each in (("c", containers), ("i", inits))
    ]
    spec = {"containers": made[0], "initContainers": made[1], "resources": {"limits": of_pod}}
    built = from_manifest(Pod, {"metadata": {"name": "a", "namespace": "default"}, "spec": spec})

    text = b"".join(pod_resource_pages([built], whole_limits=WHOLE_LIMITS in defaults(version))).decode()

    shown = dict(re.findall(r'^kube_pod_resource_limit.*resource="(.*?)".* (\S+)$', text, re.MULTILINE))
    assert {name: float(amount) for name, amount in shown.items()} == (whole if version == "1.38" else some)


def test_pieces_are_small_and_each_metric_is_in_one_run() -> None:
    pods = [read({"cpu": "1"})] * 950

    made = list(pod_resource_pages(pods))

    assert max(piece.count(b"\n") for piece in made) == 100
    assert b"".join(made).count(b"# TYPE") == 2
