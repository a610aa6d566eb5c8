"""`python -m tests.tools.api_schema` writes the API schema that `kubestow simulate` validates manifests against.

It starts the kube-apiserver of the end-to-end tests with all group versions, reads `/openapi/v3` and keeps what
validation needs: kinds and their scope, fields and their types, required fields, and enum values. Descriptions go.
`tests/e2e/test_manifest_validation.py` compares the shipped file with the server.

The shipped file accepts what one of the supported versions accepts. Run the command with `KUBERNETES=1.37`, then with
`KUBERNETES=1.36` and with `KUBERNETES=1.38`, each with `--add`.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import aiohttp

from simulator.simulate.input import schema
from tests.e2e.controlplane.harness import ControlPlane

Schema: TypeAlias = dict[str, Any]
EVERYTHING: Final = ("--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true")
"""Flags of a kube-apiserver that serves each group version it has."""
_REF: Final = "#/components/schemas/"
_PREFIXES: Final = ("io.k8s.api.", "io.k8s.apimachinery.pkg.", "io.k8s.kube-aggregator.pkg.apis.")
_ANYTHING: Final = (
    "FieldsV1",
    "JSON",
    "JSONSchemaPropsOrArray",
    "JSONSchemaPropsOrBool",
    "JSONSchemaPropsOrStringArray",
)
_ZERO_IS_VALID: Final = frozenset(
    {
        "CSINodeSpec.drivers",
        "ControllerRevision.revision",
        "Counter.value",
        "CustomResourceDefinitionVersion.served",
        "CustomResourceDefinitionVersion.storage",
        "DeviceCapacity.value",
        "Event.eventTime",
        "Event.metadata",
        "GroupResource.group",
        "HTTPHeader.value",
        "ISCSIPersistentVolumeSource.lun",
        "ISCSIVolumeSource.lun",
        "ResourcePool.generation",
        "ResourcePoolStatusRequest.metadata",
        "SleepAction.seconds",
        "StorageVersion.metadata",
        "Sysctl.value",
        "TokenRequest.audience",
    }
)
"""Required by the schema alone: to the server's own validation the zero value is as good, so the field may be absent."""


async def fetch(http: aiohttp.ClientSession) -> list[Schema]:
    """Return the OpenAPI v3 document of each group version, in the order of their paths."""
    index = await _json(http, "/openapi/v3")
    return [await _json(http, where["serverRelativeURL"]) for _, where in sorted(index["paths"].items())]


async def _json(http: aiohttp.ClientSession, path: str) -> Schema:
    async with http.get(path) as answer:
        answer.raise_for_status()
        document: Schema = await answer.json(content_type=None)
        return document


def reduced(documents: Iterable[Schema]) -> Schema:
    """Return `{"kinds": {version: {kind: [type, is namespaced]}}, "types": {type: {"fields", "required", "nested"}}}`."""
    schemas: dict[str, Schema] = {}
    scopes: dict[tuple[str, str], bool] = {}
    for document in documents:
        schemas |= (document.get("components") or {}).get("schemas") or {}
        for path, operations in document["paths"].items():
            for operation in (operations.get("post"), operations.get("get")):
                kind = (operation or {}).get("x-kubernetes-group-version-kind")
                if kind and "{name}" not in path and "/watch/" not in path:
                    key = (f"{kind['group']}/{kind['version']}".removeprefix("/"), kind["kind"])
                    scopes[key] = scopes.get(key, False) or "{namespace}" in path
    return _Reduction(schemas).of(scopes)


