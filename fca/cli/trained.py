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
from fca.data.files import Directory, Files, image_of, open_root, parallel_map
from fca.data.image_files import sorted_files, warn_of_left_out, with_count
from fca.data.kinds import SUFFIXES
from fca.models.onnx_file import OnnxFile
from fca.models.stored import DESCRIPTION, StoredRun, model_from_description, snapshot_name
from fca.store import State, Store
from fca.store.columns import DIVERGED, FINGERPRINT, FLAG, RUN_ID, TASK, Row
from fca.store.files import read_object
from fca.tables.rows import records
from fca.types import BEST, Classifier, FcaError, Geometry, ImageData, UnreadableImage

TESTED = {"top1", "top1_low", "top1_high", "n_test"}  # keys of an accuracy on test images
# Position of an image -> its pixels; raises UnreadableImage.
Read = Callable[[int], UInt8[np.ndarray, "height width 3"]]


@dataclass(frozen=True)
class Trained:
    """A finished training in a store, with the weights of one of its snapshots.

    row: the stored row of the training.
    model: builds the network with these weights.
    """

    store: Store
    row: Row
    model: StoredRun

    @classmethod
    def of(cls, outputs: str, run_id: str | None, snapshot: str) -> Trained:
        """The training with this id, with its weights at a snapshot ("best", or one of recipe.snapshots, as "0.5").

        outputs: the folder of the store.
        run_id: None if the user typed no id.
        Raises FcaError for no id, an unknown or unfinished run, a run that is no training, and weights that are missing
        or damaged.
        """
        check_store(outputs, "outputs")
        store = store_with_images(outputs)  # it can find the data set of a run, for `images`
        if run_id is None or run_id not in store.run_ids():
            raise _unknown(store, run_id)
        state, damage = store.state_and_damage(run_id)
        if state is not State.DONE:
            reason = f" ({damage})" if damage else ""
            allowed = f"a finished training; this one is {state.value}{reason}"
            raise FcaError("run", run_id, allowed, "fca status shows how to go on")

        row = store.row(run_id)
        if row["task"] != "train":
            raise _no_training(row)

        model = StoredRun(outputs, run_id, snapshot)
        try:
            model.identity()  # checks that the weights exist and are intact
        except FcaError as error:
            name, *details = error.args
            # the error names keys of `fca run`; export and predict have the keys run and snapshot
            typed_name = "run" if name == "model.run_id" else name.removeprefix("model.")
            raise FcaError(typed_name, *details) from error
        return cls(store, row, model)

    @property
    def snapshot(self) -> str:
        return snapshot_name(self.model.snapshot)

    @property
    def white(self) -> int | None:
        """The key dataset.white of the training: the value in 16-bit images that counts as white; None: not given."""
        config = config_of(self.store.folder(self.row["run_id"]) / "config.yaml")
        return config.dataset.get("white")

    def started(self) -> tuple[Any, list[str]]:
        """The model with which the training started, and the class keys of its logits, from the run's description."""
        path = self.store.folder(self.row[RUN_ID]) / DESCRIPTION
        return model_from_description(read_object(path, target=str, fields=dict, classes=list), str(path))

    def tested(self) -> dict[str, Any] | None:
        """Accuracy of these weights on the clean test images: its value, 95 % interval and number of images.

        The keys are top1, top1_low, top1_high and n_test (TESTED). None if no finished run tested these weights.
        """
        rows = self.rows_of_test_images()
        if rows:  # all of them evaluated the same weights on the same images, so the first is enough
            return {
                "top1": rows[0]["top1_open"],  # all classes of the model compete, as when it is used
                "top1_low": rows[0]["top1_open_low"],
                "top1_high": rows[0]["top1_open_high"],
                "n_test": rows[0]["n_test"],
            }
        if self.snapshot == BEST and "top1" in self.row:  # the row of a training has the accuracy of its best weights
            return {key: self.row[key] for key in TESTED}
        return None

    def rows_of_test_images(self) -> list[dict[str, Any]]:
        """The rows of `predict` runs of these weights on clean test images; empty if there are none."""
        rows = self.store.rows()
        is_of_these_weights = (rows["parent"] == self.model.run_id) & (rows["snapshot"] == self.snapshot)
        is_clean_test = (rows["shift"] == "clean") & (rows["split"] == "test")
        return records(rows[(rows["task"] == "predict") & is_of_these_weights & is_clean_test])

    def images(self) -> ImageData:
        """The data set with the splits that the training had.

        Raises FcaError if its images are no longer where they were, or are not the same.
        """
        data = self.store.images(self.row["fingerprint"])
        if data is None:
            allowed = "where they were, unchanged, and split as for the training (its fingerprint)"
            step = f"bring them back and repeat, which trains nothing again: {self.row['command']}"
            raise FcaError(f"images of {self.row['dataset']}", "not found", allowed, step)
        return data


