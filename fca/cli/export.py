"""`fca export`: a trained network as one file for other programs, checked on real images, and a JSON that describes it.

fca export run=ID                          onnx, for onnxruntime and most others
fca export run=ID precision=int8           a quarter of the size, often twice as fast; refused where it costs accuracy
fca export run=ID format=torchscript       for libtorch, without Python
fca export run=ID format=safetensors       weights alone, to begin another training with or to load elsewhere
"""

from __future__ import annotations

import argparse
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import UInt8
from omegaconf import OmegaConf

from fca.cli import Words, as_options, sub_command
from fca.cli.application import composed
from fca.cli.configure import component
from fca.cli.execute import provenance
from fca.cli.export_int8 import MAX_LOSS, Loss, allowed_loss, in_int8, loss_on
from fca.cli.jobs import word
from fca.cli.options import option_files
from fca.cli.trained import Trained, at_input, loose_images
from fca.data.files import WHITE
from fca.data.splits import fixed_draw
from fca.models.onnx_file import FILE_TEST, PRECISION, SHA256
from fca.models.programs import FP32, INT8, PRECISIONS
from fca.models.stored import Probed
from fca.models.timm_models import TimmModel, record_of
from fca.store.columns import FINGERPRINT, RUN_ID
from fca.store.files import remove, write_json, write_whole
from fca.types import BEST, Classifier, FcaError

if TYPE_CHECKING:
    from fca.models.export import LogitDifference

