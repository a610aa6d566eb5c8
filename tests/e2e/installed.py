"""The chart on a real control plane. Its objects are applied as helm applies them. The daemon is started as the kubelet
starts it: with the flags, files and environment of the Deployment and the token of its service account."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import yaml

from tests.deploy.chart import NAMESPACE, Json, Rendered
from tests.e2e.cluster import until
from tests.e2e.controlplane.harness import ControlPlane
from tests.e2e.controlplane.process import Group, ServerProcess, free_port
from tests.support.kubeconfigs import kubeconfig

ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_REPOSITORY: Final = Path(__file__).parents[2]
_AS_HELM: Final = {"fieldManager": "helm", "force": "true", "fieldValidation": "Strict"}


class Applier:
    """Server-side apply, strict: an unknown or doubled field is an error."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    async def apply(self, *objects: Json, dry: bool = False) -> None:
        """In their order, as helm."""
        for item in objects:
            query = _AS_HELM | ({"dryRun": "All"} if dry else {})
            headers = {"Content-Type": "application/apply-patch+yaml"}
            async with self._http.patch(await self.path(item), params=query, json=item, headers=headers) as answer:
                said = await answer.text()  # always: an answer half read keeps its connection
                assert answer.status in {200, 201}, f"{item['kind']} {item['metadata']}: {said}"

    async def namespaces(self, *names: str) -> None:
        await self.apply(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names))

    async def path(self, item: Json) -> str:
        version, kind, metadata = item["apiVersion"], item["kind"], item["metadata"]
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if (version, kind) not in self._plurals:
            async with self._http.get(root) as answer:
                assert answer.status == 200, f"{version} is not served: {await answer.text()}"
                for found in (await answer.json())["resources"]:
                    if "/" not in found["name"]:
                        self._plurals[version, found["kind"]] = found["name"], found["namespaced"]
        plural, is_namespaced = self._plurals[version, kind]
        where = f"/namespaces/{metadata['namespace']}" if is_namespaced else ""
        return f"{root}{where}/{plural}/{metadata['name']}"


@dataclass(frozen=True)
class Account:
    name: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


async def account(http: aiohttp.ClientSession, name: str, namespace: str = NAMESPACE) -> Account:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    async with http.post(path, json=body) as answer:
        assert answer.status == 201, await answer.text()
        return Account(name, (await answer.json())["status"]["token"])


async def may(http: aiohttp.ClientSession, who: Account, **attributes: str) -> bool:
    """Whether the API server's authorizer allows it to this account."""
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    async with http.post(ACCESS_REVIEWS, json=body, headers=who.headers) as answer:
        assert answer.status == 201, await answer.text()
        return bool((await answer.json())["status"]["allowed"])


@dataclass(frozen=True)
class Installation:
    plane: ControlPlane
    rendered: Rendered

    async def install(self, http: aiohttp.ClientSession) -> Account:
        """Apply all but the pod of `helm test`; returns once the account has the last right of each role."""
        await Applier(http).apply(*(each for each in self.rendered.objects if each["kind"] != "Pod"))
        who = await account(http, self.rendered.pod["spec"]["serviceAccountName"])
        for role in (*self.rendered.all("ClusterRole"), *self.rendered.all("Role")):
            if "resources" in role["rules"][-1]:
                asked = _last_right(role)
                await until(partial(may, http, who, **asked), f"the right to {asked}")
        return who

    @contextlib.contextmanager
    def daemon(self, who: Account, *flags: str, name: str = "installed") -> Iterator[tuple[ServerProcess, int]]:
        """One replica, and the port where it serves HTTPS. `flags` come after the Deployment's."""
        port = free_port()
        directory = self.plane.directory / name
        directory.mkdir()
        path = directory / "kubeconfig"
        authority = {"certificate-authority": str(self.plane.ca_file)}
        path.write_text(yaml.safe_dump(kubeconfig({"token": who.token}, self.plane.url, **authority)))
        here = ("--kubeconfig", str(path), "--bind-address=127.0.0.1", f"--secure-port={port}", *flags)
        group = Group(self.plane.logs)
        try:
            environment = [f"{each['name']}={each['value']}" for each in self.rendered.container.get("env", ())]
            program = ("/usr/bin/env", "-i", *environment, f"PYTHONPATH={_REPOSITORY}", sys.executable)
            yield group.start(name, [*program, "-m", "scheduler", *self._arguments(directory), *here]), port
        finally:
            group.stop()

    def _arguments(self, directory: Path) -> list[str]:
        arguments = list(self.rendered.container["args"])
        volumes = {volume["name"]: volume for volume in self.rendered.pod["spec"]["volumes"]}
        for mount in self.rendered.container["volumeMounts"]:
            place = directory / mount["mountPath"].strip("/")
            place.mkdir(parents=True)
            source = self.rendered.named("ConfigMap", volumes[mount["name"]]["configMap"]["name"])
            for file, text in source["data"].items():
                (place / file).write_text(text)
            arguments = [argument.replace(f"={mount['mountPath']}/", f"={place}/") for argument in arguments]
        return arguments


def _last_right(role: Json) -> dict[str, str]:
    rule = role["rules"][-1]
    resource, _, subresource = rule["resources"][-1].partition("/")
    names = rule.get("resourceNames", [""])
    asked = {"verb": rule["verbs"][-1], "group": rule["apiGroups"][-1], "resource": resource, "name": names[-1]}
    return asked | {"subresource": subresource, "namespace": role["metadata"].get("namespace", "")}


async def readyz(http: aiohttp.ClientSession, port: int) -> tuple[int, Sequence[str]]:
    """Status and lines of /readyz?verbose; 0 and none while the port is closed."""
    try:
        async with http.get(f"https://127.0.0.1:{port}/readyz?verbose", ssl=False) as answer:
            return answer.status, (await answer.text()).splitlines()
    except aiohttp.ClientConnectionError:
        return 0, ()
