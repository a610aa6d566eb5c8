"""`explain` and `what-if`: flags, manifests, the body of a request, exit codes, and the plugin of kubectl."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from scheduler.api.pod_group import API_GROUPS
from scheduler.cli import client_flags, cluster_commands, kubectl_plugin, main as cli
from scheduler.cli.cluster_commands import Question, access, read_manifests
from scheduler.cli.debug_request import Access, MalformedInput
from scheduler.cli.flags import parser
from scheduler.cli.leader import LeaseName
from scheduler.config.types import LeaderElection
from scheduler.explain import manifests, what_if
from tests.support.port_forwarding import serving

POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, resources: {limits: {cpu: 1}}}]}\n"
)
CLAIM = '{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "shop"}}'
NOTHING = "nothing to place: give manifests by -f, nodes by --drain, or "
NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with manifests."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"pod.yaml": POD, "claim.json": CLAIM, "two.yaml": f"{POD}---\n---\n{NODE}"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def parsed(*argv: str) -> Any:
    return parser().parse_args(argv)


# -- flags -----------------------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_leader_election() -> None:
    default = LeaderElection()
    lease = LeaseName(default.resource_name, default.resource_namespace, default.resource_namespace)

    assert access(parsed("explain", "web")) == Access(lease)


def test_the_way_to_the_scheduler() -> None:
    flags = (
        "--kubeconfig k --context c --scheduler-namespace stow --lease-name l --lease-namespace leases "
        "--server https://127.0.0.1:1/ --scheduler-ca-file ca --scheduler-server-name name --timeout 1m30s"
    )
    expected = Access(
        LeaseName("l", "leases", "stow"),
        kubeconfig="k",
        context="c",
        server="https://127.0.0.1:1",
        ca_file="ca",
        server_name="name",
        timeout_s=90.0,
    )

    for command in (["explain", "web"], ["what-if"]):
        assert access(parsed(*command, *flags.split())) == expected


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param("explain", id="no pod"),
        pytest.param("explain a b", id="two pods"),
        pytest.param("explain group a b", id="two groups"),
        pytest.param("explain group a/b/c", id="a key of a group with three parts"),
        pytest.param("explain group a --api-group=apps", id="an API group without groups"),
        pytest.param("explain a/b/c", id="a key with three parts"),
        pytest.param("explain ../x", id="a path"),
        pytest.param("explain Web", id="no name"),
        pytest.param("explain demo/", id="a namespace without a pod"),
        pytest.param("explain web -o yaml", id="an unknown format"),
        pytest.param("explain web -n a.b", id="no namespace"),
        pytest.param("explain web --timeout=0", id="no time"),
        pytest.param("explain web --lease-name=../x", id="no name of a Lease"),
        pytest.param("explain web --nonsense", id="an unknown flag"),
        pytest.param("what-if --replicas=0", id="no replicas"),
        pytest.param("what-if --replicas=many", id="no number"),
        pytest.param("what-if --replicas=1001", id="more replicas than are placed"),
        pytest.param("what-if --add-node-like=n=101", id="more nodes than are added"),
        pytest.param("what-if --add-node-like=n1=0", id="no node"),
        pytest.param("what-if --add-node-like==2", id="no name of a node"),
        pytest.param("what-if --drain=", id="an empty name"),
        pytest.param("what-if --without=a/b/c", id="no key of a pod"),
        pytest.param("what-if file.yaml", id="a file without its flag"),
    ],
)
def test_wrong_usage_is_malformed_input(argv: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The usual 2 would mean that the pod does not fit."""
    for run, prog in ((cli.main, "kubestow"), (kubectl_plugin.main, "kubectl kubestow")):
        with pytest.raises(SystemExit) as ended:
            run(argv.split())

        assert ended.value.code == 3
        assert capsys.readouterr().err.startswith(f"usage: {prog} ")


# -- manifests -------------------------------------------------------------------------------------------------------------


def body(*argv: str, namespace: str = "demo") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Question.of(parsed("what-if", *argv)).body(namespace))
    return found


@pytest.mark.usefixtures("files")
def test_the_body_of_a_question() -> None:
    flags = "--replicas 3 --drain n1 --drain n2 --cordon n3 --add-node-like n4=2 --add-node-like n4 --add-node-like n5"
    found = body("-f", "pod.yaml", "-f", "claim.json", *flags.split(), "--without", "db-0", "--without", "shop/db-1")

    assert [(each["kind"], each["metadata"]["namespace"]) for each in found.pop("manifests")] == [
        ("Pod", "demo"),
        ("PersistentVolumeClaim", "shop"),
    ]
    assert found == {
        "replicas": 3,
        "drain": ["n1", "n2"],
        "cordon": ["n3"],
        "addNodesLike": {"n4": 3, "n5": 1},
        "without": ["demo/db-0", "shop/db-1"],
    }


def test_a_drain_needs_no_manifest() -> None:
    assert body("--drain=n1") == {"drain": ["n1"]}