SUFFIX_OF = {"onnx": ".onnx", "torchscript": ".pt", "safetensors": ".safetensors"}
CHECKED = 64  # images, at most, on which a file is compared with the network


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Export a trained network to a file, with a JSON beside it that describes the network.

    arguments: the words behind the name of the command.
    Returns exit code 0. The decorator turns an FcaError, such as for a file that gives other results than the network,
    into exit code 2.
    """
    parser = Words(prog="fca export", description=__doc__, allow_abbrev=False)
    parser.add_argument("--run", metavar="ID", help="id of a training: fca results --query \"task == 'train'\"")
    parser.add_argument("--snapshot", default=BEST, help="best on val (default), or one of recipe.snapshots, as 0.5")
    parser.add_argument("--format", choices=tuple(SUFFIX_OF), default="onnx", help="default: onnx")
    parser.add_argument("--precision", choices=PRECISIONS, help="of an onnx file (default: that of the network)")
    loss = "accuracy that int8 may cost on validation images (default: 0.01)"
    parser.add_argument("--max-loss", type=float, default=MAX_LOSS, help=loss)
    parser.add_argument("--out", metavar="FILE", help="default: MODEL-ID with the suffix of the format")
    parser.add_argument("--verify", metavar="FOLDER", help="compare on these images (default: test images of the run)")
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    print(_export(parser.parse_args(as_options(arguments))))
    return 0


def _export(options: argparse.Namespace) -> str:
    """Write the file and its JSON, compare the file with the network, and return the line for the terminal.

    options: the options of the command line.
    Raises FcaError, and leaves no file, if the network cannot be exported in this format, or if the file gives other
    results than the network.
    """
    trained = Trained.of(options.outputs, options.run, options.snapshot)
    path, description_path = _output_paths(options, trained)
    from fca.models.export import check_export_packages, preprocessing  # imports torch: after the quick checks

    check_export_packages(options.format)
    classifier = trained.model.build()
    description: dict[str, Any] = {
        "file": path.name,
        "format": options.format,
        **_description_of_network(trained),
        **preprocessing(classifier, options.format),
        "white": WHITE if trained.white is None else trained.white,  # the white of 16-bit images, as in the training
    }
    images = _images_to_compare(trained, classifier, options.verify)
    if options.format == "safetensors":  # only weights: the JSON has the command that builds the network around them
        words = loading_words(trained, path)
        description["load"] = shlex.join(["fca", "run", "task=predict", *words])
    content, is_quantised = _file_content(trained, classifier, options)
    if options.format == "onnx":
        description[PRECISION] = _precision(trained, is_quantised)
        description[SHA256] = hashlib.sha256(content).hexdigest()

    # The file is compared with the network, and removed if it differs
    write_whole(path, lambda file: file.write(content))
    try:
        if is_quantised:  # logits in int8 always differ, so the loss of accuracy is checked instead
            cost = _cost_of_int8(trained, classifier, content, options.max_loss)
            description.update(cost.described())
            check = str(cost)
        else:
            check = _check_and_describe(classifier, content, description, images)
        write_json(description_path, description)
    except BaseException:  # also after Ctrl-C no unchecked file may stay
        remove(path)
        raise

    size = classifier.input_size
    interface = "weights" if options.format == "safetensors" else f"input uint8 (images, {size}, {size}, 3)"
    summary = f"{len(content) / 1e6:.1f} MB, {interface}, {len(classifier.classes)} classes"
    return f"{path}: {summary}; {check}; described in {description_path}"


def _output_paths(options: argparse.Namespace, trained: Trained) -> tuple[Path, Path]:
    """The paths of the file to write and of the JSON beside it, after the quick checks of the options.

    Raises FcaError for max_loss= out of range, for a name without the suffix of the format, and if one of the two files
    exists already.
    """
    if not 0 <= options.max_loss < 1:
        raise FcaError("max_loss", options.max_loss, "at least 0 and below 1, a share of images", "e.g. max_loss=0.01")
    suffix = SUFFIX_OF[options.format]
    model_name = trained.row["model"].split(" ")[0]  # without further words that may follow the name
    path = Path(options.out or f"{model_name}-{options.run}{suffix}")
    if path.suffix != suffix:
        raise FcaError("out", path, f"a name that ends in {suffix}", "rename it")
    description_path = path.with_name(f"{path.name}.json")
    for file in (path, description_path):
        if file.exists():
            raise FcaError("out", file, "a file that does not exist yet", "remove it, or give another out=FILE")
    return path, description_path


def _file_content(trained: Trained, classifier: Classifier, options: argparse.Namespace) -> tuple[bytes, bool]:
    """The bytes of the file, and whether the network was quantised to int8 for it.

    The network of a training may itself be an ONNX program: the training fitted a linear probe on a program that
    task=compile made. Such a network stays in ONNX. It can be quantised, but not be brought back from int8 to fp32.
    classifier: the network of the training.
    options: the command line, with format and precision.
    Raises FcaError for a format or precision in which this network cannot be exported.
    """
    from fca.models.export import export_content  # imports torch

    program = trained.model.program()  # bytes of the ONNX program; None for other networks
    if program is not None and options.format != "onnx":
        allowed = "onnx: the network of this run is an ONNX program"
        raise FcaError("format", options.format, allowed, "leave format out")
    # no precision was typed, or the one that the network has: the file keeps it
    if options.precision is None or options.precision == _precision(trained, is_quantised=False):
        return program or export_content(classifier, options.format), False
    if options.precision == FP32:  # the network is a program in int8, otherwise fp32 would be its own precision
        allowed = "int8, as the program is that was probed"
        raise FcaError("precision", FP32, allowed, "leave precision out, or probe the program in fp32")
    if options.format != "onnx":
        raise FcaError("precision", INT8, f"fp32 for format={options.format}", "leave format out")
    return in_int8(trained, classifier, program or export_content(classifier, "onnx")), True


def _precision(trained: Trained, is_quantised: bool) -> str:
    """The precision of the exported file: int8 if it was quantised, else the precision of the trained network."""
    if is_quantised:
        return INT8
    program = trained.model.compiled()
    return FP32 if program is None else program.description.precision


class Int8(NamedTuple):
    """What int8 costs in accuracy on the validation images, which decide whether it is allowed, and on test images.

    test: None if there are no test images.
    """

    val: Loss
    test: Loss | None

    def described(self) -> dict[str, Any]:
        """The keys of the JSON beside the file that state this loss, and the file's own accuracy on test images."""
        loss = {"val": self.val._asdict(), "test": None if self.test is None else self.test._asdict()}
        return {"loss_to_int8": loss, FILE_TEST: None if self.test is None else self.test.tested()}

    def __str__(self) -> str:
        """Both losses in words, and the accuracy of the file on test images in percent."""
        line = f"in int8, {self.val} to validate"
        if self.test is None:
            return line
        accuracy = self.test.tested()
        low, top1, high = (f"{100 * accuracy[key]:.1f}" for key in ("top1_low", "top1", "top1_high"))
        return f"{line}, {self.test} to test: {top1} % [{low}, {high}] right"


