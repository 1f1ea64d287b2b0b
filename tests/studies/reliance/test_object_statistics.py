"""Objects are counted as their masks are, class by class and data set by data set, and their pictures are shown."""

import base64
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.report import style
from fca.report.finding import sentences
from fca.stats.intervals import wilson
from fca.store import Store
from fca.studies.reliance.object_statistics import ALL_CLASSES, ObjectStatistics
from fca.types import FcaError
from tests.studies.reliance.support.salient import SIDE, salient
from tests.support.figure_claims import computes, drawn_findings, marks, values
from tests.support.lab import Lab, images

SMALL, LARGE = "zoo", "farm"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two data sets: small objects with two models, and large ones."""
    lab = Lab(Store(tmp_path_factory.mktemp("objects") / "outputs"))
    salient(lab, "slow")
    salient(lab, "quick")
    other = images(per_class=4)
    other = type(other)(
        LARGE, other.items.assign(iou_1=0.72, iou_2=0.93, agreement=0.825), other.classes, "farm4", other.read
    )
    more = Lab(lab.store, other, lab.count)
    salient(more, share=0.5)
    return lab.store


@pytest.fixture(scope="module")
def tables(store):
    return {table.name: table for table in ObjectStatistics(shown=10)(store)}


def test_means_are_those_of_the_images_of_a_class(tables, store):
    frame = tables["object_statistics"].frame.set_index(["dataset", "label"])
    run = store.rows("model == 'quick'")["run_id"].iloc[0]
    labels = store.items("fingerprint8").query("split == 'test'")["label"].astype(str).to_numpy()
    for label in np.unique(labels):
        area = store.array(run, "mask_area")[labels == label].astype(float)
        line = frame.loc[(SMALL, label)]
        assert line["mask_area"] == pytest.approx(area.mean(), abs=1e-6)  # float32
        assert not line["mask_area_low"] > line["mask_area"], "missing where all masks are alike"
        assert not line["mask_area_high"] < line["mask_area"]
    every = frame.loc[(SMALL, ALL_CLASSES)]
    assert every["mask_area"] == pytest.approx(frame.loc[SMALL].drop(ALL_CLASSES)["mask_area"].mean())
    assert frame.loc[(LARGE, ALL_CLASSES), "mask_area"] > every["mask_area"]


def test_an_object_that_the_crop_removes_is_counted_with_wilson_s_interval(tables):
    every = tables["object_statistics"].frame.set_index(["dataset", "label"]).loc[(SMALL, ALL_CLASSES)]
    assert (every["removed"], every["n_test"]) == (1 / 48, 48)
    assert (every["removed_low"], every["removed_high"]) == wilson(1, 48)


def test_histograms_hold_every_image_once_and_agreement_where_people_agreed(tables):
    frame = tables["object_distribution"].frame
    assert frame.groupby(["dataset", "quantity"])["share"].sum().to_numpy() == pytest.approx(1)
    agreed = frame[frame["quantity"] == "agreement"]
    assert set(agreed["dataset"]) == {LARGE}
    assert agreed.loc[agreed["share"] > 0, "from"].round(2).tolist() == [0.7, 0.9]
    assert set(agreed["n_test"]) == {2 * 24}


def test_pictures_are_those_that_runs_kept_and_the_mean_of_the_masks(tables):
    frame = tables["object_pictures"].frame
    assert frame.groupby(["dataset", "kind"]).size().to_dict() == {
        (LARGE, "average"): 6,
        (LARGE, "lowest"): 10,
        (LARGE, "object"): 6,
        (SMALL, "average"): 6,
        (SMALL, "lowest"): 20,
        (SMALL, "object"): 6,
    }
    lowest = frame[(frame["kind"] == "lowest") & (frame["dataset"] == SMALL)]
    assert lowest["model"].drop_duplicates().tolist() == ["quick", "slow"]
    for _, part in lowest.groupby("model"):
        assert part["iou"].is_monotonic_increasing
    picture = frame[frame["kind"] == "average"].iloc[-1]["thumbnail"]
    pixels = np.asarray(Image.open(BytesIO(base64.b64decode(picture.partition(",")[2]))))
    assert (pixels[:, 63] == 242).all()
    assert (pixels[:, 0] < 242).any(axis=1).all()


def test_what_a_model_knows_in_part_is_matched_by_class(lab):
    n = int(np.isin(lab.true, [1, 4]).sum())
    part = Lab(lab.store, lab.data, lab.count)
    keep = np.isin(lab.true, [1, 4])
    run = salient(part)
    arrays = {
        path.stem: np.load(path)[keep] for path in lab.store.folder(run).glob("*.npy") if len(np.load(path)) == 48
    }
    arrays |= {"lowest": np.array([0], np.int32), "first": np.array([0], np.int32)}
    arrays |= {name: np.zeros((1, 64, 64, 3), np.uint8) for name in ("overlays", "examples")}
    about = {"task": "saliency", "model": "two", "ncl": 2, "classes": (1, 4), "n_test": n, "input_size": SIDE}
    lab.write(arrays, **about, geometry="16-16-bilinear")
    found = {table.name: table.frame for table in ObjectStatistics("model == 'two'")(lab.store)}
    assert found["object_statistics"]["label"].tolist()[-1] == ALL_CLASSES
    assert set(found["object_statistics"]["label"]) == {lab.data.classes[1], lab.data.classes[4], ALL_CLASSES}


def test_pictures_of_two_runs_of_one_model_do_not_cover_each_other(lab):
    runs = [salient(lab, "net", weights=weights) for weights in ("a", "b")]
    [*_, pictures] = ObjectStatistics(shown=3)(lab.store)
    lowest = pictures.frame[pictures.frame["kind"] == "lowest"]
    assert lowest["model"].tolist() == [f"net, run {run}" for run in runs for _ in range(3)]


def test_without_a_saliency_run_there_is_nothing(lab):
    with pytest.raises(FcaError, match="saliency runs = none among the 0 stored rows"):
        ObjectStatistics()(lab.store)


@pytest.mark.wide
@pytest.mark.parametrize(
    "figure",
    drawn_findings(ObjectStatistics()),
    ids=lambda figure: figure.key,
)
def test_figures_are_drawn_compute_nothing_and_filter_by_data_set(figure, tables):
    spec = style.spec(figure.draw(*(tables[spec.name] for spec in figure.tables)))
    assert not computes(spec)
    kind = {"object_statistics": "symbol", "object_distribution": "rect"}.get(figure.key, "image")
    assert marks(spec, kind) > marks(spec, kind, dataset=[SMALL]) > 0
    assert marks(spec, kind, dataset=["another"]) == 0


@pytest.mark.parametrize(
    "figure",
    drawn_findings(ObjectStatistics()),
    ids=lambda figure: figure.key,
)
def test_without_a_line_there_is_nothing_to_draw(figure, tables):
    empty = [pd.DataFrame(columns=spec.columns) for spec in figure.tables]
    with pytest.raises(style.NothingToDraw):
        figure.draw(*(spec.table(frame, {}, ()) for spec, frame in zip(figure.tables, empty, strict=True)))


def test_classes_are_drawn_with_each_of_their_four_measures(tables):
    [figure] = (one for one in drawn_findings(ObjectStatistics()) if one.key == "object_statistics")
    assert len(values(style.spec(figure.draw(tables["object_statistics"])))) == 4 * 2 * 6


def test_the_headline_has_a_number_and_its_interval(tables):
    lines = sentences(ObjectStatistics(), tables)
    assert len(lines) == 4
    assert lines[3] == f"The crop removes 2.1 % [0.4, 10.9] of the objects of {SMALL} completely."
