"""Small configuration documents for these tests."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from scheduler.config.errors import ConfigErrors
from scheduler.config.load import parse
from scheduler.config.types import Configuration

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def read(document: dict[str, Any], **options: Any) -> Configuration:
    """The configuration that a document with these fields means."""
    return parse(json.dumps(HEAD | document), source="test", **options)


def mistakes(document: dict[str, Any], **options: Any) -> list[str]:
    """What is wrong with it, one text each."""
    try:
        read(document, **options)
    except ConfigErrors as broken:
        return str(broken).splitlines()
    return []


def profile(**fields: Any) -> dict[str, Any]:
    """A document with one profile named p."""
    return {"profiles": [{"schedulerName": "p"} | fields]}


def with_args(plugin: str, args: Any) -> dict[str, Any]:
    """A document that gives one plugin its arguments."""
    return profile(pluginConfig=[{"name": plugin, "args": args}])


def table(text: str, **words: str) -> list[Any]:
    """Return rows of a document and its mistakes.

    A row is `# id`, the document as JSON, and `- ` before each mistake; `<NAME>` stands for that word.
    """
    for name, word in words.items():
        text = text.replace(f"<{name}>", word)
    rows = []
    for row in re.split("^# ", text, flags=re.MULTILINE)[1:]:
        document, *said = row.partition("\n")[2].strip().split("\n- ")
        rows.append(pytest.param(json.loads(document), said, id=row.partition("\n")[0]))
    return rows
