"""Classifiers that `fca export` wrote, `model=onnx model.file=net.onnx`: run by onnxruntime on the CPU."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from fca.geometry import ResizeCrop
from fca.models.compiled import in_torch
from fca.models.programs import IMAGES, LOGITS, Session, check_packages
from fca.store.files import DamagedFile, read_object
from fca.types import Classifier, FcaError, Model

# Keys of the JSON beside a file.
PRECISION = "precision"
SHA256 = "sha256"
FILE_TEST = "file_test"
EXPORTED_FILE = "an ONNX file with the JSON that fca export wrote beside it"
EXPORT_AGAIN = "export it again: fca export run=ID"


class Description(NamedTuple):
    """Content of the JSON that `fca export` writes beside an ONNX file.

    label:         the network's name.
    run, snapshot: the training, and the snapshot of its weights, that was exported.
    fingerprint:   identifies the images that the network was trained on.
    white:         which value of a 16-bit image is shown as white.
    precision:     fp32 or int8; None in files that do not record it.
    test:          accuracy on the test images of the training, with its interval: that of the file itself if it was
                   measured (in int8 it may differ from the network's).
    """

    label: str
    classes: tuple[str, ...]
    geometry: ResizeCrop
    white: int
    run: str
    snapshot: str
    fingerprint: str
    precision: str | None
    test: Mapping[str, Any] | None


@dataclass(frozen=True)
class OnnxFile(Model):
    """A classifier in a file, which takes images as bytes and gives logits.

    file: its path; FILE.json is beside it, as `fca export` writes it.
    """

    file: str

    def label(self) -> str:
        """The network's name, followed by the precision of the file if that is not fp32 and not yet in the name."""
        description = self.description
        precision = description.precision
        has_precision_in_label = str(precision) in description.label.split()
        if precision in (None, "fp32") or has_precision_in_label:
            return description.label
        return f"{description.label} {precision}"

    def weights_label(self) -> str:
        return Path(self.file).name

    def identity(self) -> dict[str, Any]:
        """What enters the ids of runs: the sha256 of the file, and the classes and geometry of its JSON."""
        description = self.description
        return {
            "onnx": hashlib.sha256(self.program).hexdigest(),
            "classes": list(description.classes),
            "geometry": description.geometry.key,
        }

    def keys(self) -> list[str]:
        """The class keys of its logits."""
        return list(self.description.classes)

    @cached_property
    def program(self) -> bytes:
        """The content of the file. Raises FcaError if there is no such file, or if its weights are in further files."""
        path = Path(self.file).expanduser()
        if not path.is_file():
            raise FcaError("model.file", self.file, "an ONNX file that is there", "correct the path")
        content = path.read_bytes()
        _check_program(self.file, content)
        return content

    @cached_property
    def description(self) -> Description:
        """The JSON beside the file. Raises FcaError if it is missing, incomplete, or belongs to another file."""
        path = Path(f"{self.file}.json").expanduser()
        program = self.program  # read first: a missing ONNX file is reported before its missing JSON
        if not path.is_file():
            step = (
                f"keep {path.name} beside it, or {EXPORT_AGAIN}; a file of another origin has to be run by onnxruntime"
            )
            raise FcaError("model.file", self.file, f"{EXPORTED_FILE}; {path.name} is not there", step)

        try:
            content = read_object(path, classes=list, model=str, run=str, snapshot=str, fingerprint=str, geometry=dict)
            description = _description_from_json(content)
        except DamagedFile as damage:  # no JSON, or without one of these keys
            self._refuse_json(damage.problem)  # always raises FcaError
        except (KeyError, TypeError, ValueError, FcaError) as error:
            self._refuse_json(f"has impossible values for its images or classes: {error}")

        program_sha256 = hashlib.sha256(program).hexdigest()
        if content.get(SHA256) not in (None, program_sha256):  # None: a JSON that was written without it
            self._refuse_json("describes another file, or the file was changed")
        return description

    def _refuse_json(self, problem: str) -> NoReturn:
        """Raise FcaError for the JSON beside the file.

        problem: continues the sentence "this JSON ...".
        """
        raise FcaError("model.file", self.file, f"{EXPORTED_FILE}; this JSON {problem}", EXPORT_AGAIN)

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The program as a classifier whose features cannot be read: its `embed` always raises FcaError.

        Raises FcaError for `classes`, since a program is not trained, and for a program with other inputs or outputs
        than its JSON describes.
        """
        if classes is not None:
            allowed = "a network to predict with: an ONNX file is not trained"
            raise FcaError("model", self.label(), allowed, "train the network that it was exported from")

        check_packages("model", "onnx")
        description = self.description
        session = Session(self.program)
        self._check_signature(session, description)
        module = in_torch(session, [LOGITS])

        def normalise(images: Any) -> Any:
            """Leave the images as they are: the program itself normalises them."""
            return images

        def embed(images: Any) -> NoReturn:  # the file has logits as its output, and no features
            allowed = "a network whose features can be read; an ONNX file gives logits"
            step = f"take the training: model=run model.run_id={description.run}"
            raise FcaError("model", self.label(), allowed, step)

        return Classifier(module, description.classes, description.geometry, normalise, embed=embed, head=None)

    def _check_signature(self, session: Session, description: Description) -> None:
        """Raise FcaError unless the program takes bytes of images of the described size and gives a logit per class.

        session:     the loaded program.
        description: content of the JSON beside the file.
        """
        size = description.geometry.size
        expected_signatures = {  # type, then shape without the number of images
            IMAGES: ["tensor(uint8)", size, size, 3],
            LOGITS: ["tensor(float)", len(description.classes)],
        }
        for name, expected in expected_signatures.items():
            actual = session.signature.get(name)
            if actual != expected:
                allowed = (
                    f"a program with {name}: {expected} for every image; this one has {actual or 'no such values'}"
                )
                raise FcaError("model.file", self.file, allowed, EXPORT_AGAIN)


def _description_from_json(content: Mapping[str, Any]) -> Description:
    """The description of an exported program, from the content of the JSON file beside it.

    It names the network, its classes and its training, and states how images are prepared: `geometry` (they are resized
    to `resize` pixels, then cropped to `crop`), and `white`, the value of a 16-bit image that is shown as white.

    Raises KeyError for a missing key, and TypeError, ValueError or FcaError for an impossible value.
    """
    geometry = content["geometry"]
    resize = int(geometry["resize"])
    crop = int(geometry["crop"])
    classes = content["classes"]
    if not classes or not all(isinstance(key, str) for key in classes):
        raise ValueError("classes are texts, one or more")
    if not 0 < crop <= resize:
        raise ValueError(f"crop={crop} and resize={resize} pixels")

    # The JSON has the resized side in pixels, ResizeCrop the ratio crop / side, from which it rounds the side down:
    # with half a pixel more it comes back to the same side.
    crop_pct = 1.0 if crop == resize else crop / (resize + 0.5)
    # The accuracy of the file itself, if it was measured; otherwise the accuracy of the network before the export.
    test = content.get(FILE_TEST) or content.get("test")
    return Description(
        label=content["model"],
        classes=tuple(classes),
        geometry=ResizeCrop(crop, crop_pct, str(geometry["interpolation"]), bool(geometry["squash"])),
        white=int(content["white"]),
        run=content["run"],
        snapshot=content["snapshot"],
        fingerprint=content["fingerprint"],
        precision=content.get(PRECISION),
        test=test if isinstance(test, dict) else None,
    )


def _check_program(file: str, content: bytes) -> None:
    """Raise FcaError for content that is no ONNX file, for weights in further files, and if packages are missing.

    Further files are not read: a file from elsewhere could name any path.

    file: its path, for messages.
    """
    check_packages("model", "onnx")
    import onnx

    try:
        model = onnx.load_from_string(content)
    except Exception as error:  # the parser raises errors of a class of its own
        raise FcaError("model.file", file, "an ONNX file; this one cannot be read as one", EXPORT_AGAIN) from error

    has_external_weights = any(
        tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in _all_constants(model.graph)
    )
    if has_external_weights:
        allowed = "an ONNX file that is whole; the weights of this one are in further files"
        raise FcaError("model.file", file, allowed, "save it as one file")


def _all_constants(graph: Any) -> Iterator[Any]:
    """Yield all constants of an ONNX graph and of its subgraphs: weights, and tensors in attributes of nodes.

    The caller looks for constants whose values are in other files.
    """
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t  # an attribute that is no tensor has an empty one
            yield from attribute.tensors
            for subgraph in (attribute.g, *attribute.graphs):
                if subgraph.node or subgraph.initializer:  # an attribute that is no graph has an empty one
                    yield from _all_constants(subgraph)
