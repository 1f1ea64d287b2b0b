"""A user's function of two images: which are sampled, how often it is called, and what its answers become."""

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pytest

from fca.cli.jobs import job_of_keys
from fca.geometry import ResizeCrop
from fca.store import claims, results
from fca.studies.few_class.similarity import Similarity
from fca.tasks.embed import Embed
from fca.types import ImageData, Model
from tests.support.columns import task_columns

KEYS = ("cat", "ant", "bee")
COUNTS = (6, 4, 1)  # test images of each


def colours():
    """Every image is one flat colour, so that a mean tells which it is."""
    label = [key for key, n in zip(KEYS, COUNTS, strict=True) for _ in range(n)] + ["cat", "ant", "bee"]
    split = ["test"] * sum(COUNTS) + ["train"] * 3
    ids = [f"{i}.png" for i in range(len(label))]
    order = np.random.default_rng(1).permutation(len(label))
    items = pd.DataFrame({"image_id": ids, "label": label, "split": split}).iloc[order].reset_index(drop=True)
    grey = [10 * int(name.removesuffix(".png")) + 20 for name in items["image_id"]]
    return ImageData("colours", items, KEYS, "f" * 12, read=lambda i: np.full((9, 12, 3), grey[i], np.uint8))


@dataclass(frozen=True)
class Closeness(Model):
    """Contract of an encoder that compares pairs."""

    learns = False

    images_per_class: int = 3
    seed: int = 0
    calls: list = field(default_factory=list)

    def label(self):
        return "closeness"

    def weights_label(self):
        return None

    def identity(self):
        return {"family": "pair", "images_per_class": self.images_per_class, "seed": self.seed}

    def build(self, classes=None):
        raise AssertionError("there is no network to build")

    @property
    def geometry(self):
        return ResizeCrop(8, 1.0)

    def similarity(self, a, b):
        assert a.shape == b.shape == (8, 8, 3)
        self.calls.append((int(a[0, 0, 0]), int(b[0, 0, 0])))
        return 1 - abs(float(a.mean()) - float(b.mean())) / 255


@pytest.fixture
def setup(tmp_path):
    job = job_of_keys(
        {"dataset": "digits", "task": "embed", "outputs": str(tmp_path / "outputs"), "machine.workers": 1}
    )
    return replace(job.context, data=colours(), encoder=Closeness())


def run(setup):
    task = Embed("test")
    [run] = task.plan(setup)
    [finished] = task.run([run], setup)
    return finished


def test_every_pair_of_sampled_images_is_asked_once(setup, capsys):
    finished = run(setup)
    n = 3 + 3 + 1
    assert len(finished.arrays["sampled"]) == n
    assert len({frozenset(pair) for pair in setup.encoder.calls}) == len(setup.encoder.calls) == n * (n - 1) // 2
    assert finished.columns["similarity_calls"] == 21
    assert finished.columns["n_test"] == n
    assert capsys.readouterr().out == "21 calls of the similarity function: every pair of 7 sampled images\n"


def test_similarities_are_means_over_the_others_of_a_class(setup):
    finished = run(setup)
    test = setup.data.items[setup.data.items["split"] == "test"].reset_index(drop=True)
    sampled = test.iloc[finished.arrays["sampled"]]
    grey = np.array([10 * int(name.removesuffix(".png")) + 20 for name in sampled["image_id"]])
    label = sampled["label"].to_numpy()
    for i, line in enumerate(finished.arrays["similarity"]):
        for key, value in zip(KEYS, line, strict=True):
            others = [j for j in range(len(grey)) if label[j] == key and j != i]
            if others:
                assert value == pytest.approx(np.mean([1 - abs(grey[i] - grey[j]) / 255 for j in others]), abs=1e-6)
            else:
                assert np.isnan(value)  # the one bee has no other
    assert finished.arrays["similarity"].dtype == np.float32


def test_the_sample_is_drawn_by_image_id_and_seed_not_by_the_order_of_items(setup):
    def names(given):
        test = given.data.items[given.data.items["split"] == "test"].reset_index(drop=True)
        return set(test["image_id"].iloc[run(given).arrays["sampled"]])

    items = setup.data.items
    turned = replace(setup.data, items=items.iloc[::-1].reset_index(drop=True))
    backwards = replace(turned, read=lambda i: setup.data.read(len(items) - 1 - i))
    assert names(setup) == names(replace(setup, data=backwards))
    seeds = [names(replace(setup, encoder=Closeness(seed=seed))) for seed in range(4)]
    assert len({frozenset(drawn) for drawn in seeds}) > 1


def test_the_similarity_analysis_scores_what_the_function_said(setup):
    finished = run(replace(setup, encoder=Closeness(images_per_class=10)))
    row = {**finished.run.metadata, **finished.columns, "run_id": finished.run.run_id, "task": "embed"}
    folder = setup.store.folder(row["run_id"])
    setup.store.write(row, finished.arrays, claims.acquire(folder), task_columns())
    [scores] = [t.frame for t in Similarity(ncl=[2], seeds=list(range(6)))(setup.store) if t.name == "similarity"]
    with_bee = scores["classes"].map(lambda classes: 2 in classes)
    assert (scores.loc[with_bee, "note"] == "images in test: bee has 1; a class needs 2").all()
    line = scores[~with_bee].iloc[0]
    cats, ants = np.arange(6) * 10.0, 60 + np.arange(4) * 10.0

    def alike(x, y):
        return 1 - np.abs(x - y) / 255

    means = []
    for own, other in ((cats, ants), (ants, cats)):
        found = []
        for i, x in enumerate(own):
            a, b = alike(x, np.delete(own, i)).mean(), alike(x, other).mean()
            found.append((a - b) / max(a, b))
        means.append(np.mean(found))
    assert line["simss"] == pytest.approx(np.mean(means), abs=1e-6)


def test_another_sample_is_another_run(setup):
    task = Embed("test")
    ids = {task.plan(replace(setup, encoder=Closeness(seed=s)))[0].run_id for s in (0, 1)}
    assert len(ids) == 2


def test_the_function_that_ships_runs_from_the_command_line(fca, tmp_path):
    words = ["task=embed", "model@encoder=pair", "encoder.images_per_class=2", "logger=none", "limit=3"]
    code, out, err = fca(*words)
    assert code == 0, err
    assert "190 calls of the similarity function: every pair of 20 sampled images" in out
    [row] = results(tmp_path / "outputs").to_dict("records")
    assert row["similarity_calls"] == 190
    assert row["encoder"] == "fca.models.pair.structural_similarity"
    assert fca(*words)[1].count("190 calls") == 0  # it is done
