"""What `fca export` and `fca predict` share: a trained run and its images, images without labels, their logits."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8

from fca.cli.configure import config_of, store_with_images
from fca.cli.show import check_store
from fca.data.files import Directory, Files, image_of, in_order, open_root
from fca.data.image_files import counted, sorted_files, warn_of_left_out
from fca.data.kinds import SUFFIXES
from fca.models.onnx_file import OnnxFile
from fca.models.stored import DESCRIPTION, StoredRun, model_from, snapshot_name
from fca.store import State, Store
from fca.store.columns import DIVERGED, FINGERPRINT, FLAG, RUN_ID, TASK, Row
from fca.store.files import read_object
from fca.tables.rows import records
from fca.types import BEST, Classifier, FcaError, Geometry, ImageData, UnreadableImage

TESTED = {"top1", "top1_low", "top1_high", "n_test"}
Read = Callable[[int], UInt8[np.ndarray, "height width 3"]]


@dataclass(frozen=True)
class Trained:
    """A finished training.    row: of the run.    model: its weights, of one snapshot."""

    store: Store
    row: Row
    model: StoredRun

    @classmethod
    def of(cls, outputs: str, run_id: str | None, snapshot: str) -> Trained:
        """Raises FcaError for a run that is unknown, unfinished or no training, and for weights that are not there."""
        check_store(outputs, "outputs")
        store = store_with_images(outputs)
        if run_id is None or run_id not in store.run_ids():
            raise _unknown(store, run_id)
        state, damaged = store.look(run_id)
        if state is not State.DONE:
            allowed = f"a finished training; this one is {state.value}{f' ({damaged})' if damaged else ''}"
            raise FcaError("run", run_id, allowed, "fca status shows how to go on")
        row = store.row(run_id)
        if row["task"] != "train":
            of = f"; it is of training {row['parent']}" if row["task"] == "predict" and "parent" in row else ""
            step = f"run={row['parent']}" if of else "list trainings: fca results --query \"task == 'train'\""
            raise FcaError("run", run_id, f"a training; this is a run of task={row['task']}{of}", step)
        model = StoredRun(outputs, run_id, snapshot)
        try:
            model.identity()  # the weights are there, and whole
        except FcaError as error:
            what, *others = error.args
            raise FcaError({"model.run_id": "run"}.get(what, what.removeprefix("model.")), *others) from error
        return cls(store, row, model)

    @property
    def snapshot(self) -> str:
        return snapshot_name(self.model.snapshot)

    @property
    def white(self) -> int | None:
        """`dataset.white` of the training: which value of a 16-bit file it was shown as white."""
        config = config_of(self.store.folder(self.row["run_id"]) / "config.yaml")
        return config.dataset.get("white")

    def started(self) -> tuple[Any, list[str]]:
        """The model as it was before the training, and the class keys of its logits."""
        path = self.store.folder(self.row[RUN_ID]) / DESCRIPTION
        return model_from(read_object(path, target=str, fields=dict, classes=list), str(path))

    def tested(self) -> dict[str, Any] | None:
        """Accuracy on the clean test images with its 95 % interval, where these weights were tested."""
        found = self.rows_of_test_images()
        if not found and self.snapshot == BEST and "top1" in self.row:
            return {key: self.row[key] for key in TESTED}
        if not found:
            return None
        keys = {"top1": "top1_open", "top1_low": "top1_open_low", "top1_high": "top1_open_high", "n_test": "n_test"}
        return {ours: found[0][column] for ours, column in keys.items()}

    def rows_of_test_images(self) -> list[dict[str, Any]]:
        """The rows of what these weights predicted of the clean test images."""
        rows = self.store.rows()
        rows = rows[(rows["task"] == "predict") & (rows["parent"] == self.model.run_id) & (rows["shift"] == "clean")]
        return records(rows[(rows["snapshot"] == self.snapshot) & (rows["split"] == "test")])

    def images(self) -> ImageData:
        """The data set, split as the training had it. Raises FcaError where its images are not at hand, or differ."""
        data = self.store.images(self.row["fingerprint"])
        if data is None:
            allowed = "where they were, unchanged, and split as for the training (its fingerprint)"
            step = f"bring them back and repeat, which trains nothing again: {self.row['command']}"
            raise FcaError(f"images of {self.row['dataset']}", "not found", allowed, step)
        return data


@dataclass(frozen=True)
class Exported:
    """A file that `fca export` wrote.    outputs: the store that may have its training."""

    model: OnnxFile
    outputs: str

    @classmethod
    def of(cls, file: str, outputs: str) -> Exported:
        """Raises FcaError for what is no such file."""
        model = OnnxFile(file)
        try:
            model.identity()
        except FcaError as error:
            what, *others = error.args
            raise FcaError(what.removeprefix("model."), *others) from error
        return cls(model, outputs)

    @property
    def white(self) -> int:
        """Which value of a 16-bit file was shown as white when it was trained."""
        return self.model.description.white

    def tested(self) -> Mapping[str, Any] | None:
        """Accuracy on the test images of its training with its 95 % interval, as the file's JSON has it."""
        test = self.model.description.test
        return test if test is not None and test.keys() >= TESTED else None

    def trained(self) -> Trained:
        """Its training, whose validation images choose thresholds.

        Raises FcaError where the store has it not, or has one of that id on other images.
        """
        about = self.model.description
        trained = Trained.of(self.outputs, about.run, about.snapshot)
        if trained.row[FINGERPRINT] != about.fingerprint:
            allowed = f"the training that {self.model.file} names, on its images; this one is on others"
            raise FcaError("run", about.run, allowed, "give the store that has it: outputs=FOLDER")
        return trained