def _cost_of_int8(trained: Trained, classifier: Classifier, content: bytes, max_loss: float) -> Int8:
    """The loss of accuracy of a file in int8. Raises FcaError if it exceeds `max_loss` on validation images."""
    val = allowed_loss(loss_on("val", trained, classifier, content), max_loss, trained)
    return Int8(val, loss_on("test", trained, classifier, content))


def _check_and_describe(
    classifier: Classifier, content: bytes, description: dict[str, Any], images: UInt8[np.ndarray, "images size size 3"]
) -> str:
    """Compare the logits of the file with the logits of the network on these images; return the result in words.

    description: the content of the JSON. The result is added to it, and the interface of a file that is a program, too.
    classifier:  the network.
    content:     the bytes of the file.
    Raises FcaError if the logits differ by more than rounding allows.
    """
    if description["format"] != "safetensors":  # a file of weights alone has no inputs and outputs
        _describe_interface(description, images)
    comparison = _compared_logits(classifier, content, description, images)
    description["checked"] = {
        "images": comparison.images,
        "largest_difference": comparison.largest,
        "allowed": comparison.allowed,
    }
    n_images = comparison.images
    return f"on {n_images} images the same classes as the network, logits at most {comparison.largest:.1g} apart"


def _description_of_network(trained: Trained) -> dict[str, Any]:
    """The keys of the JSON that describe the network of a training: classes, origin, licence, run, data, test accuracy.

    An unknown value is None.
    """
    row = trained.row
    start_model, classes = trained.started()  # the model before training, and the class keys
    licence = None
    if isinstance(start_model, TimmModel) and start_model.pretrained:  # random weights have no licence
        licence = getattr(record_of(start_model.name), "license", None)
    return {
        "classes": classes,
        "model": row["model"],
        "started_from": row.get("weights", "random weights"),
        "licence_of_start": licence,
        "run": row[RUN_ID],
        "snapshot": trained.snapshot,
        "dataset": row["dataset"],
        "fingerprint": row[FINGERPRINT],
        "test": trained.tested(),  # accuracy on test images; None if no run tested these weights
        "versions": provenance()["versions"],
    }


def _images_to_compare(
    trained: Trained, classifier: Classifier, folder: str | None
) -> UInt8[np.ndarray, "images size size 3"]:
    """Up to CHECKED real images at the input size of the classifier, on which the file is compared with the network.

    classifier: the network of the training.
    folder: a folder whose first images are taken; None: always the same test images of the training, of every class.
    Raises FcaError if no image can be read; images that cannot be read are left out.
    """
    # read: position among the n images -> pixels
    if folder is not None:
        # trained.white: the value in 16-bit images that counts as white, as in the training
        paths, read = loose_images(folder, "verify", trained.white)
        n = min(CHECKED, len(paths))
    else:
        data = trained.images()
        test_positions = data.rows("test", trained.row["classes"])  # positions in the data set
        drawn = fixed_draw(data, test_positions, CHECKED)
        n = len(drawn)
        read = lambda position: data.read(int(drawn[position]))  # noqa: E731
    # each image at input size, or the reason why it cannot be read, as a text
    images_or_reasons = at_input(read, classifier.geometry, n, doing="reading")  # with a progress bar
    images = [image for image in images_or_reasons if not isinstance(image, str)]
    if not images:
        raise FcaError("verify", folder, "at least one image that can be read", "name another folder")
    return np.stack(images)


