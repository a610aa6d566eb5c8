"""`kubestow explain`, `what-if` and `ui`: send requests to the running scheduler, and show the answers.

A plan, which is about all pods, is answered by a simulation with the scheduler's configuration (`main`).

The exit code of an answer is the daemon's. Standard output has the answer alone, standard error everything else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import webbrowser
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from scheduler.cli.debug_request import (
    Access,
    Client,
    DebugAnswer,
    DebugRequest,
    MalformedInput,
    RawAnswer,
    answer_of,
    client_of,
    opened,
    problem,
)
from scheduler.cli.leader import LeaseName, NoAnswer, one_line
from scheduler.core.feature_gates import VERSIONS
from scheduler.metrics import logs

T = TypeVar("T")

MALFORMED: Final = 3
NO_ANSWER: Final = 4
QUIET: Final = -1
_BODY_BYTES_MAX: Final = 2**20
_FILE_BYTES_MAX: Final = 16 * 2**20
_NAMESPACED: Final = frozenset(
    {
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "PersistentVolumeClaim",
        "Pod",
        "PodGroup",
        "ReplicaSet",
        "ReplicationController",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "StatefulSet",
    }
)


_Request: TypeAlias = Callable[[Client], DebugRequest]


def explain(arguments: argparse.Namespace) -> int:
    """Print the explanation of a pod or a group. Return the exit code."""

    def prepare() -> _Request:
        is_group = arguments.explained == "group"
        namespace, name = _pod_key(arguments, arguments.key, arguments.explained)
        if arguments.api_group and not is_group:
            raise MalformedInput("--api-group: has an effect only with the word group")
        return lambda client: DebugRequest(
            "GET",
            f"/debug/explain/{namespace or client.namespace}/{name}",
            "/debug/explain/*",
            query={"group": arguments.api_group} if is_group else {},
            wants_text=arguments.output == "text",
        )

    return _run(arguments, prepare)


def what_if(arguments: argparse.Namespace) -> int:
    """Print whether the pods of the manifests would fit. Return the exit code."""

    def prepare() -> _Request:
        question = Question.of(arguments)
        return lambda client: DebugRequest(
            "POST",
            "/debug/what-if",
            "/debug/what-if",
            question.body(arguments.namespace or client.namespace),
            wants_text=arguments.output == "text",
        )

    return _run(arguments, prepare)


def ui(arguments: argparse.Namespace) -> int:
    """Serve the page of the running scheduler on this machine until Ctrl-C. Return the exit code."""

    def serve() -> int:
        try:
            asyncio.run(_serve_page(arguments))
        except OSError as why:
            raise NoAnswer(str(why)) from why
        except KeyboardInterrupt:
            pass
        return 0

    return attempt(arguments, serve)


async def _serve_page(arguments: argparse.Namespace) -> None:
    """Check that the scheduler serves the page, print the address, and pass requests on. Ends when it is cancelled."""
    from scheduler.cli.page_proxy import page_proxy

    client = await client_of(access(arguments))

    async def send(request: DebugRequest) -> RawAnswer:
        answer, _ = await client.exchange(request)
        return answer

    first = DebugRequest("GET", "/ui", "/ui", wants_text=False)
    found, leader = await client.exchange(first)
    if found.status == 404:
        named = f"pod {leader}" if leader else "the scheduler"
        raise NoAnswer(f"{named} does not serve the page: start it with --ui, or set ui.enabled in the chart")
    if found.status != 200:
        raise NoAnswer(problem(answer_of(found.status, found.headers, found.body), first, leader))
    async with page_proxy(send, arguments.port) as url:
        print(f"{url}\nThe page has your permissions. Ctrl-C ends it.", flush=True)
        if not arguments.no_browser and not await asyncio.to_thread(webbrowser.open, url):
            print(f"{arguments.prog}: there is no browser to open; use the address", file=sys.stderr)
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class Question:
    """The input of what-if, read and checked. The namespace of objects that name none is not known yet."""

    manifests: list[dict[str, Any]]
    without: list[tuple[str, str]]
    fields: dict[str, Any]

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Question:
        """Read the files. Raises MalformedInput."""
        manifests = read_manifests(arguments.filename)
        if not manifests and not arguments.drain:
            raise MalformedInput(
                "nothing to place: give manifests by -f, nodes by --drain, or changes such as --add-node-like and --scale"
            )
        if arguments.replicas is not None and not manifests:
            raise MalformedInput("--replicas: has an effect only with -f")
        if arguments.allow_partial:
            raise MalformedInput("--allow-partial: has an effect only on a plan, such as with --scale")
        like: Counter[str] = Counter()
        for node, count in arguments.add_node_like:
            like[node] += count
        fields = {"drain": arguments.drain, "cordon": arguments.cordon, "addNodesLike": dict(like)}
        return cls(
            manifests,
            [_pod_key(arguments, each) for each in arguments.without],
            {"replicas": arguments.replicas} | fields,
        )

    def body(self, namespace: str) -> bytes:
        """Return the request in JSON. Raises MalformedInput if it is too large."""
        fields = {
            "manifests": [_placed(each, namespace) for each in self.manifests],
            "without": [f"{found or namespace}/{name}" for found, name in self.without],
            **self.fields,
        }
        try:
            body = json.dumps({name: value for name, value in fields.items() if value}, allow_nan=False).encode()
        except ValueError:
            raise MalformedInput("a manifest has a number that is infinite or not a number") from None
        if len(body) > _BODY_BYTES_MAX:
            raise MalformedInput(
                f"the manifests have {len(body)} bytes as JSON, and at most {_BODY_BYTES_MAX} can be sent"
            )
        return body


def read_manifests(files: Sequence[str]) -> list[dict[str, Any]]:
    """Return the objects of the files, those of lists included. Raises MalformedInput."""
    from simulator.simulate.input.documents import SyntaxMistake, documents
    from simulator.simulate.input.sources import InputError, sources, text_of

    found: list[dict[str, Any]] = []
    try:
        for source in sources(files) if files else ():
            read = documents(text_of(source, max_bytes=_FILE_BYTES_MAX))
            for number, value in enumerate(filter(None, read.values), 1):
                place = f"{source.name}: document {number}"
                for path, line in read.repeated(value):
                    raise MalformedInput(f"{place}: {path}: is given twice{f' (line {line})' if line else ''}")
                found += [_checked(each, place) for each in _items(value, place)]
    except InputError as mistake:
        raise MalformedInput(str(mistake)) from None
    except SyntaxMistake as mistake:
        where = f"line {mistake.line}: " if mistake.line else ""
        raise MalformedInput(f"{source.name}: {where}{mistake}") from None
    if files and not found:
        raise MalformedInput(f"{', '.join(files)}: has no objects")
    return found


def _items(value: Any, place: str) -> list[Any]:
    """Return the objects of a list, else the object."""
    is_list = isinstance(value, dict) and str(value.get("kind")).endswith("List") and "items" in value
    items = value["items"] if is_list else [value]
    if not isinstance(items, list):
        raise MalformedInput(f"{place}: items: must be a list")
    return items


def _checked(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedInput(f"{place}: expected an object, got {type(value).__name__}")
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str) or not value[field]:
            raise MalformedInput(f"{place}: {field}: is required")
    if not isinstance(value.get("metadata") or {}, dict):
        raise MalformedInput(f"{place}: metadata: must be an object")
    return value


def _placed(value: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return the object with a namespace, as kubectl sends it."""
    metadata = value.get("metadata") or {}
    if value["kind"] not in _NAMESPACED or metadata.get("namespace"):
        return value
    return {**value, "metadata": {**metadata, "namespace": namespace}}


