"""Kubeconfigs and service accounts: files that merge, relative paths, credentials, and the texts of mistakes."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from scheduler.kube import client_config
from scheduler.kube.client_config import SettingsError, load_settings
from scheduler.kube.credentials.kubeconfig import Section, read_kubeconfig
from tests.support.kubeconfigs import kubeconfig
from tests.unit.server.authorities import Authority

SERVER: Final = "https://api:6443"
Document = Mapping[str, Any]


def named(kind: str, name: object, **fields: object) -> Document:
    return {f"{kind}s": [{"name": name, kind: fields}]}


def written(path: Path, *parts: Document) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({key: value for part in parts for key, value in part.items()}))
    return path


def joined(*paths: Path) -> str:
    return os.pathsep.join(map(str, paths))


CONTEXT: Final = named("context", "c", cluster="k", user="u", namespace="ns")
CURRENT: Final = {"current-context": "c"}


# -- several files -----------------------------------------------------------------------------------------------------


def test_parts_of_one_context_may_be_in_several_files(tmp_path):
    first = written(tmp_path / "1", CURRENT, named("cluster", "k", server=SERVER))
    second = written(tmp_path / "2", named("user", "u", token="t"))
    third = written(tmp_path / "3", CONTEXT)

    read = read_kubeconfig(joined(first, tmp_path / "missing", second, third))

    assert (read.context_name, read.namespace) == ("c", "ns")
    assert (read.cluster.text("server"), read.user.text("token")) == (SERVER, "t")
    assert [read.cluster.file, read.user.file] == [first, second]


def test_the_first_file_with_an_object_wins(tmp_path):
    """Objects are not mixed: a field that only the second file has is missing."""
    first = written(tmp_path / "1", CURRENT, CONTEXT, named("cluster", "k", server=SERVER), named("user", "u"))
    more = named("cluster", "k", **{"server": "https://other", "proxy-url": "http://p"})
    second = written(tmp_path / "2", {"current-context": "d"}, more, named("user", "u", token="t"))

    read = read_kubeconfig(joined(first, second))

    assert (read.context_name, read.cluster.text("server"), read.cluster.text("proxy-url")) == ("c", SERVER, "")
    assert read.user.text("token") == ""


def test_a_named_context_is_taken_instead_of_the_current_one(tmp_path):
    other = {"contexts": [*CONTEXT["contexts"], {"name": "d", "context": {"cluster": "k"}}]}
    file = written(tmp_path / "1", CURRENT, other, named("cluster", "k", server=SERVER), named("user", "u"))

    read = read_kubeconfig(str(file), "d")

    assert (read.context_name, read.namespace, read.user) == ("d", "", Section())


def test_names_may_be_numbers(tmp_path):
    context = named("context", 1, cluster=2)
    file = written(tmp_path / "1", {"current-context": 1}, context, named("cluster", 2, server=SERVER))

    assert read_kubeconfig(str(file)).cluster.text("server") == SERVER


def test_paths_are_relative_to_the_file_that_has_them(tmp_path):
    """The user's certificate is next to the user's file, not next to the cluster's."""
    authority = named("cluster", "k", **{"server": SERVER, "certificate-authority": "ca.crt"})
    first = written(tmp_path / "a" / "config", CURRENT, CONTEXT, authority)
    second = written(tmp_path / "b" / "config", named("user", "u", **{"client-certificate": "../b/u.crt"}))
    (tmp_path / "a" / "ca.crt").write_bytes(b"authority")
    (tmp_path / "b" / "u.crt").write_bytes(b"certificate")

    read = read_kubeconfig(joined(first, second))

    assert read.cluster.content("certificate-authority") == b"authority"
    assert read.user.content("client-certificate") == b"certificate"