def _describe_interface(description: dict[str, Any], images: UInt8[np.ndarray, "images size size 3"]) -> None:
    """Add the input, the outputs and ONNX's opset of a file that is a program to `description`.

    description: the content of the JSON beside the file.
    images: at the input size of the network.
    """
    from fca.models.export import INPUT, OPSET, OUTPUTS  # imports torch

    if description["format"] == "onnx":  # TorchScript has no opset
        description["opset"] = OPSET
    shape = ["images", *images.shape[1:]]
    description["input"] = {"name": INPUT, "type": "uint8, RGB", "shape": shape}
    description["outputs"] = list(OUTPUTS)


def _compared_logits(
    classifier: Classifier,
    content: bytes,
    description: Mapping[str, Any],
    images: UInt8[np.ndarray, "images size size 3"],
) -> LogitDifference:
    """Compare the logits of the file with the logits of the network, both on the CPU; returns the largest difference.

    A file of weights is loaded by the command in its JSON, as a user would load it.
    classifier:  the network.
    content:     the bytes of the file.
    description: the content of the JSON beside it.
    images:      at the input size of the network.
    Raises FcaError if the logits differ too much, or if the command gives a network with other classes.
    """
    from fca.models.export import compare_logits, logits_function  # imports torch
    from fca.training.infer import logits_of

    all_images = np.arange(len(images))  # `logits_of` takes the positions of the images to classify: here all
    if description["format"] == "safetensors":
        words = shlex.split(description["load"])[3:]  # the words after `fca run task=predict`
        loaded = component(composed("run", words), "model").build()
        if loaded.classes != classifier.classes:  # letters of a class key were lost in the command
            step = "take format=onnx, or rename the classes"
            raise FcaError("classes", loaded.classes, f"as they are typed: {classifier.classes}", step)
        logits_of_file = logits_of(loaded, images, all_images, accelerator="cpu")
    else:
        logits_by_file = logits_function(content, description["format"])  # images -> logits
        # the first image alone and the others together, so that two sizes of a batch are tried
        batches = [batch for batch in (images[:1], images[1:]) if len(batch)]
        logits_of_file = np.concatenate([logits_by_file(batch) for batch in batches])
    logits_of_network = logits_of(classifier, images, all_images, accelerator="cpu")
    return compare_logits(logits_of_network, logits_of_file)


def loading_words(trained: Trained, path: Path) -> list[str]:
    """The words of `fca run` that build this network from a file of its weights: model=OPTION model.KEY=VALUE ...

    There is a word for each key whose value differs from the default of the option.
    path: the file of weights.
    Raises FcaError for a linear probe, because its frozen network is not part of the weights, and for a network whose
    class has no option in conf/model.
    """
    model, classes = trained.started()
    target = f"{type(model).__module__}.{type(model).__qualname__}"
    values_by_option: dict[str, Any] = {
        option: OmegaConf.to_container(OmegaConf.load(file)) for option, file in option_files("model").items()
    }
    options_of_class = [option for option, values in values_by_option.items() if values.get("_target_") == target]
    if not options_of_class or isinstance(model, Probed):
        raise FcaError("format", "safetensors", f"onnx or torchscript for a {type(model).__name__}", "take format=onnx")

    option = options_of_class[0]  # any option of the class will do: all keys that differ from it are given
    defaults = values_by_option[option]
    # the model as it was before the training, but with the trained weights and the classes of the training
    fields = {**asdict(model), "weights": str(path), "classes": classes}
    words = [f"model={option}"]
    for key, value in fields.items():
        if defaults.get(key) == value:
            continue
        plus = "+" if isinstance(value, dict) else ""  # Hydra requires a + to add keys to a mapping
        words.append(f"{plus}{word(f'model.{key}', value)}")
    return words