def _pod_key(arguments: argparse.Namespace, key: tuple[str, str], what: str = "pod") -> tuple[str, str]:
    """Return namespace and name; the namespace is "" if neither the key nor -n has one."""
    namespace, name = key
    if namespace and arguments.namespace not in {None, namespace}:
        raise MalformedInput(f"{what} {namespace}/{name}: -n names another namespace, {arguments.namespace}")
    return namespace or arguments.namespace or "", name


def access(arguments: argparse.Namespace) -> Access:
    """Return the place of the scheduler from the flags."""
    pods = arguments.scheduler_namespace
    return Access(
        LeaseName(arguments.lease_name, arguments.lease_namespace or pods, pods),
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
        server=(arguments.server or "").rstrip("/"),
        ca_file=arguments.scheduler_ca_file or "",
        server_name=arguments.scheduler_server_name or "",
        timeout_s=arguments.timeout,
    )


def offline_question(arguments: argparse.Namespace) -> bytes:
    """Return the question of what-if for a dump, in JSON. Raises MalformedInput."""
    return Question.of(arguments).body(arguments.namespace or "default")


def is_plan(arguments: argparse.Namespace) -> bool:
    """Return whether the question is about all pods of the cluster: the scheduler's own answer is about named pods."""
    places_pods = bool(arguments.filename or arguments.drain)
    changes_nodes = bool(arguments.cordon or arguments.add_node_like)
    return bool(arguments.scale or arguments.nodes_needed) or (changes_nodes and not places_pods)


