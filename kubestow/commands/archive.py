"""The archive of `kubestow bugreport`: files of bounded size without secrets, and a manifest of what it has and lacks."""

from __future__ import annotations

import io
import os
import re
import tarfile
from dataclasses import dataclass, field
from typing import Final

from scheduler.core.terminal import printable

MANIFEST: Final = "MANIFEST.txt"
FILE_BYTES_MAX: Final = 16 * 2**20
TOTAL_BYTES_MAX: Final = 64 * 2**20
"""Of all files before compression."""
_DROPPED: Final = "dropped-secret"
_NAMES: Final = (
    r"passw(?:or)?d|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|key[_-]?data|authorization"
    r"|credential|cookie|dockerconfigjson"
)
"""Parts of names of secrets."""
_SECRETS: Final = (
    (r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)", _DROPPED),
    (r"\beyJ[A-Za-z0-9_-]{5,300}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?", _DROPPED),
    (r"\b(?i:(bearer|basic)(\s{1,3})[A-Za-z0-9._~+/=-]{6,})", rf"\1\2{_DROPPED}"),
    (r"(?<=://)[^/\s\"']+(?=@)", _DROPPED),
    (
        rf"(?i)(--(?:[a-z0-9]{{1,20}}-){{0,4}}(?:{_NAMES})(?:-[a-z0-9]{{1,20}}){{0,2}}\s{{1,3}})(?!-)[^\s]+",
        rf"\1{_DROPPED}",
    ),
)
"""Private keys, JSON web tokens, values of Authorization headers, credentials in URLs, and values of flags; and their
replacements."""
_PATTERNS: Final = tuple((re.compile(pattern, re.DOTALL), replacement) for pattern, replacement in _SECRETS)
_NAMED: Final = re.compile(
    rf"(?i)((?:{_NAMES})\w{{0,40}}+(\\\"|[\"']?)\s{{0,3}}[=:]\s{{0,3}})"
    r"(\\\".*?(?<!\\)\\\"|\"(?:[^\"\\]|\\.)*+\"|'[^']*'|(?:\\[^\"]|[^\s,;}&{\[\"\\])+|\\?[\"'][^\s,;}&\"\\]+)"
)
"""A name of secrets, and its value."""
CHECKS: Final = """\
Read before you share the archive. Secrets and ConfigMaps were not read. Values of environment variables, commands,
arguments, annotations of other components and messages of conditions were replaced in the objects. Tokens, keys and
passwords that the log and the pages show in a known form were replaced as well. The archive still has names of
namespaces, pods, nodes, claims, images and addresses, labels, and the log of the scheduler. A secret in one of those
is not recognized."""


def without_secrets(text: str) -> str:
    """Return the text without what looks like a secret."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return _NAMED.sub(_without_value, text)


def _without_value(match: re.Match[str]) -> str:
    """Return the name with another value, which is quoted where the old one is, or where the name is as in JSON."""
    value = match[3]
    quote = value[:2] if value.startswith('\\"') else value[0] if value[0] in {'"', "'"} else match[2]
    return f"{match[1]}{quote}{_DROPPED}{quote}"


@dataclass(slots=True)
class Archive:
    """Files that are collected in memory. `directory` is the name of the directory in the archive."""

    directory: str
    _files: dict[str, bytes] = field(default_factory=dict)
    _titles: dict[str, str] = field(default_factory=dict)
    _missing: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._files)

    @property
    def bytes_used(self) -> int:
        """The size of all files."""
        return sum(map(len, self._files.values()))

    def add_text(self, name: str, title: str, text: str) -> None:
        """Add a text without what looks like a secret. Of a long one the end is kept, from a whole line on."""
        body = without_secrets(text).encode(errors="replace")
        most = min(FILE_BYTES_MAX, TOTAL_BYTES_MAX - self.bytes_used)
        if len(body) > most:
            lost = len(body) - most
            body = body[lost:].partition(b"\n")[2] if most > 0 else b""
            title = f"{title}; the first {lost} bytes or more are left out"
        self._files[name], self._titles[name] = body, title

    def add_bytes(self, name: str, title: str, body: bytes) -> None:
        """Add a file as it is, or record that it is too large."""
        most = min(FILE_BYTES_MAX, TOTAL_BYTES_MAX - self.bytes_used)
        if len(body) > most:
            self.lacks(name, f"it has {len(body)} bytes, and at most {max(most, 0)} are taken")
            return
        self._files[name], self._titles[name] = body, title

    def lacks(self, name: str, why: str) -> None:
        """Record why a file is missing."""
        self._missing[name] = without_secrets(" ".join(why.split()))

    def manifest(self) -> str:
        """Return the text of the manifest."""
        lines = [CHECKS, "", "Files:"]
        lines += [f"  {name}  {len(body)} bytes  {self._titles[name]}" for name, body in self._files.items()]
        if self._missing:
            lines += ["", "Not read:"]
            lines += [f"  {name}  {why}" for name, why in self._missing.items()]
        return printable("\n".join(lines) + "\n")

    def packed(self, wall_s: float) -> bytes:
        """Return the archive, compressed."""
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode="w:gz") as tar:
            for name, body in {MANIFEST: self.manifest().encode(), **self._files}.items():
                entry = tarfile.TarInfo(f"{self.directory}/{name}")
                entry.size, entry.mtime, entry.mode = len(body), int(wall_s), 0o600
                tar.addfile(entry, io.BytesIO(body))
        return target.getvalue()


def write_new(path: str, body: bytes) -> None:
    """Write a file that does not exist, readable by its owner alone. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
