"""JSON schemas for kubeconform without the internet. They are made from the OpenAPI document of the Kubernetes release that the
control plane is built from, and from the CRDs of the Prometheus operator and cert-manager. Unknown fields are errors."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.deploy import tools
from tests.deploy.commands import ended

Schema = dict[str, Any]

_REF = "#/definitions/"
_MONITORING = ("servicemonitors", "prometheusrules")
_NUMBER_OR_TEXT: Schema = {"oneOf": [{"type": "string"}, {"type": "number"}]}


def location() -> str:
    """For `kubeconform -schema-location`. Makes the schemas once per user."""
    key = f"{tools.KUBERNETES} {tools.PROMETHEUS_OPERATOR} {tools.CERT_MANAGER} {Path(__file__).read_text(encoding='utf-8')}"
    return str(tools.cached("schemas", key, _write)) + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"


def conforms(kubeconform: Path, manifests: str) -> "subprocess.CompletedProcess[str]":
    """The tool's result for all of them. `-schema-location` replaces the ones of the internet."""
    flags = ["-strict", "-summary", "-schema-location", location()]
    flags += [
        "-skip",
        "CustomResourceDefinition",
    ]  # its schema refers to itself; a real API server takes it in other tests
    return ended([kubeconform, *flags], given=manifests)


def _write(place: Path) -> None:
    for kind, group, version, schema in (*_kubernetes(), *_of_operators()):
        name = "-".join(part.lower() for part in (kind, group.partition(".")[0], version) if part)
        (place / f"{name}.json").write_text(json.dumps(schema))


def _kubernetes() -> Iterator[tuple[str, str, str, Schema]]:
    swagger = tools.module(tools.KUBERNETES) / "api" / "openapi-spec" / "swagger.json"
    known: dict[str, Schema] = json.loads(swagger.read_text())["definitions"]
    strict = {name: _strict(schema) for name, schema in known.items()}
    for name, schema in known.items():
        for kind in schema.get("x-kubernetes-group-version-kind", ()):
            if len(schema["x-kubernetes-group-version-kind"]) > 1:
                continue  # DeleteOptions and its like are in every group
            needed = _reached(name, strict)
            yield kind["kind"], kind["group"], kind["version"], {"definitions": needed, **_top(strict[name], kind)}


def _top(schema: Schema, kind: Schema) -> Schema:
    """An object that is sent must have its kind and version."""
    version = "/".join(part for part in (kind["group"], kind["version"]) if part)
    said = {"apiVersion": {"const": version}, "kind": {"const": kind["kind"]}}
    required = sorted({*schema.get("required", ()), "apiVersion", "kind", "metadata"})
    return {**schema, "properties": schema["properties"] | said, "required": required}


def _of_operators() -> Iterator[tuple[str, str, str, Schema]]:
    folder = tools.module(tools.PROMETHEUS_OPERATOR) / "example" / "prometheus-operator-crd"
    files = [folder / f"monitoring.coreos.com_{plural}.yaml" for plural in _MONITORING]
    for file in (*files, tools.module(tools.CERT_MANAGER) / "deploy" / "crds" / "crd-certificates.yaml"):
        crd = yaml.safe_load(file.read_text())
        (version,) = crd["spec"]["versions"]
        schema = _strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        yield crd["spec"]["names"]["kind"], crd["spec"]["group"], version["name"], schema


def _reached(name: str, known: dict[str, Schema]) -> dict[str, Schema]:
    """The definitions that one refers to, directly or not."""
    found: dict[str, Schema] = {}
    waiting = [name]
    while waiting:
        for reference in _references(known[waiting.pop()]):
            if reference not in found:
                found[reference] = known[reference]
                waiting.append(reference)
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference.removeprefix(_REF)
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _strict(schema: Any) -> Any:
    """Unknown fields are refused, and a text is accepted where a server accepts it for a number."""
    if isinstance(schema, list):
        return [_strict(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return dict(_NUMBER_OR_TEXT)
    made = {key: _strict(value) for key, value in schema.items()}
    if "Quantity" in str(schema.get("description", ""))[:8]:
        return dict(_NUMBER_OR_TEXT)
    is_closed = "properties" in schema and isinstance(schema["properties"], dict) and "type" in schema
    if is_closed and "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made["additionalProperties"] = False
    return made
