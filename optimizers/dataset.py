"""Labelled requests on disk: JSON lines with `text` and `label`, and optionally `writer` and `history`; `.gz` too."""

import gzip
import hashlib
import json
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.routing.history import Said

EXAMPLE = '{"text": "is the pipeline up", "label": "health_check"}'
DESCRIBED = '{"label": "health_check", "description": "whether services run"}'
SHOWN = 60  # characters of a line that is no row


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled request.

    Attributes:
        writer: groups rows of one hand, which never sit on both sides of a split.
        history: earlier utterances, oldest first; "S: ..." was said by the system, "U: ..." or anything else by the user.
    """

    text: str
    label: str
    writer: str | None = None
    history: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What makes texts equal: the text alone, as that is what is fitted on, whatever its case, spaces and width of letters."""
        return " ".join(unicodedata.normalize("NFKC", self.text).casefold().split())


def read_rows(path: Path) -> list[Row]:
    """Read one file, or all `*.jsonl` and `*.jsonl.gz` files of a folder in order of name.

    Raises:
        ValueError: a line is no row; the message names file and line.
        FileNotFoundError: there is no such file, or the folder has none.
    """
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder {path}.")
    files = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")]) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(f"{path} holds no .jsonl file, that is, one JSON object a line, such as {EXAMPLE}.")
    return [row for file in files for row in _read_file(file)]


def _read_file(path: Path) -> Iterable[Row]:
    opener, number = gzip.open if path.suffix == ".gz" else open, 0
    try:
        with opener(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield _read_line(line, f"{path}:{number}")
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError, IsADirectoryError, PermissionError) as exc:
        raise ValueError(f"{path} cannot be read as JSON lines in UTF-8 after line {number}: {exc}") from exc


def _read_line(line: str, place: str) -> Row:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    data = found if isinstance(found, dict) else None
    if data is None:
        raise ValueError(f"{place}: expected one JSON object a line, such as {EXAMPLE}, not {line.strip()[:SHOWN]!r}.")
    missing = [name for name in ("text", "label") if name not in data]
    if missing:
        raise ValueError(f"{place}: the field {missing[0]!r} is missing; a row looks like {EXAMPLE}.")
    text, label, writer, history = data["text"], data["label"], data.get("writer"), data.get("history")
    if not all(isinstance(part, str) and part.strip() for part in (text, label)):
        raise ValueError(f"{place}: text and label must be texts that are not empty.")
    if not isinstance(writer, str | None) or not isinstance(history, list | None) or not all(isinstance(u, str) for u in history or ()):
        raise ValueError(f"{place}: writer must be a text, and history a list of texts.")
    row = Row(text, label, writer, tuple(history or ()))
    _refuse_surrogates(place, row.text, row.label, *row.history)
    return row


def _refuse_surrogates(place: str, *texts: str) -> None:
    if any("\ud800" <= c <= "\udfff" for text in texts for c in text):
        raise ValueError(f"{place}: half of a surrogate pair is no text; it cannot be written in UTF-8.")


def said_before(row: Row) -> list[Said]:
    """Return a row's history."""
    return [Said(u.removeprefix("S:").removeprefix("U:").strip(), not u.startswith("S:")) for u in row.history]


def read_descriptions(path: Path) -> dict[str, list[str]]:
    """Read the texts that describe labels from a JSON list of objects.

    Each has the label as `label`, `name` or `service`, and a `description`; further ones may lie deeper, such as those of its intents.

    Raises:
        ValueError: the file is not such a list, or has no label, or one twice; the message names the file and the entry.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        texts = [_descriptions(entry) for entry in entries]
    except (ValueError, TypeError, RecursionError) as exc:
        raise ValueError(f"{path}: expected a JSON list such as [{DESCRIBED}]: {exc}") from exc
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{path}: expected a JSON list with at least one label, such as [{DESCRIBED}].")
    found: dict[str, list[str]] = {}
    for number, (entry, described) in enumerate(zip(entries, texts, strict=True), 1):
        place = f"{path}: entry {number}"
        label = next((entry[k] for k in ("label", "name", "service") if k in entry), None) if isinstance(entry, dict) else None
        if not isinstance(label, str) or not label.strip() or not described:
            raise ValueError(f"{place}: expected a label and a description that are not empty, such as {DESCRIBED}.")
        _refuse_surrogates(place, label, *described)
        if label in found:
            raise ValueError(f"{place}: the label {label!r} is there twice.")
        found[label] = described
    return found


def _descriptions(entry: object) -> list[str]:
    if isinstance(entry, dict):
        own = entry.get("description")
        return [*([own] if isinstance(own, str) and own.strip() else []), *(t for v in entry.values() for t in _descriptions(v))]
    return [text for part in entry for text in _descriptions(part)] if isinstance(entry, list) else []


def hash_rows(rows: Sequence[Row]) -> str:
    """Return the SHA-256 of texts and labels, independent of order."""
    digest = hashlib.sha256()
    for line in sorted(json.dumps([r.text, r.label], ensure_ascii=False) for r in rows):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()
