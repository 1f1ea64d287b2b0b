"""Does a network look at the object? GradCAM of each image's own class beside the object's mask, on clean images."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image
from scipy.ndimage import binary_erosion

from fca.data.files import parallel_map
from fca.data.splits import for_training
from fca.finite import check_outputs
from fca.geometry import ResizeCrop
from fca.models import build_model
from fca.progress import track
from fca.stats.intervals import FRACTION, SIGNED_FRACTION, mean_with_interval
from fca.studies.reliance.columns import GEOMETRY, MODEL_CHANCE
from fca.studies.reliance.stats.reliance import centre_distance, density_gap, mask_iou, mass_inside
from fca.tasks import RunContext
from fca.tasks.adaptation import prediction_runs
from fca.tasks.adaptation.network import Network
from fca.tasks.checks import check_classes, check_masks_of
from fca.tasks.predict import (
    CLEAN,
    ForwardWork,
    check_forward,
    finish_predictions,
    forward_columns,
    known_images,
    runs_of_split,
)
from fca.tasks.train import Train
from fca.types import (
    SPLITS,
    Arrays,
    Classifier,
    Column,
    FcaError,
    Finished,
    Geometry,
    ImageData,
    Run,
    check_choice,
    interval_columns,
)
from fca.validation import Allowed

if TYPE_CHECKING:
    from torch import Tensor

    from fca.tasks.at_input import AtInput

IOU = Column("saliency_iou", float, ".3f", "overlap (IoU) of salient region and object, mean over classes")
MASS = Column("saliency_mass", float, ".1%", "share of the saliency that is on the object, mean over classes")
GAP = Column("saliency_density_gap", float, "+.3f", "mean saliency on the object minus off it, mean over classes")
IOU_OTHERS = Column("saliency_iou_others", float, ".3f", "saliency_iou of each map with the object of another image")
HEADLINES = {"iou": (IOU, FRACTION), "mass": (MASS, FRACTION), "density_gap": (GAP, SIGNED_FRACTION)}
MASK_FACTS = ("mask_area_raw", "retained", "centre")
THRESHOLD = 0.5
SIDE = 64  # pixels of a picture
MAX_PICTURES = 24  # of each kind
MANY_IMAGES = 500  # from here on there is a progress bar
NORMS = ("norm1", "ln_1", "ln1")  # before attention: in timm; in OpenCLIP and torchvision; in mmpretrain
OUTLINE = (0, 255, 255)  # of the object around a map
TINT = (150, 60, 220)  # over the object without a map
Maps = Float[np.ndarray, "images size size"]
Masks = Bool[np.ndarray, "images size size"]


@dataclass(frozen=True)
class Saliency:
    """`task=saliency`: one run for the images of a split whose class the model knows, whatever the subset and seed.

    A model that is to be trained (it has no weights, or an adaptation is given) is trained first, as by task=train.
    Shifts are predicted beside the maps, which are of clean images, so that one task does all that reliance needs.

    layer:     the layer whose map is computed: a regular expression for the end of its name (layer2|blocks.2 serves
               two kinds of network); null = the last layer with a map, in a ViT the norm before the last attention.
    threshold: a pixel is salient if the map at input size has at least this value there.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        *Train.columns,
        *(end for column, _ in HEADLINES.values() for end in interval_columns(column)),
        IOU_OTHERS,
        MODEL_CHANCE,
        Column("n_zero", int, ",", "images whose saliency map is zero everywhere"),
        Column("n_empty", int, ",", "images without a pixel of the object in the input"),
        Column("saliency_layer", str, "", "layer of the saliency maps"),
        Column("saliency_threshold", float, ".2f", "saliency from which on a pixel is salient"),
        GEOMETRY,
    )
    summary: ClassVar[tuple[Column | str, ...]] = (IOU, MASS, "{n_zero} of {n_test} maps zero")

    split: Annotated[str, Allowed(choices=SPLITS)]
    layer: str | None
    threshold: Annotated[float, Allowed(above=0, most=1)]

    def plan(self, context: RunContext) -> list[Run]:
        """The runs of the model, trained or not, then the run of the maps.

        Layer and threshold are part of the identity of the maps only if they are not the defaults. Raises FcaError for
        data without masks, classes that the model does not know, and another split than test where a model is trained.
        """
        clean_setup = replace(context, shifts=[CLEAN])  # maps are of clean images alone
        check_masks_of("task=saliency", context.data, self.split)

        # A model without weights, or with an adaptation, is trained first. `adaptation=null`, no adaptation, is the
        # class Network itself; its subclasses are adaptations
        if context.model.weights_label() is None or type(context.adaptation) is not Network:
            check_choice("task.split", self.split, ("test",), "train it first for another split")
            other_runs = Train().plan(context)
            [train_run] = (run for run in other_runs if run.task == "train")
            data = for_training(context.data)  # cut into train, val and test if it has only a test split
            check_masks_of("task=saliency", data, self.split, context.subset.classes)
            clean_run = prediction_runs(train_run, clean_setup, data)[0]
        else:
            # shift=clean is the default: it requests no predictions beside the maps
            other_runs = [] if context.shifts == [CLEAN] else runs_of_split(context, self.split)
            [clean_run] = runs_of_split(clean_setup, self.split)
            check_forward(clean_run.work)
            check_classes(clean_run.work.model, clean_run.work.data, self.split)

        # the identity of the prediction of the same clean images, without its shift, and with the settings of the maps;
        # a setting of None is a default, and is left out
        settings = {
            **clean_run.identity,
            "shift": None,
            "layer": self.layer,
            "threshold": None if self.threshold == THRESHOLD else self.threshold,
        }
        identity = {key: value for key, value in settings.items() if value is not None}
        return [*other_runs, Run("saliency", identity, clean_run.metadata, clean_run.parent, work=clean_run.work)]

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """The results of all runs: first trainings and predictions, then saliency maps, which need a trained model.

        A saliency run stores these arrays with a line for each image:
        - map: the saliency map, at the resolution of the layer.
        - mask: the mask of the object at input size, packed as bits.
        - zero: whether the map is zero everywhere.
        - mask_area: the share of the input that is object.
        - iou: overlap (intersection over union) of the mask and the salient pixels, where the map reaches the
          threshold.
        - iou_others: the same overlap with the mask of another image.
        - mass: the share of the map's sum that is on the object.
        - density_gap: the mean of the map on the object minus its mean off the object.
        - mask_area_raw: the share of the stored image that is object.
        - retained: the share of the object that the crop leaves.
        - centre: the distance of the object from the image's centre.
        Four further arrays have a line for each of some example images:
        - lowest, overlays: positions of the images with the lowest IoUs, and their pictures.
        - first, examples: position of the first image of each class, and the pictures of these images.

        The columns of its row are means over classes of the means of their images, with intervals over classes.
        """
        other_runs = [run for run in runs if run.task != "saliency"]
        # a training, or predictions by a model that fca trained (the training is their parent)
        is_of_training = any(run.task == "train" or run.parent for run in other_runs)
        if is_of_training:
            yield from Train().run(other_runs, context)
        else:
            yield from finish_predictions(other_runs, context)

        for run in runs:
            if run.task == "saliency":
                yield Finished(run, *self._columns_and_arrays(run.work, context))

    def _columns_and_arrays(self, work: ForwardWork, context: RunContext) -> tuple[dict[str, Any], Arrays]:
        """The columns of the stored row and the arrays of one saliency run.

        The arrays have a line for each image: its saliency map and mask, and metrics that compare the two. Some arrays
        have example pictures. The columns are means of the metrics over classes, and facts about the network.
        """
        from fca.tasks.at_input import AtInput

        data = work.data
        classifier = build_model(work.model)
        rows, true, known_classes = known_images(work, classifier)
        labels = data.labels[rows]
        inputs = AtInput(data, work.split, rows, classifier, context)
        inputs.masks(rows[:1])  # data without masks raise here, on the first image, before the long work
        context.store.keep_items(data)  # analyses look up the classes and ids of the images there
        arrays = _facts_of_masks(data, rows, classifier.geometry, context.machine.workers)

        start = time.perf_counter()
        camera = Camera(classifier, inputs.images(rows[:1]), self.layer)  # any image shows the sizes of outputs
        arrays |= self._map_arrays(camera, inputs, true, classifier.input_size)
        seconds = time.perf_counter() - start

        arrays |= _picture_arrays(inputs, arrays, labels)
        columns = {
            **forward_columns(classifier, len(rows), seconds, context.machine.accelerator),
            "ncl": len(known_classes),
            "classes": known_classes,
            "n_test": len(rows),
            "chance": 1 / len(classifier.classes),
            "saliency_layer": camera.name,
            "saliency_threshold": self.threshold,
            "geometry": classifier.geometry.key,
            **_headline_columns(arrays, labels),
        }
        return columns, arrays

    def _map_arrays(self, camera: Camera, inputs: AtInput, true: Int[np.ndarray, " images"], size: int) -> Arrays:
        """Arrays with a line for each image: its saliency map for its own class, and metrics of the map and the mask.

        The map is also compared with the mask of another image, which shows how much of the overlap does not depend on
        where the object is.

        camera: computes the maps.
        inputs: the images and their masks.
        true:   column of each image's class in the logits.
        size:   side of the input, in pixels.
        """
        from fca.training.infer import batch_size_of

        rows = inputs.rows
        rows_of_others = np.roll(rows, len(rows) // 2)  # pairs each image with the one half a list away
        n_batches = math.ceil(len(rows) / batch_size_of(size))
        batches = np.array_split(np.arange(len(rows)), n_batches)

        arrays_of_batches: list[Arrays] = []
        for positions in track(batches, "saliency maps", long=len(rows) >= MANY_IMAGES):
            maps = camera(inputs.images(rows[positions]), true[positions])
            masks = inputs.masks(rows[positions]).cpu().numpy()
            masks_of_others = inputs.masks(rows_of_others[positions]).cpu().numpy()

            # metrics are about maps at input size; maps are stored at the layer's resolution
            large_maps = enlarged(maps, size).cpu().numpy()
            metrics = self._metrics(large_maps, masks, masks_of_others)
            stored_maps = maps.cpu().numpy().astype(np.float16)
            arrays_of_batches.append({"map": stored_maps, **metrics})

        joined: Arrays = {}
        for name in arrays_of_batches[0]:
            joined[name] = np.concatenate([arrays[name] for arrays in arrays_of_batches])
        return joined

    def _metrics(self, maps: Maps, masks: Masks, masks_of_others: Masks) -> Arrays:
        """For each image of a batch the metrics that compare its map with its object, and the mask packed as bits.

        - iou: intersection over union of the pixels whose saliency reaches the threshold, and the object.
        - iou_others: the same with the object of another image, as for a map that ignores where the object is.
        - mass: sum of the map on the object, divided by its total.
        - density_gap: mean of the map on the object, minus its mean off the object.
        - mask_area: share of the pixels that are object.
        - zero: whether the map is zero everywhere.

        maps, masks:     at input size.
        masks_of_others: for each map the mask of another image.
        """
        is_salient = maps >= self.threshold
        metrics = {
            "iou": mask_iou(is_salient, masks),
            "iou_others": mask_iou(is_salient, masks_of_others),
            "mass": mass_inside(maps, masks),
            "density_gap": density_gap(maps, masks),
            "mask_area": masks.mean((1, 2)),
        }
        return {
            **{name: values.astype(np.float32) for name, values in metrics.items()},
            "mask": np.packbits(masks.reshape(len(masks), -1), axis=1),
            "zero": maps.max((1, 2)) == 0,
        }


class Camera:
    """Computes GradCAM maps of a layer (Selvaraju et al. 2017, arXiv:1610.02391).

        map = relu(sum_k a_k A_k),   a_k = mean of dy / dA_k over places

    y is an image's logit of a class. A_k is channel k of the layer's output. Places are the cells of a convolutional
    map, or the patch tokens of a transformer, without the prefix tokens in front (class and register tokens).

    name:   of the layer.
    prefix: number of prefix tokens, 0 in a convolutional network.
    """

    def __init__(self, classifier: Classifier, image: Float[Tensor, "1 3 size size"], layer: str | None) -> None:
        """Freeze the network and choose the layer.

        image: any image of the data; one forward pass with it shows the sizes of the layers' outputs.
        layer: a regular expression for the end of the layer's name; None: the last layer that has a map.
        """
        self.network: Any = classifier.module.eval().requires_grad_(False).to(image.device)
        self.normalise = classifier.normalise
        self.name, self.prefix = self._choose_layer(image, layer)

    def __call__(
        self, images: Float[Tensor, "images 3 size size"], columns: Int[np.ndarray, " images"]
    ) -> Float[Tensor, "images cells cells"]:
        """The GradCAM map of each image for one of its logits, scaled to [0, 1], at the resolution of the layer.

            map = relu(sum_k a_k A_k),   a_k = mean over places of dy / dA_k

        y is the image's logit, A_k channel k of the layer's output as a map.

        images:  pixels in [0, 1].
        columns: for each image the column of the logit y.
        Raises FcaError if the logits do not depend on the layer, or are not finite.
        """
        import torch

        outputs: list[Tensor] = []  # of the layer, one for each time that it is used; the last one is mapped

        def keep_output(_: Any, __: Any, output: Tensor) -> Tensor:
            outputs.append(output.detach().requires_grad_())  # layers before this one need no gradients
            return outputs[-1].clone()  # the next layers may write into it

        layer = self.network.get_submodule(self.name)
        with torch.enable_grad(), layer.register_forward_hook(keep_output):
            logits = self.network(self.normalise(images))
        check_outputs("logits", logits.detach().float().cpu().numpy())

        # each image's logit depends on this image alone, so that one gradient of the sum serves all
        y = logits.gather(1, torch.as_tensor(columns, device=logits.device)[:, None]).sum()
        gradient = torch.autograd.grad(y, outputs[-1], allow_unused=True)[0] if y.requires_grad else None
        if gradient is None:
            raise FcaError("task.layer", self.name, "a layer that the logits depend on", "choose another")

        # as maps (images x channels x cells x cells), without the prefix tokens of a transformer
        activation = _as_map(outputs[-1].detach(), self.prefix)  # A
        slope = _as_map(gradient, self.prefix)  # dy / dA
        channel_weights = slope.mean((2, 3), keepdim=True)
        return scaled((activation * channel_weights).sum(1).relu())

    def _choose_layer(self, image: Tensor, pattern: str | None) -> tuple[str, int]:
        """The name of the layer whose output is mapped, and how many prefix tokens (class, register) it begins with.

        Without a pattern it is the last layer whose output is a map of the image. Of layers whose outputs are tokens
        only the norms before attention count; NORMS has their names. Maps do not grow from layer to layer, so that a
        square output larger than an earlier map is something else, such as a matrix of attention.

        image:   shows the sizes of all outputs in one forward pass.
        pattern: a regular expression for the end of the name; of several layers that match the last one is taken.
        Raises FcaError if no layer has a map or matches.
        """
        layers = self.network.modules()
        prefix_counts = [layer.num_prefix_tokens for layer in layers if hasattr(layer, "num_prefix_tokens")]
        largest_side = image.shape[-1]  # a map has at most this side: that of the image, then of the map before
        prefix_by_layer: dict[str, int] = {}  # name of each layer that has a map -> number of prefix tokens
        chosen: str | None = None
        for name, output in self._layer_outputs(image).items():
            n_tokens = output.shape[1] if output.ndim == 3 else 0
            # Where the network states no number of prefix tokens, the patches are taken to be as many as the places of
            # the map before (the convolution that cuts the image into patches); the tokens beyond them are the prefix
            prefix = prefix_counts[0] if prefix_counts else max(0, n_tokens - largest_side**2)
            prefix = min(n_tokens, prefix)  # 0 for a convolutional output
            as_map = _as_map(output, prefix)
            if as_map is None or not 1 < as_map.shape[-1] <= largest_side:  # a map of one place shows nothing
                continue

            prefix_by_layer[name] = prefix
            is_norm_before_attention = name.rpartition(".")[2] in NORMS
            is_convolutional = not n_tokens
            if is_convolutional or is_norm_before_attention:
                largest_side = as_map.shape[-1]
                chosen = name

        if pattern is not None:
            end_of_name = re.compile(rf"(^|\.)({pattern})$")
            chosen = next((name for name in reversed(prefix_by_layer) if end_of_name.search(name)), None)
        if chosen is None:
            last_layers = ", ".join(list(prefix_by_layer)[-8:]) or "this network has none"
            allowed = f"a layer with a map of the image: {last_layers}"
            raise FcaError("task.layer", pattern, allowed, "choose one, or a convolutional network or a ViT")
        return chosen, prefix_by_layer[chosen]

    def _layer_outputs(self, image: Tensor) -> dict[str, Tensor]:
        """Name of a layer -> its output for the image, in the order in which the layers are used.

        Outputs are on the device "meta": they have a shape but no values, since only shapes are needed. Only tensors
        for one image with 3 dimensions (tokens) or 4 (a convolutional map) are kept.
        """
        import torch

        outputs: dict[str, Tensor] = {}

        def keep_shape(name: str, _: Any, __: Any, output: Any) -> None:
            outputs.pop(name, None)  # a layer that is used twice moves to the place of its last use
            if name and isinstance(output, torch.Tensor) and output.ndim in (3, 4) and len(output) == 1:
                outputs[name] = output.to("meta")

        with torch.no_grad(), ExitStack() as hooks:
            for name, layer in self.network.named_modules():
                hooks.enter_context(layer.register_forward_hook(partial(keep_shape, name)))
            self.network(self.normalise(image))
        return outputs


def _as_map(output: Tensor, prefix: int) -> Any:
    """The output of a layer as images x channels x cells x cells; None where it is no square map.

    output: images x tokens x channels, where the tokens after the prefix are the places of a square, row by row; or
            4-dimensional, with the channels before or after the height and width of the map.
    prefix: number of tokens at the beginning that are no places, such as the class token.
    """
    if output.ndim == 3:
        n_places = output.shape[1] - prefix
        cells = math.isqrt(max(0, n_places))
        if cells**2 != n_places:
            return None
        return output[:, prefix:].transpose(1, 2).reshape(len(output), -1, cells, cells)

    for channels_first in (output, output.permute(0, 3, 1, 2)):
        if channels_first.shape[2] == channels_first.shape[3]:
            return channels_first
    return None


def scaled(maps: Float[Tensor, "images height width"]) -> Float[Tensor, "images height width"]:
    """The maps, each scaled to [0, 1] by its own minimum and maximum; a constant map becomes zeros."""
    low = maps.amin((1, 2), keepdim=True)
    high = maps.amax((1, 2), keepdim=True)
    extent = (high - low).where(high > low, 1.0)  # no division by 0
    return (maps - low) / extent


def enlarged(maps: Float[Tensor, "images cells cells"], size: int) -> Float[Tensor, "images size size"]:
    """The maps interpolated bilinearly to the input size and scaled to [0, 1] again, as the library grad-cam does.

    The paper (Hard ImageNet) used that library.
    """
    from torch.nn.functional import interpolate

    large = interpolate(maps[:, None], (size, size), mode="bilinear")[:, 0]
    return scaled(large)


def mask_facts(mask: Bool[np.ndarray, "height width"], geometry: Geometry) -> tuple[float, float, float]:
    """Three facts about the object of a stored image.

    They are the share of the image that is object, the share of the object that resize and crop leave in the input, and
    the distance of the object from the centre (`centre_distance`). The second is NaN for an empty mask and for a
    geometry that is no resize and crop, the third for an empty mask.

    mask: of the stored image, before resize and crop.
    """
    retained = float("nan")
    if isinstance(geometry, ResizeCrop) and mask.any():
        cropped_mask = mask[_cropped_places(mask.shape, geometry)]
        retained = float(cropped_mask.sum() / mask.sum())
    return float(mask.mean()), retained, centre_distance(mask)


def _cropped_places(shape: tuple[int, ...], geometry: ResizeCrop) -> tuple[slice, ...]:
    """The part of a stored image that resize and crop keep, as slices of its rows and columns.

    The image is resized until its short side is size / crop_pct (with `squash` both sides); the central square of
    `size` pixels is cut out. Here its ends are computed back to pixels of the stored image.

    shape: height and width of the stored image.
    """
    resized_short_side = math.floor(geometry.size / geometry.crop_pct)
    places = []
    for length in shape:
        # this side of the image after the resize
        resized = resized_short_side if geometry.squash else resized_short_side * length // min(shape)
        start = round((resized - geometry.size) / 2)
        low = start * length / resized
        high = (start + geometry.size) * length / resized
        places.append(slice(round(low), round(high)))
    return tuple(places)


def _facts_of_masks(data: ImageData, rows: Int[np.ndarray, " images"], geometry: Geometry, workers: int) -> Arrays:
    """Array name -> one value per image: the three MASK_FACTS of its stored mask, in the order of `mask_facts`."""

    def facts_at(position: int) -> tuple[float, float, float]:
        mask = np.asarray(data.mask(int(rows[position])))
        return mask_facts(mask, geometry)

    facts_by_image = list(parallel_map(facts_at, len(rows), workers, "reading masks"))
    facts = np.array(facts_by_image, np.float32)  # images x facts
    return dict(zip(MASK_FACTS, facts.T, strict=True))


def _picture_arrays(inputs: AtInput, arrays: Arrays, labels: Int[np.ndarray, " images"]) -> Arrays:
    """The arrays of example images of a saliency run: their positions, and their pictures.

    `lowest` with `overlays`: images with the lowest IoUs (overlaps of the salient pixels and the object), under their
                              maps. Maps that are zero everywhere are left out: they show nothing.
    `first` with `examples`:  the first image of each class, with its object tinted.
    Either kind has at most MAX_PICTURES images, all of which have an object at input size.

    arrays: the run's arrays with a line for each image.
    labels: class of each image.
    """
    visible = np.flatnonzero(arrays["mask_area"] > 0)
    # by IoU; images of equal IoU by `mass`, the share of the saliency that is on the object
    by_iou = visible[np.lexsort((arrays["mass"][visible], arrays["iou"][visible]))]
    lowest = by_iou[~arrays["zero"][by_iou]][:MAX_PICTURES]
    _, first_of_class = np.unique(labels[visible], return_index=True)
    first = visible[first_of_class][:MAX_PICTURES]
    return {
        "lowest": lowest.astype(np.int32),
        "overlays": _pictures(inputs, lowest, arrays["map"][lowest]),
        "first": first.astype(np.int32),
        "examples": _pictures(inputs, first, [None] * len(first)),
    }


def _pictures(
    inputs: AtInput, positions: Int[np.ndarray, " chosen"], maps: Iterable[np.ndarray | None]
) -> UInt8[np.ndarray, "chosen side side 3"]:
    """A small picture of each of these images, under its map as heat, or without a map with its object tinted.

    positions: of the images, among all images of `inputs`.
    maps:      the map to lay over each image, None for no map.
    """
    rows = inputs.rows[positions]
    images = (255 * inputs.images(rows)).round().byte()
    images_last_channel = images.permute(0, 2, 3, 1).cpu().numpy()
    masks = inputs.masks(rows).cpu().numpy()

    pictures = []
    for image, mask, heat in zip(images_last_channel, masks, maps, strict=True):
        pictures.append(picture(image, mask, heat))
    return np.array(pictures, np.uint8).reshape(-1, SIDE, SIDE, 3)  # this shape also without any picture


def _headline_columns(arrays: Arrays, labels: Int[np.ndarray, " images"]) -> dict[str, Any]:
    """Columns of the row of a saliency run: means of the metrics over classes, and two counts.

    The metrics of HEADLINES (iou, mass, density_gap) also have intervals. The mean of iou_others, the overlap of a map
    with the object of another image, has none: it only shows which iou maps reach that ignore where the object is. A
    metric that is defined for no image has no columns.

    The counts are of images whose map is zero everywhere, and of images without an object in the input.

    arrays: the run's arrays with a line for each image.
    labels: class of each image.
    """
    metrics = pd.DataFrame({name: arrays[name] for name in (*HEADLINES, "iou_others")})
    class_means = metrics.groupby(labels).mean()
    means: dict[str, Any] = {IOU_OTHERS: class_means["iou_others"].mean()}
    for name, (column, within) in HEADLINES.items():
        estimate = mean_with_interval(class_means[name], within=within)
        means |= zip(interval_columns(column), estimate, strict=True)

    return {
        "n_zero": arrays["zero"].sum(),
        "n_empty": (arrays["mask_area"] == 0).sum(),
        **{column: value for column, value in means.items() if not np.isnan(value)},
    }


def picture(
    image: UInt8[np.ndarray, "size size 3"], mask: Bool[np.ndarray, "size size"], heat: np.ndarray | None
) -> UInt8[np.ndarray, "side side 3"]:
    """A small picture of an image: with a map as heat and the object's outline, or without a map the object tinted.

    image: pixels of 0 to 255.
    mask:  True on the object.
    heat:  a map in [0, 1] of any size, drawn from yellow (low) to red (high), the higher the more opaque; None: no map.
    """
    small_image = _resized(image)
    small_mask = _resized(mask.astype(np.float32))
    is_object = small_mask > 0.5

    colour: Any
    if heat is None:
        strength = small_mask
        colour = TINT
        outline = TINT
    else:
        strength = _resized(heat.astype(np.float32))
        colour = np.stack([0 * strength + 255, 255 * (1 - strength), 0 * strength], axis=2)  # from yellow to red
        outline = OUTLINE

    opacity = 0.65 * strength[..., None]  # below 1, so that the image stays visible
    mixed = (1 - opacity) * small_image + opacity * colour
    mixed[is_object & ~binary_erosion(is_object)] = outline
    return mixed.round().astype(np.uint8)


def _resized(pixels: np.ndarray) -> np.ndarray:
    return np.asarray(Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BILINEAR))
