"""Every picture of a gallery is drawn, without a browser too, and tables show pictures as pictures."""

import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
import vl_convert
from PIL import Image

from fca.report import kinds, style
from fca.report.page import Page, Section, grid, render
from fca.report.pictures import data_uri, is_pictures, picture, png_of
from fca.store.columns import BASE
from fca.studies.irt.figures import labels
from fca.studies.irt.gallery import GALLERY, PREDICTED
from tests.support.figure_claims import computes, sentences_of, values
from tests.support.page_parts import Parts

RED = (220, 20, 30)


def gallery_table(datasets=("zoo",), shown=10, pictured=True, predicted="dog (9), cat (1)"):
    """Pictures of one colour each."""
    lines = []
    for dataset in datasets:
        for kind in ("hardest", "easiest", "suspect"):
            for at in range(shown):
                pixels = np.full((64, 64, 3), RED, np.uint8)
                place = {"dataset": dataset, "kind": kind, "rank": at + 1, "row": at // 8, "column": at % 8}
                about = {
                    "image_id": f"{at}.png",
                    "label": "cat",
                    PREDICTED: predicted,
                    "top1": 0.1,
                    "modal_wrong_share": 0.9,
                }
                fit = {"difficulty": 2.0, "discrimination": 1.0}
                lines.append({**place, **about, **fit, "thumbnail": data_uri(png_of(pixels)) if pictured else None})
    return GALLERY.table(GALLERY.frame(lines), {}, ())


def test_every_picture_is_drawn_once_under_its_kind():
    spec = style.spec(labels.gallery_figure(gallery_table()))
    svg = vl_convert.vegalite_to_svg({**spec, "config": style.config()}, vl_version=style.VEGA_LITE)
    assert len(re.findall(r"<image ", svg)) == 30
    assert set(re.findall(r'<image [^>]*href="([^"]*)"', svg)) == set(gallery_table().frame["thumbnail"])
    for heading in ("hardest for the models", "easiest", "most suspect"):
        assert heading in svg


def test_pictures_are_in_the_png_that_is_written_without_a_browser(tmp_path):
    style.save(style.spec(labels.gallery_figure(gallery_table(shown=2))), tmp_path / "gallery")
    pixels = np.asarray(Image.open(tmp_path / "gallery.png").convert("RGB")).reshape(-1, 3)
    red = (np.abs(pixels.astype(int) - RED).max(axis=1) < 3).sum()
    assert red == pytest.approx(6 * (2 * kinds.SIDE) ** 2, rel=0.02)  # 2 pixels a point; edges are mixed


def test_two_data_sets_are_panels_and_one_can_be_chosen():
    spec = style.spec(labels.gallery_figure(gallery_table(("zoo", "farm"))))
    assert len(set(values(spec)["panel"])) == 6
    assert "zoo · hardest for the models" in set(values(spec)["panel"])
    assert any(param["name"] == "only_dataset" for param in spec["params"])


def test_without_pictures_the_page_says_which_run_makes_them():
    bare = gallery_table(pictured=False)
    with pytest.raises(style.NothingToDraw, match="no pictures of zoo; next: fca run task=describe dataset=zoo"):
        labels.gallery_figure(bare)
    sentences = sentences_of(labels.gallery_statements, bare.frame)
    assert any("fca run task=describe dataset=zoo" in sentence for sentence in sentences)
    pictured = sentences_of(labels.gallery_statements, gallery_table().frame)
    assert not any("describe" in sentence for sentence in pictured)


def test_of_labels_that_are_equally_suspect_none_is_the_most_suspect():
    frame = gallery_table().frame
    [sentence] = sentences_of(labels.gallery_statements, frame)
    assert sentence.endswith("Its label is one of 10 that are equally suspect."), "the hardest image is among them"
    frame.loc[frame["kind"] == "suspect", "image_id"] = [f"suspect {at}.png" for at in range(10)]
    [sentence] = sentences_of(labels.gallery_statements, frame)
    assert sentence.endswith(
        "10 labels are equally suspect, among them that of suspect 0.png: it is cat, the models predict dog (9), cat "
        "(1)."
    )


def test_a_file_of_right_or_wrong_has_pictures_without_predicted_classes():
    spec = style.spec(labels.gallery_figure(gallery_table(predicted=None)))
    svg = vl_convert.vegalite_to_svg({**spec, "config": style.config()}, vl_version=style.VEGA_LITE)
    assert ">cat<" in svg
    assert ">null<" not in svg


def test_the_figure_computes_nothing():
    assert not computes(style.spec(labels.gallery_figure(gallery_table())))


def test_without_a_line_there_is_nothing_to_draw():
    with pytest.raises(style.NothingToDraw):
        labels.gallery_figure(gallery_table(shown=0))


# ---- pictures in tables


def test_a_column_of_pictures_is_known_by_its_content():
    uri = data_uri(png_of(np.zeros((2, 2, 3), np.uint8)))
    frame = pd.DataFrame({"thumbnail": [uri, None], "image_id": ["a", "b"], "evil": [uri, "javascript:alert(1)"]})
    assert {c["name"]: c["kind"] for c in grid(frame)["columns"]} == {
        "thumbnail": "image",
        "image_id": "text",
        "evil": "text",
    }
    assert not is_pictures(pd.Series([None, None], dtype="object"))
    assert np.asarray(picture(uri)).shape == (2, 2, 3)


@pytest.mark.wide
def test_the_page_carries_pictures_as_data_only():
    rows = pd.DataFrame([{"run_id": "0123456789ab", "task": "predict", "model": "net"}]).reindex(columns=[*BASE])
    table = gallery_table(shown=1)
    page = Parts(render(Page("x", [], [Section("gallery", "G", None, (table,), "why")], rows, "fca report")))
    shown = json.loads(page.data)["tables"]["gallery"]
    at = [column["kind"] for column in shown["columns"]].index("image")
    assert shown["lines"][0][at] == table.frame["thumbnail"].iloc[0]
    assert not any(tag == "img" for tag, _ in page.tags)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_cell_of_pictures_becomes_an_image_and_text_stays_text():
    from fca.report import page as module

    source = module._WEB.joinpath("tables.js").read_text()
    functions = source[source.index("const right =") : source.index("/** `resnet")]
    script = """
    const element = (name, attributes = {}, ...children) => ({ name, attributes, children });
    %s
    const evil = "<img src=x onerror=alert(1)>";
    console.log(JSON.stringify([
      cell("data:image/png;base64,AA", { name: "thumbnail", kind: "image" }),
      cell(null, { name: "thumbnail", kind: "image" }),
      cell(evil, { name: "predicted", kind: "text" }),
    ]));
    """
    printed = subprocess.run(["node", "-e", script % functions], check=True, capture_output=True, text=True).stdout
    pictured, missing, text = json.loads(printed)
    assert pictured["children"][0]["name"] == "img"
    assert pictured["children"][0]["attributes"]["src"] == "data:image/png;base64,AA"
    assert missing["children"] == [""]
    assert text["children"] == ["<img src=x onerror=alert(1)>"]  # appended as a text node
