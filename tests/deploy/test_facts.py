"""Properties that operators rely on, read from the rendered objects."""

import json
from pathlib import Path

import pytest
import yaml

import scheduler
from scheduler.config import load
from scheduler.config.types import Configuration
from tests.deploy import tools
from tests.deploy.chart import CHART, IMAGE, NAMESPACE, RELEASE, Json, Rendered, defaults, rendered, run
from tests.deploy.matrix import FULL, OBJECTS, profiles

pytestmark = pytest.mark.usefixtures("helm")


def read(chart: Rendered, directory: Path) -> Configuration:
    file = directory / "config.yaml"
    file.write_text(chart.named("ConfigMap", RELEASE)["data"]["config.yaml"])
    return load.load(str(file))


# -- the pod -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [pytest.param({}, id="default"), pytest.param(FULL, id="full")])
def test_pods_are_hardened(values: Json) -> None:
    chart = rendered(values)
    for pod in (chart.pod["spec"], chart.one("Pod")["spec"]):
        (container,) = pod["containers"]

        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 65532
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert {"memory"} <= container["resources"]["limits"].keys()


def test_a_field_of_the_security_context_can_be_taken_away() -> None:
    context = rendered(OBJECTS["a group that may be anything"]).pod["spec"]["securityContext"]

    assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.parametrize(
    ("values", "flags"),
    [
        ({}, []),
        ({"ui": {"enabled": True}}, ["--ui=true", "--plain-port=10260"]),
        ({"ui": {"enabled": True, "port": 0}}, ["--ui=true"]),
        ({"ui": {"port": 1234}}, []),
    ],
    ids=["off by default", "on the loopback of the pod", "on the HTTPS port only", "a port without the page"],
)
def test_the_page_is_off_until_it_is_enabled(values: Json, flags: list[str]) -> None:
    found = rendered(values).container["args"]

    assert [flag for flag in found if flag.startswith(("--ui", "--plain-port"))] == flags


def test_a_drain_is_not_cut_short() -> None:
    for values in ({}, {"drainTimeoutSeconds": 600}, {"terminationGracePeriodSeconds": 31}):
        chart = rendered(values)
        (drain,) = [flag for flag in chart.container["args"] if flag.startswith("--drain-timeout=")]

        assert chart.pod["spec"]["terminationGracePeriodSeconds"] > int(drain.removesuffix("s").partition("=")[2])


def test_a_port_is_the_same_everywhere() -> None:
    chart = rendered({"serving": {"port": 8443}})

    assert "--secure-port=8443" in chart.container["args"]
    assert chart.container["ports"][0]["containerPort"] == 8443
    assert chart.one("Service")["spec"]["ports"][0]["targetPort"] == "https"


def test_the_image_is_this_version_s() -> None:
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))

    assert metadata["appVersion"] == scheduler.__version__
    assert defaults().container["image"] == f"{IMAGE}:{scheduler.__version__}"
    assert rendered({"image": {"tag": "1.2"}}).container["image"].endswith(":1.2")
    assert rendered(FULL).container["image"].startswith("registry.example.com/kubestow@sha256:0123")


# -- replicas ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_budget_never_blocks_a_drain(replicas: int) -> None:
    """With one replica there is none; with more, one may be away at any time, and broken ones do not count."""
    assert rendered({"replicaCount": replicas}).all("PodDisruptionBudget") == []
    budget = rendered({"replicaCount": 3}).one("PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert "minAvailable" not in budget
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_without_election_there_are_never_two() -> None:
    chart = rendered({"replicaCount": 1, "leaderElection": {"enabled": False}})

    assert chart.one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert chart.config["leaderElection"] == {"leaderElect": False}
    assert [each["metadata"]["name"] for each in chart.all("Role")] == [f"{RELEASE}-client-ca"]


# -- the configuration ---------------------------------------------------------------------------------------------------


def checksum(values: Json) -> str:
    return str(rendered(values).pod["metadata"]["annotations"]["checksum/config"])


def test_a_changed_configuration_is_rolled_out() -> None:
    before = checksum({})

    assert before != checksum({"config": {"podMaxBackoffSeconds": 20}})
    assert before != checksum({"leaderElection": {"leaseDuration": "30s"}})
    assert before == checksum({"replicaCount": 3, "resources": {"limits": {"memory": "3Gi"}}})


def test_the_daemon_reads_what_the_values_say(tmp_path: Path) -> None:
    config = {"podMaxBackoffSeconds": 20, "clientConnection": {"qps": 1000000, "burst": 2000000}}
    found = read(rendered({"config": config}), tmp_path)

    assert (1e6, 2000000) == (found.client_connection.qps, found.client_connection.burst)
    assert found.pod_max_backoff_s == 20
    assert [profile.scheduler_name for profile in found.profiles] == ["kubestow"]
    election = found.leader_election
    assert ("stow", "kubestow") == (election.resource_namespace, election.resource_name)
    assert (15, 10, 2) == (election.lease_duration_s, election.renew_deadline_s, election.retry_period_s)
    assert list(found.ignored) == []


def test_an_operator_s_document_may_say_what_it_is() -> None:
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}

    assert rendered({"config": head}).config == defaults().config


