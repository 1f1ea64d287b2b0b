"""What is known while planning is refused then: no training comes first, no run is left behind."""

import pandas as pd
import pytest

from tests.conftest import SMALL
from tests.support.images import write_images

NEED_MASKS = {  # words -> what the refusal begins with
    "task=saliency": "task = saliency; ",
    "task=saliency shift=reliance": "task = saliency; ",
    "shift=reliance": "shift = ablate/gray; ",
    "shift=swap/background": "shift = swap/background; ",
    "shift=swap/background/pasted": "shift = swap/background/pasted; ",
    "shift=noise/background/gaussian/0.25": "shift = noise/background/gaussian/0.25; ",
    "shift=ablate/tile": "shift = ablate/tile; ",
    "-m shift=clean,noise/all seed=0,1": "shift = noise/foreground/gaussian/",
    "-m task=train,saliency seed=0,1": "task = saliency; ",
    "adaptation=corm": "adaptation = ",
}


@pytest.mark.wide
@pytest.mark.parametrize("words", NEED_MASKS)
def test_what_needs_masks_is_refused_before_any_training_on_a_set_without(fca, tmp_path, words):
    write_images(tmp_path / "photos", per_class=4, classes=("ant", "bee"))
    for data in ([], ["dataset=folder", "dataset.root=photos"]):
        code, _out, err = fca(*words.split(), *data, *SMALL)
        assert code == 2
        assert NEED_MASKS[words] in err
        assert "mask" in err or words.startswith("adaptation")
        assert not (tmp_path / "outputs" / "runs").exists()


def test_a_line_without_a_mask_is_named_before_the_training(fca, tmp_path):
    write_images(tmp_path / "photos", per_class=4, classes=("ant", "bee"))
    paths = [path.relative_to(tmp_path / "photos") for path in sorted((tmp_path / "photos").rglob("*.png"))]
    table = pd.DataFrame(
        {"path": map(str, paths), "label": [p.parts[1] for p in paths], "split": [p.parts[0] for p in paths]}
    )
    table = table.assign(x0=0, y0=0, x1=9, y1=9).astype(dict.fromkeys(("x0", "y0", "x1", "y1"), object))
    table.loc[2, ["x0", "y0", "x1", "y1"]] = ""  # of the test split
    table.to_csv(tmp_path / "photos" / "index.csv", index=False)
    words = ["dataset=manifest", "dataset.root=photos", "dataset.file=index.csv", "dataset.mask_box=[x0,y0,x1,y1]"]

    code, _, err = fca(*words, "shift=ablate/gray", *SMALL)
    assert code == 2
    assert f"none for {table['path'][2]} (1 of 8 images)" in err
    assert not (tmp_path / "outputs" / "runs").exists()


@pytest.mark.parametrize("split", ["test", "all"])
def test_features_of_an_encoder_without_weights_are_refused_for_every_split(fca, tmp_path, split):
    encoder = ["model@encoder=test_resnet", "encoder.weights=null"]
    code, _, err = fca("task=embed", f"task.split={split}", *encoder, "logger=none", "sweep.print=true")  # only plans
    assert code == 2
    assert "encoder.weights = None" in err
    assert not (tmp_path / "outputs" / "runs").exists()


@pytest.fixture
def trained(fca, tmp_path):
    """The id of a network that knows the classes 0, 1 and 2 of digits."""
    code, _, err = fca("subset.classes=[0,1,2]", *SMALL)
    assert code == 0, err
    [description] = (tmp_path / "outputs" / "runs").glob("*/model.json")
    return description.parent.name


@pytest.mark.wide
def test_a_subset_that_a_stored_model_does_not_know_is_refused_while_planning(fca, tmp_path, trained):
    write_images(tmp_path / "photos", per_class=4, classes=("ant", "bee"))
    before = sorted((tmp_path / "outputs" / "runs").iterdir())
    model = ["model=run", f"model.run_id={trained}", "logger=none", "limit=8"]
    refusals = {
        "task=predict subset.classes=[1,5]": "subset.classes = 5; allowed: classes that the model knows: 0, 1, 2",
        "-m task=predict subset.ncl=2,7": "allowed: classes that the model knows: 0, 1, 2",
        "task=adaptive_test subset.classes=[1,5]": "subset.classes = 5; allowed: classes that the model knows",
        "task=predict dataset=folder dataset.root=photos": "model.classes = 0, 1, 2; allowed: at least one class of",
        "task=search domain=rendered max_subdomains=1": "key = max_subdomains",
        "task=search domain=rendered": "domain.target = car; allowed: classes of the model",
    }

    for words, message in refusals.items():
        code, _, err = fca(*words.split(), *model)
        assert (code, message in err) == (2, True), err
    assert sorted((tmp_path / "outputs" / "runs").iterdir()) == before

    code, _, err = fca("task=predict", "subset.classes=[1,2]", *model)
    assert code == 0, err
