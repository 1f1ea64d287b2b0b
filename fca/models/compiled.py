"""Programs of a network's features, `model=compiled model.run_id=... model.depth=...`, as `task=compile` wrote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, UInt8

from fca.geometry import ResizeCrop
from fca.store import Store
from fca.store.damage import compare, is_run_id, noting
from fca.store.files import DamagedFile, read_object, write_json, write_whole
from fca.types import Classifier, FcaError, Model

if TYPE_CHECKING:
    from torch import Tensor

PROGRAM = "program.onnx"
DESCRIPTION = "program.json"
EVERY_DEPTH = "all"
"""The depth that stands for every depth side by side, in the order of `Description.widths`: one pass gives them."""


class Description(NamedTuple):
    """Content of program.json, which describes a compiled network.

    label, weights: name of the network and of its weights, for tables.
    precision:      fp32 or int8.
    geometry:       how images are resized and cropped for it.
    widths:         depth -> number of its features, in the order of the program's outputs.
    """

    label: str
    weights: str | None
    precision: str
    geometry: ResizeCrop
    widths: Mapping[str, int]

    def columns(self, depth: str) -> slice:
        """The columns of a depth in the features of all depths side by side; `all` gives all columns.

        depth: a place in the network where features are taken, one of the keys of `widths`.

        >>> cut = Description("net", None, "fp32", ResizeCrop(8), {"cut": 3, "whole": 5})
        >>> cut.columns("whole"), cut.columns("all")
        (slice(3, 8, None), slice(0, 8, None))
        """
        if depth == EVERY_DEPTH:
            return slice(0, sum(self.widths.values()))
        names = list(self.widths)
        start = sum(self.widths[name] for name in names[: names.index(depth)])
        return slice(start, start + self.widths[depth])


@dataclass(frozen=True)
class Compiled(Model):
    """A network that `task=compile` wrote as an ONNX program: an encoder that onnxruntime runs on the CPU.

    outputs: the store, the folder in which runs are kept.
    run_id:  the run of task=compile.
    depth:   whole; cut, where the network has such a depth (see `fca.models.depths`); or all: the features of every
             depth side by side.
    """

    outputs: str
    run_id: str
    depth: str

    @property
    def program(self) -> bytes:
        """The content of the ONNX file, with one output of features for each depth.

        Raises DamagedFile if the file is not the one that was written.
        """
        path = self._folder / PROGRAM
        with noting():  # leaves a note in the run's folder if `compare` finds that the file was changed
            compare(path)
        return path.read_bytes()

    @cached_property
    def description(self) -> Description:
        """The content of program.json, which task=compile wrote beside the program.

        `label` and `weights` in it name the network and its weights, for tables. `widths` gives, for each depth of the
        network, the number of its features; a depth is a place where features are taken.

        Raises FcaError if there is no such run, if it compiled nothing, and for a depth that the network does not have;
        DamagedFile for a file with impossible values.
        """
        path = self._folder / DESCRIPTION
        # is_run_id: a text that is no id, such as `../elsewhere`, could lead to a file outside the store
        if not is_run_id(self.run_id) or not path.is_file():
            step = "compile a network: fca run task=compile model=..."
            raise FcaError("model.run_id", self.run_id, f"a run of task=compile in {self.outputs}", step)

        values = read_object(path, label=str, precision=str, geometry=dict, widths=dict)
        try:
            geometry = ResizeCrop(**values["geometry"])
            widths = {str(depth): int(width) for depth, width in values["widths"].items()}
        except (TypeError, ValueError) as error:
            raise DamagedFile(path, "describes no program") from error

        if self.depth != EVERY_DEPTH and self.depth not in widths:
            allowed = f"{', '.join([*widths, EVERY_DEPTH])}: depths of {values['label']}"
            raise FcaError("model.depth", self.depth, allowed, "choose one of these")
        return Description(values["label"], values.get("weights"), values["precision"], geometry, widths)

    def label(self) -> str:
        """The network's name and input size, then the depth and the precision.

        The depth is left out if it is the whole network or the only depth, the precision if it is fp32.
        """
        description = self.description
        words = [description.label, f"{description.geometry.size} px"]
        if self.depth in ("cut", EVERY_DEPTH) and len(description.widths) > 1:
            words.append(self.depth)
        if description.precision != "fp32":
            words.append(description.precision)
        return " ".join(words)

    def weights_label(self) -> str:
        return f"{self.run_id}/{self.depth}"

    def identity(self) -> dict[str, Any]:
        """What enters the ids of runs: the run of the compilation, which stands for its configuration, and the depth.

        Raises DamagedFile for a run whose files were damaged, and FcaError for one that does not exist or compiled
        nothing.
        """
        damage = Store(Path(self.outputs)).problem(self.run_id)
        if damage:
            raise damage
        _ = self.description  # raises FcaError for an impossible run or depth
        return {"run": self.run_id, "depth": self.depth}

    def every_depth(self) -> Compiled:
        """The same program as an encoder whose single pass gives the features of all depths side by side."""
        return replace(self, depth=EVERY_DEPTH)

    def features(self, of_every_depth: Float[np.ndarray, "images all"]) -> Float[np.ndarray, "images features"]:
        """Select the features of this depth.

        of_every_depth: features of all depths, the output of `every_depth`.
        """
        return of_every_depth[:, self.description.columns(self.depth)]

    def with_head(self, weight: Float[np.ndarray, "classes features"], bias: Float[np.ndarray, " classes"]) -> bytes:
        """The program of a classifier: this depth's features, and a linear layer on them."""
        from fca.models.programs import with_head

        return with_head(self.program, self.depth, weight, bias)

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """The program as an encoder: a classifier without classes and head, of which only the features are read.

        Raises FcaError for `classes`, since a program is not trained, for missing packages, and where `description`
        raises it.
        """
        from fca.models.programs import Session, check_packages

        if classes is not None:
            allowed = "adaptation=probe, which trains a last layer on it: the compiled program itself cannot be trained"
            raise FcaError("model", self.label(), allowed, "add adaptation=probe, or train the network itself")

        check_packages("model", "compiled")
        description = self.description
        depths = list(description.widths) if self.depth == EVERY_DEPTH else [self.depth]
        module = in_torch(Session(self.program), depths)

        def normalise(images: Tensor) -> Tensor:
            """Leave the images as they are: the program itself normalises them."""
            return images

        return Classifier(module, (), description.geometry, normalise, embed=module, head=None)

    @property
    def _folder(self) -> Path:
        return Store(Path(self.outputs)).folder(self.run_id)