class _Reduction:
    """The types that kinds reach."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._schemas = schemas
        self._types: dict[str, Schema] = {}

    def of(self, scopes: Mapping[tuple[str, str], bool]) -> Schema:
        kinds: dict[str, dict[str, list[object]]] = {}
        for name, definition in sorted(self._schemas.items()):
            for each in definition.get("x-kubernetes-group-version-kind") or ():
                version = f"{each['group']}/{each['version']}".removeprefix("/")
                if (version, each["kind"]) in scopes and not each["kind"].endswith("List"):
                    of_kind = kinds.setdefault(version, {})
                    of_kind[each["kind"]] = [self._named(name), scopes[version, each["kind"]]]
        return {"kinds": kinds, "types": self._types}

    def _named(self, name: str) -> str:
        """The short name of an object type; reduces the type when it is met first."""
        short = name
        for prefix in _PREFIXES:
            short = short.removeprefix(prefix)
        if short in self._types:
            return short
        entry: Schema = {"fields": {}}
        self._types[short] = entry
        definition = self._schemas[name]
        fields = definition.get("properties") or {}
        entry["fields"] = {field: self._type(value) for field, value in sorted(fields.items())}
        kind = short.rpartition(".")[2]
        required = [each for each in definition.get("required") or () if f"{kind}.{each}" not in _ZERO_IS_VALID]
        values = [field for field, value in fields.items() if field != "status" and self._is_value(value)]
        entry["required"] = sorted(each for each in required if each not in values)
        entry["nested"] = sorted(each for each in values if self._needs(entry["fields"][each]["type"]))
        return short

    def _is_value(self, field: Schema) -> bool:
        """Whether Go holds the object itself and not a pointer: then an absent object is an empty one."""
        return field.get("default") == {} and "type" in (kind if isinstance(kind := self._type(field), dict) else {})

    def _needs(self, name: str) -> bool:
        """Whether an empty object of the type lacks something."""
        return bool(self._types[name].get("required") or self._types[name].get("nested"))

    def _type(self, field: Schema) -> schema.Type:
        if reference := field.get("$ref") or next((each["$ref"] for each in field.get("allOf") or ()), None):
            return self._referenced(reference.removeprefix(_REF))
        if "enum" in field:
            return {"enum": sorted(field["enum"])}
        match field.get("type"):
            case "array":
                return {"list": self._type(field["items"])}
            case "object":
                given = field.get("additionalProperties")
                return {"map": self._type(given)} if isinstance(given, dict) else "object"
            case "integer":
                return str(field.get("format") or "int64")
            case "string":
                return "date-time" if field.get("format") == "date-time" else str(field.get("format") or "string")
            case str(plain):
                return plain
            case _:
                return "any"

    def _referenced(self, name: str) -> schema.Type:
        short = name.rpartition(".")[2]
        definition = self._schemas[name]
        if short == "Quantity":
            return "quantity"
        if short == "RawExtension":
            return "object"
        if short in _ANYTHING:
            return "any"
        if definition.get("format") == "int-or-string":
            return "int-or-string"
        return {"type": self._named(name)} if definition.get("type") == "object" else self._type(definition)


def merged(shipped: Schema, served: Schema) -> Schema:
    """Return the schema that accepts what one of the two accepts. Where types differ, `shipped` counts."""
    kinds = {
        version: shipped["kinds"].get(version, {}) | served["kinds"].get(version, {})
        for version in sorted(shipped["kinds"].keys() | served["kinds"].keys())
    }
    types = served["types"] | shipped["types"]
    for name in shipped["types"].keys() & served["types"].keys():
        types[name] = _either(shipped["types"][name], served["types"][name])
    return {"kinds": kinds, "types": types}


def _either(shipped: Schema, served: Schema) -> Schema:
    fields = served["fields"] | shipped["fields"]
    for name in shipped["fields"].keys() & served["fields"].keys():
        one, other = shipped["fields"][name], served["fields"][name]
        if isinstance(one, dict) and isinstance(other, dict) and "enum" in one and "enum" in other:
            fields[name] = {"enum": sorted({*one["enum"], *other["enum"]})}
    both = {kind: [each for each in shipped[kind] if each in served[kind]] for kind in ("required", "nested")}
    return {"fields": fields, **both}


def packed(document: Schema) -> bytes:
    """Return the same bytes for the same schema."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return gzip.compress(text.encode(), 9, mtime=0)


async def _current() -> Schema:
    async with ControlPlane(apiserver_flags=EVERYTHING) as plane, plane.client() as http:
        return reduced(await fetch(http))


if __name__ == "__main__":
    current = asyncio.run(_current())
    Path(schema.FILE).write_bytes(packed(merged(schema.read(), current) if "--add" in sys.argv else current))
