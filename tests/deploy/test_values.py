"""Wrong values are refused before anything reaches a cluster, and the message names the place."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.chart import CHART, IMAGE, KUBERNETES, RELEASE, Json, RenderingFailed, run, template

pytestmark = pytest.mark.usefixtures("helm")

SCHEMA: Json = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES: Json = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
OPEN = {"config", "nodeSelector", "affinity", "podSecurityContext", "securityContext", "commonLabels", "podLabels"}


WRONG: Final[dict[str, tuple[Json, str]]] = {
    "an unknown key": ({"replicas": 2}, "additional properties 'replicas' not allowed"),
    "one in a block": ({"image": {"tags": "1"}}, "at '/image': additional properties 'tags'"),
    "text for a number": ({"replicaCount": "two"}, "at '/replicaCount': got string, want integer"),
    "a number that is too small": ({"replicaCount": -1}, "at '/replicaCount': minimum"),
    "a port there is not": ({"serving": {"port": 70000}}, "at '/serving/port': maximum"),
    "an unknown word": ({"logging": {"format": "xml"}}, "at '/logging/format': value must be one of"),
    "a digest that is none": ({"image": {"digest": "abc"}}, "at '/image/digest'"),
    "a gate": ({"featureGates": {"A": "yes"}}, "at '/featureGates/A': got string, want boolean"),
    "no unit": ({"leaderElection": {"leaseDuration": "15"}}, "at '/leaderElection/leaseDuration'"),
    "three deep": ({"metrics": {"serviceMonitor": {"on": True}}}, "at '/metrics/serviceMonitor'"),
    "a text for a list": ({"extraArgs": "--v=2"}, "at '/extraArgs': got string, want array"),
    "a plugin": ({"rbac": {"extraPlugins": ["VolumeBindings"]}}, "at '/rbac/extraPlugins/0'"),
    "one profile": ({"config": {"profiles": {"schedulerName": "a"}}}, "at '/config/profiles': got object"),
    "a plugin set": (
        {"config": {"profiles": [{"plugins": {"filter": {"disable": []}}}]}},
        "at '/config/profiles/0/plugins/filter': additional properties 'disable'",
    ),
    "a plugin without its `name`": (
        {"config": {"profiles": [{"plugins": {"filter": {"disabled": ["NodeName"]}}}]}},
        "at '/config/profiles/0/plugins/filter/disabled/0': got string, want object",
    ),
    "a version": ({"config": {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}}, "at '/config/apiVersion'"),
    "election twice": (
        {"config": {"leaderElection": {}}},
        "config.leaderElection: use the values' block leaderElection instead",
    ),
    "two": ({"leaderElection": {"enabled": False}}, "replicaCount: 2 replicas need leaderElection.enabled"),
    "no time to drain": (
        {"terminationGracePeriodSeconds": 30},
        "terminationGracePeriodSeconds: must be greater than drainTimeoutSeconds (30), got 30",
    ),
    "an account without its namespace": (
        {"metrics": {"reader": {"serviceAccount": {"name": "prometheus"}}}},
        "metrics.reader.serviceAccount.namespace: is required",
    ),
    "a name that is none": ({"fullnameOverride": "Kube_stow"}, "at '/fullnameOverride'"),
    "a block that is taken away": ({"logging": None}, "missing property 'logging'"),
    "a value that is": ({"drainTimeoutSeconds": None}, "missing property 'drainTimeoutSeconds'"),
    "a selector that is, and would be of all": (
        {"admissionPolicy": {"namespaceSelector": None}},
        "at '/admissionPolicy': missing property 'namespaceSelector'",
    ),
    "ports that are, and would be all": (
        {"networkPolicy": {"apiServerPorts": None}},
        "at '/networkPolicy': missing property 'apiServerPorts'",
    ),
    "a volume of ours": ({"extraVolumes": [{"name": "config", "emptyDir": {}}]}, "at '/extraVolumes/0/name'"),
    "a flag of the page": (
        {"ui": {"enabled": True}, "extraArgs": ["--plain-port=1"]},
        "extraArgs: --plain-port is ui.port in",
    ),
    "a flag": ({"extraArgs": ["--force", "--secure-port=0"]}, "extraArgs: --secure-port is serving.port in"),
    "the verbosity by a flag": ({"extraArgs": ["--v=2"]}, "extraArgs: --v is logging.verbosity in the values"),
    "the verbosity by a flag with one dash": ({"extraArgs": ["-v=2"]}, "extraArgs: --v is logging.verbosity in"),
    "the format of the log by a flag": (
        {"extraArgs": ["--logging-format=text"]},
        "extraArgs: --logging-format is logging.format in the values",
    ),
    "a certificate by a flag": (
        {"extraArgs": ["--tls-cert-file=/c"]},
        "extraArgs: --tls-cert-file is serving.tls.secretName in the values",
    ),
    "a private key by a flag": (
        {"extraArgs": ["--tls-private-key-file=/k"]},
        "extraArgs: --tls-private-key-file is serving.tls.secretName in the values",
    ),
    "no lookup of the client CA by a flag": (
        {"extraArgs": ["--authentication-skip-lookup"]},
        "extraArgs: --authentication-skip-lookup is serving.authenticationSkipLookup in the values",
    ),
    "one port for the page and for HTTPS": (
        {"ui": {"enabled": True, "port": 8443}, "serving": {"port": 8443}},
        "ui.port: must differ from serving.port (8443)",
    ),
    "two leaders by a flag": (
        {"extraArgs": ["--leader-elect=false"]},
        "extraArgs: --leader-elect is leaderElection in the values",
    ),
    "the default account by accident": (
        {"serviceAccount": {"create": False}},
        "serviceAccount.name: is required where none is created",
    ),
    "a Secret of another namespace": (
        {
            "serving": {"tls": {"secretName": "t"}},
            "metrics": {"serviceMonitor": {"enabled": True, "namespace": "monitoring"}},
        },
        "metrics.serviceMonitor.tlsConfig: is required",
    ),
    "a monitor of nothing": (
        {"service": {"enabled": False}, "metrics": {"serviceMonitor": {"enabled": True}}},
        "metrics.serviceMonitor.enabled: needs service.enabled",
    ),
    "pods for a scheduler that does not exist": (
        {"admissionPolicy": {"enabled": True, "schedulerName": "other"}},
        "admissionPolicy.schedulerName: no profile of config is named other",
    ),
    "no issuer": ({"serving": {"tls": {"certManager": {"enabled": True}}}}, "certManager.issuerRef.name: is required"),
    "no image": ({"image": {"repository": ""}}, "image.repository: is required"),
    "a priority that is no number": (
        {"guardPolicy": {"enabled": True, "maxVictimPriority": "high"}},
        "maxVictimPriority",
    ),
}


@pytest.mark.parametrize(("values", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(values: Mapping[str, Any], said: str) -> None:
    with pytest.raises(RenderingFailed) as refused:
        template(values)

    assert said in str(refused.value)


def test_a_guard_policy_needs_a_cluster_that_has_it(helm: Path) -> None:
    values = ("--set", f"guardPolicy.enabled=true,image.repository={IMAGE}")
    ran = run(helm, "template", RELEASE, str(CHART), "--kube-version", KUBERNETES, *values)

    assert "guardPolicy.enabled: this cluster serves no" in ran.stderr


def test_a_policy_wants_a_cluster_that_has_it(helm: Path, tmp_path: Path) -> None:
    def policy(*versions: str) -> "subprocess.CompletedProcess[str]":
        served = (f"--api-versions=admissionregistration.k8s.io/{version}" for version in versions)
        values = ("--set", f"admissionPolicy.enabled=true,image.repository={IMAGE}")
        only = ("--show-only", "templates/admissionpolicy.yaml", "--kube-version", KUBERNETES)
        return run(helm, "template", RELEASE, str(CHART), *only, *values, *served)

    assert "this cluster serves no MutatingAdmissionPolicy" in policy("v1").stderr
    for version in ("v1", "v1beta1"):
        found = policy(f"{version}/MutatingAdmissionPolicy")

        versions = {each["apiVersion"] for each in yaml.safe_load_all(found.stdout)}
        assert versions == {f"admissionregistration.k8s.io/{version}"}


def test_an_old_cluster_is_refused(helm: Path) -> None:
    ran = run(helm, "template", RELEASE, str(CHART), "--kube-version", "1.26.0", "--set", f"image.repository={IMAGE}")

    assert "chart requires kubeVersion" in ran.stderr


# -- schema, values and comments belong together -------------------------------------------------------------------------


def leaves(values: Json, *path: str) -> Iterator[tuple[str, ...]]:
    """Paths of everything in values.yaml, with blocks; not into objects of other schemas."""
    for name, value in values.items():
        yield (*path, name)
        if (
            isinstance(value, dict)
            and not ({name} & OPEN)
            and name not in {"labels", "matchLabels", "requests", "limits"}
        ):
            yield from leaves(value, *path, name)


def schema_at(path: tuple[str, ...]) -> Json | None:
    found: Json | None = SCHEMA
    for name in path:
        found = found and found.get("properties", {}).get(name)
    return found


def blocks(schema: Json, *path: str) -> Iterator[tuple[tuple[str, ...], Json]]:
    if "properties" in schema:
        yield path, schema
        for name, below in schema["properties"].items():
            yield from blocks(below, *path, name)


def test_the_schema_knows_every_value() -> None:
    assert [path for path in leaves(VALUES) if "namespaceSelector" not in path and schema_at(path) is None] == []


def test_every_value_of_the_schema_is_shown() -> None:
    shown = set(leaves(VALUES))
    ours = {
        (*path, name)
        for path, block in blocks(SCHEMA)
        if "config" not in path
        for name in block["properties"]
        if (*path, name) not in {("global",), ("resources", "claims")}
    }

    assert ours - shown == set()


CAN_BE_TAKEN_AWAY: Final = {
    ("image", "pullPolicy"),
    ("metrics", "dashboard", "labels"),
    ("nodeSelector",),
    ("podSecurityContext",),
    ("probes",),
    ("resources",),
    ("resources", "limits"),
    ("resources", "requests"),
    ("securityContext",),
    ("topologySpread", "topologyKeys"),
}
"""By `null`; the row of the matrix that is called so renders it."""


def test_what_templates_rely_on_is_required() -> None:
    required = {
        (*path, name) for path, block in blocks(SCHEMA) if "config" not in path for name in block.get("required", ())
    }
    ours = {
        path
        for path in leaves(VALUES)
        if "namespaceSelector" not in path[:-1] and value_at(path) not in ("", [], {}, None)
    }

    assert required == ours - CAN_BE_TAKEN_AWAY


def value_at(path: tuple[str, ...]) -> Any:
    found: Any = VALUES
    for name in path:
        found = found[name]
    return found


def test_blocks_of_ours_are_closed() -> None:
    is_open = [path for path, block in blocks(SCHEMA) if block.get("additionalProperties") is not False]

    assert is_open == [("config",)]


def test_values_are_explained() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    top = re.findall(r"^(?:(# .*)\n)?([a-zA-Z]+):", text, flags=re.MULTILINE)
    plain = {"tolerations", "affinity", "nodeSelector", "podAnnotations", "podLabels"}
    blocks_ = {name for name, value in VALUES.items() if isinstance(value, dict) and value}

    unexplained = [name for comment, name in top if not comment and name not in plain | blocks_]
    assert [name for name in unexplained if not name.startswith("extra")] == []
    assert text.count("# -- ") >= 60
