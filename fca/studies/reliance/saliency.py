"""Does a network look at the object? GradCAM of each image's own class beside the object's mask, on clean images."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
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
FACTS = ("mask_area_raw", "retained", "centre")
THRESHOLD, SIDE, SHOWN, MANY = 0.5, 64, 24, 500
NORMS = ("norm1", "ln_1", "ln1")  # before attention: in timm; in OpenCLIP and torchvision; in mmpretrain
OUTLINE, TINT = (0, 255, 255), (150, 60, 220)  # of the object around a map, and over the object without one
Maps = Float[np.ndarray, "images size size"]
Masks = Bool[np.ndarray, "images size size"]


@dataclass(frozen=True)
class Saliency:
    """`task=saliency`: one run for the images of a split whose class the model knows, whatever the subset and seed.

    A model that is to be trained (it has no weights, or an adaptation is given) is trained first, as by task=train.
    Shifts are predicted beside the maps, which are of clean images, so that one task does all that reliance needs.

    layer: whose map, a regular expression for the end of its name (layer2|blocks.2 for two kinds of network); null =
           the last that has one, in a ViT the norm before the last attention.
    threshold: of a map at input size, from which on a pixel is salient.
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
        """The run of the maps, after those beside it; layer and threshold are of its identity unless the defaults."""
        bare = replace(context, shifts=[CLEAN])
        check_masks_of("task=saliency", context.data, self.split)
        if context.model.weights_label() is None or type(context.adaptation) is not Network:
            check_choice("task.split", self.split, ("test",), "train it first for another split")
            before = Train().plan(context)
            [train] = (run for run in before if run.task == "train")
            data = for_training(context.data)
            check_masks_of("task=saliency", data, self.split, context.subset.classes)
            clean = prediction_runs(train, bare, data)[0]
        else:
            before = [] if context.shifts == [CLEAN] else runs_of_split(context, self.split)
            [clean] = runs_of_split(bare, self.split)
            check_forward(clean.work)
            check_classes(clean.work.model, clean.work.data, self.split)
        given = {"layer": self.layer, "threshold": None if self.threshold == THRESHOLD else self.threshold}
        meaning = {**clean.identity, "shift": None, **given}
        identity = {key: value for key, value in meaning.items() if value is not None}
        return [*before, Run("saliency", identity, clean.metadata, clean.parent, work=clean.work)]

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """Arrays, a line an image: map (as large as the layer's), mask (at input size, packed bits), zero, iou, mass,
        density_gap, mask_area (share of the input that is object), and FACTS. `lowest`: positions of the lowest IoUs,
        with `overlays`; `first`: those of the first image of each class, with `examples`, whose object is tinted.

        Headlines are means over classes of the means of their images, with intervals over classes.
        """
        before = [run for run in runs if run.task != "saliency"]
        if any(run.task == "train" or run.parent for run in before):
            yield from Train().run(before, context)
        else:
            yield from finish_predictions(before, context)
        for run in runs[len(before) :]:
            yield Finished(run, *self._measured(run.work, context))

    def _measured(self, work: ForwardWork, context: RunContext) -> tuple[dict[str, Any], Arrays]:
        from fca.tasks.at_input import AtInput

        data, classifier = work.data, build_model(work.model)
        rows, true, known = known_images(work, classifier)
        labels = data.labels[rows]
        shown = AtInput(data, work.split, rows, classifier, context)
        shown.masks(rows[:1])  # raises for a set without them
        context.store.keep_items(data)
        arrays = _facts_of_masks(data, rows, classifier.geometry, context.machine.workers)

        start = time.perf_counter()
        camera = Camera(classifier, shown.images(rows[:1]), self.layer)
        arrays |= self._mapped(camera, shown, true, classifier.input_size)
        seconds = time.perf_counter() - start

        arrays |= _pictures(shown, arrays, labels)
        columns = {
            **forward_columns(classifier, len(rows), seconds, context.machine.accelerator),
            "ncl": len(known),
            "classes": known,
            "n_test": len(rows),
            "chance": 1 / len(classifier.classes),
            "saliency_layer": camera.name,
            "saliency_threshold": self.threshold,
            "geometry": classifier.geometry.key,
            **_headlines(arrays, labels),
        }
        return columns, arrays

    def _mapped(self, camera: Camera, shown: AtInput, true: Int[np.ndarray, " images"], size: int) -> Arrays:
        """The map of each image, for its own class, and what `_numbers` says of it beside the image's mask.

        size: side of the input.
        """
        from fca.training.infer import batch_size_of

        rows = shown.rows
        other_rows = np.roll(rows, len(rows) // 2)
        batches = np.array_split(np.arange(len(rows)), -(-len(rows) // batch_size_of(size)))
        measured = []
        for batch in track(batches, "saliency maps", long=len(rows) >= MANY):
            maps = camera(shown.images(rows[batch]), true[batch])
            masks = shown.masks(rows[batch]).cpu().numpy()
            other_masks = shown.masks(other_rows[batch]).cpu().numpy()
            numbers = self._numbers(enlarged(maps, size).cpu().numpy(), masks, other_masks)
            measured.append({"map": maps.cpu().numpy().astype(np.float16), **numbers})
        return {name: np.concatenate([batch[name] for batch in measured]) for name in measured[0]}

    def _numbers(self, large: Maps, masks: Masks, others: Masks) -> Arrays:
        """Of a batch of maps at input size.    others: objects of other images, whose IoU is no merit of the maps."""
        salient = large >= self.threshold
        found = {"iou": mask_iou(salient, masks), "iou_others": mask_iou(salient, others)}
        found |= {"mass": mass_inside(large, masks), "density_gap": density_gap(large, masks)}
        found |= {"mask_area": masks.mean((1, 2))}
        found = {name: value.astype(np.float32) for name, value in found.items()}
        return {**found, "mask": np.packbits(masks.reshape(len(masks), -1), axis=1), "zero": large.max((1, 2)) == 0}


class Camera:
    """GradCAM of a layer (Selvaraju et al. 2017, arXiv:1610.02391): relu(sum_k a_k A_k), a_k = mean of dy / dA_k.

    y: an image's logit of a class.    A_k: channel k of the layer's output at the places of a map, or of the tokens
    behind the prefix ones (class and register tokens); the mean is over places.    name: of the layer.
    """

    def __init__(self, classifier: Classifier, image: Float[Tensor, "1 3 size size"], wanted: str | None) -> None:
        self.network: Any = classifier.module.eval().requires_grad_(False).to(image.device)
        self.normalise = classifier.normalise
        self.name, self.prefix = self._chosen(image, wanted)

    def __call__(
        self, images: Float[Tensor, "images 3 size size"], columns: Int[np.ndarray, " images"]
    ) -> Float[Tensor, "images cells cells"]:
        """Maps of images in [0, 1], each for one column of the logits; see `scaled`."""
        import torch

        kept: list[Tensor] = []

        def keep(_: Any, __: Any, output: Tensor) -> Tensor:
            kept.append(output.detach().requires_grad_())  # nothing before the layer is kept for gradients
            return kept[-1].clone()  # the next layers may write into it

        with torch.enable_grad(), self.network.get_submodule(self.name).register_forward_hook(keep):
            logits = self.network(self.normalise(images))
        check_outputs("logits", logits.detach().float().cpu().numpy())
        y = logits.gather(1, torch.as_tensor(columns, device=logits.device)[:, None]).sum()
        slope = torch.autograd.grad(y, kept[-1], allow_unused=True)[0] if y.requires_grad else None
        if slope is None:
            raise FcaError("task.layer", self.name, "a layer that the logits depend on", "choose another")
        activation, slope = (_as_map(tensor, self.prefix) for tensor in (kept[-1].detach(), slope))
        return scaled((activation * slope.mean((2, 3), keepdim=True)).sum(1).relu())

    def _chosen(self, image: Tensor, wanted: str | None) -> tuple[str, int]:
        """The layer, and how many tokens are a prefix of its map.

        Maps shrink from layer to layer, so one larger than those before is none (attention; 1 x 1 pooled to 7 x 7).
        """
        import torch

        outputs: dict[str, Tensor] = {}

        def seen(name: str, _: Any, __: Any, output: Any) -> None:
            outputs.pop(name, None)  # a layer that is used twice stands where it is used last
            if name and isinstance(output, torch.Tensor) and output.ndim in (3, 4) and len(output) == 1:
                outputs[name] = output.to("meta")  # its shape alone

        with torch.no_grad(), ExitStack() as hooks:
            for name, layer in self.network.named_modules():
                hooks.enter_context(layer.register_forward_hook(partial(seen, name)))
            self.network(self.normalise(image))
        counts = (layer.num_prefix_tokens for layer in self.network.modules() if hasattr(layer, "num_prefix_tokens"))
        known, side, maps, found = next(counts, None), image.shape[-1], dict[str, int](), None
        for name, output in outputs.items():
            tokens = output.shape[1] if output.ndim == 3 else 0
            prefix = min(tokens, max(0, tokens - side**2) if known is None else known)  # side: that of the patches
            one = _as_map(output, prefix)
            if one is not None and 1 < one.shape[-1] <= side:
                maps[name] = prefix
                if not tokens or name.rpartition(".")[2] in NORMS:
                    side, found = one.shape[-1], name
        if wanted is not None:
            found = next((name for name in reversed(maps) if re.search(rf"(^|\.)({wanted})$", name)), None)
        if found is None:
            allowed = f"a layer with a map of the image: {', '.join(list(maps)[-8:]) or 'this network has none'}"
            raise FcaError("task.layer", wanted, allowed, "choose one, or a convolutional network or a ViT")
        return found, maps[found]


def _as_map(output: Tensor, prefix: int) -> Any:
    """An output with places last, be they tokens, or before or behind the channels; None where it is no square map."""
    if output.ndim == 3:
        cells = math.isqrt(max(0, output.shape[1] - prefix))
        whole = cells**2 == output.shape[1] - prefix
        return output[:, prefix:].transpose(1, 2).reshape(len(output), -1, cells, cells) if whole else None
    ways = (output, output.permute(0, 3, 1, 2))
    return next((way for way in ways if way.shape[2] == way.shape[3]), None)


def scaled(maps: Float[Tensor, "images height width"]) -> Float[Tensor, "images height width"]:
    """Every map by its own minimum and maximum to [0, 1]; a constant one becomes zeros."""
    low, high = maps.amin((1, 2), keepdim=True), maps.amax((1, 2), keepdim=True)
    return (maps - low) / (high - low).where(high > low, 1.0)


def enlarged(maps: Float[Tensor, "images cells cells"], size: int) -> Float[Tensor, "images size size"]:
    """Maps at input size, bilinear and scaled again, as the library that the paper used (grad-cam) has them."""
    from torch.nn.functional import interpolate

    return scaled(interpolate(maps[:, None], (size, size), mode="bilinear")[:, 0])


def facts_of(mask: Bool[np.ndarray, "height width"], geometry: Geometry) -> tuple[float, float, float]:
    """Of a stored image: share that is object; share of that which the crop leaves; see `centre_distance`."""
    kept = float("nan")
    if isinstance(geometry, ResizeCrop) and mask.any():
        size, side = geometry.size, math.floor(geometry.size / geometry.crop_pct)
        sides = [side if geometry.squash else side * length // min(mask.shape) for length in mask.shape]
        starts = [round((length - size) / 2) for length in sides]
        ends = ((s * n / at, (s + size) * n / at) for s, at, n in zip(starts, sides, mask.shape, strict=True))
        kept = mask[tuple(slice(round(low), round(high)) for low, high in ends)].sum() / mask.sum()
    return float(mask.mean()), float(kept), centre_distance(mask)


def _facts_of_masks(data: ImageData, rows: Int[np.ndarray, " images"], geometry: Geometry, workers: int) -> Arrays:
    """FACTS of the mask of each of these images, as it is stored."""

    def facts_at(at: int) -> tuple[float, float, float]:
        return facts_of(np.asarray(data.mask(int(rows[at]))), geometry)

    facts = np.array(list(parallel_map(facts_at, len(rows), workers, "reading masks")), np.float32)
    return dict(zip(FACTS, facts.T, strict=True))


def _pictures(shown: AtInput, arrays: Arrays, labels: Int[np.ndarray, " images"]) -> Arrays:
    """Positions of the images to look at, with their pictures: `lowest` with `overlays`, `first` with `examples`."""
    found: Arrays = {}
    for (where, positions), name in zip(_shown(arrays, labels).items(), ("overlays", "examples"), strict=True):
        rows = shown.rows[positions]
        pixels = (255 * shown.images(rows)).round().byte().permute(0, 2, 3, 1).cpu().numpy()
        masks = shown.masks(rows).cpu().numpy()
        heat = arrays["map"][positions] if where == "lowest" else [None] * len(positions)
        pictures = [picture(*one) for one in zip(pixels, masks, heat, strict=True)]
        found[where] = positions.astype(np.int32)
        found[name] = np.array(pictures, np.uint8).reshape(-1, SIDE, SIDE, 3)
    return found


def _headlines(arrays: Arrays, labels: Int[np.ndarray, " images"]) -> dict[str, Any]:
    """Means over classes with their intervals, and counts; what no image has is left out."""
    of_classes = pd.DataFrame({name: arrays[name] for name in (*HEADLINES, "iou_others")}).groupby(labels).mean()
    found: dict[str, Any] = {IOU_OTHERS: of_classes["iou_others"].mean()}
    for name, (column, within) in HEADLINES.items():
        found |= zip(interval_columns(column), mean_with_interval(of_classes[name], within=within), strict=True)
    counts = {"n_zero": arrays["zero"].sum(), "n_empty": (arrays["mask_area"] == 0).sum()}
    return counts | {name: value for name, value in found.items() if not np.isnan(value)}


def _shown(arrays: Arrays, labels: Int[np.ndarray, " images"]) -> dict[str, Int[np.ndarray, " shown"]]:
    """Positions of the images with the lowest IoU whose map is not zero, and of the first of each class."""
    visible = np.flatnonzero(arrays["mask_area"] > 0)
    order = visible[np.lexsort((arrays["mass"][visible], arrays["iou"][visible]))]
    first = visible[np.unique(labels[visible], return_index=True)[1]]
    return {"lowest": order[~arrays["zero"][order]][:SHOWN], "first": first[:SHOWN]}


def picture(
    image: UInt8[np.ndarray, "size size 3"], mask: Bool[np.ndarray, "size size"], heat: np.ndarray | None
) -> UInt8[np.ndarray, "side side 3"]:
    """An image at 64 pixels: under a map as heat, with the object's outline; without a map, with the object tinted."""
    shown = mask if heat is None else heat
    parts = (Image.fromarray(part) for part in (image, mask.astype(np.float32), shown.astype(np.float32)))
    small, shape, warm = (np.asarray(part.resize((SIDE, SIDE), Image.Resampling.BILINEAR)) for part in parts)
    hot = np.stack([0 * warm + 255, 255 * (1 - warm), 0 * warm], axis=2)  # from yellow to red
    over = 0.65 * warm[..., None]
    mixed = (1 - over) * small + over * (TINT if heat is None else hot)
    mixed[(shape > 0.5) & ~binary_erosion(shape > 0.5)] = TINT if heat is None else OUTLINE
    return mixed.round().astype(np.uint8)
