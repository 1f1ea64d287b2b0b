"""The whole study of Hard ImageNet on a small tree in the set's own format: off the shelf, and four last layers."""

import json

import beside_ours
import numpy as np
import pytest
from safetensors.torch import save_file

from fca.cli.configure import load_model
from fca.store import Store
from tests.support.hard_imagenet_files import PATIO, SLED, names, part, write

SIDE = 48


@pytest.fixture
def downloaded(tmp_path):
    """Images of two classes that differ in colour, an object in the middle of each, and the authors' ranks as JSON."""
    ranks = {SLED: [], PATIO: []}
    for seed, (wnid, file) in enumerate(names((SLED, PATIO), train=14, val=6)):
        rng = np.random.default_rng(seed)
        pixels = rng.integers(60, 120, (SIDE, SIDE, 3))
        pixels[..., 0 if wnid == SLED else 2] += 60
        write(tmp_path / "ilsvrc" / part(file) / wnid / file, pixels.astype(np.uint8), "JPEG")
        mask = np.zeros((SIDE, SIDE), bool)
        mask[12 : 30 + seed % 6, 16:34] = True
        write(tmp_path / "hardImageNet" / part(file) / f"{wnid}_{file}", mask)
        if part(file) == "train":
            ranks[wnid].append(f"train/{wnid}/{file}")
    (tmp_path / "ranks.json").write_text(json.dumps(ranks))
    network = load_model("test_resnet", input_size=SIDE).build([SLED, PATIO]).module
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    return tmp_path


@pytest.mark.slow
def test_the_experiment_runs_whole_and_fills_table_1(fca, downloaded):
    data = [f"dataset.root={downloaded}", f"dataset.imagenet={downloaded / 'ilsvrc'}", "dataset.images=null"]
    model = [
        "model=test_resnet",
        f"model.weights={downloaded / 'weights.safetensors'}",
        f"model.classes=[{SLED},{PATIO}]",
    ]
    few = ["shift.noises.gaussian=[0.25]", "shift.noises.l2=[60]", "shift.noises.draws=1"]
    layer = ["adaptation.epochs=2", "adaptation.balanced=4", "adaptation.saliency_weight=[0.01]"]
    words = ["-m", "experiment=hard_imagenet", *data, f"dataset.ranks={downloaded / 'ranks.json'}", *model, *few]
    words += ["model.input_size=48", "logger=none", *(f"++{word}" for word in layer)]
    code, out, err = fca(*words, "adaptation=head,corm,dfr,corm_dfr")
    assert code == 0, out + err
    code, out, err = fca(*[word for word in words if not word.startswith("++")], "adaptation=null")
    assert code == 0, out + err
    store = Store(downloaded / "outputs")
    rows = store.rows()
    assert rows["task"].value_counts().to_dict() == {"predict": 5 * 13, "saliency": 5, "train": 4, "embed": 1}
    assert set(rows.loc[rows["task"] == "train", "adaptation"]) == {"head", "corm", "dfr", "corm_dfr"}
    page = beside_ours.side_by_side(store)
    [objects] = (t.frame for s in page.sections for t in s.tables if t.name == "object_statistics")
    assert set(objects["label"]) == {SLED, PATIO, "all classes"}
