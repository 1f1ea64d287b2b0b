"""What tests/studies/test_analyses.py needs for the analyses of this study."""

import numpy as np
from safetensors.numpy import save_file

from fca.store import Store
from tests.studies.reliance.support.cue_data import cue_data, network
from tests.studies.reliance.support.salient import salient
from tests.support.lab import Lab

MAY_BE_EMPTY = {"shape_bias"}  # where images have no second class
CHEAPER = {}


def add(study):
    """No further rows."""


def stores(folders):
    """Networks trained on images with a cue, their answers with and without the object, maps, features and a layer."""
    lab = Lab(Store(folders.mktemp("masked") / "outputs"))
    area, rng = np.full(len(lab.true), 0.3, np.float32), np.random.default_rng(0)
    for strength in (0.0, 1.0):
        lab.data = cue_data("color", strength)
        lab.store.keep_items(lab.data)
        for seed in range(6):
            of = {"parent": network(lab, seed, clean=1.0, swap__background=1 - strength), "snapshot": "best"}
            gray = np.where(rng.random(len(area)) < 0.2 + 0.6 * strength, lab.true, (lab.true + 1) % 6)
            arrays = {"pred": gray.astype(np.int32), "logit_classes": np.array(lab.data.classes), "mask_area": area}
            arrays["examples"] = np.zeros((4, 64, 64, 3), np.uint8)
            about = {"task": "predict", "model": "net", "ncl": 6, "classes": range(6), "seed": seed, **of}
            for shift in ("ablate/gray_box", "noise/foreground/gaussian/0.25", "noise/background/gaussian/0.25"):
                lab.write(arrays, shift=shift, **about)
        salient(lab, **of)
    x = rng.random((len(lab.data.items), 8)).astype(np.float16)
    embed = lab.embed("net", x, split="all")
    layer = lab.write(task="train", model="net", adaptation="probe", parent=embed, ncl=6, classes=range(6), top1=1.0)
    weights = {"weight": np.eye(6, 8, dtype=np.float32), "bias": np.zeros(6, np.float32)}
    save_file(weights, lab.store.folder(layer) / "best.safetensors")
    return {"reliance": lab}
