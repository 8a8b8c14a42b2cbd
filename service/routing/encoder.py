"""The sentence encoder: text → unit vector and WordPiece ids, by ONNX Runtime on the CPU.

The default model is all-MiniLM-L6-v2 (Reimers and Gurevych 2019; mean pooling and L2 norm) as int8 ONNX from a data-only package. Beside
its last layer the fourth of six is pooled: middle layers keep what the wording asks for, which training on sentence similarity washes out
of the last one (docs/decisions/0005). It knows nothing of intents or agents.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from service.errors import ConfigurationError
from service.routing.encoder_file import MIDDLE_LAYER, NAME, TOKENIZER_FILE, served_model
from service.routing.runtime import onnxruntime

MAX_TOKENS = 128
MAX_CHARACTERS = 8_000  # more text than 128 WordPiece tokens can hold; what lies beyond never reaches the tokenizer
SHORT_TOKENS = 32  # of an earlier utterance, which is read for its topic only
SHORT_CHARACTERS = 200  # of its beginning and of its end; together fewer tokens than the tokenizer cuts at
SLOWER = ["SkipLayerNormFusion"]  # ONNX Runtime 1.32 takes three times as long for an addition and a layer norm in one as for the two
REMEMBERED = 1_024  # earlier utterances whose encodings are kept (5 MB)

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Encoding:
    """What one text looks like to the student.

    Attributes:
        vector: unit vector, shape (d,), float32: the pooled layers side by side, each with the same length.
        tokens: WordPiece ids without the special tokens, at most `MAX_TOKENS` - 2.
        states: of each of these tokens, shape (layers, tokens, d), float32; None for one of many texts.
    """

    vector: Vectors
    tokens: tuple[int, ...]
    states: Vectors | None = None

    def part(self, tokens: tuple[int, ...]) -> "Encoding | None":
        """Return what a part of the text looks like in its context, which costs nothing more ("late chunking", Günther et al. 2024).

        None where the states are not at hand, or the tokens are no run of the text's.
        """
        begins = range(len(self.tokens) - len(tokens) + 1)
        start = next((i for i in begins if self.tokens[i : i + len(tokens)] == tokens), None)
        if self.states is None or start is None or not tokens:
            return None
        return Encoding(_pool(self.states[:, start : start + len(tokens)]), tokens)


class Encoder:
    """Text → `Encoding`. Thread-safe; holds one ONNX session.

    Args:
        folder: a sentence-transformers ONNX folder (`model.onnx`, `tokenizer.json`); None is the packaged model, whose hash is checked.
            Every output of shape (batch, tokens, d) is pooled, so a model exported with more than its last layer gives longer vectors.
        threads: how many texts are encoded at a time; each takes one thread.
    """

    def __init__(self, folder: Path | None = None, *, threads: int = 1) -> None:
        self.folder = folder
        model, tokenizer = _locate(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER)
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
        except Exception as exc:  # both libraries raise classes of their own that have nothing in common
            where = folder or "the packaged encoder"
            raise ConfigurationError(f"The encoder cannot be read: {where} ({type(exc).__name__}). Is its file whole?") from exc
        self._threads = threads
        self._inputs = [i.name for i in self._session.get_inputs()]
        self._layers = [o.name for o in self._session.get_outputs() if o.name == MIDDLE_LAYER or len(o.shape) == 3]
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
        return self._encode(text, MAX_TOKENS, keep=True)

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

    def encode_many(self, texts: Sequence[str], *, most: int = MAX_TOKENS) -> list[Encoding]:
        """Encode texts, each alone, in the order given; `most` tokens of each, with the two special ones.

        In a batch the scale of the 8-bit activations would depend on the other texts, and on two cores it would save a tenth of the time.
        """
        if self._threads == 1 or len(texts) < 2:
            return [self._encode(text, most) for text in texts]
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda text: self._encode(text, most), texts))

    def tokens_of(self, text: str) -> tuple[int, ...]:
        """Return the WordPiece ids of a text without the special tokens; full-width letters and the like are read as plain ones."""
        return tuple(self._tokens(text)[1:-1])

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(normalize("NFKC", text[:MAX_CHARACTERS])[:MAX_CHARACTERS]).ids
        return ids

    def _encode(self, text: str, most: int, *, keep: bool = False) -> Encoding:
        """Encode one text. Of a longer one beginning and end are read: the one says what it is about, and the other what it asks."""
        tokens = self._tokens(text)
        if len(tokens) > most:
            tokens = [*tokens[: most // 2], *tokens[-(most - most // 2) :]]
        ids = np.array([tokens], np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        states = np.concatenate(self._session.run(self._layers, {name: feed[name] for name in self._inputs}))
        return Encoding(_pool(states), tuple(tokens[1:-1]), states[:, 1:-1] if keep else None)


def _pool(states: Vectors) -> Vectors:
    """Return the unit vector of tokens, shape (layers · d,): the layers side by side, each with the same length."""
    sums: Vectors = states.sum(axis=1)  # the norm takes care of the number of tokens
    unit: Vectors = (sums / np.linalg.norm(sums, axis=1, keepdims=True) / np.float32(np.sqrt(len(sums)))).ravel()
    return unit


def _locate(folder: Path | None) -> tuple[bytes, Path]:
    if folder is not None:
        model, tokenizer = folder / "model.onnx", folder / "tokenizer.json"
        for path in (model, tokenizer):
            if not path.is_file():
                raise ConfigurationError(f"The encoder folder lacks {path}. Export one with: optimum-cli export onnx --model NAME {folder}")
        return model.read_bytes(), tokenizer
    return served_model(), TOKENIZER_FILE
