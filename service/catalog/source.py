"""Reads one YAML file of the catalogue as plain data and remembers the line of every value, so that a problem can say where it is.

Safe against what a configuration file can do to its reader: size and depth are capped, anchors and tags are refused, nothing is
constructed but text, numbers, truth values and null. Does not know what the files mean.
"""

from dataclasses import dataclass, field
from pathlib import Path

import yaml
from pydantic import JsonValue
from yaml.constructor import SafeConstructor

MAX_BYTES = 1_000_000
MAX_DEPTH = 12
MAX_SENTENCE = 400
NodePath = tuple[str | int, ...]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster where PyYAML was built with libyaml
_PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge", "value")}


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something wrong in a file, as a sentence that says what to do about it."""

    file: str
    line: int
    sentence: str

    def __str__(self) -> str:
        """Return the line that the operator reads."""
        sentence = "".join(letter if letter.isprintable() else " " for letter in self.sentence)  # a name may hold line breaks
        return f"{self.file}:{self.line}: {sentence if len(sentence) <= MAX_SENTENCE else sentence[:MAX_SENTENCE] + '…'}"


@dataclass(slots=True)
class Document:
    """One file: its bytes, its data (None when it cannot be read), the line of each value, and the problems found so far."""

    file: str
    content: bytes = b""
    data: JsonValue = None
    lines: dict[NodePath, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: NodePath) -> int:
        """Return the line of a value, or of the nearest thing around it that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def report(self, path: NodePath, sentence: str) -> None:
        """Note a problem with the value at `path`."""
        self.problems.append(Problem(self.file, self.line(path), sentence))

    def get(self, *path: str | int) -> JsonValue:
        """Return the value at `path`, or None where the file has none."""
        value = self.data
        for step in path:
            if isinstance(value, dict) and isinstance(step, str):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
            else:
                return None
        return value

    def texts(self, *path: str | int) -> list[tuple[NodePath, str]]:
        """Return the texts of a list, or the one text at `path`, each with its path."""
        value = self.get(*path)
        if isinstance(value, str):
            return [(path, value)]
        return [((*path, i), item) for i, item in enumerate(value) if isinstance(item, str)] if isinstance(value, list) else []

    def entries(self, *path: str | int) -> list[NodePath]:
        """Return the paths of the mappings in the list at `path`."""
        value = self.get(*path)
        return [(*path, i) for i, item in enumerate(value) if isinstance(item, dict)] if isinstance(value, list) else []


def read_document(folder: Path, file: str) -> Document:
    """Return the file's data. What is wrong with it is in `problems`; then `data` may be None."""
    document = Document(file)
    try:
        with (folder / file).open("rb") as stream:
            document.content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        where = f"the file is missing; add it to {folder}." if folder.is_dir() else f"there is no folder {folder}; see POINTSMAN_CATALOG."
        document.report((), where)
        return document
    except OSError as error:
        document.report((), f"the file cannot be read ({error.strerror}); check {folder / file}.")
        return document
    if len(document.content) > MAX_BYTES:
        document.report((), f"the file is larger than {MAX_BYTES:,} bytes; make it smaller.")
        return document
    node = _compose(document)
    if node is not None:
        document.data = _Reader(document).read(node, ())
    return document


def _compose(document: Document) -> yaml.Node | None:
    content = document.content
    try:
        text = content.decode("utf-8-sig")
        node = yaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError as error:
        _report_line(document, content.count(b"\n", 0, error.start), "this is not UTF-8; save the file as UTF-8.")
    except yaml.reader.ReaderError as error:
        before = text.count("\n", 0, error.position) if isinstance(error.position, int) else 0
        _report_line(document, before, "there is a control character; remove it.")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = error.problem or error.context or "syntax error"
        _report_line(document, mark.line if mark else 0, f"this is not valid YAML ({reason}); check indentation, quotes and colons.")
    except RecursionError:
        document.report((), "the values are nested too deeply; flatten them.")
    else:
        if isinstance(node, yaml.MappingNode):
            return node
        document.report((), "the file must be a mapping of names to values; see the packaged file for its form.")
    return None


def _report_line(document: Document, line: int, sentence: str) -> None:
    document.problems.append(Problem(document.file, line + 1, sentence))


class _Reader:
    """Turns composed nodes into plain data; a node that is met twice was reached through an anchor, which is refused."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._seen: set[int] = set()
        self._constructor = SafeConstructor()

    def read(self, node: yaml.Node, path: NodePath) -> JsonValue:
        """Return the node's data and note its line."""
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        if id(node) in self._seen:
            self._document.report(path, "this value stands behind an anchor (&name) that is used twice; write it out in both places.")
            return None
        self._seen.add(id(node))
        if node.tag not in _PLAIN:
            self._document.report(path, f"the tag {node.tag} is not allowed; write plain text, numbers, lists and mappings.")
            return None
        if len(path) > MAX_DEPTH:
            self._document.report(path, "the values are nested too deeply; flatten them.")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: NodePath) -> JsonValue:
        data: dict[str, JsonValue] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                _report_line(self._document, line - 1, "a key must be a plain name, not a list or a mapping.")
            elif key.value in data:
                first = self._document.line((*path, key.value))
                _report_line(self._document, line - 1, f"'{key.value}' is given twice (first on line {first}); remove one.")
            else:
                self._document.lines[*path, key.value] = line
                data[key.value] = self.read(value, (*path, key.value))
        return data

    def _scalar(self, node: yaml.Node, path: NodePath) -> JsonValue:
        if node.tag.endswith((":str", ":timestamp", ":merge", ":value")):
            return str(node.value)
        try:
            value: JsonValue = self._constructor.construct_object(node)
        except (ValueError, OverflowError, yaml.YAMLError):
            self._document.report(path, f"'{str(node.value)[:40]}' is not a number; correct it.")
            return None
        return value
