"""`kubestow status`, `queue`, `bugreport` and a whole daemon: through the Lease, the pod and a port forwarding."""

from __future__ import annotations

import json
import socket
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_explain_command import ANN, BOB, NAMESPACE, explained
from tests.support.jsonschema import mistakes
from tools.answer_schemas import schema

DEPLOYMENT: dict[str, Any] = {
    "metadata": {"name": "stow", "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": "kubestow"}},
    "spec": {"replicas": 2},
}


async def test_the_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with explained(tmp_path, capsys) as cluster:
        code, out, err = await cluster.run("status", user=ANN)
        assert (code, err) == (0, "")
        lines = dict(line.split(maxsplit=1) for line in out.splitlines())
        assert lines["scheduler"].startswith("healthy, version ")
        assert lines["leader"].startswith(f"{NAMESPACE}/{socket.gethostname()} on node n1 for ")
        assert lines["queue"] == "0 active, 0 backoff, 0 gated, 1 unschedulable"
        assert lines["rejected"] == "1 pod by NodeResourcesFit"

        code, out, err = await cluster.run("status", "-o", "json", user=ANN)
        shown = json.loads(out)
        assert (code, err, shown["exitCode"]) == (0, "", 0)
        assert list(mistakes(shown, schema("status.schema.json"))) == []
        assert (shown["objects"]["Node"], shown["objects"]["Pod"], shown["unavailable"]) == (1, 2, [])