def check_plan(arguments: argparse.Namespace) -> None:
    """Raise MalformedInput for a flag that has no effect on a plan."""
    for flag in ("without", "replicas"):
        if getattr(arguments, flag):
            raise MalformedInput(f"--{flag}: has no effect on a plan; use --scale, or change the manifests of -f")
    if arguments.namespace and arguments.filename:
        raise MalformedInput("-n: has no effect on the manifests of a plan; write the namespace into them")


def running_configuration(arguments: argparse.Namespace) -> tuple[bytes, str, dict[str, bool]]:
    """Return the scheduler's configuration in JSON, its emulated version and its feature gates.

    Raises NoAnswer and MalformedInput.
    """

    async def page() -> str:
        async with opened(access(arguments)) as client:
            return (await client.send(DebugRequest("GET", "/configz", "/configz", wants_text=False))).text

    logs.setup("text", QUIET)
    try:
        found = json.loads(asyncio.run(page()))
        ours = found["kubestow"]
        gates = {str(gate): value for gate, value in ours["featureGates"].items() if type(value) is bool}
        version = str(ours["emulatedVersion"])
        if version in VERSIONS:
            return json.dumps(found["componentconfig"]).encode(), version, gates
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NoAnswer("the answer to GET /configz is no configuration; is the scheduler of this version?") from error
    raise NoAnswer(
        f"the scheduler decides as version {one_line(version)}, which this program does not know; use a newer one"
    )


def _run(arguments: argparse.Namespace, prepare: Callable[[], _Request]) -> int:
    """Read the input, send the request, and print the answer. The input is checked before anything is sent."""
    answer = attempt(arguments, lambda: asyncio.run(_answer(access(arguments), prepare())))
    if isinstance(answer, int):
        return answer
    if answer.status != 200:
        return fail(arguments, answer.text.strip() or f"status {answer.status}", answer.exit_code or NO_ANSWER)
    sys.stdout.write(answer.text if answer.text.endswith("\n") else answer.text + "\n")
    code = answer.exit_code if answer.exit_code is not None else _code_in(answer.text)
    if code is None:
        return fail(arguments, "the answer has no exit code; the scheduler is of another version", NO_ANSWER)
    return code


async def _answer(place: Access, request: _Request) -> DebugAnswer:
    async with opened(place) as client:
        return await client.send(request(client))


def _code_in(text: str) -> int | None:
    """Return the field exitCode of an answer in JSON; None if there is none."""
    try:
        code = json.loads(text).get("exitCode")
    except (ValueError, AttributeError, RecursionError):
        return None
    return code if type(code) is int and 0 <= code <= MALFORMED else None


def attempt(arguments: argparse.Namespace, run: Callable[[], T]) -> T | int:
    """Return the result, or the exit code after an error, which is printed."""
    logs.setup("text", QUIET)
    try:
        return run()
    except MalformedInput as mistake:
        return fail(arguments, str(mistake), MALFORMED)
    except NoAnswer as why:
        return fail(arguments, str(why), NO_ANSWER)


def fail(arguments: argparse.Namespace, text: str, code: int) -> int:
    """Print an error and return the exit code."""
    print(f"{arguments.prog}: {text}", file=sys.stderr)
    return code
