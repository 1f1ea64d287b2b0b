"""A classifier as one file for other programs: ONNX, TorchScript, or its weights; and the logits of such a file."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from safetensors.torch import save
from torch import Tensor, nn

from fca.geometry import ResizeCrop
from fca.models import Normalise, one_line
from fca.types import Classifier, FcaError

OPSET = 18  # the first that PyTorch's exporter writes without a conversion; onnxruntime reads it since 1.14 (2023)
INPUT = "images"
OUTPUTS = ("logits", "probabilities")
PACKAGES = {"onnx": ("onnx", "onnxscript", "onnxruntime")}  # of a format, beside ours
TOLERANCE = 1e-3
"""Of logits, as a share of the largest: sums of float32 in another order differ by 1e-6 to 1e-4, a wrong mean, crop or
layer by far more."""

Answers = Callable[[UInt8[np.ndarray, "images size size 3"]], Float32[np.ndarray, "images logits"]]


class Program(nn.Module):
    """The network as it is exported: bytes of images at input size in, logits and probabilities out.

    probabilities = softmax(logits),   logits = module(normalise(images / 255))

    Everything in between, such as the normalisation, is part of the file.
    """

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.module = classifier.module
        self.normalise = classifier.normalise

    def forward(
        self, images: UInt8[Tensor, "batch size size 3"]
    ) -> tuple[Float[Tensor, "batch classes"], Float[Tensor, "batch classes"]]:
        """Logits and probabilities for bytes of images."""
        logits = self.module(self.normalise(images.permute(0, 3, 1, 2).float() / 255)).float()
        return logits, logits.softmax(dim=1)


def export_content(classifier: Classifier, kind: str) -> bytes:
    """The content of the file to which a classifier is exported.

    kind: onnx or torchscript (a program from bytes of images to logits and probabilities, for any number of images; it
          normalises the images itself), or safetensors (the state dict of the network alone).
    Raises FcaError for a network that the format cannot hold.
    """
    module = classifier.module.eval().cpu()  # both in place: the `Program` below has this module
    if kind == "safetensors":
        # Cloned, since safetensors refuses tensors that share memory.
        return save({name: value.clone().contiguous() for name, value in module.state_dict().items()})

    write = _written_as_onnx if kind == "onnx" else _written_as_torchscript
    # two images: from a single one an exporter may take the number 1 as fixed
    example = torch.zeros(2, classifier.input_size, classifier.input_size, 3, dtype=torch.uint8)
    try:
        with torch.no_grad(), without_library_warnings():
            return write(Program(classifier).eval(), example)
    except Exception as error:  # both writers refuse networks with errors of every kind
        other_kind = "torchscript" if kind == "onnx" else "onnx"
        allowed = f"a format that can hold this network ({one_line(error)})"
        raise FcaError("format", kind, allowed, f"take format={other_kind} or format=safetensors") from error


def logits_function(content: bytes, kind: str) -> Answers:
    """Return a function from bytes of images to logits, which runs an exported program on the CPU.

    content: the file's content, as `export_content` returns it.
    kind:    onnx (run by onnxruntime) or torchscript.
    """
    if kind == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        return lambda images: session.run(OUTPUTS[:1], {INPUT: images})[0]  # OUTPUTS: logits, then probabilities

    with without_library_warnings():
        script = torch.jit.load(io.BytesIO(content), map_location="cpu")  # type: ignore[no-untyped-call]

    def logits(images: UInt8[np.ndarray, "images size size 3"]) -> Float32[np.ndarray, "images logits"]:
        with torch.inference_mode():
            return script(torch.from_numpy(images))[0].numpy()  # it returns logits and probabilities

    return logits


def check_export_packages(kind: str) -> None:
    """Raise FcaError if packages that a format needs are not installed.

    kind: the format, as in `export_content`.
    """
    missing = [name for name in PACKAGES.get(kind, ()) if find_spec(name) is None]
    if missing:
        allowed = f"a format whose packages are installed; {', '.join(missing)} is not"
        raise FcaError("format", kind, allowed, "pip install 'fca[export]', or take another format")


class LogitDifference(NamedTuple):
    """How much the logits of an exported file differ from those of the network.

    images:  number of images that were compared.
    largest: largest absolute difference of any logit.
    allowed: upper limit of that difference.
    """

    images: int
    largest: float
    allowed: float


def compare_logits(
    expected: Float[np.ndarray, "images logits"], actual: Float[np.ndarray, "images logits"]
) -> LogitDifference:
    """Check the logits of an exported file against those of the network, and return the largest difference.

    expected: logits of the network.
    actual:   logits of the file for the same images.

    The allowed difference is TOLERANCE times the largest absolute logit of the network, which counts as at least 1.
    FcaError is raised if any logit differs by more. It is also raised if the file predicts another class than the
    network, unless the network's own logits of these two classes differ by at most the allowed difference: then
    rounding may exchange the classes.

    >>> compare_logits(np.array([[2.0, 1.0]], np.float32), np.array([[2.0, 1.0]], np.float32))
    LogitDifference(images=1, largest=0.0, allowed=0.002)
    """
    allowed = TOLERANCE * max(1.0, float(np.abs(expected).max()))
    largest = float(np.abs(expected - actual).max()) if np.isfinite(actual).all() else float("inf")

    # For each image, the network's logit of its own class minus its logit of the file's class: 0 where they agree.
    expected_of_actual_class = expected[np.arange(len(expected)), actual.argmax(axis=1)]
    shortfall = expected.max(axis=1) - expected_of_actual_class

    if largest > allowed or (shortfall > allowed).any():
        n_other_class = int((shortfall > 0).sum())
        difference = f"{largest:.2g} on {len(expected)} images, {n_other_class} of another class"
        step = "take another format; if it stays, report the network"
        raise FcaError("difference of the file's logits", difference, f"at most {allowed:.2g}, the same classes", step)
    return LogitDifference(len(expected), largest, allowed)


def preprocessing(classifier: Classifier, kind: str) -> dict[str, Any]:
    """The steps from an upright RGB image to the network's input, as the JSON that is written beside an exported file.

    kind: the format of the file: onnx, torchscript or safetensors.

    `geometry` has the steps that the user of the file must do:
      resize:        target of the shorter side in pixels; the longer side keeps the ratio and is rounded down.
      squash:        whether both sides are resized to `resize` instead.
      interpolation: Pillow's filter.
      crop:          side of the central square that is kept.
    `normalise` has mean, std (of values in [0, 1]) and bgr (red and blue are swapped afterwards), or is null if the
    user's model normalises by a function of its own. A program of onnx or torchscript does this step itself.

    Raises FcaError if the classifier's input is not a resized and cropped image. For safetensors it is also raised if
    the normalisation is not a `Normalise`, since then no file describes it.
    """
    geometry = classifier.geometry
    if not isinstance(geometry, ResizeCrop):
        allowed = "a network whose input is a resized and cropped image (fca.geometry.ResizeCrop)"
        raise FcaError("run", type(classifier.module).__name__, allowed, "export a network")

    normalise = classifier.normalise
    normalisation = None
    if isinstance(normalise, Normalise):
        normalisation = {"mean": list(normalise.mean), "std": list(normalise.std), "bgr": normalise.bgr}
    elif kind == "safetensors":
        allowed = "onnx or torchscript for a network with a normalisation of its own, which goes into the program"
        raise FcaError("format", kind, allowed, "take format=onnx, or normalise by fca.models.Normalise")

    return {
        "geometry": {
            "resize": geometry.side,
            "squash": geometry.squash,
            "interpolation": geometry.interpolation,
            "crop": geometry.size,
        },
        "normalise": normalisation,
    }


def _written_as_onnx(program: Program, example: Tensor) -> bytes:
    """The content of an ONNX file with this program.

    example: images from which the exporter learns the shapes. The file takes any number of images.
    """
    batch = torch.export.Dim("batch")  # the symbol for an axis of any length
    written: Any = torch.onnx.export(
        program,
        (example,),
        dynamo=True,  # the newer of torch's two exporters
        opset_version=OPSET,
        input_names=[INPUT],
        output_names=OUTPUTS,
        dynamic_shapes={INPUT: {0: batch}},
        verbose=False,
    )
    return written.model_proto.SerializeToString()


def _written_as_torchscript(program: Program, example: Tensor) -> bytes:
    """The content of a TorchScript file, traced on these example images."""
    content = io.BytesIO()
    # Unchecked here: `compare_logits` checks the file on real images.
    script = torch.jit.trace(program, example, check_trace=False)  # type: ignore[no-untyped-call]
    torch.jit.save(script, content)
    return content.getvalue()


@contextmanager
def without_library_warnings() -> Iterator[None]:
    """Mute, in the body of `with`, warnings of PyTorch about its own exporters.

    Some of these warnings doubt that the exported program does the same as the network; `compare_logits` checks that.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", DeprecationWarning)
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        warnings.filterwarnings("ignore", r"You are using the legacy TorchScript-based ONNX", DeprecationWarning)
        warnings.filterwarnings("ignore", r"Constant folding", UserWarning)
        warnings.filterwarnings("ignore", r"The feature will be removed", DeprecationWarning)
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)  # type: ignore[attr-defined]
        yield
