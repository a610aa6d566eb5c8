"""Whatever the values, the rendered objects are valid by helm's rules and by the API server's schemas."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import schemas, snapshots
from tests.deploy.chart import CHART, KUBERNETES, objects, run, template
from tests.deploy.matrix import CONFIGURATIONS, FULL, OBJECTS
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