def test_objects_of_the_cluster_get_no_namespace(files: Path) -> None:
    assert [each["metadata"] for each in body("-f", "two.yaml")["manifests"]] == [
        {"name": "web", "namespace": "demo"},
        {"name": "n1"},
    ]


def test_lists_and_documents(files: Path) -> None:
    items = [json.loads(CLAIM), json.loads(CLAIM)]
    (files / "list.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}) * 2)

    assert [each["kind"] for each in read_manifests(["list.json", "two.yaml"])] == [
        *["PersistentVolumeClaim"] * 4,
        "Pod",
        "Node",
    ]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(POD.encode())))

    assert [each["kind"] for each in read_manifests(["-"])] == ["Pod"]


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        pytest.param(None, "", "nothing to place: give manifests by -f, nodes by --drain, or changes ", id="nothing"),
        pytest.param(
            None, "--drain=n1 --replicas=2", "--replicas: has an effect only with -f", id="replicas of nothing"
        ),
        pytest.param(None, "-f /nowhere", "/nowhere: cannot be read: No such file or directory", id="no file"),
        pytest.param(None, "-f - -f -", "-: standard input can be read only once", id="standard input twice"),
        pytest.param("", "", "in.yaml: has no objects", id="an empty file"),
        pytest.param("a: [", "", "in.yaml: line 2: is not YAML: ", id="no YAML"),
        pytest.param("- a", "", "in.yaml: document 1: expected an object, got list", id="a list"),
        pytest.param(f"{POD}---\nkind: Pod", "", "in.yaml: document 2: apiVersion: is required", id="no apiVersion"),
        pytest.param(
            "apiVersion: v1\nkind: 1", "", "in.yaml: document 1: kind: is required", id="a kind that is no text"
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: a",
            "",
            "in.yaml: document 1: metadata: must be an object",
            id="metadata",
        ),
        pytest.param(
            "kind: List\nitems: a", "", "in.yaml: document 1: items: must be a list", id="a List without a list"
        ),
        pytest.param(
            f"{POD}spec: {{}}\n",
            "",
            "in.yaml: document 1: spec: is given twice (line 5)",
            id="a field that is given twice",
        ),
        pytest.param(f"{POD}x: .nan\n", "", "a manifest has a number that is infinite or not a number", id="no number"),
        pytest.param(f"{POD}x: {'a' * 2**20}\n", "", "the manifests have 10487", id="more than a MiB"),
    ],
)
def test_a_mistake_in_the_input(files: Path, text: str | None, flags: str, said: str) -> None:
    if text is not None:
        (files / "in.yaml").write_text(text)
        flags = "-f in.yaml"
    with pytest.raises(MalformedInput) as raised:
        body(*flags.split())

    assert str(raised.value).startswith(said)


# -- whole commands --------------------------------------------------------------------------------------------------------


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    """A daemon without TLS in a thread, because a command has an event loop itself."""
    with Scheduler() as running:
        yield running


class Scheduler:
    def __init__(self) -> None:
        self.response: tuple[int, str, str | None] = (200, "fits\n", "0")
        self.requests: list[tuple[str, str]] = []
        self.url = ""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._is_ready, self._loop = threading.Event(), asyncio.new_event_loop()

    def __enter__(self) -> Scheduler:
        self._thread.start()
        assert self._is_ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop.close()
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        async with serving(self._answer) as self.url:
            self._is_ready.set()
            await self._is_over.wait()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        self.requests.append((request.method, request.path_qs))
        status, body, code = self.response
        headers = {} if code is None else {"Kubestow-Exit-Code": code}
        return web.Response(status=status, text=body, headers=headers)


