"""The first sentence of a recommendation says what the verdict says, with one job and one image in the singular."""

import pandas as pd
import pytest

from fca.studies.recommend.figures import model_answer
from fca.studies.recommend.recommendation import CHOSEN, GUESS

LINE = {
    "dataset": "photos",
    "model": "net",
    "adaptation": "probe",
    "latency_ms": 9.3,
    "within": 0.7,
    "tested_copies": 0,
}
EXPECTED = {"top1_expected": 0.9, "top1_expected_low": 0.85, "top1_expected_high": 0.94}
TESTED = {"top1": 0.9, "top1_low": 0.83, "top1_high": 0.94, "n_test": 100, "chance": 0.1, "at_chance": False}


def sentence(**changes):
    measured = {"coverage": 0.7, "coverage_jobs": 12}
    return model_answer(pd.DataFrame([LINE | EXPECTED | TESTED | measured | changes]))[0]


@pytest.mark.parametrize(
    ("verdict", "words"), [(CHOSEN, "the model that other images chose, net"), (GUESS, "the best guess, net")]
)
def test_at_chance_only_a_best_guess_is_called_one(verdict, words):
    said = sentence(verdict=verdict, at_chance=True)
    assert said.startswith(f"None yet: {words} (linear probe), is right on")
    assert ("best guess" in said) == (verdict == GUESS)


@pytest.mark.parametrize(("jobs", "words"), [(1, "held 70 % on 1 job)"), (2, "held 70 % on 2 jobs)")])
def test_one_job_is_not_several(jobs, words):
    assert words in sentence(verdict=CHOSEN, coverage_jobs=jobs)


@pytest.mark.parametrize("at_chance", [False, True])
def test_one_test_image_is_not_several(at_chance):
    assert " of 1 test image" in (said := sentence(verdict=CHOSEN, n_test=1, at_chance=at_chance))
    assert "1 test images" not in said
