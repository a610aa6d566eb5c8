"""What tests and actors use in-process, and what can be switched: served versions, rights, old behaviour, restarts."""

from typing import Any

from simulator.apiserver import ApiServer
from simulator.builders.core import pod
from tests.support.clock import VirtualClock


def test_objects_are_handed_out_as_copies() -> None:
    server = ApiServer()
    manifest = pod("a").label("x", "y").obj()
    created = server.create("Pod", manifest)
    created["metadata"]["labels"]["x"] = "z"
    manifest["metadata"]["labels"]["x"] = "z"
    assert server.get("pods", "a")["metadata"]["labels"] == {"x": "y"}
    assert [p["metadata"]["name"] for p in server.list("pods", label_selector="x=y")] == ["a"]


def test_time_and_chance_come_from_outside() -> None:
    server = ApiServer(clock=VirtualClock(wall=0))
    assert server.create("pods", pod("a").obj())["metadata"]["creationTimestamp"] == "1970-01-01T00:00:00Z"


def test_subscribers_get_every_write_in_order_also_writes_of_subscribers() -> None:
    server = ApiServer()
    heard: list[tuple[str, str, str]] = []

    def bind(type_: str, resource: str, obj: dict[str, Any]) -> None:
        if type_ == "ADDED" and resource == "pods":
            server.bind(obj["metadata"]["name"], "n")

    server.subscribe(bind)
    stop = server.subscribe(lambda t, r, o: heard.append((t, r, o["spec"].get("nodeName", ""))))
    server.create("pods", pod("a").obj())
    assert heard == [("ADDED", "pods", ""), ("MODIFIED", "pods", "n")]
    stop()
    server.create("pods", pod("b").obj())
    assert len(heard) == 2


def test_a_dump_is_applied_with_its_status_and_namespace() -> None:
    server = ApiServer()
    manifest = pod("a", "elsewhere").uid("old").resource_version("7").phase("Running").bound_to("n").obj()
    applied = server.apply(manifest)
    assert (applied["status"]["phase"], applied["spec"]["nodeName"]) == ("Running", "n")
    assert applied["metadata"]["uid"] != "old"
