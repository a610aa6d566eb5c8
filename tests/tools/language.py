"""Find text that is hard to read: `python -m tests.tools.language PATH…` prints one line per finding.

CONTRIBUTING.md has the rules. What is read: docstrings, comments, texts in code (a single word is a key), names and ids of tests, and Markdown, YAML and templates. Code in
backticks is not read, and neither are quotations of Kubernetes' own texts, which stay as they are. `--identifiers` reads names in code instead.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
WORDS_MAX: Final = 30
"""Of a sentence. The rule is 25; the limit is higher because some sentences list names."""

_PERSONS: Final = "who|whoever|whom|nobody|somebody|someone|anybody|anyone|everybody|everyone|others"
_VERBS: Final = "tells?|told|asks?|asked|asking|minds|heeds?|heeded|rests|ponders?|relents?|goes round"
_METAPHORS: Final = (
    "seats?|islands?|parcels?|boards|rooms?|shelf|shelves|errands?|dues|sights?|furniture|houses?|brains?|toys?|diary"
)
_ORDER: Final = "beforehand|meanwhile|by then|anew|for ever|beside|the like|of its own|of their own|so many|so long|not yet had|as all else"
_BANNED: Final = re.compile(rf"\b(?:{_PERSONS}|{_VERBS}|{_METAPHORS}|{_ORDER})\b", re.IGNORECASE)
_UPSTREAM: Final = ("asks for all devices, but", "has asked us to try again later", "reason=Told", "nobody counts")
"""Texts of Kubernetes and of recordings with a refused word."""
_DIALECT: Final = frozenset(
    {"known", "told", "said", "here", "left", "out", "no"}
    | {"chance", "look_at", "outlook", "relented", "spared", "besides_kept", "worn_out", "wish"}
)
"""Identifiers that name nothing: upstream or the textbook has a noun for each (`claims`, `candidates`, `rejection`, `remaining`, `rng`)."""
_DIALECT_PARTS: Final = re.compile(r"(?:^|_)(?:told|said|look_at|outlook|relented|spared|besides_kept|worn_out)(?:_|$)")
"""The same within longer identifiers. The other words are also parts of good ones, such as `NO_LIMIT` and `is_known`."""
_CODE: Final = re.compile(r"```.*?```|``[^`]+``|`[^`]*`|https?://\S+|\]\([^)]*\)", re.DOTALL)
_QUOTED: Final = re.compile(r'"[^"\n]*"|“[^”]*”')
_SENTENCE_END: Final = re.compile(r"[.!?:;][*_)]*\s+| \| |\n\s*\n|\n\s*(?=[*\-|#>]|\d+\.)")
_TEXTS: Final = (".md", ".yaml", ".yml", ".tpl", ".txt", ".sh")


@dataclass(frozen=True, slots=True)
class Finding:
    """One place. `text` is the word, or the beginning of the long sentence."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def findings(path: Path) -> list[Finding]:
    """Return the findings of a file, in its order."""
    source = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    found = []
    for line, text, is_prose in sorted(_passages(source, path.suffix)):
        if any(each in text for each in _UPSTREAM):
            continue
        plain = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
        banned = _BANNED.finditer(plain)
        found += [Finding(name, line + plain.count("\n", 0, word.start()), word[0].lower()) for word in banned]
        if is_prose:
            found += [Finding(name, line, f"{count} words: {start}…") for count, start in _long_sentences(plain)]
    return found


def identifier_findings(source: str, name: str) -> list[Finding]:
    """Return the identifiers of a module that are words of the dialect, in order. `left` is good next to a `right`."""
    tree = ast.parse(source)
    scopes = [
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    with_right = {
        id(inner)
        for scope in scopes
        if "right" in {word for node in ast.walk(scope) for word in _defined(node)}
        for inner in ast.walk(scope)
    }
    found = []
    for node in ast.walk(tree):
        for identifier in _defined(node):
            plain = identifier.strip("_").lower()
            is_pair = plain == "left" and id(node) in with_right
            if not is_pair and (plain in _DIALECT or _DIALECT_PARTS.search(plain)):
                found.append(Finding(name, getattr(node, "lineno", 1), identifier))
    return sorted(found, key=lambda each: each.line)


def _defined(node: ast.AST) -> Iterator[str]:
    """Yield the identifiers that this node defines: functions, classes, parameters, locals, attributes and captures."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
            yield name


def _long_sentences(text: str) -> Iterator[tuple[int, str]]:
    for sentence in _SENTENCE_END.split(_QUOTED.sub("text", text)):
        words = re.findall(r"[\w'-]+", sentence)
        if len(words) > WORDS_MAX:
            yield len(words), " ".join(words[:8])


def _passages(source: str, suffix: str) -> Iterator[tuple[int, str, bool]]:
    """Yield first line, text, and whether sentences are counted."""
    if suffix != ".py":
        yield 1, _without_code_blocks(source), suffix == ".md"
        return
    tree = ast.parse(source)
    yield from _comments(source)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.add(id(node.value))
            yield node.lineno, node.value.value, True
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, _words_of(node.name), False
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            is_key = not re.search(r"\s", node.value.strip())
            yield from () if is_key else [(node.lineno, node.value, False)]


def _words_of(name: str) -> str:
    """Return `test_a_pod_waits` as words; a class name as its parts."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ")


def _comments(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield each block of comment lines as one text."""
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] == last + 1:
            block.append(token.string.lstrip("# "))
        else:
            if block:
                yield first, "\n".join(block), True
            block, first = [token.string.lstrip("# ")], token.start[0]
        last = token.start[0]
    if block:
        yield first, "\n".join(block), True


def _without_code_blocks(text: str) -> str:
    """Keep the line breaks, so that a finding has its line."""
    return re.sub(r"(?ms)^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"), text)


def files_of(paths: list[Path]) -> list[Path]:
    """Return the files below the paths that have a text to read."""
    found = []
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        found += [each for each in inside if each.suffix in {".py", *_TEXTS} and each.is_file()]
    return found


def main(argv: list[str]) -> int:
    """Print the findings of the paths; the exit code says whether there are any."""
    paths = files_of([Path(arg).resolve() for arg in argv if not arg.startswith("--")])
    if "--identifiers" in argv:
        modules = [path for path in paths if path.suffix == ".py"]
        found = [each for path in modules for each in identifier_findings(path.read_text(encoding="utf-8"), str(path))]
    else:
        found = [each for path in paths for each in findings(path)]
    for each in found:
        print(each)  # noqa: T201
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
