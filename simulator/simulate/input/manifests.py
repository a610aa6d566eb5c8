"""Read manifest files to objects, each with its place.

Accepts multi-document YAML or JSON, Lists, and the output of `kubectl get -o yaml`. A mistake is an `InputError` with
file, document and field. Knows nothing of the meaning of kinds: see `complete`.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from scheduler.api.decode import from_manifest
from scheduler.core.clock import Clock, SystemClock
from scheduler.core.feature_gates import DEFAULT_VERSION
from scheduler.core.terminal import counted
from simulator.simulate.input import schema
from simulator.simulate.input.documents import Documents, SyntaxMistake, documents
from simulator.simulate.input.json_values import as_json_value, without_nulls
from simulator.simulate.input.rules import validation
from simulator.simulate.input.rules.server import ServerRules
from simulator.simulate.input.rules.validation import Level
from simulator.simulate.input.sources import InputError, Source, sources, text_of

__all__ = ["SERVER_FIELDS", "Found", "InputError", "Level", "Loaded", "Manifest", "cleaned", "decoded", "load"]

Manifest: TypeAlias = dict[str, Any]

_NATIVE_GROUPS: Final = re.compile(r"[a-z]*|.+\.k8s\.io")
"""Groups that Kubernetes serves. Volcano's Job and Knative's Service have the same names in other groups."""
_SHOWN: Final = 50
"""Mistakes that are listed."""
_NAMED: Final = 3
_LARGE: Final = 2_000_000
"""Characters of YAML that take long to read."""
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of generated names, as a server uses them."""
SERVER_FIELDS: Final = ("resourceVersion", "uid", "managedFields", "selfLink", "generation", "creationTimestamp")
"""Fields of the metadata that only a server writes."""


