"""Networks as ONNX programs, as they are shipped: from bytes of images to features, in fp32 or int8, and to logits.

An encoder's program has one output for every depth of the network, so one pass gives the features of all of them.
With a linear layer on one depth it becomes a classifier's program; what only other depths need is then left out.
"""

from __future__ import annotations

import io
import logging
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float32, UInt8

from fca.torchvision_ops import imported
from fca.types import FcaError

if TYPE_CHECKING:
    from fca.types import Classifier

FP32, INT8 = "fp32", "int8"
PRECISIONS = (FP32, INT8)
PACKAGES = ("onnx", "onnxruntime")
IMAGES, LOGITS, PROBABILITIES = "images", "logits", "probabilities"  # names of a program's input and outputs
OPSET = 17  # onnxruntime reads it since 1.12 (2022)
CALIBRATION_BATCH = 8  # images at once while the ranges of activations are measured
# Layers that int8 is for. The division by 255 before them and the linear layer behind them stay in fp32: the layer is
# a thousandth of the work, and decides between classes.
QUANTISED_LAYERS = ("Conv", "Add", "Clip", "Relu", "Pad", "MaxPool", "AveragePool", "Concat", "MatMul")

Bytes = UInt8[np.ndarray, "images size size 3"]
log = logging.getLogger(__name__)


def missing_packages() -> list[str]:
    """Packages that are needed to write and run programs and are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def check_packages(key: str, value: str) -> None:
    """Raise FcaError if packages that write and run programs are missing.

    key, value: the setting that needs it.
    """
    missing = missing_packages()
    if missing:
        allowed = f"what the installed packages can do; {', '.join(missing)} is not installed"
        raise FcaError(key, value, allowed, "pip install 'fca[export]'")


# Writing


def encoder_program(encoder: Classifier, depths: Sequence[str]) -> bytes:
    """Write an encoder as an ONNX program in fp32: bytes of images in, one output of features for each depth.

    The program is returned in a simplified form, which runs faster and can be quantised.

    encoder: gives the features of all depths side by side, in the order of `depths`. It is changed here: it moves to
             the CPU, and paddings that depend on the size of each image become fixed ones, which give the same numbers
             at its input size.
    depths:  names of the places in the network where features are taken, such as `whole`, or `cut` before its last
             widening layer. They become the names of the outputs.

    Raises FcaError for a network that cannot be written as ONNX.
    """
    import onnx
    import torch

    from fca.models.export import without_library_warnings

    class Encoder(torch.nn.Module):
        """Bytes of images, of shape (images, size, size, 3) -> features."""

        def __init__(self) -> None:
            super().__init__()
            self.module = encoder.module  # `embed` runs it; as an attribute, its weights are part of this module

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return encoder.embed(encoder.normalise(images.permute(0, 3, 1, 2).float() / 255))

    size = encoder.input_size
    encoder.module.eval().cpu()
    fix_padding(encoder)
    # two images: from a single one an exporter may take the number 1 as fixed
    example = torch.zeros(2, size, size, 3, dtype=torch.uint8)
    content = io.BytesIO()
    try:
        with torch.no_grad(), without_library_warnings():
            # TorchScript's exporter takes 1 s where the newer one takes 6 s, for the same operators.
            torch.onnx.export(
                Encoder().eval(),
                (example,),
                content,  # type: ignore[arg-type]  # TorchScript's exporter takes a buffer, too
                dynamo=False,
                opset_version=OPSET,
                input_names=[IMAGES],
                output_names=["features"],
                dynamic_axes={IMAGES: {0: "images"}, "features": {0: "images"}},  # any number of images
            )
    except Exception as error:  # the exporter refuses networks with errors of every kind
        from fca.models import one_line

        allowed = f"a network that ONNX can hold ({one_line(error)})"
        raise FcaError("model", type(encoder.module).__name__, allowed, "choose another network") from error
    model = _with_an_output_for_each_depth(onnx.load_from_string(content.getvalue()), depths)
    return simplified(model.SerializeToString())


def simplified(program: bytes) -> bytes:
    """The program in a form that runs faster and can be quantised, with the same results.

    Constants are folded; batch normalisation and padding become part of the convolutions.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder, _quiet_quantiser():
        source = Path(folder, "given.onnx")
        target = Path(folder, "simplified.onnx")
        source.write_bytes(program)
        quant_pre_process(str(source), str(target), skip_symbolic_shape=True)
        return target.read_bytes()


