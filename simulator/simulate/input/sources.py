"""Command-line paths to texts: files, directories, standard input, plain or compressed by gzip."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STDIN: Final = "-"
MAX_BYTES: Final = 4 * 2**30
"""Limit of one file after decompression."""
_ENDINGS: Final = (".json", ".yaml", ".yml")
_GZIP: Final = b"\x1f\x8b"


class InputError(Exception):
    """A file cannot be used. The message starts with the place: `demo.yaml: document 3: spec.replicas: …`."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or standard input. `size` is in bytes as stored, 0 if unknown."""

    path: str
    size: int = 0

    @property
    def name(self) -> str:
        return "stdin" if self.path == STDIN else self.path


def sources(paths: Iterable[str], *, recursive: bool = False) -> list[Source]:
    """Return the files of the paths, those of a directory sorted. Raises InputError."""
    given = list(paths)
    if not given:
        raise InputError("no input: name files or directories, or - for standard input")
    if given.count(STDIN) > 1:
        raise InputError("-: standard input can be read only once")
    return [source for path in given for source in _sources(path, recursive=recursive)]


def _sources(path: str, *, recursive: bool) -> Iterator[Source]:
    if path == STDIN:
        yield Source(STDIN)
        return
    with _readable(path):
        status = Path(path).stat()
        found = sorted(_files(Path(path), recursive=recursive)) if stat.S_ISDIR(status.st_mode) else None
    if found is None:
        yield Source(path, status.st_size)
        return
    if not found:
        endings = ", ".join(f"*{ending}" for ending in _ENDINGS)
        below = "" if recursive else "; --recursive also reads the directories in it"
        raise InputError(f"{path}: the directory has no manifests: no file {endings} or one of these with .gz{below}")
    for each in found:
        with _readable(str(each)):
            yield Source(str(each), each.stat().st_size)


def _files(directory: Path, *, recursive: bool) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise error

    for here, below, names in os.walk(directory, onerror=fail):
        yield from (Path(here, name) for name in names if name.removesuffix(".gz").endswith(_ENDINGS))
        if not recursive:
            below.clear()


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except gzip.BadGzipFile as error:
        raise InputError(f"{path}: cannot be decompressed: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be decompressed: {error}") from error


def text_of(source: Source, *, max_bytes: int = MAX_BYTES) -> str:
    """Read a source, and decompress it if it starts like gzip. Raises InputError."""
    with _readable(source.name):
        data = _stored(source, max_bytes + 1)
        if data.startswith(_GZIP):
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise InputError(f"{source.name}: has more than {max_bytes} bytes, which is the most that is read; split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{source.name}: is not UTF-8: byte {error.start}") from error


def _stored(source: Source, most: int) -> bytes:
    if source.path == STDIN:
        return sys.stdin.buffer.read(most)
    with Path(source.path).open("rb") as file:
        return file.read(most)
