"""What several tests share: rows of saliency, without running it."""

import numpy as np

SIDE = 16


def salient(lab, model="net", share=0.25, **columns):
    """As `task=saliency` stores it: an object on the left part of each image; of the first image none is left."""
    n, rng = len(lab.true), np.random.default_rng(0)
    masks = np.zeros((n, SIDE, SIDE), bool)
    masks[1:, :, : round(SIDE * share)] = True
    area, iou = masks.mean(axis=(1, 2)), rng.random(n)
    iou[0] = np.nan
    lowest = np.argsort(iou)[:20].astype(np.int32)
    first = np.unique(lab.true, return_index=True)[1].astype(np.int32)
    arrays = {"map": rng.random((n, 2, 2)).astype(np.float16), "mask": np.packbits(masks.reshape(n, -1), axis=1)}
    arrays |= {"iou": iou, "mask_area": area, "mask_area_raw": area / 2, "retained": np.where(area > 0, 0.75, 0.0)}
    arrays |= {"zero": np.zeros(n, bool), "mass": area, "density_gap": area}
    arrays |= {"centre": np.full(n, 0.5), "lowest": lowest, "first": first}
    arrays |= {
        "overlays": np.full((20, 64, 64, 3), 9, np.uint8),
        "examples": np.full((len(first), 64, 64, 3), 8, np.uint8),
    }
    about = {"task": "saliency", "model": model, "ncl": 6, "classes": range(6), "n_test": n, "input_size": SIDE}
    kept = {name: np.float32(value) if np.asarray(value).dtype == float else value for name, value in arrays.items()}
    return lab.write(kept, **{**about, "geometry": "16-16-bilinear", "saliency_iou": 0.5, **columns})
