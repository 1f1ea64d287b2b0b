"""What several tests share: images with cues, and networks that follow them."""

from dataclasses import replace

import numpy as np

from tests.support.lab import images


def cue_data(cue, strength):
    data = images()
    items = data.items.assign(cue=cue, cue_strength=strength, cue_class=data.items["label"])
    return replace(data, name=f"rendered {cue} {strength:g}", items=items, fingerprint=f"{cue}{strength}")


def network(lab, seed, **right):
    """A training and its predictions: shift -> share of right answers, exact to the image."""
    run = lab.write(
        task="train", model="net", ncl=6, classes=range(6), seed=seed, adaptation="scratch", num_classes=6, n_test=48
    )
    for shift, share in right.items():
        answers = np.arange(len(lab.true)) < round(share * len(lab.true))
        about = {"parent": run, "seed": seed, "snapshot": "best", "adaptation": "scratch"}
        if shift == "saliency":
            lab.write(task="saliency", model="net", ncl=6, classes=range(6), **about)
        else:
            lab.answered("net", answers, shift.replace("__", "/"), **about)
    return run
