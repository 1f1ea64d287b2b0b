"""What several tests share: rows of live adaptive tests."""

import numpy as np

from tests.studies.progressive.support.steps_lab import items_of


def live(lab, model, accuracy=0.6, score=0.4, spread=0.1, **columns):
    """A row of a live test, and the arrays that the analysis reads."""
    groups = sorted(items_of(lab)["attribute"].unique())
    both = np.array([accuracy, score])
    found = np.stack([both, [spread / 2] * 2, both - spread, both + spread], axis=-1)
    arrays = {
        "groups": np.array(groups),
        "group_asked": np.tile(np.array([3, 4, 2], dtype=np.int32), (len(groups), 1)),
        "group_estimate": np.tile(found, (len(groups), 1, 1)),
    }
    row = {"task": "adaptive_test", "model": model, "policy": "gre_two_stage", "estimator": "mixed_logit"}
    row |= {"budget": 0.25, "protocol": "open", "ncl": 4, "classes": range(4), "seed": 3}
    for name, value in (("accuracy", accuracy), ("score", score)):
        row |= {name: value, f"{name}_low": value - spread, f"{name}_high": value + spread, f"{name}_se": spread / 2}
    row |= {"n_evaluated": 18, "n_pool": 96, "share": 18 / 96, "asked_easy": 6, "asked_medium": 8, "asked_hard": 4}
    row |= {"rounds": 2, "predict_s": 1.5, "images_per_s": 12.0, "device": "cpu", "host": "here"}
    return lab.write(arrays, **{**row, **columns})
