"""A painter of conditions, a classifier that fails in the dark, and searches of it: shared by the tests of searches."""

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hydra import compose, initialize_config_dir

from fca.cli.application import register
from fca.cli.configure import job_of
from fca.cli.places import CONF
from fca.store import Store
from fca.store.claims import acquire, release
from fca.studies.generate.domain import EvaluationDomain
from fca.studies.generate.filters import NoFilter
from fca.studies.generate.protocols import Drawn, Refused, Unavailable
from fca.studies.search.task import Search
from fca.subset import full_set
from fca.types import Classifier, ImageData, Model
from tests.studies.generate.support.painter import InPasses
from tests.studies.generate.support.small_geometry import Small

ATTRIBUTES = {"time": ["day", "night"], "place": ["road", "field", "beach"], "size": ["near", "far"]}
RULES = [{"not": {"time": "night", "place": "beach"}}]
BRIGHT = {"day": 160, "night": 100}


def domain(**changed):
    given = {"name": "roads", "subject": "car", "attributes": ATTRIBUTES, "rules": RULES, "target": "car"}
    given |= {"prompt": "A {size} {subject} on a {place} by {time}", "targets": {}, "groups": None}
    return EvaluationDomain(**{**given, "group_columns": ["class", "group"], "decision": "half", **changed})


@dataclass
class Painter:
    """Paints a square whose brightness is that of the time of day, with noise by the seed; writes down every drawing.

    diary: a file with a line an image.    refuses: values.    works: images until the service is down.
    """

    diary: Any = None
    refuses: tuple[str, ...] = ()
    works: float = float("inf")
    costs: float = 0.0
    size: int = 16
    parallel: bool = False
    prompted = True
    keys: list[str] = field(default_factory=list)

    def label(self):
        return "painter"

    def version(self):
        return f"1, size {self.size}"

    def price(self):
        return self.costs

    def draw(self, wanted):
        if len(self.keys) >= self.works:
            raise Unavailable("overloaded")
        self.keys.append(wanted.key)
        if self.diary:
            with Path(self.diary).open("a") as file:
                file.write(wanted.key + "\n")
        values = wanted.values  # noqa: PD011  no frame
        if set(self.refuses) & set(values.values()):
            raise Refused("not this one")
        rng = np.random.default_rng(wanted.seed)
        level = BRIGHT[values["time"]] + rng.integers(-30, 31)
        pixels = level + rng.integers(-10, 11, (self.size, self.size, 3))
        return Drawn(np.clip(pixels, 0, 255).astype(np.uint8), None, None, {"level": int(level)})


@dataclass
class Press(InPasses, Painter):
    """Paints several images in a pass.    passes: how many in each."""

    batch_size: int = 3
    passes: list[int] = field(default_factory=list)

    def draw_batch(self, requests):
        self.passes.append(len(requests))
        return super().draw_batch(requests)


@dataclass
class Eye(Model):
    """Recognises a car by its brightness: above `threshold`. Counts what it predicts."""

    threshold: float = 120.0
    classes: tuple[str, ...] = ("car", "tree")
    seen: list[int] = field(default_factory=list)
    fails_at: float = float("inf")

    def label(self):
        return "eye"

    def weights_label(self):
        return f"{self.threshold:g}"

    def identity(self):
        return {"eye": self.threshold, "classes": list(self.classes)}

    def build(self, classes=None):
        import torch

        eye = self

        class Look(torch.nn.Module):
            def forward(self, images):
                eye.seen.append(len(images))
                if len(eye.seen) > eye.fails_at:
                    raise KeyboardInterrupt
                logit = (255 * images.mean((1, 2, 3)) - eye.threshold) / 10
                return torch.stack([logit, *[-logit] * (len(eye.classes) - 1)], dim=1)

        module = Look()
        return Classifier(module, self.classes, Small(), lambda images: images, module, torch.nn.Identity())


def photographs():
    """Test images of cars, bright, and of trees, dark."""
    items = pd.DataFrame({"image_id": [f"{i:02d}" for i in range(20)], "label": ["car", "tree"] * 10, "split": "test"})
    read = lambda row: np.full((8, 8, 3), 90 if row % 2 or row == 4 else 150, np.uint8)  # noqa: E731  one car is dark
    return ImageData("photographs", items, ("car", "tree"), "f" * 12, read)


def search(**changed):
    given = {"domain": domain(), "generator": Painter(), "filter": NoFilter(), "second": None, "policy": "random"}
    given |= dict.fromkeys(["strength", "acquisition", "reserve", "max_subdomains", "max_images", "max_hours"])
    given |= {"max_money": None, "max_draws": 20, "parallel": 2, "workers": 1, "stored_px": None, "starts": 10}
    given |= {"clean_accuracy": None, "confirm": 0, "features": "one_hot", "images": [5], "visits": 1}
    return Search(**{**given, **changed})


@cache
def plain():
    """What a command without words works with."""
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return job_of(compose("run", ["logger=none"]), []).context


class Lab:
    """Searches in a store of their own."""

    def __init__(self, folder):
        self.store = Store(folder / "outputs")

    def setup(self, model=None, **changed):
        machine = replace(plain().machine, accelerator="cpu", workers=1, cache_gb=0.0)
        given = {"data": photographs(), "model": model or Eye(), "subset": full_set(2), "store": self.store}
        return replace(plain(), machine=machine, **given, **changed)

    def __call__(self, task, **given):
        """What a search yields; it has a folder, as the command gives it one."""
        setup = self.setup(**given)
        task.check()
        runs = task.plan(setup)
        tokens = {run.run_id: acquire(self.store.folder(run.run_id)) for run in runs}
        try:
            for finished in task.run(runs, setup):
                run = finished.run
                row = {**run.metadata, **finished.columns, "run_id": run.run_id, "task": run.task}
                if run.task == "predict":
                    self.store.write(row, finished.arrays, tokens[run.run_id])
        finally:
            for run_id, token in tokens.items():
                release(self.store.folder(run_id), token)
        return finished

    def folder(self, task, **given):
        return self.store.folder(task.plan(self.setup(**given))[-1].run_id)
