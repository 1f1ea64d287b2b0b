"""What several tests share: features of images that a network need not compute."""

import numpy as np
import pandas as pd

from tests.support.clouds import clouds

PER_CLASS = 40


def features(folder, seed):
    """Of three classes, by two networks; a third of the images are those of a given test split."""
    folder.mkdir(parents=True)
    _, labels = clouds(3 * PER_CLASS, 6)
    split = np.where(np.arange(len(labels)) % 3 == 2, "test", "train")
    ids = [f"{i}.png" for i in range(len(labels))]
    order = np.argsort(labels, kind="stable")
    frame = pd.DataFrame({"image_id": ids, "label": labels[order], "split": split})
    frame.to_csv(folder / "items.csv", index=False)
    for network, spread in (("a", 2.0), ("b", 4.0)):
        values, _ = clouds(len(labels), 6, spread=spread, seed=seed)
        np.save(folder / f"{network}_32_fp32_whole.npy", values[order])
