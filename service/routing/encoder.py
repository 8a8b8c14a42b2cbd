"""The sentence encoder: text → unit vector and WordPiece ids, by ONNX Runtime on the CPU.

The default model is all-MiniLM-L6-v2 (Reimers and Gurevych 2019; mean pooling and L2 norm) as int8 ONNX from a data-only package. Beside
its last layer the fourth of six is pooled: middle layers keep what the wording asks for, which training on sentence similarity washes out
of the last one (docs/decisions/0005). It knows nothing of intents or agents.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import onnxruntime
from tokenizers import Tokenizer

from service.errors import ConfigurationError
from service.routing.encoder_file import MIDDLE_LAYER, NAME, served_model

TOKENIZER_FILE = Path(__file__).parent / "data" / "tokenizer.json"
MAX_TOKENS = 128
MAX_CHARACTERS = 8_000  # more text than 128 WordPiece tokens can hold; what lies beyond never reaches the tokenizer
SHORT_TOKENS = 32  # of an earlier utterance, which is read for its topic only
SHORT_CHARACTERS = 200  # of its beginning and of its end; together fewer tokens than the tokenizer cuts at
REMEMBERED = 1_024  # earlier utterances whose encodings are kept (5 MB)

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Encoding:
    """What one text looks like to the student.

    Attributes:
        vector: unit vector, shape (d,), float32: the pooled layers side by side, each with the same length.
        tokens: WordPiece ids without the special tokens, at most `MAX_TOKENS` - 2.
    """

    vector: Vectors
    tokens: tuple[int, ...]


class Encoder:
    """Text → `Encoding`. Thread-safe; holds one ONNX session.

    Args:
        folder: a sentence-transformers ONNX folder (`model.onnx`, `tokenizer.json`); None is the packaged model, whose hash is checked.
            Every output of shape (batch, tokens, d) is pooled, so a model exported with more than its last layer gives longer vectors.
        threads: intra-op threads of one call.
    """

    def __init__(self, folder: Path | None = None, *, threads: int = 1) -> None:
        self.folder = folder
        model, tokenizer = _locate(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._inputs = {i.name for i in self._session.get_inputs()}
        self._layers = [o.name for o in self._session.get_outputs() if o.name == MIDDLE_LAYER or len(o.shape) == 3]
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._remembered: OrderedDict[str, Encoding] = OrderedDict()
        self._lock = Lock()
        self.name = NAME if folder is None else hashlib.sha256(model).hexdigest()[:16]

    def encode(self, text: str) -> Encoding:
        """Encode one text.

        Raises:
            TypeError: the text holds a lone surrogate; the API rejects such bodies before.
        """
        return self.encode_many([text])[0]

    def encode_short(self, texts: Iterable[str]) -> dict[str, Encoding]:
        """Encode beginning and end of each text; the latest are remembered, since a conversation brings them again with each turn."""
        wanted = {t: f"{t[:SHORT_CHARACTERS]} {t[-SHORT_CHARACTERS:]}" if len(t) > 2 * SHORT_CHARACTERS else t for t in texts}
        with self._lock:
            found = {t: self._remembered[t] for t in dict.fromkeys(wanted.values()) if t in self._remembered}
        missing = [t for t in dict.fromkeys(wanted.values()) if t not in found]
        found |= dict(zip(missing, self.encode_many(missing, most=SHORT_TOKENS), strict=True))
        with self._lock:
            for text, encoding in found.items():
                self._remembered[text] = encoding
                self._remembered.move_to_end(text)
            while len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)
        return {text: found[short] for text, short in wanted.items()}

    def encode_many(self, texts: Sequence[str], *, batch: int = 32, most: int = MAX_TOKENS) -> list[Encoding]:
        """Encode texts in batches of similar length, in the order given; `most` tokens of each, with the two special ones.

        Full-width letters and the like are read as plain ones. Of a longer text beginning and end are read: the one says what it is about,
        and the other what it asks.
        """
        tokens = [self._tokenizer.encode(normalize("NFKC", t[:MAX_CHARACTERS])[:MAX_CHARACTERS]).ids for t in texts]
        tokens = [[*ids[: most // 2], *ids[-(most - most // 2) :]] if len(ids) > most else ids for ids in tokens]
        order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))
        encodings: list[Encoding | None] = [None] * len(texts)
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            width = max(len(tokens[i]) for i in chosen)
            ids = np.zeros((len(chosen), width), np.int64)
            mask = np.zeros_like(ids)
            for row, i in enumerate(chosen):
                ids[row, : len(tokens[i])] = tokens[i]
                mask[row, : len(tokens[i])] = 1
            for i, vector in zip(chosen, self._pool(ids, mask), strict=True):
                encodings[i] = Encoding(vector, tuple(tokens[i][1:-1]))
        return [e for e in encodings if e is not None]

    def _pool(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> Vectors:
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        layers = self._session.run(self._layers, {name: array for name, array in feed.items() if name in self._inputs})
        weights = mask[:, :, None].astype(np.float32)
        means = [(states * weights).sum(axis=1) for states in layers]  # the norm takes care of the number of tokens
        joined = np.concatenate([mean / np.linalg.norm(mean, axis=1, keepdims=True) for mean in means], axis=1)
        unit: Vectors = (joined / np.sqrt(len(means))).astype(np.float32)
        return unit


def _locate(folder: Path | None) -> tuple[bytes, Path]:
    if folder is not None:
        model, tokenizer = folder / "model.onnx", folder / "tokenizer.json"
        for path in (model, tokenizer):
            if not path.is_file():
                raise ConfigurationError(f"The encoder folder lacks {path}. Export one with: optimum-cli export onnx --model NAME {folder}")
        return model.read_bytes(), tokenizer
    return served_model(), TOKENIZER_FILE
