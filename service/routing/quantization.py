"""Weights and activations of an encoder in 8 bits: a text takes less than half the time, vectors keep a cosine of .999 with the plain ones.

A matrix product that reads a layer norm or an attention's output is computed on integers, with one scale for all its input ("dynamic
quantization"). What stands in the way are a few input channels that are ten times as large as the others; their size is moved into the
weights before (SmoothQuant: Xiao et al. 2023, arXiv:2211.10438, eq. 4). The weights have 7 bits, since processors without VNNI add pairs
of products in 16 bits, which 8 would overflow. What the activation function leaves is too skewed for one scale and has blocks with a
scale each.
"""

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from service.routing.runtime import onnxruntime

if TYPE_CHECKING:
    import onnx

ALPHA = 0.6  # how much of the input's unevenness the weights take over; cosines are flat from .5 to .7
BLOCK = 256
SMALLEST = 1e-3  # of a channel, so that one that is never used is not blown up
TYPICAL = (  # the large channels are the same whatever is read: with 400 sentences the vectors keep the same cosine
    "How did sales change after the campaign started in March?",
    "ok thanks, and what about the other two regions",
    "The weather was cold, so we stayed at home and played cards.",
    "Please train a model on the last 24 months, then compare it with the one in production.",
    "why is it so slow???",
    "Book a table for four at an Italian restaurant tomorrow at 7:30 pm.",
    "My card was charged twice; I want my money back.",
    "Which patients respond best to the new treatment, and by how much (95 % interval)?",
    "play some jazz",
    "Is the difference between group A and group B statistically significant?",
    "The committee rejected the proposal because its costs had been underestimated.",
    "TRx, NBRx and market share by HCP decile, Q3 2024 vs. Q3 2025",
)

Maxima = dict[str, npt.NDArray[np.float32]]


def quantize(model: "onnx.ModelProto", tokenizer: Path) -> bytes:
    """Return a transformer encoder, from ids of shape (1, tokens) and with weights as floats, with its matrix products in 8 bits."""
    import onnx  # a second of imports, needed once
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
    from onnxruntime.quantization.quant_utils import add_pre_process_metadata

    logging.getLogger("onnxruntime.quantization.matmul_nbits_quantizer").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="pointsman-encoder-") as folder:
        plain, whole = (str(Path(folder) / f"{name}.onnx") for name in ("plain", "whole"))
        names = _smooth(model, _maxima(model, tokenizer))
        add_pre_process_metadata(model)  # a warning would ask for it; there is nothing to be simplified
        onnx.save(model, plain)
        logging.root.addFilter(_not_onnxruntime)  # it logs each product by the root logger
        try:
            quantize_dynamic(
                plain,
                whole,
                nodes_to_quantize=names,
                per_channel=True,
                reduce_range=True,
                weight_type=QuantType.QInt8,
                extra_options={"MatMulConstBOnly": True},
            )
        finally:
            logging.root.removeFilter(_not_onnxruntime)
        rest = MatMulNBitsQuantizer(onnx.load(whole), bits=8, block_size=BLOCK, is_symmetric=True, accuracy_level=4)
        rest.process()
        made: bytes = rest.model.model.SerializeToString()
    return made


def _not_onnxruntime(record: logging.LogRecord) -> bool:
    return "onnxruntime" not in record.pathname


def _products(model: "onnx.ModelProto") -> list[tuple[Any, Any]]:
    """Return the products of an input with a constant matrix that does not shrink it, as (node, its weights)."""
    constants = {i.name: i for i in model.graph.initializer}
    products = [(n, constants[n.input[1]]) for n in model.graph.node if n.op_type == "MatMul" and n.input[1] in constants]
    return [(node, weights) for node, weights in products if weights.dims[0] <= weights.dims[1]]


def _maxima(model: "onnx.ModelProto", tokenizer: Path) -> Maxima:
    """Return the largest absolute value of each channel of each product's input on typical texts, by the input's name."""
    import onnx
    from onnx import TensorProto, helper

    inputs = list(dict.fromkeys(node.input[0] for node, _ in _products(model)))
    watched = onnx.ModelProto.FromString(model.SerializeToString())
    watched.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs)
    session = onnxruntime.InferenceSession(watched.SerializeToString(), providers=["CPUExecutionProvider"])
    read = Tokenizer.from_file(str(tokenizer))
    read.no_padding()
    maxima: Maxima = {}
    for text in TYPICAL:
        ids = np.array([read.encode(text).ids], np.int64)
        for name, values in zip(inputs, session.run(inputs, {"input_ids": ids}), strict=True):
            most = np.abs(values[0]).max(axis=0)
            maxima[name] = np.maximum(maxima.get(name, most), most)
    return maxima


def _smooth(model: "onnx.ModelProto", maxima: Maxima) -> list[str]:
    """Divide the inputs of products by a factor a channel, and multiply the weights by it; return the names of the products."""
    from onnx import helper, numpy_helper

    products = _products(model)
    for name, largest in maxima.items():
        together = [(node, weights, numpy_helper.to_array(weights)) for node, weights in products if node.input[0] == name]
        weight = np.max([np.abs(values).max(axis=1) for _, _, values in together], axis=0)
        factors = np.maximum(largest, SMALLEST) ** ALPHA / np.maximum(weight, SMALLEST) ** (1.0 - ALPHA)
        factors = (factors / np.exp(np.log(factors).mean())).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(1.0 / factors, f"{name}_factors"))
        smooth = helper.make_node("Mul", [name, f"{name}_factors"], [f"{name}_smooth"], name=f"{name}_smooth")
        place = next(i for i, node in enumerate(model.graph.node) if name in node.output)
        model.graph.node.insert(place + 1, smooth)
        for node, weights, values in together:
            weights.CopyFrom(numpy_helper.from_array(values * factors[:, None], weights.name))
            node.input[0] = f"{name}_smooth"
    return [node.name for node, _ in products]
