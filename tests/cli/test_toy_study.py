"""A study of one's own, one file and one YAML for its analysis, shows on the page and in W&B without any other edit.

The YAML names the class and repeats none of its keys.
"""

import json
import shutil
import sys

import pandas as pd
import pytest

from fca.cli import report
from fca.plugins import use_plugins
from tests.support.wandb_files import folders, written

STUDY = '''
"""How many test images each run answered: a toy."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import altair as alt

from fca.validation import Allowed
from fca.report import kinds, style
from fca.report.finding import Finding, Statement
from fca.tables.keys import Query
from fca.tables.table import MODEL, TableSpec
from fca.types import Column

IMAGES = Column("toy_images", int, ".0f", "test images of the toy")
SHARE = Column("toy_share", float, ".1%", "share of the largest run")
FLAVOUR = Column("toy_flavour", str, "", "", {"sweet": "a sweet run", "sour": "a sour run"}, filters=True)
TOY = TableSpec("toy", "How large is each run?", "nobody, 2026", (MODEL, FLAVOUR, IMAGES, SHARE))


@dataclass(frozen=True)
class Toy:
    """`analysis=toy`."""

    tables: ClassVar = (TOY,)

    query: Query = None
    sweet: Annotated[str, Allowed(choices=("odd", "even")), "which runs are sweet"] = "odd"

    def __call__(self, store):
        rows = store.rows(self.query).dropna(subset=["n_test", "model"])
        flavour = ["sweet" if k % 2 == (self.sweet == "odd") else "sour" for k in range(len(rows))]
        share = rows["n_test"] / rows["n_test"].max()
        frame = rows.assign(toy_images=rows["n_test"], toy_share=share, toy_flavour=flavour)
        return [TOY.table(TOY.frame(frame[list(TOY.columns)]).reset_index(drop=True), {}, rows["run_id"])]


def toy_figure(toy):
    frame = toy.frame.assign(panel="all")
    x, y = kinds.quantity(alt.X, IMAGES, zero=True), kinds.category(alt.Y, MODEL)
    chart = kinds.bars(x, y, toy.columns, kinds.hue(FLAVOUR, frame))
    return style.faceted(chart, frame, alt.Title("How large is each run?"), (FLAVOUR,))


def toy_statements(toy):
    yield Statement(f"The toy has {len(toy)} lines.")


FINDINGS = (Finding("toy", "A toy", (TOY,), "How large is the toy?", toy_statements, toy_figure),)
'''
ANALYSIS = "# How large is each run?\n_target_: toy_study.Toy\n"
REPORT = """# A page of the toy.
_target_: fca.report.page.AnalysesReport
name: toy
title: A toy page
analyses: [toy]
options: {}
"""


@pytest.fixture(scope="module")
def reported(digits_store, tmp_path_factory):
    """The folder of the page, and that of the store."""
    mine = tmp_path_factory.mktemp("mine")
    (mine / "toy_study.py").write_text(STUDY)
    for group, text in (("analysis", ANALYSIS), ("report", REPORT)):
        (mine / "conf" / group).mkdir(parents=True)
        (mine / "conf" / group / "toy.yaml").write_text(text)
    shutil.copytree(digits_store, mine / "outputs")
    folder = f"hydra.searchpath=[file://{mine}/conf]"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(mine)
        patch.setenv("WANDB_MODE", "offline")
        patch.setenv("WANDB_SILENT", "true")
        patch.setattr(sys, "argv", list(sys.argv))
        words = ["report=toy", "plugins=[toy_study]", folder, f"outputs={mine / 'outputs'}"]
        assert report.main([*words, "+report.options={sweet: even}"]) == 0
    use_plugins([])
    return mine / "outputs" / "reports" / "toy", mine / "outputs"


@pytest.mark.wide
def test_the_page_has_the_figure_the_headline_and_the_columns_with_their_meaning(reported):
    page = (reported[0] / "index.html").read_text()
    lines = len(pd.read_csv(reported[0] / "tables" / "toy.csv"))
    assert f"<li>The toy has {lines} lines.</li>" in page
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    columns = {column["name"]: column for column in data["tables"]["toy"]["columns"]}
    assert columns["toy_share"] == {"name": "toy_share", "kind": "percent", "meaning": "share of the largest run"}
    assert columns["toy_images"]["meaning"] == "test images of the toy"
    assert set(data["filters"]["toy_flavour"]) == {"sweet", "sour"}
    assert data["names"]["toy_flavour"]["sweet"] == "a sweet run"
    assert (reported[0] / "figures" / "toy.png").read_bytes().startswith(b"\x89PNG")
    assert (reported[0] / "tables" / "toy.csv").read_text().startswith("model,toy_flavour,toy_images,toy_share")


def test_a_key_that_only_the_class_has_is_set_from_the_command_line(reported):
    flavours = pd.read_csv(reported[0] / "tables" / "toy.csv")["toy_flavour"]
    assert list(flavours[:2]) == ["sweet", "sour"], "the class's default has it the other way round"


def test_wandb_has_the_table_and_the_figure(reported):
    (run,) = folders(reported[1]).values()
    assert {"page", "figures/toy", "tables/toy"} <= set(written(run)["summary"])
