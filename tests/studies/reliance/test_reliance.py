"""analysis=reliance: every number against a literal loop over invented predictions; what is left out; what is drawn."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fca.report import style
from fca.report.finding import sentences
from fca.store import Store
from fca.studies.reliance import reliance
from fca.studies.reliance.ablation import Noise
from fca.studies.reliance.figures.reliance import accuracy_statements, left_out_statements
from fca.studies.reliance.reliance import Reliance
from fca.studies.reliance.stats.reliance import relative_foreground_sensitivity as rfs
from fca.types import FcaError
from tests.support.figure_claims import computes, drawn, drawn_findings, refuses_empty, sentences_of, values
from tests.support.lab import KEYS, Lab, images

NOISE = "noise/{}/gaussian/0.25"
SHARES = {"clean": 0.9, "ablate/gray": 0.6, "ablate/gray_box": 0.5, "swap/background": 0.7}
SHARES |= {f"{NOISE.format(at)}{draw}": 0.8 - 0.3 * (at == "foreground") for at in ("foreground", "background")
           for draw in ("", "/draw2")}  # fmt: skip
SHARES |= {"noise/foreground/l2/60/area_matched": 0.5, "noise/background/l2/60/area_matched": 0.6}
SHARES |= {"noise/foreground/l2/90": 0.5}  # without its partner
FIGURES = drawn_findings(Reliance())
EXTRA = ("sled", "puck")  # classes of the model that the data set has not


class Invented:
    """Two models of 8 classes on 6 classes of 10 images; `right` of every model and condition."""

    def __init__(self, folder, texture=False):
        data = images(per_class=10)
        rng = np.random.default_rng(4)
        if texture:
            data.items["texture_label"] = rng.choice([*KEYS, None], len(data.items))
        self.lab = Lab(Store(folder), data)
        n, self.labels = len(self.lab.true), self.lab.true
        self.area = rng.uniform(0.1, 0.8, n).astype(np.float32)
        self.area[self.labels == 2] = 0.95
        self.area[[np.flatnonzero(self.labels == 0)[0], np.flatnonzero(self.labels == 1)[0]]] = 0, 1
        self.usable = (self.labels != 2) & (self.area > 0) & (self.area < 1)
        self.pred, self.logits = {}, {}
        for at, model in enumerate(("resnet", "vit")):
            for shift, share in SHARES.items():
                logits = rng.normal(size=(n, 8)).astype(np.float32)
                right = rng.random(n) < share - 0.1 * at - 0.05 * self.labels * (shift != "clean")
                logits[np.arange(n), np.where(right, self.labels, rng.integers(0, 8, n))] += 5
                self.pred[model, shift], self.logits[model, shift] = logits.argmax(axis=1), logits
                arrays = {"pred": logits.argmax(axis=1).astype(np.int32), "logit_classes": np.array([*KEYS, *EXTRA])}
                if shift in ("clean", "ablate/gray"):
                    arrays["logits"] = logits
                if shift != "clean":
                    arrays |= {"mask_area": self.area, "examples": np.zeros((4, 64, 64, 3), np.uint8)}
                self.write("predict", model, arrays, shift=shift)
            iou = rng.uniform(0, 0.5, n).astype(np.float32)
            self.iou = np.where(self.area > 0, iou, np.nan).astype(np.float32)
            maps = {"iou": self.iou, "mass": self.iou, "density_gap": self.iou, "zero": rng.random(n) < 0.1}
            self.write("saliency", model, maps | {"mask_area": self.area})
        self.store = self.lab.store

    def write(self, task, model, arrays, **columns):
        about = {"task": task, "model": model, "weights": "w", "ncl": 6, "classes": range(6)}
        return self.lab.write(arrays, **about, **columns)

    def top1(self, right):
        """Mean over the classes of the share of their usable images that are right, one by one."""
        means = []
        for label in set(self.labels[self.usable].tolist()):
            of = [bool(r) for r, at, use in zip(right, self.labels, self.usable, strict=True) if at == label and use]
            means.append(sum(of) / len(of))
        return sum(means) / len(means)


@pytest.fixture(scope="module")
def invented(tmp_path_factory):
    return Invented(tmp_path_factory.mktemp("reliance") / "outputs", texture=True)


@pytest.fixture(scope="module")
def tables(invented):
    return {
        table.name: table
        for table in Reliance(unconfirmed=["accuracy/ablate/gray_box", "rfs/gaussian/0.25"])(invented.store)
    }


def line(table, **chosen):
    frame = table.frame
    for name, value in chosen.items():
        frame = frame[frame[name] == value]
    [found] = frame.to_dict("records")
    return found


@pytest.mark.parametrize("condition", ["clean", "ablate/gray_box", "swap/background"])
def test_accuracy_is_the_mean_over_classes_of_images_with_object_and_surroundings(invented, tables, condition):
    found = line(tables["reliance_accuracy"], model="vit", protocol="open", condition=condition)
    top1, clean = (invented.top1(invented.pred["vit", at] == invented.labels) for at in (condition, "clean"))
    assert found["top1"] == pytest.approx(top1, abs=1e-12)
    assert found["top1_low"] < top1 < found["top1_high"]
    assert found["chance"] == 1 / 8
    if condition == "clean":
        assert np.isnan(found["kept"])
    else:
        assert (found["kept"], found["drop"]) == pytest.approx((top1 / clean, clean - top1))
        assert found["drop_low"] < found["drop"] < found["drop_high"]


def test_what_is_left_out_is_counted(tables):
    counted = tables["reliance_accuracy"].frame[["images", "n_classes", "left_out", "classes_left_out"]]
    assert counted.drop_duplicates().to_numpy().tolist() == [[48, 5, 2, 1]]
    assert tables["reliance_saliency"].frame["classes_left_out"].eq(1).all()


def test_draws_of_noise_are_averaged_and_sensitivity_is_of_the_means(invented, tables):
    found = line(tables["reliance_rfs"], model="resnet", kind="gaussian", protocol="open")
    draws = [[NOISE.format(at) + draw for draw in ("", "/draw2")] for at in ("foreground", "background")]
    means = [np.mean([invented.top1(invented.pred["resnet", one] == invented.labels) for one in of]) for of in draws]
    assert [found["acc_foreground"], found["acc_background"]] == pytest.approx(means)
    assert found["rfs"] == pytest.approx(rfs(*map(float, means)))
    assert found["rfs_low"] < found["rfs"] < found["rfs_high"]
    assert not found["area_matched"]


def test_draws_of_released_noise_are_averaged_and_keep_their_area(tmp_path):
    """The label of such noise has the draw before its last word: noise/foreground/l2/60/area_matched/draw2/released."""
    lab = Lab(Store(tmp_path), images(per_class=10))
    n = len(lab.true)
    shares = {"clean": [1.0]}
    for region, accuracies in {"foreground": [0.2, 0.4], "background": [0.5, 0.7]}.items():
        first, second = (Noise(region, "l2", 60.0, draw=draw, compat="released").label() for draw in (1, 2))
        shares |= {first: accuracies[:1], second: accuracies[1:]}
        shares[Noise(region, "l2", 60.0, area_matched=True, compat="released").label()] = [0.9]

    for shift, [share] in shares.items():
        right = np.arange(n) // len(KEYS) < round(share * n / len(KEYS))
        pred = np.where(right, lab.true, (lab.true + 1) % len(KEYS))
        arrays = {"pred": pred.astype(np.int32), "logit_classes": np.array(KEYS)}
        if shift != "clean":
            arrays |= {"mask_area": np.full(n, 0.3, np.float32), "examples": np.zeros((4, 64, 64, 3), np.uint8)}
        lab.write(arrays, task="predict", model="net", weights="w", ncl=6, classes=range(6), shift=shift)

    [sensitivity] = [table for table in Reliance()(lab.store) if table.name == "reliance_rfs"]
    accuracies = sensitivity.frame.set_index(["kind", "area_matched"])[["acc_foreground", "acc_background"]]
    assert sorted(accuracies.index) == [("l2, released", False), ("l2, released", True)]
    assert accuracies.loc[("l2, released", False)].tolist() == pytest.approx([0.3, 0.6], abs=1e-9)
    assert accuracies.loc[("l2, released", True)].tolist() == pytest.approx([0.9, 0.9], abs=1e-9)


def test_noise_without_its_partner_has_no_sensitivity(tables):
    frame = tables["reliance_rfs"].frame
    assert set(zip(frame["kind"], frame["level"], frame["area_matched"], strict=True)) == {
        ("gaussian", 0.25, False),
        ("l2", 60.0, True),
    }


def test_protocols_are_those_that_the_stored_logits_allow(invented, tmp_path):
    (tmp_path / "groups.csv").write_text("class,group\nwolf,pet\ncat,pet\nant,insect\nbee,insect\nsled,thing\n")
    made = Reliance(groups=str(tmp_path / "groups.csv"), measure="ablate/gray")(invented.store)
    frame, classes = made[0].frame, made[3].frame
    assert set(classes.loc[classes["protocol"] == "grouped", "label"]) == {"wolf", "cat", "ant", "bee"}
    counts = frame.groupby("protocol")["condition"].agg(set).to_dict()
    assert counts["open"] == {name.removesuffix("/draw2") for name in SHARES}
    assert counts["masked"] == counts["grouped"] == {"clean", "ablate/gray"}
    assert frame.groupby("protocol")["chance"].first().to_dict() == {"open": 1 / 8, "masked": 1 / 6, "grouped": 1 / 3}
    masked = invented.logits["resnet", "ablate/gray"][:, :6].argmax(axis=1) == invented.labels
    found = frame[
        (frame["protocol"] == "masked") & (frame["model"] == "resnet") & (frame["condition"] == "ablate/gray")
    ]
    assert found["top1"].item() == pytest.approx(invented.top1(masked))
    assert frame.loc[frame["protocol"] == "grouped", "n_classes"].eq(4).all()  # yak fills its images, dog has no group


def test_groups_that_no_stored_logits_have_are_refused(invented, tmp_path):
    (tmp_path / "groups.csv").write_text("class,group\nvan,vehicle\n")
    with pytest.raises(FcaError, match=r"groups\.csv; allowed: groups of classes of a model whose logits are stored"):
        Reliance(groups=str(tmp_path / "groups.csv"))(invented.store)


@pytest.mark.wide
def test_networks_of_one_name_differ_by_what_made_them_in_predictions_and_saliency(tmp_path):
    made, maps = Invented(tmp_path / "outputs"), ("iou", "mass", "density_gap", "zero", "mask_area")
    gray = {"pred": made.pred["vit", "clean"].astype(np.int32), "logit_classes": np.array([*KEYS, *EXTRA])}
    for adaptation, seed in (("head", 0), ("head", 1), ("corm", 0)):
        about = {"adaptation": adaptation, "seed": seed}
        run = made.write("train", "vit", {}, **about)
        made.write("predict", "vit", gray, parent=run, snapshot="best", **about)
        made.write("predict", "vit", gray | {"mask_area": made.area}, shift="ablate/gray", parent=run, **about)
        made.lab.write(dict.fromkeys(maps, made.area), task="saliency", model="vit", weights=f"{run}/best",
                       ncl=6, classes=range(6))  # fmt: skip
    for table in Reliance()(made.store)[:3:2]:  # of accuracies and of saliency
        named = table.frame.drop_duplicates("model").set_index("model")["adaptation"]
        of_vit = {"vit, head, seed 0": "head", "vit, head, seed 1": "head", "vit, corm": "corm"}
        assert named.dropna().to_dict() == of_vit
        assert set(named[named.isna()].index) == {"resnet", "vit"}


def test_saliency_is_the_mean_over_classes_of_maps_that_are_defined(invented, tables):
    found = line(tables["reliance_saliency"], model="vit", metric="iou")
    of = [invented.iou[invented.usable & (invented.labels == label)].mean() for label in (0, 1, 3, 4, 5)]
    assert found["value"] == pytest.approx(np.mean(of), rel=1e-6)  # float32
    assert found["images"] == 48
    assert 0 < found["zero"] < 0.3


def test_a_class_is_ranked_by_the_share_of_its_accuracy_that_it_keeps(invented, tables):
    frame = tables["reliance_classes"].frame
    assert set(frame["label"]) == set(KEYS) - {"yak"}
    found = line(tables["reliance_classes"], model="resnet", label="cat", protocol="open")
    of = invented.usable & (invented.labels == 1)
    clean, gone = ((invented.pred["resnet", at] == 1)[of].mean() for at in ("clean", "ablate/gray_box"))
    assert [found["top1_clean"], found["ablated"], found["kept"]] == pytest.approx([clean, gone, gone / clean])
    own = frame[(frame["model"] == "resnet") & (frame["protocol"] == "open")].sort_values("kept", ascending=False)
    assert own["rank"].tolist() == own["kept"].rank(ascending=False, method="min").tolist()
    mean = line(tables["reliance_classes"], model="mean over models", label="cat", protocol="open")
    both = [
        [(invented.pred[model, at] == 1)[of].mean() for model in ("resnet", "vit")]
        for at in ("clean", "ablate/gray_box")
    ]
    assert mean["kept"] == pytest.approx(np.mean(both[1]) / np.mean(both[0]))


def test_models_are_compared_by_how_they_order_the_classes(tables):
    found = line(tables["class_stability"], protocol="open")
    assert (found["model"], found["other"], found["n_classes"]) == ("resnet", "vit", 5)
    wide = (
        tables["reliance_classes"]
        .frame.query("protocol == 'open'")
        .pivot_table(index="label", columns="model", values="rank")
    )
    assert found["spearman"] == pytest.approx(wide["resnet"].corr(wide["vit"], method="spearman"))


def test_an_unconfirmed_metric_is_marked_wherever_it_is(tables):
    accuracy = tables["reliance_accuracy"].frame
    marked = accuracy["condition"] == "ablate/gray_box"
    assert (accuracy["trust"] == "not confirmed").tolist() == marked.tolist()
    assert tables["reliance_classes"].frame["trust"].eq("not confirmed").all()
    by_kind = tables["reliance_rfs"].frame.set_index("kind")["trust"]
    assert by_kind["gaussian"].eq("not confirmed").all()
    assert by_kind["l2"].isna().all()
    words = " ".join(sentences(Reliance(), tables))
    assert "with known cues this metric is not confirmed" in words
    assert "box gray (not confirmed)" in set(values(spec("reliance_accuracy", tables))["change"])


def test_the_test_in_the_store_counts_before_what_was_recorded(invented, monkeypatch):
    found = {"accuracy/ablate/gray": ("not confirmed", ("object",)), "saliency/iou": ("follows", ())}
    monkeypatch.setattr(reliance, "verdicts", lambda store: found)
    accuracy, _, saliency, *_ = Reliance(unconfirmed=["accuracy/swap/background"])(invented.store)
    assert set(accuracy.frame["trust"].dropna()) == {"not confirmed (object)"}
    assert set(saliency.frame["trust"].dropna()) == {"follows"}


def test_shape_bias_is_shape_among_decisions_for_either(invented, tmp_path):
    items = invented.lab.data.items
    items = items[items["split"] == "test"].reset_index(drop=True)
    texture = items["texture_label"].map({key: at for at, key in enumerate(KEYS)}).fillna(-1).to_numpy()
    conflict = (texture >= 0) & (texture != invented.labels)
    pred = invented.pred["vit", "clean"]
    shape, other = (pred == invented.labels)[conflict].sum(), (pred == texture)[conflict].sum()
    names = [f"{name.removesuffix('.png')}.jpg|x" for name in items["image_id"]]
    person = (np.arange(len(names)) % 3 > 0).astype(int)
    (tmp_path / "people.csv").write_text(f"subject,{','.join(names)}\nsubject-01,{','.join(map(str, person))}\n")
    shapes = Reliance(responses=[str(tmp_path / "people.csv")])(invented.store)[-1]
    found = line(shapes, model="vit")
    assert (found["decisions"], found["images"]) == (shape + other, conflict.sum())
    assert found["shape_bias"] == shape / (shape + other)
    assert found["shape_share"] == shape / conflict.sum()
    person_line = line(shapes, who="person")
    assert person_line["shape_share"] == person[conflict].mean()
    assert np.isnan(person_line["shape_bias"])
    assert "only whether shape was chosen" in person_line["note"]


def test_decisions_in_one_file_count_for_the_data_set_of_each_image(tmp_path):
    """A file may hold the decisions about several data sets, whose images may share names."""
    store = Store(tmp_path / "outputs")
    expected = {}
    for number, (name, per_class) in enumerate([("cues", 3), ("sketches", 4)]):
        data = replace(images(per_class=per_class), name=name)
        data.items["texture_label"] = np.roll(data.items["label"], 1)
        lab = Lab(store, data, count=itertools.count(100 * number))
        arrays = {"pred": lab.true.astype(np.int32), "logit_classes": np.array(KEYS)}
        lab.write(arrays, task="predict", model="vit", weights="w", ncl=6, classes=range(6))
        tested = data.items[data.items["split"] == "test"]
        expected[name] = set(tested["image_id"][tested["texture_label"] != tested["label"]])
    names = sorted(set.union(*expected.values()))
    chosen = dict.fromkeys(names, 1) | dict.fromkeys(names[::3], 0)
    file = tmp_path / "people.csv"
    file.write_text(f"subject,{','.join(names)}\nsubject-01,{','.join(str(chosen[name]) for name in names)}\n")

    shapes = Reliance(responses=[str(file)])(store)[-1]
    for name, of_dataset in expected.items():
        person = line(shapes, dataset=name, who="person")
        assert person["images"] == len(of_dataset)
        assert person["shape_share"] == pytest.approx(np.mean([chosen[image] for image in of_dataset]))


def test_a_file_about_other_images_is_refused(invented, tmp_path):
    (tmp_path / "people.csv").write_text("subject,elsewhere.png\na,1\n")
    with pytest.raises(FcaError, match=r"people\.csv; allowed: decisions about images of a stored data set"):
        Reliance(responses=[str(tmp_path / "people.csv")])(invented.store)


def test_a_store_without_changed_images_says_what_makes_them(lab):
    lab.answered("vgg16", 0.8)
    with pytest.raises(FcaError, match=r"predictions of changed images = none among the 1 stored rows.*shift=reliance"):
        Reliance()(lab.store)


def spec(key, tables):
    [shown] = [one for one in FIGURES if one.key == key]
    return style.spec(shown.draw(*(tables[one.name] for one in shown.tables)))


@pytest.mark.wide
@pytest.mark.parametrize("shown", FIGURES, ids=lambda shown: shown.key)
def test_a_figure_is_drawn_and_computes_nothing(shown, tables):
    made = spec(shown.key, tables)
    assert drawn(made)
    assert not computes(made)
    refuses_empty(shown.draw, [tables[one.name] for one in shown.tables])


def test_a_headline_is_of_one_model_with_one_number_and_its_interval(invented, tables):
    found = [one for one in sentences(Reliance(), tables) if "vit is at the level of chance" in one]
    top1 = 100 * invented.top1(invented.pred["vit", "ablate/gray_box"] == invented.labels)
    assert len(found) == 1
    where = "Where the box around the object is gray, vit is at the level of chance: right on"
    assert found[0].startswith(f"{where} {top1:.0f} % [")
    assert "of the images of zoo (5 classes, chance 12 %" in found[0]


def test_of_many_models_the_most_and_the_least_accurate_are_named():
    line = {"dataset": "zoo", "protocol": "open", "condition": "ablate/gray", "chance": 0.1, "n_classes": 5}
    line |= {"top1_low": np.nan, "top1_high": np.nan, "trust": None}
    accuracies = {"a": 0.3, "b": 0.7, "c": 0.4, "d": 0.5, "e": 0.2}
    lines = pd.DataFrame([line | {"model": model, "top1": top1} for model, top1 in accuracies.items()])
    on_images = "of the images of zoo (5 classes, chance 10 %)."
    assert sentences_of(accuracy_statements, lines) == [
        f"Although the object is gray, b is still right on 70 % {on_images}",
        f"Although the object is gray, e is still right on 20 % {on_images}",
    ]


def test_what_is_left_out_answers_no_question():
    line = {"dataset": "zoo", "protocol": "open", "condition": "clean", "left_out": 2, "classes_left_out": 1}
    accuracy = pd.DataFrame([line])
    assert sentences_of(accuracy_statements, accuracy) == []
    assert sentences_of(left_out_statements, accuracy) == [
        "zoo: left out are 1 class whose objects nearly fill their images and 2 images of the others."
    ]
