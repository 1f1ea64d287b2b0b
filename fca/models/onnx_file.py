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

PRECISION, SHA256, FILE_TEST = "precision", "sha256", "file_test"
WRITTEN = "an ONNX file with the JSON that fca export wrote beside it"
AGAIN = "export it again: fca export run=ID"


class Description(NamedTuple):
    """What the JSON beside a file says of it.

    label: of the network.    run, snapshot: of its training.    fingerprint: of the images it was trained on.
    white: which value of a 16-bit file is shown as white.
    test:  accuracy on test images of the training with its interval: the file's own where it differs from the network.
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

    file: its path; beside it lies FILE.json, as `fca export` writes it.
    """

    file: str

    def label(self) -> str:
        """The network's name and the precision of the file, where it is int8."""
        about = self.description
        is_named = about.precision in (None, "fp32") or str(about.precision) in about.label.split()
        return about.label if is_named else f"{about.label} {about.precision}"

    def weights_label(self) -> str:
        return Path(self.file).name

    def identity(self) -> dict[str, Any]:
        """The content of the file and what its JSON says of images and classes."""
        about = self.description
        return {
            "onnx": hashlib.sha256(self.program).hexdigest(),
            "classes": list(about.classes),
            "geometry": about.geometry.key,
        }

    def keys(self) -> list[str]:
        """The class keys of its logits."""
        return list(self.description.classes)

    @cached_property
    def program(self) -> bytes:
        """The content of the file. Raises FcaError where there is none, or one that reads further files."""
        path = Path(self.file).expanduser()
        if not path.is_file():
            raise FcaError("model.file", self.file, "an ONNX file that is there", "correct the path")
        content = path.read_bytes()
        _check_program(self.file, content)
        return content

    @cached_property
    def description(self) -> Description:
        """Raises FcaError for a JSON that is not there, says too little, or is that of another file."""
        path = Path(f"{self.file}.json").expanduser()
        program = self.program
        if not path.is_file():
            step = f"keep {path.name} beside it, or {AGAIN}; a file of another origin has to be run by onnxruntime"
            raise FcaError("model.file", self.file, f"{WRITTEN}; {path.name} is not there", step)
        try:
            found = read_object(path, classes=list, model=str, run=str, snapshot=str, fingerprint=str, geometry=dict)
            about = _described(found)
        except DamagedFile as damaged:
            self._refuse(damaged.problem)
        except (KeyError, TypeError, ValueError, FcaError) as error:
            self._refuse(f"says of its images or classes what cannot be: {error}")
        if found.get(SHA256) not in (None, hashlib.sha256(program).hexdigest()):
            self._refuse("describes another file, or the file was changed")
        return about

    def _refuse(self, problem: str) -> NoReturn:
        raise FcaError("model.file", self.file, f"{WRITTEN}; this JSON {problem}", AGAIN)

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """Raises FcaError for classes: a program is not trained; and for a program with other inputs and outputs."""
        if classes is not None:
            allowed = "a network to predict with: an ONNX file is not trained"
            raise FcaError("model", self.label(), allowed, "train the network that it was exported from")
        check_packages("model", "onnx")
        about = self.description
        session = Session(self.program)
        self._check_signature(session, about)
        module = in_torch(session, [LOGITS])

        def embed(images: Any) -> NoReturn:
            allowed = "a network whose features can be read; an ONNX file gives logits"
            raise FcaError("model", self.label(), allowed, f"take the training: model=run model.run_id={about.run}")

        return Classifier(module, about.classes, about.geometry, lambda images: images, embed=embed, head=None)

    def _check_signature(self, session: Session, about: Description) -> None:
        """Raise FcaError unless the program takes bytes of images of the described size and gives a logit a class."""
        size = about.geometry.size
        expected = {IMAGES: ["tensor(uint8)", size, size, 3], LOGITS: ["tensor(float)", len(about.classes)]}
        for name, signature in expected.items():
            found = session.signature.get(name)
            if found != signature:
                allowed = (
                    f"a program with {name}: {signature} for every image; this one has {found or 'no such values'}"
                )
                raise FcaError("model.file", self.file, allowed, AGAIN)


def _described(found: Mapping[str, Any]) -> Description:
    """The JSON of a file. Raises KeyError, TypeError, ValueError or FcaError for what cannot be."""
    geometry = found["geometry"]
    resize, crop = int(geometry["resize"]), int(geometry["crop"])
    if not (found["classes"] and all(isinstance(key, str) for key in found["classes"])):
        raise ValueError("classes are texts, one or more")
    if not 0 < crop <= resize:
        raise ValueError(f"crop={crop} and resize={resize} pixels")
    share = 1.0 if crop == resize else crop / (resize + 0.5)  # ResizeCrop rounds the resized side down
    test = found.get(FILE_TEST) or found.get("test")
    return Description(
        label=found["model"],
        classes=tuple(found["classes"]),
        geometry=ResizeCrop(crop, share, str(geometry["interpolation"]), bool(geometry["squash"])),
        white=int(found["white"]),
        run=found["run"],
        snapshot=found["snapshot"],
        fingerprint=found["fingerprint"],
        precision=found.get(PRECISION),
        test=test if isinstance(test, dict) else None,
    )


def _check_program(file: str, content: bytes) -> None:
    """Raise FcaError for what is no ONNX file, and for one whose weights lie in further files, which are not read."""
    check_packages("model", "onnx")
    import onnx

    try:
        model = onnx.load_from_string(content)
    except Exception as error:  # the parser's own kind of error
        raise FcaError("model.file", file, "an ONNX file; this one cannot be read as one", AGAIN) from error
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in _tensors(model.graph)):
        allowed = "an ONNX file that is whole; the weights of this one lie in further files"
        raise FcaError("model.file", file, allowed, "save it as one file")


def _tensors(graph: Any) -> Iterator[Any]:
    """All constants of a program, also in the parts that depend on a condition."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.initializer:
                    yield from _tensors(inner)
