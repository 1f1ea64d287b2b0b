"""What few-class studies state after the sentence that opens a page: other encoders, models and numbers of classes."""

import numpy as np
import pandas as pd
import pytest

from fca.studies.few_class.figures import FINDINGS
from fca.studies.few_class.figures.accuracy import gain_statements
from fca.studies.few_class.figures.similarity import correlation_statements
from fca.tables.table import NO_MEAN_INTERVAL
from tests.studies.few_class.support.invented import tables
from tests.support.figure_claims import sentences_of


@pytest.fixture(scope="module")
def by_two_encoders() -> dict[str, pd.DataFrame]:
    return {table.name: table.frame for table in tables(encoders=["hog", "clip"])}


def test_similarity_by_every_encoder_is_stated_and_the_number_of_classes_once_for_each_accuracy(by_two_encoders):
    correlation, points = by_two_encoders["correlation"], by_two_encoders["correlation_points"]
    similarity, alone = [], []
    for sentence in sentences_of(correlation_statements, correlation, points):
        (alone if sentence.startswith("The correlation of the number of classes alone") else similarity).append(
            sentence
        )

    pearson = correlation.query("method == 'pearson' and predictor == 'simss' and scope == 'all'")
    targets = pearson[pearson["target"].str.startswith("DCN ")]
    assert len(similarity) == len(targets) == 2 * len(alone)
    for line in targets.to_dict("records"):
        assert any(f"r = {line['r']:.2f} [" in text and f"SimSS by {line['encoder']}" in text for text in similarity)


def test_a_correlation_that_is_undefined_is_stated_last_and_in_words(by_two_encoders):
    correlation, points = by_two_encoders["correlation"], by_two_encoders["correlation_points"]
    is_undefined = (correlation["target"] == "DCN sub") & (correlation["predictor"] == "simss")
    correlation = correlation.assign(r=correlation["r"].mask(is_undefined))

    sentences = sentences_of(correlation_statements, correlation, points)
    assert sentences[0].startswith("Class similarity ")
    assert sum("has no correlation with" in sentence for sentence in sentences) == 2
    assert not any("nan" in sentence for sentence in sentences)


def test_gains_at_more_classes_follow_with_the_reason_where_one_has_no_interval():
    line = {"dataset": "zoo", "models": 2, "subsets": 5, "verdict": "not above"}
    for name in ("sub_minus_open", "sub_minus_masked"):
        line |= {name: -0.04, f"{name}_low": -0.06, f"{name}_high": -0.02}
    unknown = {"ncl": 5, "sub_minus_masked_low": np.nan, "sub_minus_masked_high": np.nan}
    gap = pd.DataFrame([line | {"ncl": 3}, line | unknown, line | {"ncl": 2}])

    opening, limited, open_gain = sentences_of(gain_statements, gap)
    assert opening.startswith("No: at 2 classes of zoo, sub-models are worse, by -4.0 points [-6.0, -2.0], than")
    assert limited == (
        "zoo: sub-models minus full models limited to the same labels (masked) at ncl 3 (-4.0 points [-6.0, -2.0]), 5 "
        f"(-4.0 points); 95 % over 5 subsets; ncl 5: {NO_MEAN_INTERVAL}."
    )
    assert open_gain.startswith("zoo: sub-models are not more accurate than open full models at ncl 2 (-4.0 points [")


def test_no_two_findings_have_one_anchor():
    keys = [finding.key for finding in FINDINGS]
    assert len(keys) == len(set(keys))
