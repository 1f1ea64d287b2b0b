"""Checks while a run is planned: images have the masks that a shift needs, the model knows the classes."""

from __future__ import annotations

from collections.abc import Sequence

from fca.models.stored import StoredRun
from fca.shifts import InputShift
from fca.types import FcaError, ImageData, Model, Shift, choices_in_words, no_mask

WITH_MASKS = "use a set that has them: manifest with a column mask or mask_box, rendered, hard_imagenet, ..."


def check_masks(shifts: Sequence[Shift], data: ImageData, split: str, classes: Sequence[int] | None = None) -> None:
    """Raise FcaError if one of the shifts needs object masks that these images do not have.

    classes: label indices of the classes whose images are read. None = they are not known yet; then only a split
             without any mask is refused.
    """
    for shift in shifts:
        if isinstance(shift, InputShift):  # these shifts need masks
            check_masks_of(f"shift={shift.label()}", data, split, classes)
            return  # all of them need the same masks


def check_masks_of(setting: str, data: ImageData, split: str, classes: Sequence[int] | None = None) -> None:
    """Raise FcaError unless the images of these classes in this split have object masks.

    setting: the setting that needs the masks, as a user types it (key=value), for the error.
    classes: label indices of the classes whose images are needed. None: they are not known yet; then only a split
             without any mask is refused.
    """
    key, _, value = setting.partition("=")
    if data.mask is no_mask:  # the function `mask` of a data set without masks
        allowed = f"images with object masks: it needs a mask for every image, {data.name} has none"
        raise FcaError(key, value, allowed, WITH_MASKS)
    if "mask_content" not in data.items:  # whether an image has a mask is known only when it is read
        return

    # column `mask_content` identifies the mask of each image; it is empty for an image without a mask
    items = data.items.iloc[data.rows(split, classes)]
    ids_without_mask = items.loc[items["mask_content"] == "", "image_id"].tolist()
    is_without_any_mask = len(ids_without_mask) == len(items)
    # while classes are not known, the images without a mask may be of classes that are not needed
    if ids_without_mask and (classes is not None or is_without_any_mask):
        examples = f"{choices_in_words(ids_without_mask[:3])} ({len(ids_without_mask)} of {len(items)} images)"
        allowed = f"a mask for every image; {data.name} has none for {examples}"
        raise FcaError(key, value, allowed, "add the masks, or leave these images out")


def known_keys(model: Model) -> list[str] | None:
    """The class keys that a stored run predicts; None for other models, whose logits are known once they are built."""
    return model.keys() if isinstance(model, StoredRun) else None


def check_classes(model: Model, data: ImageData, split: str) -> None:
    """Raise FcaError if the model knows no class of the data, or if no image of the split is of a class that it knows.

    A model whose classes are known only once it is built passes: it is checked when it is built.
    """
    model_keys = known_keys(model)
    if model_keys is None:  # not known before the model is built
        return

    distinct_keys = set(model_keys)
    known_labels = [label for label, key in enumerate(data.classes) if key in distinct_keys]
    if not known_labels:
        allowed = f"at least one class of {data.name}: {choices_in_words(data.classes)}"
        step = "choose the data set of its training (dataset=...), or another model.run_id"
        raise FcaError("model.classes", choices_in_words(model_keys), allowed, step)
    if not data.n_images(split, known_labels):
        allowed = (
            f"a split of {data.name} with images of the classes that the model knows: {choices_in_words(model_keys)}"
        )
        raise FcaError("task.split", split, allowed, "choose another split or model; see task=describe")


def check_subset(model: Model, data: ImageData, subset: Sequence[int], predicted: Sequence[int] | None = None) -> None:
    """Raise FcaError for a subset with a class that the model does not know, or whose images are not predicted.

    subset:    label indices of the classes of the subset.
    predicted: label indices of the classes whose images are predicted; None: all classes that the model knows.

    Where the classes of the model are known only once it is built, only `predicted` is checked.
    """
    model_keys = known_keys(model)
    if model_keys is None and predicted is None:  # nothing to check before the model is built
        return

    predictable_keys = set(data.classes if model_keys is None else model_keys)  # not known: any class
    if predicted is not None:
        predictable_keys &= {data.classes[label] for label in predicted}

    unknown_keys = [data.classes[label] for label in subset if data.classes[label] not in predictable_keys]
    if unknown_keys:
        allowed = (
            f"classes that the model knows: {choices_in_words(key for key in data.classes if key in predictable_keys)}"
        )
        raise FcaError("subset.classes", choices_in_words(unknown_keys), allowed, "choose another subset or model")