@dataclass(frozen=True)
class Exported:
    """An ONNX file that `fca export` wrote.

    outputs: the store in which its training may be.
    """

    model: OnnxFile
    outputs: str

    @classmethod
    def of(cls, file: str, outputs: str) -> Exported:
        """The exported file at this path. Raises FcaError if it is missing, or was not written by `fca export`."""
        model = OnnxFile(file)
        try:
            model.identity()  # checks the file and the description beside it
        except FcaError as error:
            name, *details = error.args
            # the error names keys of `fca run`, as model.file; predict has the key file
            raise FcaError(name.removeprefix("model."), *details) from error
        return cls(model, outputs)

    @property
    def white(self) -> int:
        """The value in 16-bit images that counted as white when the network was trained."""
        return self.model.description.white

    def tested(self) -> Mapping[str, Any] | None:
        """Accuracy of the network on the test images of its training, from the JSON beside the file.

        The keys are top1, top1_low, top1_high (its 95 % interval) and n_test (TESTED). None if the JSON lacks any key.
        """
        test = self.model.description.test
        return test if test is not None and test.keys() >= TESTED else None

    def trained(self) -> Trained:
        """The training from which the file was exported. Choosing a threshold needs its validation images.

        Raises FcaError if the store does not have this training, or has a training with the same id on other images.
        """
        description = self.model.description
        trained = Trained.of(self.outputs, description.run, description.snapshot)
        if trained.row[FINGERPRINT] != description.fingerprint:
            allowed = f"the training that {self.model.file} names, on its images; this one is on others"
            raise FcaError("run", description.run, allowed, "give the store that has it: outputs=FOLDER")
        return trained


def _no_training(row: Row) -> FcaError:
    """The error for a run that is no training; for a prediction, the next step names the training that it used.

    row: the stored row of the run.
    """
    allowed = f"a training; this is a run of task={row['task']}"
    if row["task"] == "predict" and "parent" in row:
        return FcaError("run", row[RUN_ID], f"{allowed}; it is of training {row['parent']}", f"run={row['parent']}")
    return FcaError("run", row[RUN_ID], allowed, "list trainings: fca results --query \"task == 'train'\"")


def _unknown(store: Store, run_id: str | None) -> FcaError:
    """The error for an id that the store does not have; it suggests up to three ids of trainings.

    The suggested ids begin with the typed text, or else are similar to it. If there are no such ids, or nothing was
    typed, the latest trainings are suggested. Trainings that diverged are not suggested, because they have no weights
    to use.
    run_id: None if none was typed.
    """
    rows = store.rows()
    is_usable = (rows[TASK] == "train") & rows[FLAG].ne(DIVERGED).fillna(value=True)  # most rows have no flag
    trainings = rows.loc[is_usable].sort_values("finished", ascending=False)["run_id"].tolist()
    typed = run_id or ""
    allowed = f"a training in {store.outputs}, which has {with_count(len(trainings), 'training')}"
    if not trainings:
        return FcaError("run", run_id or "none", allowed, "train one, e.g. fca run dataset=folder dataset.root=photos")

    matches = [training for training in trainings if training.startswith(typed)]
    if not matches:
        matches = difflib.get_close_matches(typed, trainings, cutoff=0.5)
    examples = ", ".join((matches or trainings)[:3])
    return FcaError("run", run_id or "none", f"{allowed}, such as {examples}", "fca results")