async def test_the_environment_names_several_files(tmp_path, monkeypatch):
    first = written(tmp_path / "1", CURRENT, CONTEXT, named("cluster", "k", server="http://api"))
    second = written(tmp_path / "2", named("user", "u", token="t"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", joined(first, second))

    settings = await load_settings()

    assert (settings.server, settings.authorization, settings.namespace) == ("http://api", "Bearer t", "ns")


# -- credentials -------------------------------------------------------------------------------------------------------


def config(path: Path, user: Document, server: str = "http://api", **cluster: Any) -> str:
    return str(written(path, kubeconfig(user, server, **cluster)))


@pytest.mark.parametrize(("user", "authorization"), [
    pytest.param({}, None, id="no credentials"),
    pytest.param({"token": " t\n"}, "Bearer t", id="a token with blanks around it"),
    pytest.param({"token": "t", "tokenFile": "file"}, "Bearer t", id="a token before its file"),
    pytest.param({"token": "", "tokenFile": "file"}, "Bearer of the file", id="an empty token and a file"),
    pytest.param({"username": "ann", "password": 1}, "Basic YW5uOjE=", id="name and password"),
    pytest.param({"username": "ann"}, None, id="a name without a password"),
])  # fmt: skip
async def test_the_authorization_of_a_user(tmp_path, user, authorization):
    (tmp_path / "file").write_text("of the file\n")

    assert (await load_settings(config(tmp_path / "config", user))).authorization == authorization


@pytest.mark.parametrize("has_data", [False, True], ids=["files", "data"])
async def test_a_client_certificate(tmp_path, has_data):
    authority = Authority("kubernetes")
    issued = authority.issues("user")
    user: dict[str, str] = {}
    cluster: dict[str, str] = {}
    for fields, field, pem in (
        (cluster, "certificate-authority", authority.pem),
        (user, "client-certificate", issued.certificate),
        (user, "client-key", issued.key),
    ):
        (tmp_path / field).write_bytes(pem)
        fields.update({f"{field}-data": base64.b64encode(pem).decode()} if has_data else {field: field})

    settings = await load_settings(config(tmp_path / "config", user, SERVER, **cluster))

    assert settings.certificate == issued.key + b"\n" + issued.certificate
    assert settings.tls is not None
    assert settings.tls.cert_store_stats()["x509_ca"] == 1
    assert settings.tls.verify_mode == ssl.CERT_REQUIRED


async def test_options_of_the_cluster(tmp_path):
    options = {"tls-server-name": "name", "proxy-url": "http://proxy:1", "insecure-skip-tls-verify": True}
    settings = await load_settings(config(tmp_path / "config", {}, SERVER, **options))

    assert (settings.tls_server_name, settings.proxy) == ("name", "http://proxy:1")
    assert settings.tls is not None
    assert settings.tls.verify_mode == ssl.CERT_NONE


# -- mistakes ----------------------------------------------------------------------------------------------------------

K: Final = named("cluster", "k", server=SERVER)
U: Final = named("user", "u")


@pytest.mark.parametrize(("parts", "said"), [
    pytest.param([CONTEXT, K, U], "current-context is missing", id="no context is chosen"),
    pytest.param([CURRENT, K, U], 'context "c" does not exist', id="no such context"),
    pytest.param([CURRENT, CONTEXT, U], 'cluster "k" does not exist', id="no such cluster"),
    pytest.param([CURRENT, CONTEXT, K], 'user "u" does not exist', id="no such user"),
    pytest.param([CURRENT, named("context", "c")], 'context "c": cluster is missing', id="a context without a cluster"),
    pytest.param([CURRENT, {"contexts": {"c": {}}}], "FILE: contexts must be a list of objects", id="no list"),
    pytest.param([CURRENT, {"contexts": ["c"]}], "FILE: contexts must be a list of objects", id="a list of names"),
    pytest.param([CURRENT, {"contexts": [{"name": "c", "context": ["k"]}]}], 'context "c" must be an object', id="no object"),
    pytest.param([CURRENT, CONTEXT, named("cluster", "k", server=["x"]), U],
        'cluster "k": server must be a string', id="an address that is a list"),
    pytest.param([CURRENT, CONTEXT, named("cluster", "k", server="https://api:"), U],
        "the server's address must have only a colon and a port of 1 to 65535 after the host", id="an empty port"),
    pytest.param([CURRENT, CONTEXT, named("cluster", "k", **{"server": SERVER, "proxy-url": "http://proxy:"}), U],
        "proxy-url must have only a colon and a port of 1 to 65535 after the host", id="an empty port of the proxy"),
    pytest.param([CURRENT, CONTEXT, named("cluster", "k", **{"server": SERVER, "insecure-skip-tls-verify": "false"}), U],
        'cluster "k": insecure-skip-tls-verify must be true or false', id="a flag that is a string"),
    pytest.param([CURRENT, CONTEXT, named("cluster", "k", **{"server": SERVER, "certificate-authority": "ca"}), U],
        'cluster "k": certificate-authority: DIRECTORY/ca: No such file or directory', id="a missing file"),
    pytest.param([CURRENT, CONTEXT, named("cluster", "k", **{"server": SERVER, "certificate-authority-data": "%"}), U],
        'cluster "k": certificate-authority-data must be base64: ', id="no base64"),
    pytest.param([CURRENT, CONTEXT, named("cluster", "k", **{"server": SERVER, "certificate-authority-data": "eHg="}), U],
        "the certificate authority cannot be used: ", id="no certificate"),
    pytest.param([CURRENT, CONTEXT, K, named("user", "u", **{"client-certificate-data": "eHg="})],
        "the client certificate and its key cannot be used: ", id="no client certificate"),
    pytest.param([CURRENT, CONTEXT, K, named("user", "u", tokenFile="token")],
        'user "u": tokenFile: DIRECTORY/token: No such file or directory', id="a missing token"),
])  # fmt: skip
async def test_mistakes_name_the_file_and_the_field(tmp_path, parts, said):
    path = written(tmp_path / "config", *parts)
    said = said.replace("FILE", str(path)).replace("DIRECTORY", str(tmp_path))

    with pytest.raises(SettingsError) as raised:
        await load_settings(str(path))

    assert str(raised.value).startswith(f"kubeconfig {path}: {said}")


@pytest.mark.parametrize("has_kubeconfig", [True, False])
async def test_a_mistake_of_master_names_the_flag(tmp_path, has_kubeconfig):
    path = str(written(tmp_path / "config", CURRENT, CONTEXT, K, U)) if has_kubeconfig else None

    said = (
        r"^the address of --master must have only a colon and a port of 1 to 65535 after the host, got 'https://api:'$"
    )
    with pytest.raises(SettingsError, match=said):
        await load_settings(path, "https://api:")


async def test_of_several_files_the_one_with_the_mistake_is_named(tmp_path):
    first = written(tmp_path / "1", CURRENT, CONTEXT, K)
    second = written(tmp_path / "2", named("user", "u", tokenFile="token"))

    with pytest.raises(SettingsError, match=f'user "u" of {second}: tokenFile: {tmp_path}/token: No such file'):
        await load_settings(joined(first, second))


# -- service accounts --------------------------------------------------------------------------------------------------


def mounted(directory: Path, monkeypatch: pytest.MonkeyPatch, **files: bytes) -> None:
    for name in ("token", "ca", "namespace"):
        file = directory / name
        if content := files.get(name):
            file.write_bytes(content)
        monkeypatch.setattr(client_config, f"_SERVICE_ACCOUNT_{name.upper()}", file)


@pytest.mark.parametrize(("host", "server"), [
    ("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443"), ("api", "https://api:443"),
])  # fmt: skip
async def test_a_service_account(tmp_path, monkeypatch, host, server):
    mounted(tmp_path, monkeypatch, token=b"t\n", ca=Authority("cluster").pem, namespace=b"ns\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    settings = await load_settings()

    assert (settings.server, settings.authorization, settings.namespace) == (server, "Bearer t", "ns")


@pytest.mark.parametrize(("port", "files", "said"), [
    pytest.param("", {}, "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must not be empty", id="no port"),
    pytest.param("1", {}, "No such file or directory: 'DIRECTORY/token'", id="no token"),
    pytest.param("1", {"token": b"\n"}, "DIRECTORY/token is empty", id="an empty token"),
    pytest.param("1", {"token": b"t"}, "No such file or directory: 'DIRECTORY/ca'", id="no authority"),
    pytest.param("1", {"token": b"t", "ca": b"x"}, "the certificate authority cannot be used", id="no certificate"),
])  # fmt: skip
async def test_mistakes_of_a_service_account(tmp_path, monkeypatch, port, files, said):
    mounted(tmp_path, monkeypatch, **files)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)

    with pytest.raises(SettingsError, match="service account: ") as raised:
        await load_settings()

    assert said.replace("DIRECTORY", str(tmp_path)) in str(raised.value)
