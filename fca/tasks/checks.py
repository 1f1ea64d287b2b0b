"""What can be refused while a run is planned: images without the masks that a shift needs, classes no model knows."""

from __future__ import annotations

from collections.abc import Sequence

from fca.models.stored import StoredRun
from fca.shifts import InputShift
from fca.types import FcaError, ImageData, Model, Shift, listed, no_mask

WITH_MASKS = "use a set that has them: manifest with a column mask or mask_box, rendered, hard_imagenet, ..."


def check_masks(shifts: Sequence[Shift], data: ImageData, split: str, classes: Sequence[int] | None = None) -> None:
    """Raise FcaError for the first shift that needs the masks of these images, where they have none.

    classes: label indices of the images; None = they are not known yet, and only a split without any mask is refused.
    """
    for shift in shifts:
        if isinstance(shift, InputShift):
            check_masks_of(f"shift={shift.label()}", data, split, classes)
            return


def check_masks_of(wanted_by: str, data: ImageData, split: str, classes: Sequence[int] | None = None) -> None:
    """Raise FcaError unless these images have masks.    wanted_by: what needs them, as it is typed."""
    key, _, value = wanted_by.partition("=")
    if data.mask is no_mask:
        allowed = f"images with object masks: it needs a mask for every image, {data.name} has none"
        raise FcaError(key, value, allowed, WITH_MASKS)
    if "mask_content" not in data.items:
        return

    items = data.items.iloc[data.rows(split, classes)]
    lacking = items.loc[items["mask_content"] == "", "image_id"].tolist()
    if lacking and (classes is not None or len(lacking) == len(items)):
        without = f"{listed(lacking[:3])} ({len(lacking)} of {len(items)} images)"
        allowed = f"a mask for every image; {data.name} has none for {without}"
        raise FcaError(key, value, allowed, "add the masks, or leave these images out")


def known_keys(model: Model) -> list[str] | None:
    """The class keys that a stored run predicts; None for other models, whose logits are known once they are built."""
    return model.keys() if isinstance(model, StoredRun) else None


def check_classes(model: Model, data: ImageData, split: str) -> None:
    """Raise FcaError for a stored run that knows no class of the data, or none of the images of a split."""
    keys = known_keys(model)
    if keys is None:
        return

    of_model = set(keys)
    known = [index for index, key in enumerate(data.classes) if key in of_model]
    if not known:
        allowed = f"at least one class of {data.name}: {listed(data.classes)}"
        step = "choose the data set of its training (dataset=...), or another model.run_id"
        raise FcaError("model.classes", listed(keys), allowed, step)
    if not data.number(split, known):
        allowed = f"a split of {data.name} with images of the classes that the model knows: {listed(keys)}"
        raise FcaError("task.split", split, allowed, "choose another split or model; see task=describe")


def check_subset(model: Model, data: ImageData, wanted: Sequence[int], predicted: Sequence[int] | None = None) -> None:
    """Raise FcaError for a subset with classes that the model does not know.

    wanted: label indices.    predicted: those that it predicts for, where that is restricted.
    """
    keys = known_keys(model)
    if keys is None and predicted is None:
        return

    known = set(data.classes if keys is None else keys)
    if predicted is not None:
        known &= {data.classes[index] for index in predicted}
    unknown = [data.classes[index] for index in wanted if data.classes[index] not in known]
    if unknown:
        allowed = f"classes that the model knows: {listed(key for key in data.classes if key in known)}"
        raise FcaError("subset.classes", listed(unknown), allowed, "choose another subset or model")
