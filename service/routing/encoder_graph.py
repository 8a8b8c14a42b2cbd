"""The packaged encoder's weights in a graph that reads one text: a quarter less time than the graph of the package, the same vectors.

The package's graph is exported for padded batches: three hundred operators, half of which work out shapes and a mask that hides nothing.
Here a layer is a dozen: the products for queries, keys and values are one, attention is one (ONNX 23 `Attention`, scaled dot product:
Vaswani et al. 2017, eq. 1), GELU is one. Layer norms follow additions and are computed after them (Devlin et al. 2019).
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import onnx

HEADS = 12
EPSILON = 1e-12  # of BERT's layer norms
OPSET = 23
LAST_LAYER = "last_hidden_state"
_EMBEDDINGS, _LAYER = "inner.embeddings", "inner.encoder.layer.{}"

Array = npt.NDArray[Any]


def rebuild(model: "onnx.ModelProto", middle: int, middle_name: str) -> "onnx.ModelProto":
    """Return a BERT encoder anew, from ids of shape (1, tokens) to the states of two layers, each of shape (1, tokens, d).

    Args:
        model: as PyTorch exports it, with its weights as floats; parameters have their names in PyTorch.
        middle: number of layers that a text has passed in the second output; the first output is of all.
        middle_name: what the second output is called.
    """
    graph = _Graph(_parameters(model))
    states = graph.embed("input_ids")
    layers = sum(name.endswith(".intermediate.dense.bias") for name in graph.parameters)
    for number in range(layers):
        passed = number + 1
        name = LAST_LAYER if passed == layers else middle_name if passed == middle else f"layer_{passed}"
        states = graph.layer(_LAYER.format(number), states, name)
    return graph.finish([LAST_LAYER, middle_name])


def _parameters(model: "onnx.ModelProto") -> dict[str, Array]:
    """Return the weights by their names in PyTorch; the matrices of linear maps have lost theirs, so they are named after the bias."""
    from onnx import numpy_helper

    arrays = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    matrices = {n.output[0]: n.input[1] for n in model.graph.node if n.op_type == "MatMul" and n.input[1] in arrays}
    for node in model.graph.node:
        product, bias = next((i for i in node.input if i in matrices), None), next((i for i in node.input if i.endswith(".bias")), None)
        if node.op_type == "Add" and product is not None and bias is not None:
            arrays[f"{bias.removesuffix('.bias')}.weight"] = arrays[matrices[product]]
    return arrays


class _Graph:
    """An ONNX graph that grows; tensors are told by name."""

    def __init__(self, parameters: dict[str, Array]) -> None:
        self.parameters = parameters
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, Array] = {}

    def embed(self, ids: str) -> str:
        """Add the embeddings of words and places; the embedding of the first segment, which all are in, is added to the places'."""
        places = self.parameters[f"{_EMBEDDINGS}.position_embeddings.weight"]
        segment = self.parameters[f"{_EMBEDDINGS}.token_type_embeddings.weight"][0]
        words = self._constant("words", self.parameters[f"{_EMBEDDINGS}.word_embeddings.weight"])
        zero = self._constant("zero", np.zeros(1, np.int64))
        tokens = self._node("Shape", "tokens", ids, start=1, end=2)
        place = self._node("Slice", "place", self._constant("places", places + segment), zero, tokens, zero)
        return self._normalise(f"{_EMBEDDINGS}.LayerNorm", "embedded", self._node("Gather", "word", words, ids), place)

    def layer(self, name: str, states: str, result: str) -> str:
        """Add one layer of the transformer."""
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        weights, biases = (np.concatenate([self.parameters[f"{p}.{kind}"] for p in parts], axis=-1) for kind in ("weight", "bias"))
        self.parameters |= {f"{name}.attention.self.weight": weights, f"{name}.attention.self.bias": biases}
        asked = self._linear(f"{name}.attention.self", states)
        split = [f"{part}.states" for part in parts]
        self._node("Split", split, asked, axis=2, num_outputs=len(split))
        heard = self._node("Attention", f"{name}.attention", *split, q_num_heads=HEADS, kv_num_heads=HEADS)
        states = self._normalise(
            f"{name}.attention.output.LayerNorm", f"{name}.heard", self._linear(f"{name}.attention.output.dense", heard), states
        )
        active = self._node("Gelu", f"{name}.active", self._linear(f"{name}.intermediate.dense", states))
        return self._normalise(f"{name}.output.LayerNorm", result, self._linear(f"{name}.output.dense", active), states)

    def finish(self, outputs: list[str]) -> "onnx.ModelProto":
        """Return the model."""
        from onnx import TensorProto, helper, numpy_helper

        width = self.parameters[f"{_EMBEDDINGS}.LayerNorm.bias"].shape[0]
        graph = helper.make_graph(
            self._nodes,
            "encoder",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, "tokens", width]) for name in outputs],
            [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in self._constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)

    def _linear(self, name: str, states: str) -> str:
        product = self._node("MatMul", f"{name}.product", states, self._parameter(f"{name}.weight"))
        return self._node("Add", f"{name}.sum", product, self._parameter(f"{name}.bias"))

    def _normalise(self, name: str, result: str, *summands: str) -> str:
        together = self._node("Add", f"{result}.sum", *summands)
        scale, bias = self._parameter(f"{name}.weight"), self._parameter(f"{name}.bias")
        return self._node("LayerNormalization", result, together, scale, bias, axis=-1, epsilon=EPSILON)

    def _parameter(self, name: str) -> str:
        return self._constant(name, self.parameters[name])

    def _constant(self, name: str, array: Array) -> str:
        self._constants[name] = array
        return name

    def _node(self, operator: str, outputs: str | list[str], *inputs: str, **attributes: int | float) -> str:
        from onnx import helper

        names = [outputs] if isinstance(outputs, str) else outputs
        node = helper.make_node(operator, inputs, names, name=f"{operator}:{names[0]}")
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._nodes.append(node)
        return names[0]