@pytest.mark.parametrize("code", range(4))
def test_the_exit_code_is_that_of_the_answer(
    scheduler: Scheduler, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    scheduler.response = (200, "the answer", str(code))

    assert cli.main(["explain", "web", "-n", "shop", "--server", scheduler.url]) == code
    assert capsys.readouterr() == ("the answer\n", "")
    assert scheduler.requests == [("GET", "/debug/explain/shop/web?output=text")]


@pytest.mark.parametrize(
    ("argv", "path"),
    [
        ("explain pod demo/web", "/debug/explain/demo/web?output=text"),
        ("explain group", "/debug/explain/default/group?output=text"),
        ("explain group demo/g", "/debug/explain/demo/g?group=&output=text"),
        ("explain group g -n shop -o json", "/debug/explain/shop/g?group="),
        ("explain group demo/g --api-group=scheduling.x-k8s.io", "/debug/explain/demo/g?group=scheduling.x-k8s.io&output=text"),
    ],
)  # fmt: skip
def test_what_is_explained(scheduler: Scheduler, argv: str, path: str) -> None:
    scheduler.response = (200, "the answer", "1")

    assert cli.main([*argv.split(), "--server", scheduler.url]) == 1
    assert scheduler.requests == [("GET", path)]


def test_json_is_printed_as_it_is(scheduler: Scheduler, capsys: pytest.CaptureFixture[str]) -> None:
    scheduler.response = (200, '{"exitCode": 2}\n', None)

    assert cli.main(["what-if", "--drain=n1", "-o", "json", "--server", scheduler.url]) == 2
    assert capsys.readouterr() == ('{"exitCode": 2}\n', "")
    assert scheduler.requests == [("POST", "/debug/what-if")]


@pytest.mark.parametrize(
    ("response", "code", "said"),
    [
        pytest.param((404, "there is no pod demo/web\n", None), 3, "there is no pod demo/web", id="no such pod"),
        pytest.param((400, "drain: no node n1", "3"), 3, "drain: no node n1", id="a malformed request"),
        pytest.param(
            (401, "no", None), 4, "the scheduler does not accept your credentials (401): no; ", id="a refusal"
        ),
    ],
)
def test_a_failure_is_one_line_on_standard_error(
    scheduler: Scheduler, capsys: pytest.CaptureFixture[str], response: Any, code: int, said: str
) -> None:
    scheduler.response = response
    for run, prog in ((cli.main, "kubestow"), (kubectl_plugin.main, "kubectl kubestow")):
        assert run(["explain", "demo/web", "--server", scheduler.url]) == code
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(f"{prog}: {said}")
        assert printed.err.count("\n") == 1


@pytest.mark.parametrize("text", ["fits", "[]", "{}", '{"exitCode": true}', '{"exitCode": 9}'])
def test_an_answer_without_an_exit_code(scheduler: Scheduler, capsys: pytest.CaptureFixture[str], text: str) -> None:
    scheduler.response = (200, text, None)

    assert cli.main(["explain", "web", "--server", scheduler.url]) == 4
    said = "kubestow: the answer has no exit code; the scheduler is of another version\n"
    assert capsys.readouterr() == (text + "\n", said)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param("explain demo/web -n shop", "pod demo/web: -n names another namespace, shop", id="two namespaces"),
        pytest.param("explain group demo/g -n shop", "group demo/g: -n names another namespace, shop", id="of a group"),
        pytest.param(
            "explain g --api-group=scheduling.k8s.io",
            "--api-group: has an effect only with the word group",
            id="a kind of pods",
        ),
        pytest.param("what-if", f"{NOTHING}changes such as --add-node-like and --scale", id="no question"),
    ],
)
def test_malformed_input_is_not_sent(
    scheduler: Scheduler, capsys: pytest.CaptureFixture[str], argv: str, said: str
) -> None:
    assert cli.main([*argv.split(), "--server", scheduler.url]) == 3
    assert capsys.readouterr() == ("", f"kubestow: {said}\n")
    assert scheduler.requests == []


@pytest.mark.parametrize("command", ["explain web", "what-if --drain n1"])
def test_a_server_that_is_no_address_is_wrong_usage(capsys: pytest.CaptureFixture[str], command: str) -> None:
    said = (
        "kubestow: --server must begin with https:// or http:// and name a host; "
        "expected an address such as https://127.0.0.1:10259, got 'foo'\n"
    )

    assert cli.main([*command.split(), "--server=foo"]) == 3
    assert capsys.readouterr() == ("", said)


def test_no_kubeconfig(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert cli.main(["explain", "web"]) == 4
    assert capsys.readouterr() == (
        "",
        (
            f"kubestow: kubeconfig {tmp_path}/none: no such file; name a kubeconfig by --kubeconfig or $KUBECONFIG, and its "
            "context by --context\n"
        ),
    )


def test_an_interrupted_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster_commands, "explain", interrupt)

    assert cli.main(["explain", "web"]) == 130


# -- kubectl ---------------------------------------------------------------------------------------------------------------


def test_the_plugin_without_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert kubectl_plugin.main([]) == 0

    said = capsys.readouterr().out
    assert said.startswith("usage: kubectl kubestow COMMAND [flags]\n")
    assert [word for word in ("explain", "what-if", "version", "run", "simulate") if f"\n    {word} " in said] == [
        "explain",
        "what-if",
        "version",
    ]


@pytest.mark.parametrize("command", ["explain", "what-if"])
def test_the_help_of_the_plugin_names_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        kubectl_plugin.main([command, "--help"])

    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert said.startswith(f"usage: kubectl kubestow {command} [flags]")
    assert "exit codes:\n  0 " in said


def test_the_version_of_the_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    assert kubectl_plugin.main(["version"]) == 0
    plugin = capsys.readouterr().out
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out == plugin


def test_the_limits_of_the_flags_are_those_of_the_scheduler() -> None:
    assert (client_flags.REPLICAS_MAX, client_flags.NODES_MAX) == (manifests.REPLICAS_MAX, what_if.NODES_MAX)


def test_the_api_groups_of_the_flag_are_those_of_the_scheduler() -> None:
    assert tuple(API_GROUPS.values()) == client_flags.API_GROUPS