def _with_an_output_for_each_depth(model: Any, depths: Sequence[str]) -> Any:
    """Replace the output of an exported encoder, the features of all depths side by side, by one output for each depth.

    With several depths, the network ends in a layer that joins their features: it is removed, and its inputs become the
    outputs. Raises RuntimeError if the network does not end in such a layer. The changed ONNX model is returned.
    """
    import onnx
    from onnx import helper

    graph = model.graph
    joint_output = graph.output[0].name
    if len(depths) == 1:
        sources = [joint_output]
    else:
        joint = next(node for node in graph.node if joint_output in node.output)
        if joint.op_type != "Concat" or len(joint.input) != len(depths):
            raise RuntimeError(f"the features of {len(depths)} depths do not end in one Concat but in {joint.op_type}")
        sources = list(joint.input)
        graph.node.remove(joint)

    del graph.output[:]
    for depth, source in zip(depths, sources, strict=True):
        # The name of an output is the name of a layer's result. An identity gives the features the name of the depth.
        graph.node.append(helper.make_node("Identity", [source], [depth], name=f"output_{depth}"))
        shape = ["images", None]
        graph.output.append(helper.make_tensor_value_info(depth, onnx.TensorProto.FLOAT, shape))
    return model


def fix_padding(classifier: Classifier) -> None:
    """Give convolutions that pad like TensorFlow a fixed padding, in place, for the classifier's input size.

    timm's Conv2dSame computes its padding from the size of each image. Each is replaced by a fixed padding and a plain
    convolution with the same weights, which give the same numbers at this input size. A fixed padding becomes part of
    the convolution in ONNX; a computed one is 20 operators a layer (mobilenetv1 and efficientnet_lite then take 1.3
    times as long in fp32, and twice as long in int8).
    """
    import torch

    layer_class = imported("timm.layers").Conv2dSame
    module = classifier.module
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, layer_class)}

    # The height and width of each such layer's input, recorded while one image passes the network.
    input_sides: dict[Any, tuple[int, int]] = {}

    def record_sides(layer: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        height, width = inputs[0].shape[-2:]
        input_sides[layer] = (height, width)

    hooks = [layer.register_forward_pre_hook(record_sides) for layer in layers.values()]
    with torch.no_grad():
        classifier.embed(torch.zeros(1, 3, classifier.input_size, classifier.input_size))
    for hook in hooks:
        hook.remove()

    for name, layer in layers.items():
        if layer in input_sides:  # else no image passes this layer, so its size is unknown and does not matter
            module.set_submodule(name, _with_fixed_padding(layer, input_sides[layer]))
    module.eval()  # new layers begin in training mode


def _with_fixed_padding(layer: Any, input_sides: tuple[int, int]) -> Any:
    """A fixed padding with zeros, then a plain convolution with the weights of a layer of timm's Conv2dSame.

    As in TensorFlow, an axis gets just enough padding for ceil(side / stride) outputs:

        total = max((ceil(side / stride) - 1) * stride + (kernel - 1) * dilation + 1 - side, 0).

    Half of it, rounded down, comes before the input, the rest behind it.

    input_sides: height and width of the layer's input.
    """
    import torch

    total_padding = imported("timm.layers").get_same_padding  # by this formula
    margins: list[int] = []  # left, right, top, bottom
    for axis in (1, 0):  # torch pads the last axis, the width, first
        total = total_padding(input_sides[axis], layer.kernel_size[axis], layer.stride[axis], layer.dilation[axis])
        margins += [total // 2, total - total // 2]
    padding: Any = torch.nn.ZeroPad2d(tuple(margins))  # type: ignore[arg-type]

    convolution = torch.nn.Conv2d(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        layer.stride,
        dilation=layer.dilation,
        groups=layer.groups,
        bias=layer.bias is not None,
    )
    convolution.weight = layer.weight
    convolution.bias = layer.bias
    return torch.nn.Sequential(padding, convolution)


def quantised(program: bytes, images: Bytes) -> bytes:
    """The int8 version of a simplified fp32 program, by static quantisation (Jacob et al. 2018, arXiv:1712.05877).

    Weights are quantised channel by channel; activations by the ranges that they take on the calibration images. Around
    each layer the program has QuantizeLinear and DequantizeLinear, which onnxruntime fuses with it.

    program: content of an ONNX file, in which batch normalisation is already part of the convolutions.
    images:  calibration images at input size; 32 are enough for ranges.

    Raises FcaError for a program that has no layer to quantise, or that the quantiser refuses.
    """
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class ImageReader(CalibrationDataReader):  # type: ignore[misc]
        """The images in batches, as the quantiser reads them."""

        def __init__(self) -> None:
            starts = range(0, len(images), CALIBRATION_BATCH)
            self.batches = iter([{IMAGES: images[start : start + CALIBRATION_BATCH]} for start in starts])

        def get_next(self) -> dict[str, Bytes] | None:
            return next(self.batches, None)

    model = onnx.load_from_string(program)
    layer_kinds = {node.op_type for node in model.graph.node}
    if not layer_kinds & {"Conv", "MatMul"}:  # the layers with weights among those that are quantised
        allowed = f"networks of convolutions or matrix products; this has {', '.join(sorted(layer_kinds))}"
        raise FcaError("precision", INT8, allowed, "take fp32")

    with tempfile.TemporaryDirectory() as folder, _quiet_quantiser():
        source = Path(folder, "given.onnx")
        target = Path(folder, "int8.onnx")
        source.write_bytes(program)
        try:
            quantize_static(
                str(source),
                str(target),
                ImageReader(),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(QUANTISED_LAYERS),
                nodes_to_exclude=_layers_to_keep_in_fp32(model),
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
        except Exception as error:  # the quantiser refuses programs with errors of every kind
            from fca.models import one_line

            allowed = f"a network that onnxruntime can quantise ({one_line(error)})"
            raise FcaError("precision", INT8, allowed, "take fp32, or another network") from error
        return target.read_bytes()


def _layers_to_keep_in_fp32(model: Any) -> list[str]:
    """Names of the operations that stay in fp32 in an int8 program: the last one with weights, which gives the logits.

    It is a small share of the work, and decides between classes. The list is empty for the program of an encoder, which
    has no logits.

    The search begins at the logits and goes back until it meets an operation with weights. If it first meets one that
    takes the results of several others, such as a sum of several heads, or of none, that one stays in fp32 instead.

    model: an ONNX model, whose nodes are its operations.
    """
    graph = model.graph
    if LOGITS not in {output.name for output in graph.output}:
        return []

    node_by_output = {name: node for node in graph.node for name in node.output}
    node = node_by_output[LOGITS]
    while node.op_type not in ("Gemm", "MatMul", "Conv"):
        source_nodes = [node_by_output[name] for name in node.input if name in node_by_output]
        if len(source_nodes) != 1:  # no single layer before this one gives the logits
            return [node.name]
        node = source_nodes[0]
    return [node.name]


@contextmanager
def _quiet_quantiser() -> Iterator[None]:
    """Mute the advice that the quantiser logs about its own options, in the body of `with`."""
    previous_level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(previous_level)


def with_head(
    program: bytes, depth: str, weight: Float[np.ndarray, "classes features"], bias: Float[np.ndarray, " classes"]
) -> bytes:
    """Add a linear classifier to the features of one depth of an encoder's program; return the classifier's program.

    logits = features @ weight.T + bias,   probabilities = softmax(logits)

    Both are outputs of the new program. Layers that only other depths need are left out.
    """
    import onnx
    from onnx import helper, numpy_helper

    model = only_output(onnx.load_from_string(program), depth)
    graph = model.graph

    head_weight = np.ascontiguousarray(weight, np.float32)
    head_bias = bias.astype(np.float32)
    graph.initializer.append(numpy_helper.from_array(head_weight, "head_weight"))
    graph.initializer.append(numpy_helper.from_array(head_bias, "head_bias"))

    head_inputs = [depth, "head_weight", "head_bias"]
    graph.node.append(helper.make_node("Gemm", head_inputs, [LOGITS], name="head", transB=1))  # transB: weight.T
    graph.node.append(helper.make_node("Softmax", [LOGITS], [PROBABILITIES], name="softmax", axis=1))

    del graph.output[:]  # the features are no output any more
    for name in (LOGITS, PROBABILITIES):
        shape: list[Any] = ["images", len(weight)]
        graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    return model.SerializeToString()


def only_output(model: Any, name: str) -> Any:
    """The part of an ONNX model that one of its outputs needs.

    name: that output's name.
    """
    from onnx.utils import Extractor

    return Extractor(model).extract_model([IMAGES], [name])


# Running


@dataclass(frozen=True)
class Session:
    """A program in onnxruntime on the CPU.

    program: content of an ONNX file.
    threads: None = all cores.
    """

    program: bytes
    threads: int | None = None

    @cached_property
    def _session(self) -> Any:
        """The session of onnxruntime, which is started on first use."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads or 0  # 0: onnxruntime takes all cores
        options.log_severity_level = 3  # only errors
        return onnxruntime.InferenceSession(self.program, options, providers=["CPUExecutionProvider"])

    @property
    def outputs(self) -> list[str]:
        return [output.name for output in self._session.get_outputs()]

    @property
    def signature(self) -> dict[str, list[str | int]]:
        """Name of each input and output -> its type and its shape without the first axis (the number of images)."""
        values = (*self._session.get_inputs(), *self._session.get_outputs())
        return {value.name: [value.type, *value.shape[1:]] for value in values}

    def run(self, images: Bytes, outputs: Sequence[str]) -> Float32[np.ndarray, "images values"]:
        """These outputs of the program for a batch of images, side by side."""
        return np.concatenate(self._session.run(list(outputs), {IMAGES: images}), axis=1)


# Size and work


@dataclass(frozen=True)
class ProgramCost:
    """The cost of a program for one image.

    flops:  operations; a multiply-add counts as two.
    memory: bytes of the file, and of the input and output of the largest layer: what must be in memory at once.
    params: number of weights.
    """

    flops: int
    memory: int
    params: int


def cost_of(program: bytes) -> ProgramCost:
    """The cost of running a program on one image, counted from the shapes of its layers.

    Nothing is run, so the cost is the same on every machine. It has `flops` (operations; a multiply-add counts as two),
    `memory` (bytes of the file, and of the inputs and outputs of the largest layer) and `params` (number of weights).

    program: content of an ONNX file, in fp32 or int8.
    """
    import onnx

    model = onnx.load_from_string(program)
    graph = model.graph
    # Infer the shapes of all values between layers for one image: the recorded ones are for any number of images.
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 1
    graph = onnx.shape_inference.infer_shapes(model).graph

    values = (*graph.value_info, *graph.input, *graph.output)
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in values}
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    constants = {constant.name: list(constant.dims) for constant in graph.initializer}
    weights, int8_names = _weights_and_int8_values(graph, constants)

    flops = 0
    largest_layer = 0  # bytes of inputs and outputs
    for node in graph.node:
        flops += _flops(node, shapes, weights)

        layer_bytes = 0
        for name in (*node.input, *node.output):
            if name in shapes:
                item_bytes = 1 if name in int8_names else _itemsize(types[name])
                layer_bytes += math.prod(shapes[name]) * item_bytes
        largest_layer = max(largest_layer, layer_bytes)

    params = sum(math.prod(shape) for shape in constants.values() if shape)  # scalars, such as 255, are no weights
    memory = len(program) + largest_layer  # the file with all weights, and the largest values between layers
    return ProgramCost(flops, memory, params)


def _weights_and_int8_values(graph: Any, constants: Mapping[str, list[int]]) -> tuple[dict[str, list[int]], set[str]]:
    """The shapes of weights by the names under which layers read them, and the names of values that are kept in int8.

    Layers of an int8 program read their weights from a DequantizeLinear: its output has the shape of the constant that
    it reads. What a DequantizeLinear gives and what a QuantizeLinear takes is recorded as float. But onnxruntime fuses
    both with the layers beside them, so that these values are kept in int8.

    constants: name of a constant of the graph -> its shape.
    """
    weights = dict(constants)
    int8_names = set()
    for node in graph.node:
        if node.op_type == "DequantizeLinear":
            source, output = node.input[0], node.output[0]
            int8_names.add(output)
            if source in constants:
                weights[output] = constants[source]
        if node.op_type == "QuantizeLinear":
            int8_names.add(node.input[0])
    return weights, int8_names


def _flops(node: Any, shapes: Mapping[str, list[int]], weights: Mapping[str, list[int]]) -> int:
    """Operations of one layer: 2 x number of outputs x weights per output, for convolutions and matrix products.

    Other layers count as 0, as do layers with an unknown shape of the outputs, the kernel or the first matrix.

    node:    a layer of an ONNX program, with the names of its inputs and outputs.
    shapes:  name of a value between layers -> its shape.
    weights: name of a weight -> its shape.
    """
    if node.op_type not in ("Conv", "Gemm", "MatMul") or node.output[0] not in shapes:
        return 0

    n_outputs = math.prod(shapes[node.output[0]])
    if node.op_type == "Conv":
        # a kernel has output channels, input channels of a group, height and width
        kernel_shape = weights.get(node.input[1])
        weights_per_output = 0 if kernel_shape is None else math.prod(kernel_shape[1:])
    else:
        # each column of the first matrix meets one weight of an output; 0 if its shape is unknown
        weights_per_output = shapes.get(node.input[0], [0])[-1]
    return 2 * n_outputs * weights_per_output


def _itemsize(onnx_type: int) -> int:
    """Bytes of one number of an ONNX type."""
    import onnx

    return int(onnx.helper.tensor_dtype_to_np_dtype(onnx_type).itemsize)
