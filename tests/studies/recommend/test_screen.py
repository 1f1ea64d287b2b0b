"""task=screen: the probe on few training images, as it would be on their features among those of all images."""

import numpy as np
import pytest

from fca.data.copies import connected_images
from fca.stats.features import fit_probe
from fca.store import Store, results
from fca.store.columns import JUDGED_IMAGES, LEFT_OUT_LOGITS

QUIET = ["dataset=digits", "logger=none", "machine.workers=1", "machine.accelerator=cpu", "subset.ncl=3", "limit=40"]


@pytest.mark.wide
def test_it_is_the_probe_of_adaptation_probe_on_few_training_images_of_every_class(fca, tmp_path):
    for line in (["task=screen", "task.images=30"], ["adaptation=probe"]):
        code, _, err = fca("model=hog", *line, *QUIET)
        assert code == 0, err

    store, rows = Store(tmp_path / "outputs"), results(tmp_path / "outputs").set_index("task")
    screened, trained = rows.loc["screen"], rows.loc["train"]
    judged = store.array(screened["run_id"], JUDGED_IMAGES)
    items = store.items(trained["fingerprint"])
    labels = np.searchsorted(trained["classes"], items["label"].cat.codes.to_numpy()[judged])
    assert set(items["split"].iloc[judged]) == {"train"}
    assert np.bincount(labels).tolist() == [10, 10, 10]
    assert screened["n_train"] == screened["n_judged"] == 30
    assert screened["input_size"] == 32

    of_all = store.array(trained["parent"], "features")
    by_hand = fit_probe(of_all[judged], labels, connected_images(items.iloc[judged], None))
    assert store.array(screened["run_id"], LEFT_OUT_LOGITS) == pytest.approx(by_hand.left_out, abs=0.01)


def test_only_the_few_images_go_through_the_network(fca, tmp_path):
    code, _, err = fca("model=hog", "task=screen", "task.images=30", *QUIET)
    assert code == 0, err
    embedded = results(tmp_path / "outputs", "task == 'embed'").iloc[0]
    assert embedded["n_test"] == 30


def test_a_second_run_has_nothing_to_do(fca, tmp_path):
    for _ in range(2):
        assert fca("model=hog", "task=screen", "task.images=30", *QUIET)[0] == 0
    assert len(results(tmp_path / "outputs")) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model=test_resnet"], "has no weights"),
        (["model=hog", "shift=corruption/fog"], "clean for task=screen"),
        (["model=hog", "task.images=3"], "task.images = 3; allowed: a whole number, at least 4"),
    ],
)
def test_what_cannot_be_screened_is_refused_before_any_work(fca, tmp_path, words, message):
    code, _, err = fca("task=screen", *words, *QUIET)
    assert code == 2
    assert message in err
