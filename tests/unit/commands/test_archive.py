"""The archive of a bug report: what is replaced, limits, and its files."""

from __future__ import annotations

import io
import json
import stat
import tarfile
from pathlib import Path

import pytest

from kubestow.commands import archive
from kubestow.commands.archive import Archive, without_secrets, write_new
from kubestow.commands.bugreport import _event, _shortened_cache

KEY = "-----BEGIN RSA PRIVATE KEY-----\nabc\ndef\n-----END RSA PRIVATE KEY-----"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        pytest.param("Authorization: Bearer abcdef123", "Authorization: dropped-secret dropped-secret", id="a header"),
        pytest.param("sent Bearer abcdef123.", "sent Bearer dropped-secret", id="a bearer token"),
        pytest.param(f"got {TOKEN} here", "got dropped-secret here", id="a JSON web token"),
        pytest.param(f"a\n{KEY}\nb", "a\ndropped-secret\nb", id="a private key"),
        pytest.param(KEY[:40], "dropped-secret", id="the beginning of a private key"),
        pytest.param("https://ann:pw@host/x", "https://dropped-secret@host/x", id="credentials in a URL"),
        pytest.param("password=abc,d=1", "password=dropped-secret,d=1", id="a value after its name"),
        pytest.param('{"apiKey": "a b", "n": 1}', '{"apiKey": "dropped-secret", "n": 1}', id="a field of JSON"),
        pytest.param('{"token": null}', '{"token": "dropped-secret"}', id="JSON stays JSON"),
        pytest.param("client-key-data: QUJD", "client-key-data: dropped-secret", id="a kubeconfig"),
        pytest.param("passwd='a b'", "passwd='dropped-secret'", id="in single quotes"),
        pytest.param("https://ann:p@w@host/x", "https://dropped-secret@host/x", id="an @ in the password of a URL"),
        pytest.param('password: "a\\"b c"', 'password: "dropped-secret"', id="a quotation mark in the value"),
        pytest.param(
            '{"message": "sent {\\"token\\": \\"a b\\", \\"n\\": 1}"}',
            '{"message": "sent {\\"token\\": \\"dropped-secret\\", \\"n\\": 1}"}',
            id="JSON in a text of JSON",
        ),
        pytest.param(
            '{"m": "\\"token\\": 5", "n": 1}', '{"m": "\\"token\\": \\"dropped-secret\\"", "n": 1}', id="no text in it"
        ),
        pytest.param(
            '{"m": "token=abc", "n": 1}', '{"m": "token=dropped-secret", "n": 1}', id="the end of a text of JSON"
        ),
        pytest.param('password="abc', 'password="dropped-secret"', id="a value that is cut"),
        pytest.param('\\"token\\": \\"abc', '\\"token\\": \\"dropped-secret\\"', id="a cut value in a text of JSON"),
        pytest.param("run --auth-token abc -v 2", "run --auth-token dropped-secret -v 2", id="the value of a flag"),
        pytest.param("Cookie: session=abc; x", "Cookie: dropped-secret; x", id="a cookie"),
        pytest.param("passphrase=abc pwd=abc", "passphrase=dropped-secret pwd=dropped-secret", id="other names"),
        pytest.param("private_key: abc", "private_key: dropped-secret", id="a private key in one line"),
        pytest.param("pod default/web-0 node n1 cpu=4", "pod default/web-0 node n1 cpu=4", id="nothing"),
        pytest.param("https://host/a@b", "https://host/a@b", id="an address without credentials"),
    ],
)
def test_what_looks_like_a_secret_is_replaced(text: str, replaced: str) -> None:
    assert without_secrets(text) == replaced


def test_hostile_texts_take_linear_time() -> None:
    for part in ("token", "eyJ-", "eyJaaaaa", 'password="', "://", "bearer ", "-----BEGIN PRIVATE KEY", "secret_"):
        without_secrets(part * (2**20 // len(part)))


def test_of_a_long_text_the_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FILE_BYTES_MAX", 10)
    made = Archive("d")
    made.add_text("a", "log", "first\nsecond\nlast\n")

    assert read(made)["a"] == "last\n"
    assert "  a  5 bytes  log; the first " in made.manifest()


def test_the_sum_of_all_files_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "TOTAL_BYTES_MAX", 10)
    made = Archive("d")
    made.add_text("a", "log", "x" * 4 + "\n")
    made.add_bytes("b", "objects", b"y" * 6)
    made.add_bytes("c", "objects", b"y" * 5)
    made.add_text("e", "log", "z" * 4 + "\n")
    made.add_text("f", "log", "z")

    assert sum(len(text) for name, text in read(made).items() if name != archive.MANIFEST) == 10
    assert "  b  it has 6 bytes, and at most 5 are taken" in made.manifest()


def test_reasons_are_one_line_without_secrets() -> None:
    made = Archive("d")
    made.lacks("a", f"no\n\x1b[2Jpermission {TOKEN}")

    assert made.manifest().splitlines()[-1] == "  a  no \\x1b[2Jpermission dropped-secret"


def test_a_file_is_new_and_private(tmp_path: Path) -> None:
    file = tmp_path / "r.tar.gz"
    write_new(str(file), b"x")

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_new(str(file), b"y")
    assert file.read_bytes() == b"x"


def read(made: Archive) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(made.packed(1.8e9))) as tar:
        assert {each.name.partition("/")[0] for each in tar.getmembers()} == {"d"}
        files = {each.name.partition("/")[2]: tar.extractfile(each) for each in tar.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


@pytest.mark.parametrize("text", ["", "x", "[]", '{"nodes": 1}', "[" * 100_000])
def test_a_cache_page_that_is_none_stays_as_it_is(text: str) -> None:
    assert _shortened_cache(text) == text


def test_a_large_cache_page_is_shortened() -> None:
    found = json.loads(_shortened_cache(json.dumps({"sizes": {}, "nodes": [{"node": str(at)} for at in range(5000)]})))

    assert (len(found["nodes"]), found["nodesInAll"], found["sizes"]) == (200, 5000, {})


def test_messages_of_unknown_events_are_left_out() -> None:
    said = {"message": "probe failed: hunter2", "reason": "Unhealthy", "involvedObject": {"name": "p"}}

    assert "hunter2" not in json.dumps(_event(said))
    assert _event(said | {"reason": "FailedScheduling"})["message"] == said["message"]
