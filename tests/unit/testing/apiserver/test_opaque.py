"""What callers in the server's process see of opaque parameters."""

from __future__ import annotations

import msgspec

from scheduler.testing.apiserver import ApiServer
from scheduler.testing.builders import Manifest
from scheduler.testing.devicebuilders import a_device_class
from scheduler.testing.deviceclaimbuilders import a_claim

PARAMETERS: Manifest = {"b": 1.0, "a": None}
CLAIM = a_claim("c").request("r", "gpu").config("d.x", PARAMETERS).obj()


def parameters(claim: Manifest) -> object:
    return claim["spec"]["devices"]["config"][0]["opaque"]["parameters"]


def test_claims_are_plain_objects() -> None:
    """However they are asked for; a claim that is put back as it is has not changed."""
    server, told = ApiServer(), []
    server.subscribe(lambda _, resource, obj: told.append(obj) if resource == "resourceclaims" else None)
    made = server.create("ResourceClaim", CLAIM)
    read = server.get("ResourceClaim", "c")
    (listed,), (held,) = server.list("ResourceClaim"), server.objects("ResourceClaim")

    assert [PARAMETERS] * 5 == [parameters(claim) for claim in (made, read, listed, held, told[0])]
    labelled = read | {"metadata": read["metadata"] | {"labels": {"a": "b"}}}
    assert {"a": "b"} == server.update("ResourceClaim", labelled)["metadata"]["labels"]
    assert list(PARAMETERS) == list(
        msgspec.json.decode(msgspec.json.encode(parameters(server.get("ResourceClaim", "c"))))
    )


def test_objects_without_parameters_are_not_copied() -> None:
    """It costs nothing per object."""
    server = ApiServer()
    server.create("DeviceClass", a_device_class("gpu", "true").obj())

    assert server.objects("DeviceClass")[0] is server.objects("DeviceClass")[0]