def in_torch(session: Any, outputs: Sequence[str]) -> Any:
    """Wrap an ONNX program as a PyTorch module, so that it can be called like a network.

    The module takes float images in [0, 1] of shape (batch, 3, size, size), and returns the values of the named outputs
    side by side, as (batch, values). The program itself takes bytes, so pixels are rounded to 256 levels. That matters
    only for images that were changed after they were read.

    session: the loaded program, a `fca.models.programs.Session`.
    outputs: names of the program's outputs.
    """
    from torch import from_numpy, nn, uint8

    class ProgramModule(nn.Module):
        """Calls the program."""

        def forward(self, images: Tensor) -> Tensor:
            """Outputs for images in [0, 1], of shape (batch, 3, size, size), by onnxruntime on the CPU."""
            levels = (images * 255).round().clamp(0, 255).to(uint8)
            pixels: UInt8[np.ndarray, "batch size size 3"] = levels.permute(0, 2, 3, 1).contiguous().cpu().numpy()
            values: Float32[np.ndarray, "batch values"] = session.run(pixels, outputs)
            return from_numpy(values)

    return ProgramModule()


def keep_program(folder: Path, program: bytes, description: Description) -> None:
    """Write a program and its description into a run's folder, where `Compiled` reads them."""
    write_whole(folder / PROGRAM, lambda file: file.write(program))
    write_json(folder / DESCRIPTION, {**description._asdict(), "geometry": asdict(description.geometry)})