async def test_the_status_without_permission(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The health is public, and the rest is not: the output names the missing rule, and is no proof of health."""
    async with explained(tmp_path, capsys) as cluster:
        code, out, err = await cluster.run("status", user=BOB)

    assert (code, err) == (4, "")
    assert out.startswith("scheduler  not known\n")
    assert 'a ClusterRole needs the rule {nonResourceURLs: ["/metrics"], verbs: [get]}' in out


async def test_the_queue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with explained(tmp_path, capsys) as cluster:
        code, out, err = await cluster.run("queue", user=ANN)
        assert (code, err) == (0, "")
        assert out.splitlines()[0] == "1 unschedulable"
        assert out.splitlines()[3].split()[:3] == ["default/large", "unschedulable", "1"]

        code, out, err = await cluster.run("queue", "-o", "json", user=ANN)
        assert (code, err) == (0, "")
        shown = json.loads(out)
        assert list(mistakes(shown, schema("queue.schema.json"))) == []
        (pod,) = shown["pods"]
        assert (pod["plugins"], 0 < pod["retryS"] <= 300) == (["NodeResourcesFit"], True)

        code, out, err = await cluster.run("queue", "-n", "other", user=ANN)
        assert (code, out) == (0, "1 unschedulable\n")

        code, out, err = await cluster.run("queue", user=BOB)
        assert (code, out) == (4, "")
        assert err.endswith('a ClusterRole needs the rule {nonResourceURLs: ["/debug/queue"], verbs: [get]}\n')


@pytest.mark.parametrize("command", ["status", "queue"])
async def test_a_scheduler_that_does_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    async with explained(tmp_path, capsys) as cluster:
        code, out, err = await cluster.run(command, "--lease-name=other", user=ANN)
        assert (code, out) == (4, "")
        assert f"no Deployment and no Pod is in namespace {NAMESPACE} with the label " in err

        server = cluster.cluster.rig.server
        server.create("deployments", DEPLOYMENT)
        pod = {"metadata": DEPLOYMENT["metadata"] | {"name": "stow-0"}, "spec": {"containers": [{"name": "c"}]}}
        server.create("pods", pod)
        waiting = {"name": "c", "restartCount": 3, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
        status = {"phase": "Pending", "containerStatuses": [waiting]}
        server.patch("pods", "stow-0", {"status": status}, namespace=NAMESPACE, subresource="status")
        code, out, err = await cluster.run(command, "--lease-name=other", user=ANN)
        assert (code, out) == (4, "")
        assert "there is no Lease kube-system/other; " in err
        assert "Deployment stow has 0 of 2 replicas ready; Pod stow-0 is Pending, ImagePullBackOff, 3 restarts" in err

        cluster.front.statuses["/deployments"] = 403
        code, out, err = await cluster.run(command, "--lease-name=other", user=ANN)
        assert (code, out) == (4, "")
        assert "; you may not list Deployments and Pods of namespace kube-system; an administrator can look by " in err


# -- bug reports -----------------------------------------------------------------------------------------------------------

HIDDEN = "hunter2-hunter2"
"""A secret wherever an object or a log may have one."""


def secretive(name: str, **labels: str) -> dict[str, Any]:
    """Return a pod whose fields have the secret."""
    probe = {"httpGet": {"path": "/", "port": 1, "httpHeaders": [{"name": "Authorization", "value": HIDDEN}]}}
    container = {
        "name": "c",
        "image": "none",
        "env": [{"name": "PASSWORD", "value": HIDDEN}],
        "args": [f"--password={HIDDEN}"],
        "command": ["sh", "-c", f"login {HIDDEN}"],
        "livenessProbe": probe,
        "lifecycle": {"preStop": {"exec": {"command": [HIDDEN]}}},
    }
    volume = {"name": "v", "csi": {"driver": "d", "volumeAttributes": {"key": HIDDEN}}}
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": labels,
        "annotations": {"vault.example.com/token": HIDDEN},
    }
    return {"metadata": metadata, "spec": {"containers": [container], "volumes": [volume]}}


def files_of(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        members = {each.name.partition("/")[2]: tar.extractfile(each) for each in tar.getmembers()}
        return {name: file.read().decode() for name, file in members.items() if file is not None}


async def test_a_bug_report_has_no_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with explained(tmp_path, capsys) as cluster:
        server = cluster.cluster.rig.server
        server.create("pods", secretive("stow-0", **{"app.kubernetes.io/name": "kubestow"}))
        server.create("pods", secretive("other"))
        cluster.front.texts["/stow-0/log"] = f"started\nAuthorization: Bearer {HIDDEN}\npassword={HIDDEN}\nend\n"
        code, out, err = await cluster.run("bugreport", "--output-file=r.tar.gz", user=ANN)
        assert cluster.cluster.requested("secrets") == 0

    assert (code, err) == (0, "")
    assert out.startswith("r.tar.gz: ")
    assert "Read before you share the archive." in out
    files = files_of(tmp_path / "r.tar.gz")
    assert {
        "MANIFEST.txt", "version.txt", "status.txt", "status.json", "queue.txt", "readyz.txt", "metrics.txt", "configz.json",
        "audit.json", "debug-queue.json", "debug-cache.json", "lease.json", "pods.json", "objects.json", "events.json",
        "logs/stow-0-c.txt",
    } <= files.keys()  # fmt: skip
    assert [name for name, text in files.items() if HIDDEN in text or "ann's" in text] == []
    assert files["logs/stow-0-c.txt"].splitlines()[::3] == ["started", "end"]
    names = [each["metadata"]["name"] for each in json.loads(files["objects.json"])["items"] if each["kind"] == "Pod"]
    assert {"stow-0", "other", "large"} <= set(names)
    assert "default/large" in files["queue.txt"]
    for name, text in files.items():
        if name.endswith(".json"):
            json.loads(text)


async def test_parts_that_cannot_be_read_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may see the pods and not the pages, and the report is written."""
    monkeypatch.chdir(tmp_path)
    async with explained(tmp_path, capsys) as cluster:
        cluster.front.statuses |= {"/events": 403}
        code, _, err = await cluster.run("bugreport", "--output-file=r.tar.gz", "--without-objects", user=BOB)
        assert (code, err) == (0, "")
        again = await cluster.run("bugreport", "--output-file=r.tar.gz", user=BOB)

    files = files_of(tmp_path / "r.tar.gz")
    missing = files["MANIFEST.txt"].partition("Not read:\n")[2]
    for name, why in {
        "metrics.txt": "no permission: ",
        "events.json": "",
        "objects.json": "--without-objects is given",
    }.items():
        assert f"  {name}  {why}" in missing
    assert "objects.json" not in files
    assert again[::2] == (1, "kubestow: --output-file: r.tar.gz: File exists; name another file\n")


async def test_nothing_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with explained(tmp_path, capsys) as cluster:
        cluster.front.statuses |= {"": 401}
        code, out, err = await cluster.run("bugreport", user=ANN)

    assert (code, out) == (4, "")
    assert err.startswith("kubestow: the API server does not accept your credentials (401)")


GARBAGE = {
    "deep": '{"items": ' + "[" * 100_000,
    "no list": '{"items": null}',
    "no objects": '{"items": [1, "a", null]}',
    "no fields": '{"items": [{}, {"metadata": null, "spec": null, "reason": []}]}',
    "a path": '{"items": [{"metadata": {"name": "../../x"}, "spec": {"containers": [{"name": "../c"}]}}]}',
    "no JSON": "<html>",
}


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_report_of_a_strange_api_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, garbage: str
) -> None:
    """What it answers costs its own part, and no name leaves the directory of the archive."""
    monkeypatch.chdir(tmp_path)
    async with explained(tmp_path, capsys) as cluster:
        lists = ("/deployments", "/kube-system/pods", "/events", "/api/v1/nodes", "/api/v1/pods")
        cluster.front.texts |= dict.fromkeys(lists, GARBAGE[garbage])
        code, _, err = await cluster.run("bugreport", "--output-file=r.tar.gz", user=ANN)

    assert (code, err) == (0, "")
    with tarfile.open("r.tar.gz") as tar:
        names = tar.getnames()
    assert [name for name in names if ".." in name or name.startswith("/")] == []
    assert {"status.txt", "MANIFEST.txt"} <= files_of(tmp_path / "r.tar.gz").keys()
