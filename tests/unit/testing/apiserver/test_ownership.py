"""Whose annotations of claims are, for writes within the process; what HTTP does is in the contract suite."""

from __future__ import annotations

from scheduler.core.volumes import SELECTED_NODE
from scheduler.testing.apiserver import ApiServer
from tests.support.volumebuilders import a_claim, a_pv


def owners(server: ApiServer, name: str) -> dict[str, str]:
    """Annotation → manager."""
    entries = server.get("persistentvolumeclaims", name)["metadata"].get("managedFields", [])
    return {
        field.removeprefix("f:"): entry["manager"]
        for entry in entries
        for field in entry["fieldsV1"]["f:metadata"]["f:annotations"]
    }


def test_the_manager_that_is_named_owns_what_it_writes() -> None:
    """Creating, replacing and patching; who names none is unknown."""
    server = ApiServer()
    server.create("persistentvolumeclaims", a_claim("c").annotation("a", "1").obj())
    assert {"a": "unknown"} == owners(server, "c")

    patch = {"metadata": {"annotations": {SELECTED_NODE: "n1"}}}
    server.patch("persistentvolumeclaims", "c", patch, manager="kube-scheduler")
    assert {"a": "unknown", SELECTED_NODE: "kube-scheduler"} == owners(server, "c")

    claim = server.get("persistentvolumeclaims", "c")
    claim["metadata"]["annotations"] |= {SELECTED_NODE: "n2"}
    server.update("persistentvolumeclaims", claim, manager="kubestow")
    assert {"a": "unknown", SELECTED_NODE: "kubestow"} == owners(server, "c")

    server.create("persistentvolumeclaims", a_claim("d").annotation("a", "1").obj(), manager="somebody")
    assert {"a": "somebody"} == owners(server, "d")


def test_books_are_kept_for_claims_alone() -> None:
    """Nobody asks for others."""
    server = ApiServer()
    made = server.create("persistentvolumes", a_pv("a").annotation("a", "1").obj(), manager="somebody")
    assert "managedFields" not in made["metadata"]
