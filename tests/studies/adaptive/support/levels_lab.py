"""Images of three levels, a network trained on them, and how to test it: shared by the tests of adaptive tests."""

import numpy as np
import pandas as pd
from PIL import Image

from fca.store import Store
from fca.studies.progressive.levels import levels_of
from fca.types import Table

CLASSES, ATTRIBUTES, LEVELS = ("blue", "green", "red"), ("size", "view"), ("easy", "medium", "hard")
DATA = ["dataset=manifest", "dataset.root=images", "dataset.file=index.csv", "logger=none"]
TEST = ["task=adaptive_test", "model=run", *DATA]


def write_levels(folder):
    """A CSV of 216 test images (12 a class, attribute and level) and 60 train images: colours in ever more noise."""
    rng, lines = np.random.default_rng(0), []
    folder.mkdir()
    for place, label in enumerate(CLASSES):
        told = [("test", a, level, i) for a in ATTRIBUTES for level in LEVELS for i in range(12)]
        for split, attribute, level, index in [*told, *(("train", "size", "easy", i) for i in range(20))]:
            pixels = rng.integers(90, 130, (16, 16, 3))
            pixels[..., (2, 1, 0)[place]] += (24, 9, 4)[LEVELS.index(level)]
            path = f"{split}-{label}-{attribute}-{level}-{index}.bmp"
            Image.fromarray(pixels.astype(np.uint8)).save(folder / path)
            lines.append((path, label, split, attribute, level))
    pd.DataFrame(lines, columns=["path", "label", "split", "attribute", "level"]).to_csv(folder / "index.csv")


class Lab:
    """A copy of the study to test in."""

    def __init__(self, fca, folder):
        self.fca, self.folder, self.store = fca, folder, Store(folder / "outputs")
        self.trained = self.store.rows("task == 'train'")["run_id"].iloc[0]

    def __call__(self, *words):
        """A test; its newest row."""
        code, out, err = self.fca(*TEST, f"model.run_id={self.trained}", *words)
        assert code == 0, out + err
        return self.store.rows("task == 'adaptive_test'").to_dict("records")[-1]

    def items(self):
        [fingerprint] = set(self.store.rows()["fingerprint"])
        items = self.store.items(fingerprint)
        return items[items["split"] == "test"].reset_index(drop=True)

    def answers(self, shift="clean"):
        """Of the predict run: the logit chosen for every test image, and which are right."""
        run_id = self.store.rows(f"task == 'predict' and shift == '{shift}'")["run_id"].iloc[0]
        pred = np.array(self.store.array(run_id, "pred"))
        return pred, pred == self.items()["label"].cat.codes.to_numpy()

    def bank(self, names=None, runs=()):
        """A saved table of items."""
        items = self.items()
        frame = pd.DataFrame({"item": items["image_id"], "image_id": items["image_id"], "label": items["label"]})
        frame = frame.assign(dataset="images", corruption="clean", severity=0, irt_model="2pl", discrimination=1.2)
        frame["difficulty"] = np.array([-2.0, 0.0, 1.0])[levels_of(items)] + np.linspace(-1, 1, len(items))
        frame = frame.assign(feasibility=1.0, guess=0.0, p_max=1.0, expected_success=0.5, top1=0.5, difficulty_se=0.1)
        frame = frame.sample(frac=1, random_state=0) if names is None else frame[frame["item"].isin(names)]
        parameters = {"calibration": "joint", "answers": str(names)}
        return self.store.save(Table("irt_items", "?", "-", frame, parameters, tuple(runs))).name
