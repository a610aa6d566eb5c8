"""From the Lease to the leader's pod and port, and one line for each thing that can be missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.cli.leader import Leader, LeaseName, NoAnswer, find_leader, one_line
from scheduler.core.errors import ApiError, Forbidden, NotFound, Unauthorized, Unavailable
from tests.unit.kube.scripted import LeapingClock, ScriptedTransport

LEASE = LeaseName("kubestow", "kube-system", "kube-system")
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kubestow"
POD_PATH = "/api/v1/namespaces/kube-system/pods/stow-0"
NOW = "2023-11-14T22:30:00.000000Z"
"""The wall time of LeapingClock, about."""


def lease(holder: str | None = "stow-0_0b5c", renewed: str | None = NOW, **spec: Any) -> bytes:
    record = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15, **spec}
    metadata = {"name": "kubestow", "namespace": "kube-system", "resourceVersion": "1"}
    return json.dumps({"metadata": metadata, "spec": record}).encode()


def pod(*args: str, phase: str = "Running", **container: Any) -> bytes:
    containers = [{"name": "scheduler", "image": "example.com:5000/stow:1.2@sha256:0", "args": args, **container}]
    return json.dumps({"spec": {"nodeName": "n1", "containers": containers}, "status": {"phase": phase}}).encode()


async def found(first: bytes | ApiError, second: bytes | ApiError = b"", name: LeaseName = LEASE) -> Leader:
    transport = ScriptedTransport(answers=[first, second])
    return await find_leader(transport, name, LeapingClock())


async def test_the_requests() -> None:
    transport = ScriptedTransport(answers=[lease(), pod()])

    assert await find_leader(transport, LEASE, LeapingClock()) == Leader("kube-system", "stow-0", 10259, "n1", "1.2")
    assert transport.paths("GET") == [LEASE_PATH, POD_PATH]


async def test_a_lease_in_another_namespace_than_its_pods() -> None:
    transport = ScriptedTransport(answers=[lease(), pod()])
    leader = await find_leader(transport, LeaseName("stow", "leases", "stow"), LeapingClock())

    assert str(leader) == "stow/stow-0"
    assert transport.paths("GET") == [
        "/apis/coordination.k8s.io/v1/namespaces/leases/leases/stow",
        "/api/v1/namespaces/stow/pods/stow-0",
    ]


@pytest.mark.parametrize(
    ("container", "port"),
    [
        pytest.param({}, 10259, id="no argument and no port mean the default port"),
        pytest.param({"args": ["run", "--secure-port=8443"]}, 8443, id="the flag with an equals sign"),
        pytest.param({"args": ["run", "--secure-port", "8443"]}, 8443, id="the flag with a separate value"),
        pytest.param({"args": ["--secure-port=1", "--secure-port=2"]}, 2, id="the last of two flags wins"),
        pytest.param({"command": ["kubestow", "run", "--secure-port=8443"]}, 8443, id="the flag in the command"),
        pytest.param({"args": ["--secure-port"]}, 10259, id="a flag without a value is ignored"),
        pytest.param({"args": ["--secure-port=999999"]}, 10259, id="a value with too many digits is ignored"),
        pytest.param(
            {"args": ["--secure-port=$(PORT)"], "ports": [{"name": "https", "containerPort": 7000}]},
            7000,
            id="a variable in the flag leaves the named port",
        ),
        pytest.param(
            {"ports": [{"name": "http", "containerPort": 80}]}, 10259, id="a port with another name is ignored"
        ),
    ],
)
async def test_the_port(container: dict[str, Any], port: int) -> None:
    assert (await found(lease(), pod(**container))).port == port


@pytest.mark.parametrize(
    ("image", "version"),
    [
        pytest.param("example.com/stow:1.2", "1.2", id="a tag"),
        pytest.param("example.com:5000/stow", "", id="a port of the registry is no tag"),
        pytest.param("stow@sha256:0", "", id="a digest is no tag"),
    ],
)
async def test_the_version(image: str, version: str) -> None:
    assert (await found(lease(), pod(image=image))).version == version


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        pytest.param(
            NotFound("x", status=404),
            b"",
            "there is no Lease kube-system/kubestow; name it by --scheduler-namespace and --lease-name (`kubectl get "
            "leases -A -l kubestow.dev/scheduler-lease` lists those of Kubestow), or use --server if the scheduler runs "
            "without leader election",
            id="no Lease",
        ),
        pytest.param(
            Forbidden('User "ann" cannot get resource "leases"', status=403),
            b"",
            'no permission to get Lease kube-system/kubestow: User "ann" cannot get resource "leases"; a Role in '
            'namespace kube-system needs the rule {apiGroups: ["coordination.k8s.io"], resources: ["leases"], '
            'resourceNames: ["kubestow"], verbs: [get]}',
            id="no right to read the Lease",
        ),
        pytest.param(
            Unauthorized("Unauthorized", status=401),
            b"",
            "the API server does not accept your credentials (401): Unauthorized; log in again",
            id="expired credentials",
        ),
        pytest.param(
            Unavailable("cannot connect to h:6443: Connection refused"),
            b"",
            "the API server did not get Lease kube-system/kubestow: cannot connect to h:6443: Connection refused",
            id="no API server",
        ),
        pytest.param(
            Unavailable("etcd\nis \x1b[31mslow", status=500),
            b"",
            "the API server did not get Lease kube-system/kubestow (500): etcd is \\x1b[31mslow",
            id="a failure of the API server, as one line",
        ),
        pytest.param(
            lease(""),
            b"",
            "no replica leads: Lease kube-system/kubestow has no holder; wait until a replica is ready, or start the "
            "scheduler",
            id="a released Lease",
        ),
        pytest.param(
            b'{"metadata": {"name": "kubestow", "resourceVersion": "1"}}',
            b"",
            "no replica leads: Lease kube-system/kubestow has no holder; wait until a replica is ready, or start the "
            "scheduler",
            id="a Lease without a spec",
        ),
        pytest.param(
            lease(renewed="2023-11-14T22:00:00Z"),
            b"",
            "no replica leads: stow-0_0b5c renewed Lease kube-system/kubestow last at 2023-11-14T22:00:00Z; look whether "
            "the scheduler runs, and whether the clock of this machine is right",
            id="an old Lease",
        ),
        pytest.param(
            lease("workstation_0b5c"),
            NotFound("x", status=404),
            "the leader workstation_0b5c is no pod of namespace kube-system; name the namespace of its pod by "
            "--scheduler-namespace, or use --server if it runs outside of the cluster or in the network of its node",
            id="a holder that is no pod",
        ),
        pytest.param(
            lease("../../nodes/n1_x"),
            b"",
            "the leader ../../nodes/n1_x is no pod of namespace kube-system; name the namespace of its pod by "
            "--scheduler-namespace, or use --server if it runs outside of the cluster or in the network of its node",
            id="a holder that is no name",
        ),
        pytest.param(
            lease(),
            Forbidden("no", status=403),
            "no permission to get Pod kube-system/stow-0: no; a Role in namespace kube-system needs the rule "
            '{apiGroups: [""], resources: ["pods"], verbs: [get]}',
            id="no right to read the pod",
        ),
        pytest.param(
            lease(),
            pod(phase="Succeeded"),
            "pod kube-system/stow-0 holds Lease kube-system/kubestow and has ended (Succeeded); another replica takes "
            "the Lease when it expires: try again in a minute",
            id="a leader that has ended",
        ),
        pytest.param(
            lease(),
            pod("--secure-port=0"),
            "pod kube-system/stow-0 is started with --secure-port=0 and serves no HTTPS; remove that flag",
            id="a leader without HTTPS",
        ),
    ],
)
async def test_what_is_missing(first: bytes | ApiError, second: bytes | ApiError, said: str) -> None:
    with pytest.raises(NoAnswer) as raised:
        await found(first, second)

    assert str(raised.value) == said
    assert "\n" not in said


async def test_a_pod_that_cannot_be_read() -> None:
    with pytest.raises(NoAnswer, match=r"^Pod kube-system/stow-0 cannot be read: .*\$\.spec.*; use --server$"):
        await found(lease(), b'{"spec": []}')


@pytest.mark.parametrize(
    "renewed",
    [
        pytest.param(None, id="no time"),
        pytest.param("yesterday", id="no readable time"),
        pytest.param("2023-11-14T22:29:00Z", id="within its duration and a minute"),
    ],
)
async def test_a_lease_that_may_be_held(renewed: str | None) -> None:
    assert (await found(lease(renewed=renewed), pod())).pod == "stow-0"


def test_a_text_of_a_server_is_one_bounded_line() -> None:
    assert one_line("a\r\n\tb\x1b]0;title\x07 c\x9b2J") == "a b\\x1b]0;title\\x07 c\\x9b2J"
    assert len(one_line("x" * 10_000)) <= 400