def loose_images(path: str, key: str, white: int | None) -> tuple[list[str], Read]:
    """Find images without labels, anywhere in a directory or .zip archive, or a single image file.

    Returns the sorted paths of the images, and a function that reads the image at a position in this list. The content
    of a file decides whether it is an image, so that an image named photo.txt is found. The list also has images that
    cannot be read; for these the function raises UnreadableImage with the reason. A warning counts the files that are
    no images.

    path:  the path of the directory, archive or file.
    key:   what the command calls this path, for errors.
    white: the value in 16-bit images that counts as white; None: 65535.
    Raises FcaError if there is no image.
    """
    files, names = _root_and_names(path, key)
    by_content = sorted_files(files, names, looks_into_texts=True)
    images = sorted([*by_content.images, *by_content.not_read])  # not_read: path -> why it cannot be read
    if not images:
        allowed = f"at least one image ({', '.join(SUFFIXES[:3])} or another); {len(names)} other files"
        raise FcaError(key, path, allowed, "correct it")
    other_files = replace(by_content, not_read={}).left_out()  # unreadable images are reported when they are read
    warn_of_left_out(files.root, other_files)

    def read(position: int) -> UInt8[np.ndarray, "height width 3"]:
        """The pixels of the image at a position in the list. Raises UnreadableImage with the reason."""
        name = images[position]
        reason = by_content.not_read.get(name)
        if reason:
            raise UnreadableImage(f"{files.root}/{name}: {reason}")
        return image_of(files, name, white)

    return images, read


def _root_and_names(path: str, key: str) -> tuple[Files, list[str]]:
    """The directory or archive at this path, and the paths of the files in it.

    For a path of a single image, these are the folder of the image, and the image's name alone.
    key: what the command calls the path, for the error.
    Raises FcaError if the path is nothing of this kind.
    """
    file = Path(path).expanduser()
    if file.is_file():  # an image, or an archive, which `open_root` opens below
        folder = Directory(str(file.parent))
        by_content = sorted_files(folder, [file.name], looks_into_texts=True)
        if by_content.images or by_content.not_read:  # not_read: images that cannot be read
            return folder, [file.name]
    try:
        files = open_root(path, "images")
    except FcaError as error:
        allowed = f"{error.args[2]}, or an image"  # the arguments are: what, value, allowed, next step
        raise FcaError(key, path, allowed, "correct the path") from error
    return files, files.listing().files["path"].to_pylist()


def at_input(read: Read, geometry: Geometry, n: int, doing: str) -> Iterator[UInt8[np.ndarray, "size size 3"] | str]:
    """Yield each image, in order, at the input size of a network; for an unreadable image, the reason as a text.

    read: returns the image at a position, see `loose_images`.
    geometry: crops and resizes an image.
    n: the number of images.
    doing: the label of the progress bar.
    """

    def image_or_reason(position: int) -> Any:
        """The image at a position, cropped and resized, or the reason as a text."""
        try:
            return geometry(read(position))[0]
        except UnreadableImage as error:
            return str(error)

    return parallel_map(image_or_reason, n, workers=0, doing=doing)  # 0: a thread for each core


def logits_in_batches(
    classifier: Classifier, images: Iterator[UInt8[np.ndarray, "size size 3"] | str]
) -> Iterator[Float32[np.ndarray, " logits"] | str]:
    """Yield the logits of each image, in order; for an unreadable image, yield its reason again.

    The images are classified in batches, so that all images need not be in memory at the same time.
    classifier: the network.
    images: each image at the input size of the network; for an unreadable image, the reason as a text.
    """
    from fca.training.infer import batch_size_of, logits_of

    batch_size = batch_size_of(classifier.input_size)
    while batch := list(islice(images, batch_size)):
        pixels = [image for image in batch if not isinstance(image, str)]  # a text is a reason, not an image
        logits: Iterator[Any] = iter(())
        if pixels:
            all_positions = np.arange(len(pixels))
            logits = iter(logits_of(classifier, np.stack(pixels), all_positions))

        for image in batch:  # the next logits belong to the next image that could be read
            yield image if isinstance(image, str) else next(logits)
