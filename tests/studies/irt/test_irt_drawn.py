"""Samples and summaries of items that figures draw; and the whole analysis on published answers."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fca.store import Store
from fca.studies.irt.irt import Irt, ceiling_of, plane, severity_shares
from fca.tables.answers import clean_responses
from tests.support.lab import Lab


def tables(lab, **fields):
    return {table.name: table for table in Irt(**fields)(lab.store)}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A study that tests only read: five models on clean images, fog and snow."""
    lab = Lab(Store(tmp_path_factory.mktemp("read") / "outputs"))
    lab.corrupted({f"net{k}": k - 1.5 for k in range(5)}, severities=(1, 2))
    return lab, tables(lab)


def test_histograms_hold_every_image_on_common_bins(read):
    shares = read[1]["irt_severity"].frame
    assert shares.groupby(["corruption", "parameter", "severity"])["share"].sum().tolist() == pytest.approx([1.0] * 21)
    assert shares["parameter"].unique().tolist() == ["difficulty", "discrimination", "p_max"]
    edges = shares.query("corruption == 'fog' and parameter == 'p_max'").groupby("severity")["bin_low"].apply(list)
    assert edges[0] == edges[1] == edges[2]
    items = read[1]["irt_items"].frame.query("corruption == 'fog' and severity == 2")
    last = shares.query("corruption == 'fog' and severity == 2 and parameter == 'difficulty'").iloc[-1]
    assert last["share"] == (items["difficulty"] >= last["bin_low"]).mean()


def test_histograms_of_all_corruptions_fit_into_a_page(read):
    items = read[1]["irt_items"].frame.query("corruption == 'fog'")
    kinds = [items.assign(corruption=f"kind{kind}", severity=s) for kind in range(19) for s in range(6)]
    assert 2000 < len(severity_shares(pd.concat(kinds, ignore_index=True))) <= 3000


def test_constant_parameters_have_a_histogram_too(read):
    items = read[1]["irt_items"].frame.assign(discrimination=1.0)
    shares = severity_shares(items).query("parameter == 'discrimination'")
    assert shares.groupby(["corruption", "severity"])["share"].max().tolist() == [1.0] * 7


def test_the_plane_is_a_sample_of_stated_size_and_seed(read):
    items = pd.concat([read[1]["irt_items"].frame] * 10, ignore_index=True)
    drawn = plane(items, seed=0)
    assert drawn.groupby("corruption").size().to_dict() == {"clean": 480, "fog": 666, "snow": 666}
    assert plane(items, seed=0).equals(drawn)
    assert not plane(items, seed=1).equals(drawn)
    assert set(drawn["ceiling_is"]) == {"p_max"}
    assert set(plane(items.assign(irt_model="3pl-upper"), 0)["ceiling_is"]) == {"feasibility"} == {ceiling_of("4pl")}


def test_curves_rise_and_observed_shares_are_counted(read):
    lab, found = read
    curves = found["irt_curves"].frame
    assert curves["item"].nunique() == 12
    lines = curves[curves["mark"] == "curve"]
    for _, part in lines.groupby("item"):
        assert all(low < high for low, high in pairwise(part["probability"]))
    assert lines.groupby("place")["difficulty"].first().is_monotonic_increasing
    [clean] = clean_responses(lab.store, None)
    seen = curves[curves["mark"] == "observed"]
    right = (seen["probability"] * seen["n_subjects"]).groupby(seen["item"]).sum()
    total = dict(zip(clean.responses.items["item"], clean.responses.correct.sum(axis=0), strict=True))
    assert right.to_dict() == pytest.approx({item: total[item] for item in right.index})


@pytest.mark.real
def test_people_and_networks_on_cue_conflicts_agree_with_shape(lab):
    path = Path(os.environ["FCA_REAL_DATA"]) / "responses" / "geirhos_cue-conflict_humans_cnns.csv.gz"
    found = tables(lab, responses=[str(path)], trait="agreement with shape")
    [fit] = found["irt_fits"].frame.to_dict("records")
    assert (fit["n_subjects"], fit["n_items"], fit["trait"]) == (26, 1280, "agreement with shape")
    assert fit["tau"] > 0.98
    assert fit["held_out_nll"] < fit["baseline_nll"]
    assert fit["converged"]
    order = found["irt_abilities"].frame["subject"].tolist()
    assert all(name.startswith("subject-") for name in order[:10]), "people see shapes, networks textures"


@pytest.mark.real
@pytest.mark.slow
def test_imagenet_models_are_ordered_as_by_accuracy(lab, tmp_path):
    data = Path(os.environ["FCA_REAL_DATA"]) / "responses"
    with np.load(data / "imagenetv2_val50k_top1_predictions.npz") as said:
        models, pred = said["models"], said["pred"]
    with np.load(data / "imagenetv2_val50k_top1.npz") as truth:
        labels, items = truth["labels"], truth["filenames"]
    kept = ~np.isin(models, ["fv_4k", "fv_16k"])
    classes = np.arange(1000).astype(str)
    arrays = {"subjects": models[kept], "pred": pred[kept], "labels": labels, "items": items, "classes": classes}
    np.savez_compressed(tmp_path / "imagenet.npz", **arrays)
    found = tables(lab, responses=[str(tmp_path / "imagenet.npz")])
    [fit] = found["irt_fits"].frame.to_dict("records")
    assert (fit["n_subjects"], fit["n_items"]) == (65, 50000)
    assert fit["tau"] >= 0.95
    assert fit["held_out_nll"] < fit["baseline_nll"]
    assert len(found["irt_plane"].frame) == 2000