def _unknown(store: Store, run_id: str | None) -> FcaError:
    rows = store.rows()
    is_usable = (rows[TASK] == "train") & rows[FLAG].ne(DIVERGED).fillna(value=True)
    known = rows.loc[is_usable].sort_values("finished", ascending=False)["run_id"].tolist()
    typed = run_id or ""
    near = [one for one in known if one.startswith(typed)] or difflib.get_close_matches(typed, known, cutoff=0.5)
    allowed = f"a training in {store.outputs}, which has {counted(len(known), 'training')}"
    if not known:
        return FcaError("run", run_id or "none", allowed, "train one, e.g. fca run dataset=folder dataset.root=photos")
    return FcaError("run", run_id or "none", f"{allowed}, such as {', '.join((near or known)[:3])}", "fca results")


def loose_images(path: str, key: str, white: int | None) -> tuple[list[str], Read]:
    """Pictures without labels, anywhere in a directory or .zip archive, or a single file: paths in order, a reader.

    What a file holds decides, also of one called photo.txt. Pictures that are not read are among them, and their reader
    gives the reason; a line counts all other files.

    key: how the command calls it.    white: see `fca.data.files.decode`. Raises FcaError where there is none.
    """
    files, names = _files_of(path, key)
    there = sorted_files(files, names, looks_into_texts=True)
    images = sorted([*there.images, *there.not_read])
    if not images:
        allowed = f"at least one image ({', '.join(SUFFIXES[:3])} or another); {len(names)} other files"
        raise FcaError(key, path, allowed, "correct it")
    warn_of_left_out(files.root, replace(there, not_read={}).left_out())

    def read(at: int) -> UInt8[np.ndarray, "height width 3"]:
        if reason := there.not_read.get(images[at]):
            raise UnreadableImage(f"{files.root}/{images[at]}: {reason}")
        return image_of(files, images[at], white)

    return images, read


def _files_of(path: str, key: str) -> tuple[Files, list[str]]:
    """A root, and the paths of its files; of a single image its folder, and its name."""
    file = Path(path).expanduser()
    if file.is_file():
        folder = Directory(str(file.parent))
        there = sorted_files(folder, [file.name], looks_into_texts=True)
        if there.images or there.not_read:
            return folder, [file.name]
    try:
        files = open_root(path, "images")
    except FcaError as error:
        raise FcaError(key, path, f"{error.args[2]}, or an image", "correct the path") from error
    return files, files.listing().files["path"].to_pylist()


def at_input(read: Read, geometry: Geometry, n: int, doing: str) -> Iterator[UInt8[np.ndarray, "size size 3"] | str]:
    """Each image at input size, or why it cannot be read; `doing` stands beside a progress bar."""

    def one(at: int) -> Any:
        try:
            return geometry(read(at))[0]
        except UnreadableImage as error:
            return str(error)

    return in_order(one, n, 0, doing)


def logits_in_batches(
    classifier: Classifier, images: Iterator[UInt8[np.ndarray, "size size 3"] | str]
) -> Iterator[Float32[np.ndarray, " logits"] | str]:
    """The logits of each image, in order; errors pass."""
    from fca.training.infer import batch_size_of, logits_of

    size = batch_size_of(classifier.input_size)
    while part := list(islice(images, size)):
        pixels = [image for image in part if not isinstance(image, str)]
        logits = iter(logits_of(classifier, np.stack(pixels), np.arange(len(pixels)))) if pixels else iter(())
        yield from (image if isinstance(image, str) else next(logits) for image in part)
