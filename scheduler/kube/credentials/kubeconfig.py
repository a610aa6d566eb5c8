"""Read kubeconfigs: the cluster, the user and the namespace of one context.

Several files are one kubeconfig, as for kubectl: the first file that has a cluster, a context or a user of some name
wins, and so does the first `current-context`. Missing files are skipped. Paths are relative to the file that has them.
Example: with KUBECONFIG=a:b the context of `a` may name a user that only `b` has, whose keys are then next to `b`.

Every error is a KubeconfigError that names the object and the field, and the file if there are several.
"""

from __future__ import annotations

import base64
import os
import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import yaml

Kind = Literal["cluster", "context", "user"]
_NO_FILE: Final = pathlib.Path()


class KubeconfigError(ValueError):
    """The kubeconfig cannot be used. The text says which object and field, and what is wrong."""


@dataclass(frozen=True, slots=True)
class Section:
    """The fields of one cluster, context or user."""

    title: str = ""
    """Kind and name, and the file if there are several; for errors."""
    file: pathlib.Path = _NO_FILE
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def text(self, name: str) -> str:
        """Return a field; "" if it is missing."""
        value = self.fields.get(name)
        if isinstance(value, (dict, list)):
            raise KubeconfigError(f"{self.title}: {name} must be a string")
        return "" if value is None else str(value)

    def flag(self, name: str) -> bool:
        """Return a field; False if it is missing."""
        value = self.fields.get(name)
        if value not in (None, True, False):
            raise KubeconfigError(f"{self.title}: {name} must be true or false")
        return bool(value)

    def content(self, name: str) -> bytes | None:
        """Return what `<name>-data` has in base64, else the content of the file `<name>`, read now; else None."""
        if data := self.text(f"{name}-data"):
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except ValueError as error:
                raise KubeconfigError(f"{self.title}: {name}-data must be base64: {error}") from error
        return self.file_content(name)

    def file_content(self, name: str) -> bytes | None:
        """Return the content of the file that this field names, read now; None without one."""
        path = self.text(name)
        if not path:
            return None
        file = self.file.parent / path
        try:
            return file.read_bytes()
        except OSError as error:
            raise KubeconfigError(f"{self.title}: {name}: {file}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One context of the merged files."""

    context_name: str
    cluster: Section
    user: Section
    """Empty if the context names no user."""
    namespace: str


def read_kubeconfig(paths: str, context_name: str | None = None) -> Kubeconfig:
    """Read files, separated as in $KUBECONFIG. Raises KubeconfigError, OSError, and yaml.YAMLError."""
    documents = _documents(paths)
    context_name = context_name or next(
        (str(d["current-context"]) for d in documents.values() if d.get("current-context")), ""
    )
    if not context_name:
        raise KubeconfigError("current-context is missing")
    context = _section(documents, "context", context_name)
    cluster, user = context.text("cluster"), context.text("user")
    if not cluster:
        raise KubeconfigError(f"{context.title}: cluster is missing")
    return Kubeconfig(
        context_name,
        _section(documents, "cluster", cluster),
        _section(documents, "user", user) if user else Section(),
        context.text("namespace"),
    )


def _documents(paths: str) -> dict[pathlib.Path, dict[str, Any]]:
    files = [pathlib.Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    documents = {file: yaml.safe_load(file.read_bytes()) for file in files if file.exists()}
    if not documents:
        raise FileNotFoundError("no such file")
    for file, document in documents.items():
        if not isinstance(document, dict):
            raise KubeconfigError(f"{file} holds no kubeconfig")
    return documents


def _section(documents: Mapping[pathlib.Path, Mapping[str, Any]], kind: Kind, name: str) -> Section:
    """Return the first object of this kind and name."""
    for file, document in documents.items():
        entries = document.get(f"{kind}s") or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise KubeconfigError(f"{file}: {kind}s must be a list of objects")
        for entry in entries:
            if str(entry.get("name", "")) != name:
                continue
            title = f'{kind} "{name}"' + (f" of {file}" if len(documents) > 1 else "")
            fields = entry.get(kind) or {}
            if not isinstance(fields, dict):
                raise KubeconfigError(f"{title} must be an object")
            return Section(title, file, fields)
    raise KubeconfigError(f'{kind} "{name}" does not exist')
