"""Figures and sentences of psychometrics, over the tables of small simulated tests."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from fca.report.finding import sentences, study_findings
from fca.store import Store
from fca.studies.psychometrics.dif import Dif
from fca.studies.psychometrics.dimensionality import Dimensionality
from fca.studies.psychometrics.figures import dependence_statements, severity_statements
from fca.studies.psychometrics.information import Information
from fca.studies.psychometrics.item_fit import ItemFit
from fca.studies.psychometrics.severity_facet import SEVERITY_FACET, SeverityFacet
from fca.tables.responses import Responses, frame_of_items, frame_of_subjects, write_responses
from tests.support.figure_claims import FigureClaims, sentences_of


def tables(subjects=24, images=40, severities=(0, 1, 3)):
    """Of every analysis; half of the subjects are transformers, and fog adds a logit a step."""
    rng = np.random.default_rng(0)
    names = [f"{'vit' if number % 2 else 'net'}{number}" for number in range(subjects)]
    ability = rng.normal(size=(subjects, 1))
    difficulty = np.tile(rng.normal(-0.3, 1, images), len(severities)) + np.repeat(severities, images)
    correct = (rng.random((subjects, len(difficulty))) < 1 / (1 + np.exp(difficulty - ability))).astype(float)

    shifts = [f"@corruption/fog/{severity}" if severity else "" for severity in severities]
    items = [f"{image}.png{shift}" for shift in shifts for image in range(images)]
    labels = [f"class{image % 3}" for image in range(images)]
    of_subjects = frame_of_subjects(names)
    corrupted = Responses(correct, of_subjects, frame_of_items(items))
    clean = Responses(correct[:, :images], of_subjects, frame_of_items(items[:images], labels))

    with TemporaryDirectory() as folder:
        files = {"clean": clean, "corrupted": corrupted}
        for name, responses in files.items():
            Path(folder, name).mkdir()
            write_responses(responses, f"{folder}/{name}/zoo.npz")

        clean_file, corrupted_file = ([f"{folder}/{name}/zoo.npz"] for name in files)
        analyses = [
            ItemFit(responses=clean_file, replicates=2),
            Information(responses=clean_file),
            Dimensionality(responses=clean_file, most=2),
            Dif(responses=clean_file),
            SeverityFacet(responses=corrupted_file),
        ]
        return {table.name: table for analysis in analyses for table in analysis(Store(f"{folder}/outputs"))}


class TestEveryFigure(FigureClaims):
    FINDINGS, tables = study_findings(ItemFit()), staticmethod(tables)
    CASES: ClassVar = {
        "few": {"subjects": 20, "images": 30, "severities": (0, 1)},
        "many": {"subjects": 30, "images": 120, "severities": (0, 1, 2, 3, 4, 5)},
    }


def steps(**by_corruption):
    """A step of each corruption, with an interval of 0.1 to both sides."""
    lines = [
        {"dataset": "zoo", "corruption": corruption, "step": step, "step_low": step - 0.1, "step_high": step + 0.1}
        for corruption, step in by_corruption.items()
    ]
    return pd.DataFrame(lines)


def test_equal_steps_are_named_together():
    adds = "zoo: a step of severity adds"
    assert sentences_of(severity_statements, steps(fog=0.5)) == [
        f"{adds} difficulty under fog, +0.50 logits [+0.40, +0.60]."
    ]
    assert sentences_of(severity_statements, steps(fog=0.5, snow=0.5)) == [
        f"{adds} the same difficulty under both: +0.50 logits [+0.40, +0.60]."
    ]
    assert sentences_of(severity_statements, steps(fog=0.5, snow=0.5, blur=0.2)) == [
        f"{adds} most difficulty under fog and snow, +0.50 logits [+0.40, +0.60]; least under blur, +0.20."
    ]


@pytest.mark.wide
def test_corruptions_of_two_data_sets_are_not_compared():
    zoo = tables()["severity_facet"].frame
    farm = zoo.assign(dataset="farm")
    table = SEVERITY_FACET.table(pd.concat([zoo, farm], ignore_index=True), {}, ["run"])
    first, second = sentences(SeverityFacet(), {table.name: table})
    assert first.startswith("zoo: a step of severity adds difficulty under fog, +")
    assert second == first.replace("zoo", "farm")


@pytest.mark.parametrize(
    ("pairs_beyond", "count"), [(0, "no pair"), (1, "1 pair"), (19, "19 pairs"), (20, "20 pairs or more")]
)
def test_pairs_are_counted_up_to_the_length_of_their_list(pairs_beyond, count):
    line = {"dataset": "zoo", "misfit_infit": np.nan, "q3_within": np.nan, "pairs_beyond": pairs_beyond}
    dependence = pd.DataFrame([line | {"n_paired": 1037}])
    assert sentences_of(dependence_statements, dependence) == [f"zoo: {count} of 1,037 images above chance."]
