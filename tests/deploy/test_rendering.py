"""Whatever the values, the rendered objects are valid by helm's rules and by the API server's schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy import schemas, snapshots
from tests.deploy.chart import CHART, KUBERNETES, NAMESPACE, RELEASE, Json, Rendered, objects, rendered, run, template
from tests.deploy.matrix import CONFIGURATIONS, FULL, OBJECTS
from tests.deploy.schemas import conforms
from tests.deploy.tools import ALSO_HELM_3

pytestmark = pytest.mark.usefixtures("helm")

MATRIX = [pytest.param(values, id=name) for name, values in {**CONFIGURATIONS, **OBJECTS}.items()]


@pytest.mark.parametrize("values", [pytest.param({}, id="default"), pytest.param(FULL, id="full")])
@pytest.mark.parametrize("version", ["helm", "helm3"] if ALSO_HELM_3 else ["helm"])
def test_helm_finds_nothing_to_complain_about(
    version: str, values: Mapping[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    flags = ("--strict", "--values", str(file), "--kube-version", KUBERNETES)

    ran = run(request.getfixturevalue(version), "lint", str(CHART), *flags)

    assert ran.returncode == 0, ran.stdout + ran.stderr


if ALSO_HELM_3:

    def test_both_versions_of_helm_render_the_same(helm3: Path) -> None:
        assert objects(FULL) == objects(FULL, helm=helm3)


@pytest.mark.parametrize("values", MATRIX)
def test_what_is_rendered_is_valid(values: Mapping[str, Any], kubeconform: Path) -> None:
    text = template(values)
    ran = schemas.conforms(kubeconform, text)

    assert ran.returncode == 0, ran.stdout
    assert f"Skipped: {text.count('kind: CustomResourceDefinition')}" in ran.stdout


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        pytest.param("replicas: 2", "replicas: two", "replicas", id="a wrong type"),
        pytest.param("replicas: 2", "replica: 2", "replica", id="an unknown field"),
        pytest.param("maxUnavailable: 1", "maxUnavailable: [1]", "maxUnavailable", id="neither number nor text"),
        pytest.param("kind: Deployment", "kind: Deploymint", "deploymint", id="an unknown kind"),
        pytest.param("insecureSkipVerify: true", "insecureSkipVerify: 1", "insecureSkipVerify", id="in a CRD's object"),
        pytest.param("failurePolicy: Ignore", "failPolicy: Ignore", "failPolicy", id="in a policy"),
    ],
)
def test_the_schemas_catch_mistakes(before: str, after: str, word: str, kubeconform: Path) -> None:
    values = {"metrics": {"serviceMonitor": {"enabled": True}}, "admissionPolicy": {"enabled": True}}
    manifests = template(values)
    assert before in manifests

    ran = schemas.conforms(kubeconform, manifests.replace(before, after, 1))

    assert ran.returncode != 0
    assert word in ran.stdout.lower() + ran.stdout


@pytest.mark.parametrize("name", snapshots.VALUES)
def test_what_is_rendered_is_what_was_looked_at(name: str) -> None:
    """If the change is meant: `.venv/bin/python -m tests.deploy.snapshots`, and read what it changes."""
    assert snapshots.render(name) == snapshots.file_of(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("values", MATRIX)
def test_no_object_is_rendered_twice(values: Mapping[str, Any]) -> None:
    found = objects(values)
    names = [
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"], each["apiVersion"])
        for each in found
    ]
    policies = {f"{kind}AdmissionPolicy{suffix}" for kind in ("Mutating", "Validating") for suffix in ("", "Binding")}
    cluster_wide = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", *policies}

    assert len(names) == len(set(names))
    assert [name for _, _, name, _ in names if len(name) > 63] == []
    assert {kind for kind, namespace, _, _ in names if namespace is None} <= cluster_wide


@pytest.mark.parametrize("values", MATRIX)
def test_keyed_lists_have_no_key_twice(values: Mapping[str, Any]) -> None:
    """Helm 4 applies on the server, which refuses them."""
    (deployment,) = [each for each in objects(values) if each["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for items, key in (
        (container.get("env", []), "name"),
        (container["volumeMounts"], "mountPath"),
        (container["ports"], "containerPort"),
        (pod["volumes"], "name"),
        (pod.get("tolerations", []), "key"),
    ):
        keys = [item[key] for item in items]

        assert len(keys) == len(set(keys))


def test_there_are_no_hooks() -> None:
    hooks = [each["metadata"].get("annotations", {}).get("helm.sh/hook") for each in objects(FULL)]

    assert {None, "test"} == set(hooks)


# -- names, labels and annotations: the API server accepts them, and selectors find the pods ---------------------------


LABEL: Final = re.compile(r"(?!.{64})[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""What may be the name of a Service, the strictest of all."""
VALUE: Final = re.compile(r"(?!.{64})([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
"""What may be the value of a label."""
EVERYTHING: Final[Json] = {
    "metrics": {
        "reader": {"serviceAccount": {"name": "1", "namespace": "2"}},
        "serviceMonitor": {"enabled": True, "tokenSecret": {"name": "3", "key": "4"}},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "networkPolicy": {"enabled": True},
    "admissionPolicy": {"enabled": True},
}
NUMBERS: Final[Json] = {
    "serviceAccount": {"name": "5"},
    "serving": {"tls": {"secretName": "6"}},
    "leaderElection": {"resourceName": "7", "resourceNamespace": "8"},
    "priorityClassName": "9",
    "topologySpread": {"topologyKeys": ["10"]},
    "config": {"profiles": [{"schedulerName": "11"}]},
    "image": {"repository": "1", "tag": "20"},
    "commonLabels": {"a": "12"},
    "imagePullSecrets": [{"name": "13"}],
}


def labels(found: Any) -> Iterator[Mapping[str, str]]:
    """Of an object, of its pods, and of its selectors."""
    if isinstance(found, dict):
        for name, value in found.items():
            if name in {"labels", "matchLabels"} and value:
                yield value
            yield from labels(value)
    elif isinstance(found, list):
        for value in found:
            yield from labels(value)


@pytest.mark.parametrize(
    ("release", "namespace", "values"),
    [
        pytest.param("my.stow", NAMESPACE, {}, id="a release with a dot"),
        pytest.param("a" * 47 + ".b", NAMESPACE, {}, id="cut at the dot"),
        pytest.param("r" * 53, "n" * 63, {}, id="the longest names"),
        pytest.param("123", "456", {}, id="numbers"),
        pytest.param("true", "null", {}, id="words of YAML"),
        pytest.param("1e3", "0x10", {"fullnameOverride": "1e3", "nameOverride": "0"}, id="numbers of a kind"),
        pytest.param(RELEASE, NAMESPACE, NUMBERS, id="numbers for everything that has a name"),
        pytest.param(RELEASE, NAMESPACE, {"nameOverride": "b" * 63}, id="a long name of the chart"),
        pytest.param(RELEASE, NAMESPACE, {"fullnameOverride": "c" * 63}, id="a long name of one's own"),
    ],
)
def test_names_are_taken(release: str, namespace: str, values: Json, kubeconform: Path) -> None:
    values = EVERYTHING | values
    ran = conforms(kubeconform, template(values, release=release, namespace=namespace))
    found = objects(values, release=release, namespace=namespace)
    names = [each["metadata"]["name"] for each in found if each["kind"] != "CustomResourceDefinition"]

    assert ran.returncode == 0, ran.stdout
    assert [name for name in names if not LABEL.fullmatch(name)] == []
    assert [value for each in labels(found) for value in each.values() if not VALUE.fullmatch(value)] == []
    assert {each["metadata"].get("namespace", namespace) for each in found} <= {namespace, "8", "kube-system"}


def test_two_releases_of_one_namespace_share_nothing() -> None:
    first = Rendered(objects(EVERYTHING, release="one"))
    second = Rendered(
        objects(
            EVERYTHING | {"schedulerProfiles": {"installCRD": False}, "whatIfObjects": {"installCRD": False}},
            release="two",
        )
    )
    names = [{(each["kind"], each["metadata"]["name"]) for each in chart.objects} for chart in (first, second)]
    selector = first.one("Deployment")["spec"]["selector"]["matchLabels"]

    assert names[0] & names[1] == set()
    assert selector.items() <= first.pod["metadata"]["labels"].items()
    assert not selector.items() <= second.pod["metadata"]["labels"].items()


SELECTED: Final = {"app.kubernetes.io/name": "kubestow", "app.kubernetes.io/instance": "kubestow"}
LABELLED: Final = [
    pytest.param({"commonLabels": {**SELECTED, "app.kubernetes.io/name": "x"}}, id="for all"),
    pytest.param({"podLabels": {"app.kubernetes.io/instance": "x"}}, id="for the pods"),
    pytest.param({"service": {"labels": {"app.kubernetes.io/instance": "x"}}}, id="for the Service"),
    pytest.param({"commonLabels": {"app.kubernetes.io/managed-by": "x", "helm.sh/chart": "x"}}, id="of helm"),
]


@pytest.mark.parametrize("values", LABELLED)
def test_what_is_selected_by_cannot_be_taken_away(values: Json, kubeconform: Path) -> None:
    chart = rendered(values)
    pod, service = chart.pod["metadata"]["labels"], chart.one("Service")["metadata"]["labels"]

    assert conforms(kubeconform, template(values)).returncode == 0
    assert SELECTED.items() <= pod.items()
    assert SELECTED.items() <= service.items()
    assert service["app.kubernetes.io/managed-by"] == "Helm"


def test_the_nearest_label_wins() -> None:
    common = {"release": "a", "team": "storage"}
    own = {"labels": {"release": "b"}}
    monitoring = {"serviceMonitor": own | {"enabled": True}, "prometheusRule": own | {"enabled": True}}
    dashboard = {"dashboard": own | {"enabled": True}}
    values = {"commonLabels": common, "podLabels": {"release": "b"}, "service": own, "metrics": monitoring | dashboard}
    chart = rendered(values)
    made = [chart.one(kind) for kind in ("ServiceMonitor", "PrometheusRule", "Service")]

    for found in (*made, chart.one("ConfigMap", "-dashboard"), chart.pod):
        assert (found["metadata"]["labels"]["release"], found["metadata"]["labels"]["team"]) == ("b", "storage")
    assert chart.one("Deployment")["metadata"]["labels"]["release"] == "a"


def test_a_roll_out_cannot_be_prevented() -> None:
    usual = "kubectl.kubernetes.io/default-container"
    annotations = rendered({"podAnnotations": {"checksum/config": "x", usual: "y"}}).pod["metadata"]["annotations"]

    assert len(annotations["checksum/config"]) == 64
    assert annotations[usual] == "y"


def test_what_selects_stays_as_it_is() -> None:
    for values in ({}, EVERYTHING, {"commonLabels": {"a": "b"}, "podLabels": {"c": "d"}, "image": {"tag": "2"}}):
        assert rendered(values).one("Deployment")["spec"]["selector"] == {"matchLabels": SELECTED}


def test_everything_can_be_applied_and_stored() -> None:
    """`kubectl apply` keeps a copy of an object in an annotation: 256 KiB for all of them."""
    found = objects(EVERYTHING)
    sizes = {(each["kind"], each["metadata"]["name"]): len(json.dumps(each)) for each in found}
    crds = [file.stat().st_size for file in (CHART / "files").glob("*-crd.yaml")]

    assert max(*sizes.values(), *crds) < 200_000
