"""The variance split of stored runs against the same split of answers gathered by hand."""

import numpy as np
import pytest

from fca.stats.comparison import SubsetRuns, split_variance
from fca.studies.few_class.variance import Variance
from fca.subset import draw_subset
from fca.types import FcaError
from tests.studies.few_class.support.sub_models import answers, images, sub_model


def table(lab, **fields):
    [found] = Variance(**fields)(lab.store)
    return found.frame


def by_hand(lab, right, subsets, inits):
    return split_variance(
        [
            SubsetRuns(
                np.stack([right[s, i] for i in range(inits)]),
                images(lab, s),
                lab.true[images(lab, s)],
                tuple(f"{s.classes}{i}" for i in range(inits)),
            )
            for s in subsets
        ]
    )


@pytest.fixture
def repeated(lab):
    """One model, four draws of two and of three classes, two inits each."""
    right = {}
    for subset in lab.subsets():
        skill = np.random.default_rng(subset.seed).uniform(0.4, 1)
        for init in range(2):
            right[subset, init] = answers(lab, subset, skill, seed=len(right))
            sub_model(lab, "net", subset, right[subset, init], seed=init)
    return lab, right


def test_components_are_those_of_the_stored_answers(repeated):
    lab, right = repeated
    frame = table(lab).set_index("ncl")
    for ncl in (2, 3):
        split, line = by_hand(lab, right, lab.subsets(ncl=(ncl,)), 2), frame.loc[ncl]
        shown = {name: max(part.value, 0) for name, part in split._asdict().items()}
        total = sum(shown.values())
        for name, part in split._asdict().items():
            assert line[f"var_{name}"] == pytest.approx(shown[name])
            assert line[f"share_{name}"] == pytest.approx(shown[name] / total)
            assert line[f"sd_{name}"] ** 2 == pytest.approx(shown[name])
            assert [line[f"sd_{name}_low"] ** 2, line[f"sd_{name}_high"] ** 2] == pytest.approx(
                [part.low, part.high], nan_ok=True
            )
            assert (f"var_{name} estimated at" in str(line["note"])) == (part.value < 0)
        tested_images = {i for s in lab.subsets(ncl=(ncl,)) for i in images(lab, s)}
        assert (line["subsets"], line["inits"], line["images"]) == (4, 2, len(tested_images))


def test_a_full_model_is_one_run_on_every_subset(lab):
    logits = lab.logits(seed=1)
    run_id = lab.predict("net", logits)
    line = table(lab, ncl=[3.0], seeds=list(range(5))).set_index("protocol").loc["open"]
    drawn = list(dict.fromkeys(lab.subsets(ncl=(3,), seeds=range(5))))
    right = logits.argmax(axis=1) == lab.true
    runs = [SubsetRuns(right[None, images(lab, s)], images(lab, s), lab.true[images(lab, s)], (run_id,)) for s in drawn]
    split = split_variance(runs)
    assert line["var_test"] == pytest.approx(split.test.value)
    assert line["var_subset"] == pytest.approx(max(0, split.subset.value))
    assert np.isnan(line[["var_init", "share_init", "sd_init", "var_luck", "share_luck"]].astype(float)).all()
    assert "one initialisation: var_init and var_luck unknown" in line["note"]


def test_one_subset_leaves_its_component_and_all_shares_missing(lab):
    for init in range(2):
        sub_model(lab, "net", draw_subset(6, 2, 0), answers(lab, draw_subset(6, 2, 0), 0.8, init), seed=init)
    [line] = table(lab).to_dict("records")
    assert np.isnan([line[f"share_{name}"] for name in ("subset", "init", "luck", "test")]).all()
    assert np.isnan(line["var_subset"])
    assert "one subset: var_subset unknown" in line["note"]
    assert line["var_init"] >= 0


def test_sub_models_without_predictions_leave_a_line_that_says_so(study):
    frame = table(study)
    assert set(frame["protocol"]) == {"sub", "open", "masked"}
    bare = frame[frame["protocol"] == "sub"]
    assert (bare["note"] == "no predictions are stored").all()
    assert bare[["var_subset", "var_init", "var_luck", "var_test"]].isna().all(axis=None)
    assert frame.loc[frame["protocol"] == "open", "var_test"].notna().all()


def test_the_answers_that_are_stored_are_used_and_counted(repeated):
    lab, right = repeated
    lab.train("net", draw_subset(6, 2, 4), 0.7)
    line = table(lab).set_index("ncl").loc[2]
    assert line["var_luck"] == pytest.approx(by_hand(lab, right, lab.subsets(ncl=(2,)), 2).luck.value)
    assert "predictions for 4 of 5 subsets" in line["note"]


def test_two_recipes_stop_it(repeated):
    lab, _ = repeated
    lab.train("net", draw_subset(6, 2, 0), 0.5, recipe_epochs=5)
    with pytest.raises(FcaError, match="recipe_epochs of the rows read = 10, 5"):
        table(lab)
    assert len(table(lab, query="recipe_epochs == 10")) == 2