@pytest.mark.parametrize(
    ("values", "chosen", "name"),
    [
        pytest.param(profiles({}, {}), {}, "stow-0", id="the first profile, which is also tried"),
        pytest.param(profiles({}, {}), {"schedulerName": "stow-1"}, "stow-1", id="another profile"),
        pytest.param({"config": {"profiles": None}}, {"schedulerName": "kubestow"}, "kubestow", id="no profile at all"),
    ],
)
def test_the_profile_that_the_policy_names(values: Json, chosen: Json, name: str) -> None:
    chart = rendered(values | {"admissionPolicy": {"enabled": True, **chosen}})
    (mutation,) = chart.one("MutatingAdmissionPolicy")["spec"]["mutations"]

    assert f'schedulerName: "{name}"' in mutation["applyConfiguration"]["expression"]
    assert chart.one("Pod")["spec"]["schedulerName"] == name.replace("stow-1", "stow-0")


# -- monitoring and policies -----------------------------------------------------------------------------------------------


def endpoint(values: Json) -> Json:
    monitor = {"enabled": True, **values.pop("monitor", {})}
    (found,) = rendered({"metrics": {"serviceMonitor": monitor}, **values}).one("ServiceMonitor")["spec"]["endpoints"]
    made: Json = found
    return made


def test_prometheus_comes_with_its_token() -> None:
    plain, signed = endpoint({}), endpoint({"serving": {"tls": {"secretName": "t"}}})
    own = endpoint({"monitor": {"tokenSecret": {"name": "token"}, "tlsConfig": {"serverName": "a"}}})

    assert ("https", "https", "/metrics") == (plain["port"], plain["scheme"], plain["path"])
    assert plain["bearerTokenFile"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert plain["tlsConfig"] == {"insecureSkipVerify": True}
    assert signed["tlsConfig"] == {"ca": {"secret": {"name": "t", "key": "ca.crt"}}, "serverName": "kubestow.stow.svc"}
    assert own["authorization"] == {"type": "Bearer", "credentials": {"name": "token", "key": "token"}}
    assert own["tlsConfig"] == {"serverName": "a"}
    assert "bearerTokenFile" not in own


def test_with_a_service_monitor_each_installation_is_missed_by_itself() -> None:
    chart = rendered(FULL)
    told = chart.one("PrometheusRule")["spec"]
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text(encoding="utf-8"))
    (down,) = [rule for group in rules["groups"] for rule in group["rules"] if rule.get("alert") == "KubestowDown"]
    service = chart.one("Service")["metadata"]
    down["expr"] = f'absent(kubestow_build_info{{job="{service["name"]}", namespace="{service["namespace"]}"}})'

    assert told == rules


def test_rules_and_dashboard_are_the_files() -> None:
    chart = rendered(FULL)
    rules = yaml.safe_load((CHART / "files" / "rules.yaml").read_text(encoding="utf-8"))
    dashboard = (CHART / "files" / "dashboard.json").read_text(encoding="utf-8")
    found = chart.one("ConfigMap", "-dashboard")

    assert rendered({"metrics": {"prometheusRule": {"enabled": True}}}).one("PrometheusRule")["spec"] == rules
    assert [text.strip() for text in found["data"].values()] == [dashboard.strip()]
    assert json.loads(dashboard)["title"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"grafana_folder": "Scheduling"}


def test_the_network_policy_lets_the_right_ones_through() -> None:
    spec = rendered({"networkPolicy": {"enabled": True}}).one("NetworkPolicy")["spec"]

    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [{"ports": [{"port": "https", "protocol": "TCP"}]}]
    assert spec["egress"] == [{"ports": [{"port": port, "protocol": "TCP"} for port in (443, 6443)]}]


# -- the notes -----------------------------------------------------------------------------------------------------------


def notes(values: Json, directory: Path) -> str:
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump({"image": {"repository": IMAGE}, **values}))
    where = (RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", str(file))
    ran = run(tools.helm(), "install", *where, "--dry-run=client")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.partition("NOTES:\n")[2]


def test_notes_have_commands_to_try(tmp_path: Path) -> None:
    values = {"leaderElection": {"resourceName": "stow", "resourceNamespace": "leases"}, "serving": {"port": 8443}}
    commands = [line.strip() for line in notes(values, tmp_path).splitlines() if line.startswith("   ")]

    assert commands == [
        "kubectl -n stow rollout status deployment/kubestow && kubectl -n leases get lease stow",
        "helm -n stow test kubestow",
        "kubestow status --scheduler-namespace stow --lease-name stow --lease-namespace leases",
        "kubestow explain NAMESPACE/POD --scheduler-namespace stow --lease-name stow --lease-namespace leases",
    ]


def test_notes_for_a_scheduler_without_a_lease_name_its_address(tmp_path: Path) -> None:
    told = notes({"replicaCount": 1, "leaderElection": {"enabled": False}}, tmp_path)

    assert "   kubestow status --server https://127.0.0.1:10259\n" in told
    assert "   kubestow explain NAMESPACE/POD --server https://127.0.0.1:10259\n" in told
    assert "   kubectl -n stow port-forward deployment/kubestow 10259\n" in told


def test_notes_name_the_next_steps(tmp_path: Path) -> None:
    values = {"rbac": {"create": False}, "metrics": {"serviceMonitor": {"enabled": True}}}
    told = notes(values, tmp_path)

    assert "give the service account kubestow its permissions" in told
    assert "ClusterRole kubestow-metrics-reader" in told
    assert "service account" not in notes({}, tmp_path)


@pytest.mark.parametrize("where", ["https://wiki.example.com/a?page=operations", "http://10.0.0.1:8080/operations.md"])
def test_alerts_point_to_where_the_runbook_is_served(where: str) -> None:
    rules = (CHART / "files" / "rules.yaml").read_text(encoding="utf-8")
    found = rendered({"metrics": {"prometheusRule": {"enabled": True, "runbookUrl": where}}}).one("PrometheusRule")

    assert found["spec"] == yaml.safe_load(rules.replace("docs/operations.md#", f"{where}#"))
