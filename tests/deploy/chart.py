"""The chart, rendered by helm: values in, objects out."""

import functools
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.deploy import tools
from tests.deploy.commands import ended

CHART = Path(__file__).parents[2] / "deploy" / "helm"
NAMESPACE = "stow"
RELEASE = "kubestow"
ADMISSION = ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
KUBERNETES = "1.36.3"
"""The version of the cluster for templates."""
IMAGE = "registry.example.com/stow/kubestow"

Json = dict[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class RenderingFailed(Exception):
    """helm does not render these values. The message is helm's."""


def template(
    values: Mapping[str, Any] | None = None,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    helm: Path | None = None,
) -> str:
    """The output of `helm template`; `Refused` if it refuses."""
    given = dict(values or {})
    if "image" not in given or (given["image"] is not None and "repository" not in given["image"]):
        given["image"] = {"repository": IMAGE, **given.get("image", {})}
    return _templated(json.dumps(given), release, namespace, helm or tools.helm())


@functools.cache
def _templated(values: str, release: str, namespace: str, helm: Path) -> str:
    """Once for all tests with the same values, which are JSON and so YAML."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values)
        file.flush()
        where = (release, str(CHART), "--namespace", namespace, "--values", file.name)
        served = (f"--api-versions=admissionregistration.k8s.io/v1/{kind}" for kind in ADMISSION)
        cluster = ("--kube-version", KUBERNETES, *served)
        ran = run(helm, "template", *where, *cluster)
    if ran.returncode:
        raise RenderingFailed(ran.stderr)
    return ran.stdout


def objects(
    values: Mapping[str, Any] | None = None,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    helm: Path | None = None,
) -> list[Json]:
    """The rendered objects in helm's order, with those of `helm test`."""
    text = template(values, release=release, namespace=namespace, helm=helm)
    return [found for found in yaml.load_all(text, _LOADER) if found is not None]


def run(helm: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Without a cluster, repositories and plugins of the user."""
    with tempfile.TemporaryDirectory() as home:
        places = dict.fromkeys(("HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"), home)
        return ended([helm, *arguments], env={**places, "KUBECONFIG": f"{home}/none"})


class Rendered:
    def __init__(self, found: Sequence[Json]) -> None:
        self.objects = found

    def all(self, kind: str) -> list[Json]:
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str, ending: str = "") -> Json:
        """The only object of the kind, or the only one whose name ends so."""
        (found,) = [found for found in self.all(kind) if found["metadata"]["name"].endswith(ending)]
        return found

    def named(self, kind: str, name: str) -> Json:
        (found,) = [found for found in self.all(kind) if found["metadata"]["name"] == name]
        return found

    @property
    def pod(self) -> Json:
        template: Json = self.one("Deployment")["spec"]["template"]
        return template

    @property
    def container(self) -> Json:
        (container,) = self.pod["spec"]["containers"]
        found: Json = container
        return found

    @property
    def config(self) -> Json:
        found: Json = yaml.safe_load(self.named("ConfigMap", RELEASE)["data"]["config.yaml"])
        return found


def rendered(values: Mapping[str, Any] | None = None) -> Rendered:
    return Rendered(objects(values))


@functools.cache
def defaults() -> Rendered:
    return rendered()
