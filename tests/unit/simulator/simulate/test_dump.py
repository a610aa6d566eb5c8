"""The saved dump has no secrets, and its bytes depend on the objects alone; the page shows the kubectl command."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from simulator.builders.claims import a_claim
from simulator.simulate.input.dump import dump_command, save
from simulator.simulate.input.from_cluster import KINDS_READ
from simulator.simulate.input.manifests import Found, InputError, cleaned, load

Object = dict[str, Any]
PAGE = Path(__file__).parents[4] / "docs/simulate.md"


def pod(name: str = "p", annotations: Object | None = None, **container: Any) -> Object:
    metadata = {"name": name, "uid": f"u-{name}", **({"annotations": annotations} if annotations else {})}
    spec = {"containers": [{"name": "c", "image": "i", **container}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def saved(tmp_path: Path, *objects: Object, name: str = "dump.json.gz") -> list[Found]:
    """What the file has, read as strictly as any."""
    save([cleaned(each, "cluster") for each in objects], str(tmp_path / name))
    return load([str(tmp_path / name)], level="strict").objects


@pytest.mark.parametrize(
    ("container", "kept"),
    [
        pytest.param(
            {"env": [{"name": "A", "value": "s3cret"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "f"}}}]},
            {
                "env": [
                    {"name": "A", "value": "dropped-1"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "f"}}},
                ]
            },
            id="values of variables",
        ),
        pytest.param({"args": ["--password", "s3cret"]}, {"args": ["dropped-1"]}, id="arguments"),
        pytest.param({"command": ["s3cret"]}, {"command": ["dropped-1"]}, id="commands"),
        pytest.param(
            {"livenessProbe": {"httpGet": {"port": 1, "httpHeaders": [{"name": "Authorization", "value": "s3cret"}]}}},
            {"livenessProbe": {"exec": {"command": ["dropped-1"]}}},
            id="probes",
        ),
        pytest.param(
            {"lifecycle": {"preStop": {"exec": {"command": ["s3cret"]}}, "stopSignal": "SIGTERM"}},
            {"lifecycle": {"preStop": {"exec": {"command": ["dropped-1"]}}, "stopSignal": "SIGTERM"}},
            id="hooks",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 1}]},
            {"resources": {"requests": {"cpu": "1"}}, "ports": [{"containerPort": 1}]},
            id="fields that a scheduler reads stay",
        ),
    ],
)
def test_containers(tmp_path: Path, container: Object, kept: Object) -> None:
    (found,) = saved(tmp_path, pod(**container))

    assert found.value["spec"]["containers"] == [{"name": "c", "image": "i", **kept}]
    assert b"s3cret" not in gzip.decompress((tmp_path / "dump.json.gz").read_bytes())


def test_annotations(tmp_path: Path) -> None:
    """Annotations of Kubernetes stay, because controllers read them."""
    kept = {"deployment.kubernetes.io/revision": "3", "scheduling.k8s.io/group-name": "g"}
    kept |= {"kubestow.dev/expect": "pending"}
    hidden = {"kubectl.kubernetes.io/restartedAt": "2026"}
    hidden |= dict.fromkeys(("vault.example.com/token", "notkubernetes.io/a"), "s3cret")
    applied = {"kubectl.kubernetes.io/last-applied-configuration": '{"env": "s3cret"}'}
    (found,) = saved(tmp_path, pod(annotations=applied | hidden | kept))

    names = {"2026": "dropped-1", "s3cret": "dropped-2"}
    assert found.value["metadata"]["annotations"] == kept | {key: names[value] for key, value in hidden.items()}


def test_values_that_differ_still_differ(tmp_path: Path) -> None:
    """So a Deployment finds the ReplicaSet of its template."""
    given = (pod(name, env=[{"name": "A", "value": value}]) for name, value in (("a", "1"), ("b", "2"), ("c", "1")))
    values = [each.value["spec"]["containers"][0]["env"][0]["value"] for each in saved(tmp_path, *given)]

    assert values == ["dropped-1", "dropped-2", "dropped-1"]


def test_names_that_only_look_like_fields(tmp_path: Path) -> None:
    labelled = pod()
    labelled["metadata"]["labels"] = {"env": "prod", "args": "x"}
    parameters = {"env": ["value", {"value": 1}], "annotations": {"a": 1}, "lifecycle": {"x": 1}}
    first, second = saved(tmp_path, labelled, a_claim("c").config("d", parameters).obj())

    assert first.value["metadata"]["labels"] == {"env": "prod", "args": "x"}
    assert second.value["spec"]["devices"]["config"][0]["opaque"]["parameters"]["env"][0] == "value"


def test_uids_stay(tmp_path: Path) -> None:
    (found,) = saved(tmp_path, pod())

    assert found.former["metadata"]["uid"] == "u-p"


@pytest.mark.parametrize("name", ["dump.json.gz", "dump.json"])
def test_the_same_objects_give_the_same_bytes(tmp_path: Path, name: str) -> None:
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        saved(tmp_path / directory, pod("x", args=["1"]), pod("y"), name=name)
    one, other = ((tmp_path / directory / name).read_bytes() for directory in ("a", "b"))

    assert one == other
    assert one.startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--save: .*: Is a directory"):
        save([], str(tmp_path))


def test_the_command_has_every_kind() -> None:
    *comments, command = dump_command().splitlines()
    resources = command.split()[2].split(",")

    assert all(line.startswith("#") for line in comments)
    assert [kind.resource for kind in KINDS_READ if kind.resource not in resources] == [
        "devicetaintrules.resource.k8s.io"
    ]
    assert "devicetaintrules.resource.k8s.io" in comments[1]
    assert not {"secrets", "configmaps"} & set(resources)


def test_the_page_shows_the_command() -> None:
    """Else: kubestow simulate --print-dump-command."""
    assert f"```\n{dump_command()}\n```" in PAGE.read_text(encoding="utf-8")
