"""From the command line to the rows of Table 1: ranks are saved, four remedies swept, refusals name what is wrong."""

import json

import numpy as np
import pytest

from fca.cli import analyse as analyse_door
from fca.models.stored import StoredRun
from fca.store import Store
from tests.support.hard_imagenet_files import PATIO, SLED, imagenet, names, part, shape, write

DATA = ["dataset=rendered", "dataset.classes=[car,mug,tree]", "dataset.size=32", "dataset.per_level=1", "logger=none"]
DATA += ["dataset.train_per_class=12", "dataset.val_per_class=4"]
REMEDIES = {"head", "corm", "dfr", "corm_dfr"}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


@pytest.mark.wide
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["adaptation=dfr"], ["adaptation.ranks = None", "column rank", "analysis=spurious_rank"]),
        (["adaptation=dfr", "adaptation.ranks=abc", "model=hog"], ["adaptation.ranks = abc", "none yet"]),
        (["adaptation=head", "adaptation.solver=logistic"], ["adaptation.solver = logistic", "adam for head"]),
        (["adaptation=corm", "adaptation.saliency_weight=[-1]"], ["adaptation.saliency_weight = -1"]),
        (["adaptation=corm"], ["adaptation = corm", "no weights"]),
        (["adaptation=corm", "model=hog", "dataset=digits"], ["adaptation = corm", "digits has none"]),
        (["adaptation=head", "model=hog", "compat=fca"], ["adaptation = head", "compat"]),
    ],
    ids=str,
)
def test_a_remedy_that_cannot_be_is_refused_before_any_work(fca, store, words, message):
    code, _, err = fca(*(DATA if "dataset=digits" not in words else ["logger=none"]), "model=test_resnet", *words)
    assert code == 2
    assert all(part in err for part in message), err
    assert not store.run_ids()


def test_a_head_on_stored_features_is_a_model_and_a_sweep_may_set_ranks_that_it_does_not_read(fca, store):
    line = ["model=hog", "dataset=digits", "limit=8", "logger=none", "adaptation=head"]
    code, _, err = fca(*line)
    assert code == 0, err
    [train] = store.rows("task == 'train'").to_dict("records")
    assert (train["adaptation"], train["seed"]) == ("head", 0)
    for words, trained in (
        (["adaptation.ranks=abc", "adaptation.sigma=0.5"], 1),
        (["adaptation.lr=0.01"], 2),
        (["seed=1"], 3),
    ):
        assert fca(*line, *words)[0] == 0
        assert len(store.rows("task == 'train'")) == trained
    assert len(store.rows("task == 'embed'")) == 1, "one pass of the network"
    items = store.items(train["fingerprint"])
    layer = StoredRun(str(store.outputs), train["run_id"], "best").build().head
    test = (items["split"] == "test").to_numpy()
    logits = store.array(train["parent"], "features")[test].astype(np.float32) @ layer.weight.detach().numpy().T
    right = (logits + layer.bias.detach().numpy()).argmax(axis=1) == items["label"].cat.codes[test]
    assert train["top1"] == pytest.approx(right.mean())


def test_ranks_of_the_data_set_itself_need_no_saved_table_and_are_part_of_what_a_run_is(fca, store, tmp_path):
    for seed, (wnid, file) in enumerate(names((SLED, PATIO), train=8)):
        write(tmp_path / "hardImageNet" / part(file) / f"{wnid}_{file}", shape(seed))
    imagenet(tmp_path / "ilsvrc", train=8)
    line = ["dataset=hard_imagenet", "dataset.root=.", "dataset.imagenet=ilsvrc", "dataset.images=null", "model=hog"]
    line += ["logger=none", "adaptation=dfr", "adaptation.balanced=2"]
    ranked = {wnid: [f"train/{wnid}/{wnid}_{i}.JPEG" for i in range(8)] for wnid in (SLED, PATIO)}
    lists = [ranked, {wnid: of[::-1] for wnid, of in ranked.items()}, ranked, {SLED: ranked[SLED]}]
    for number, (one, trained) in enumerate(zip(lists, (1, 2, 2, 2), strict=True)):
        (tmp_path / f"{number}.json").write_text(json.dumps(one))
        code, _, err = fca(*line, f"dataset.ranks={number}.json")
        train = store.rows("task == 'train'")
        assert len(train) == trained, "other ranks, another run; the same ranks, the same"
    assert (code, f"classes without ranks = {PATIO}" in err) == (2, True)
    assert train["fingerprint"].nunique() == 1, "which the ranks are no part of"
    assert train["recipe_ranks"].nunique() == 2
    assert train["n_train"].tolist() == [8, 8], "two of either end of two classes"


@pytest.mark.slow
def test_four_remedies_in_one_sweep_from_a_saved_ranking(fca, store):
    code, _, err = fca(*DATA, "model=test_resnet", "model.input_size=32", "recipe.epochs=3", "recipe.min_steps=0")
    assert code == 0, err
    [network] = store.rows("task == 'train'")["run_id"]
    model = ["model=run", f"model.run_id={network}"]
    assert fca(*DATA, *model, "adaptation=head")[0] == 0
    assert fca("analysis=spurious_rank", "analysis.k=5", door=analyse_door)[0] == 0
    saved = {
        json.loads(path.read_text())["name"]: path.parent.name for path in store.outputs.glob("tables/*/table.json")
    }
    ranks = [f"adaptation.ranks={saved['spurious_ranks']}", "adaptation.balanced=4"]
    sweep = ["-m", *DATA, *model, f"adaptation={','.join(sorted(REMEDIES))}", *ranks, "shift=clean,ablate/gray"]
    code, _, err = fca(*sweep, "adaptation.epochs=3")
    assert code == 0, err
    rows = store.rows("adaptation in ['head', 'corm', 'dfr', 'corm_dfr'] and task == 'train'")
    train = {row["adaptation"]: row for row in rows[rows["finished"] > rows["finished"].min()].to_dict("records")}
    assert set(train) == REMEDIES
    assert {name: row["n_train"] for name, row in train.items()} == {"head": 36, "corm": 36, "dfr": 24, "corm_dfr": 24}
    assert {name for name, row in train.items() if row["recipe_ranks"] == saved["spurious_ranks"]} == {
        "dfr",
        "corm_dfr",
    }
    assert all((row["saliency_weight"] in (0.001, 0.01, 0.1)) == ("corm" in name) for name, row in train.items())
    predict = store.rows("task == 'predict'")
    for row in train.values():
        assert set(predict.loc[predict["parent"] == row["run_id"], "shift"]) == {"clean", "ablate/gray"}
    before = len(store.rows())
    assert fca(*sweep, "adaptation.epochs=3")[0] == 0
    assert len(store.rows()) == before, "a row that exists is a run that is done"
    [clean] = predict[(predict["parent"] == train["corm"]["run_id"]) & (predict["shift"] == "clean")]["run_id"]
    store.folder(clean).joinpath("row.json").unlink()
    assert fca(*DATA, *model, "adaptation=corm", "adaptation.epochs=3")[0] == 0
    assert store.row(clean)["top1_open"] == train["corm"]["top1"], "its layer is read, not trained again"
    code, _, err = fca(*DATA, *model, "adaptation=dfr", "adaptation.solver=logistic", *ranks)
    assert code == 0, err
    [solved] = store.rows("inverse_penalty > 0").to_dict("records")
    assert (solved["adaptation"], solved["n_train"]) == ("dfr", 24)
