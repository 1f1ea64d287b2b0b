"""How many masked images a second get every shift of shift=reliance, against a loop in numpy over images and shifts?

    python experiments/speed/ablation.py            2 minutes; with a GPU the shifts run on it (claim there: 5 times)

The loop is what one writes first: each image and each shift by itself, the noise drawn again for every shift. Ours are
whole batches on the device; the noise of an image and a draw is drawn once for its 48 shifts, on the CPU.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch
from harness import machine, options, timed
from scipy import ndimage

from fca.studies.reliance.ablation import Ablations, Noises, Swap, matched_regions, tile_sources
from fca.tasks.at_input import AtInput
from fca.training.devices import device_of
from fca.types import keyed_rng


def invented(images, side):
    """Images of noise, each with an object of one or two boxes over an eighth of it, as AtInput holds them."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (images, side, side, 3), np.uint8)
    masks = np.zeros((images, side, side), bool)
    for mask in masks:
        for _ in range(rng.integers(1, 3)):
            top, left = rng.integers(0, 3 * side // 4, 2)
            mask[top : top + side // 4, left : left + side // 3] = True
    shown = object.__new__(AtInput)
    ids = [f"i{at}" for at in range(images)]
    shown.data = SimpleNamespace(items=pd.DataFrame({"image_id": ids}), labels=np.arange(images) % 10)
    shown.rows = np.arange(images)
    shown.device = device_of("auto")
    shown._n_threads = torch.get_num_threads()
    shown._geometry = SimpleNamespace(size=side)
    shown._split_rows = shown.rows
    shown._latest_tensors = {}
    shown._pixels = pixels
    shown._backgrounds = None
    shown._masks = np.repeat(masks[..., None], 3, axis=3).view(np.uint8)
    return shown, pixels, masks


def shifts(draws):
    levels = [0.125, 0.25, 0.375, 0.5, 0.625, 0.75], [30.0, 60.0, 90.0, 120.0, 150.0, 180.0]
    noises = Noises(["foreground", "background"], *levels, ["plain", "area_matched"], draws, 0).shifts()
    return [*Ablations(["gray", "gray_box", "tile"]).shifts(), Swap(), *noises]


def batched(shown, wanted, batch):
    for rows in np.array_split(shown.rows, -(-len(shown.rows) // batch)):
        for shift in wanted:
            changed = shift.at_input(shown, rows)
    if changed.is_cuda:
        torch.cuda.synchronize()


def looped(pixels, masks, wanted):
    for at, (image, mask) in enumerate(zip(pixels, masks, strict=True)):
        for shift in wanted:
            one_by_numpy(np.float32(image.transpose(2, 0, 1)) / 255, mask, shift, at)


def one_by_numpy(image, mask, shift, at):
    name = shift.label()
    if name.startswith("ablate/gray"):
        boxes = ndimage.find_objects(ndimage.label(mask)[0]) if name.endswith("box") else [mask]
        for box in boxes:
            image[(slice(None), *box) if name.endswith("box") else np.broadcast_to(box, image.shape)] = 0.5
        return image
    if not name.startswith("noise"):
        return image.reshape(3, -1)[:, tile_sources(mask).ravel()].reshape(image.shape)
    rng = keyed_rng(0, at, shift.draw)
    region = mask if shift.region == "foreground" else ~mask
    if shift.area_matched:
        region = matched_regions(mask, rng)[shift.region == "background"]
    noise = rng.standard_normal(image.shape, dtype=np.float32) * region
    scale = shift.level / np.linalg.norm(noise) if shift.kind == "l2" else shift.level
    return np.clip(image + scale * noise, 0, 1)


def main():
    size = options(__doc__, images=(32, 4), side=(224, 24), batch=(32, 4), draws=(1, 1))
    shown, pixels, masks = invented(size.images, size.side)
    wanted = shifts(size.draws)
    batched(shown, wanted[:5], size.batch)  # warm
    ours, loop = timed(batched, shown, wanted, size.batch), timed(looped, pixels, masks, wanted)
    rate = [size.images * len(wanted) / one.wall for one in (ours, loop)]
    print(f"{size.side} px, {len(wanted)} shifts, on {shown.device.type}: {rate[0]:.0f} shifted images/s;")
    print(f"  numpy, image by image: {rate[1]:.0f}; ratio {rate[0] / rate[1]:.1f}")
    machine()


if __name__ == "__main__":
    main()