@dataclass(frozen=True, slots=True)
class Found:
    """An object and its place."""

    value: Manifest
    where: str
    former: Manifest = dataclasses.field(default_factory=dict)
    """The object in the file, with uid, times and status of its cluster; empty for an object that was created here."""

    @property
    def kind(self) -> str:
        """Kubernetes' own kinds by name, other kinds as `Kind.group`."""
        kind, group = str(self.value["kind"]), str(self.value["apiVersion"]).rpartition("/")[0]
        return kind if _NATIVE_GROUPS.fullmatch(group) else f"{kind}.{group}"

    @property
    def name(self) -> str:
        return str(self.value["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.value["metadata"].get("namespace", ""))

    def wrong(self, field: str, message: str) -> InputError:
        return InputError(f"{self.where}: {field}: {message}")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The objects of all files, in order, without fields that a server had added."""

    objects: list[Found]
    files: int
    seconds: float
    warnings: tuple[str, ...] = ()
    """Mistakes that validation found, one line each; empty unless the level is `warn`."""
    large_yaml: str = ""
    """The first YAML text of more than 2 MB."""

    def __str__(self) -> str:
        read = f"{counted(len(self.objects), 'object')} from {counted(self.files, 'file')}"
        return f"reading: {read} in {self.seconds:.2f} s"


Progress: TypeAlias = Callable[[float, int], None]
"""Called with the bytes that were read, and with all bytes."""


def load(
    paths: Iterable[str],
    *,
    recursive: bool = False,
    level: Level = "ignore",
    version: str = DEFAULT_VERSION,
    clock: Clock | None = None,
    progress: Progress = lambda *_: None,
) -> Loaded:
    """Read and validate, as an API server of `version` does. Raises InputError for an unreadable file, or with all mistakes of all documents."""
    clock = clock or SystemClock()
    started = clock.now()
    files = sources(paths, recursive=recursive)
    reader = _Reader(level, version, progress, sum(each.size for each in files))
    with _without_garbage_collection():
        for file in files:
            reader.read(file)
    reader.findings.raise_if_wrong(level)
    if not reader.objects:
        names = ", ".join(each.name for each in files[:_NAMED]) + (", …" if len(files) > _NAMED else "")
        raise InputError(f"{names}: no object found: at least a pod or a workload is expected")
    warnings = reader.findings.lines() if level == "warn" else []
    return Loaded(reader.objects, len(files), clock.now() - started, tuple(warnings), reader.large_yaml)


def from_values(values: Iterable[object], *, level: Level = "ignore", version: str = DEFAULT_VERSION) -> list[Found]:
    """Return the objects of manifests that are values and not texts, as `load` does. Raises InputError.

    The place of an object is the number of its manifest.
    """
    reader = _Reader(level, version, lambda *_: None, 0)
    for number, value in enumerate(values, start=1):
        where = f"manifest {number}"
        try:
            document = as_json_value(value, where)
        except InputError as error:
            reader.findings.broken(error)
            continue
        reader.take(document, where, Documents())
    reader.findings.raise_if_wrong(level)
    return reader.objects


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Turn the garbage collector off: a document has no cycles, and looking for them takes longer than reading."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Findings:
    """Mistakes of all documents: of validation, and of unusable objects."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._more = 0
        self._is_broken = False

    def add(self, where: str, mistakes: Iterable[object]) -> None:
        """One line for each mistake of one object."""
        for mistake in mistakes:
            self._add(f"{where}: {mistake}")

    def broken(self, error: InputError) -> None:
        """Record an object that cannot be used at any level."""
        self._is_broken = True
        self._add(str(error))

    def _add(self, line: str) -> None:
        if len(self._lines) < _SHOWN:
            self._lines.append(line)
        else:
            self._more += 1

    def lines(self) -> list[str]:
        """Return at most 50 mistakes, and the number of the rest."""
        return [*self._lines, f"and {self._more} more"] if self._more else self._lines

    def raise_if_wrong(self, level: Level) -> None:
        """Raise all as one InputError."""
        if self._is_broken or (level == "strict" and self._lines):
            hint = (
                [] if self._is_broken else ["--validate=warn goes on in spite of this, --validate=ignore says nothing"]
            )
            raise InputError("\n".join([*self.lines(), *hint]))


class _Reader:
    """Read one file after the other."""

    def __init__(self, level: Level, version: str, progress: Progress, total: int) -> None:
        self._level = level
        self._progress = progress
        self._done, self._total = 0, total
        self._rules = ServerRules(version)
        self.objects: list[Found] = []
        self.findings = _Findings()
        self.large_yaml = ""

    def read(self, source: Source) -> None:
        """Add the objects of a file. Raises InputError if its text cannot be parsed."""
        text = text_of(source)
        try:
            found = documents(text, lambda part: self._progress(self._done + part * source.size, self._total))
        except SyntaxMistake as wrong:
            document = f"document {wrong.document}: " if wrong.document else ""
            line = f"line {wrong.line}: " if wrong.line else ""
            raise InputError(f"{source.name}: {document}{line}{wrong}") from wrong
        if found.is_yaml and len(text) > _LARGE and not self.large_yaml:
            self.large_yaml = source.name
        self._done += source.size
        self._progress(self._done, self._total)
        for number, document in enumerate((each for each in found.values if each is not None), start=1):
            self.take(document, f"{source.name}: document {number}", found)

    def take(self, document: Any, where: str, found: Documents) -> None:
        """Add the objects of a document. `where` is its place."""
        try:
            for item, place in _flat(document, where):
                self._add(item, place, found)
        except InputError as error:
            self.findings.broken(error)

    def _add(self, item: Manifest, where: str, found: Documents) -> None:
        try:
            value = without_nulls(item, where)
            found_object = cleaned(value, where)
        except InputError as error:
            self.findings.broken(error)
            return
        self.objects.append(found_object)
        if self._level == "ignore":
            return
        for path, line in found.repeated(item):
            place = f"{found_object.where}: line {line}" if line else found_object.where
            self.findings.add(place, [f'duplicate field "{path}"'])
        found_mistakes = validation.mistakes(value)
        if found_object.kind == value["kind"] and not any(each.is_type for each in found_mistakes):
            found_mistakes += self._rules.mistakes({**value, "metadata": found_object.value["metadata"]})
        self.findings.add(found_object.where, dict.fromkeys(map(str, found_mistakes)))


def _flat(document: Any, where: str) -> Iterator[tuple[Manifest, str]]:
    """Yield the object, or the objects of a list, each with its place."""
    if not isinstance(document, dict):
        raise InputError(f"{where}: must be an object, got {type(document).__name__}")
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            raise InputError(f"{where}: {field}: is required")
    if document["kind"] == "List" or (document["kind"].endswith("List") and "items" in document):
        items = document.get("items") or []
        if not isinstance(items, list):
            raise InputError(f"{where}: items: must be a list")
        for at, item in enumerate(items):
            yield from _flat(_typed(item, document), f"{where}: items[{at}]")
        return
    yield document, where


def _typed(item: Any, parent: Manifest) -> Any:
    """Return an item of a typed list (PodList), which need not repeat its kind."""
    kind = parent["kind"].removesuffix("List")
    if isinstance(item, dict) and kind:
        return {"apiVersion": parent["apiVersion"], "kind": kind} | item
    return item


def _generated(prefix: Any, where: str) -> str:
    """Return `generateName` and five characters: equal for equal places, so that simulations can be repeated."""
    if not isinstance(prefix, str) or not prefix:
        return ""
    digest = hashlib.sha256(where.encode()).digest()
    return prefix + "".join(_SUFFIX[byte % len(_SUFFIX)] for byte in digest[:5])


def cleaned(document: Manifest, where: str) -> Found:
    """Remove the fields that a server adds. Raises InputError for metadata that no server accepts."""
    document = without_nulls(document, where)
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        raise InputError(f"{where}: metadata: is required")
    metadata = {key: value for key, value in metadata.items() if key not in SERVER_FIELDS}
    name = metadata["name"] = metadata.get("name") or _generated(metadata.pop("generateName", None), where)
    if not isinstance(name, str) or not name:
        raise InputError(f"{where}: metadata.name: is required, as a text")
    for field in ("spec", "status"):
        if not isinstance(document.get(field) or {}, dict):
            raise InputError(f"{where}: {field}: must be an object")
    if not isinstance(metadata.get("namespace") or "", str):
        raise InputError(f"{where}: metadata.namespace: must be a text")
    if not isinstance(metadata.get("ownerReferences") or [], list):
        raise InputError(f"{where}: metadata.ownerReferences: must be a list")
    namespace = metadata.pop("namespace", None) or "default"
    if document["kind"] not in schema.cluster_scoped():  # a server drops the namespace
        metadata["namespace"] = namespace
    key = f"{metadata['namespace']}/{name}" if "namespace" in metadata else name
    return Found({**document, "metadata": metadata}, f"{where} ({document['kind']} {key})", document)


T = TypeVar("T")


def decoded(found: Found, typ: type[T], value: Manifest) -> T:
    """Decode `value`, the object or its completed form. Raises InputError with the field."""
    try:
        return from_manifest(typ, value)
    except (msgspec.ValidationError, ValueError) as error:
        message, _, path = str(error).rpartition(" - at `$.")
        raise (found.wrong(path.rstrip("`"), message) if message else InputError(f"{found.where}: {error}")) from error
