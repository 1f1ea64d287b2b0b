"""The first sentence of a recommendation says what the verdict says, with one job and one image in the singular."""

import altair as alt
import pandas as pd
import pytest

from fca.report import small
from fca.studies.recommend.choice import CHOSEN, GUESS, SMALLEST, VERDICT
from fca.studies.recommend.figures import _VERDICT_COLOURS, confusion_statements, front_figure, model_statements
from fca.studies.recommend.images import ERRORS
from fca.studies.recommend.recommendation import RECOMMENDATION

LINE = {
    "dataset": "photos",
    "candidate": "net (linear probe)",
    "model": "net",
    "precision": "fp32",
    "adaptation": "probe",
    "latency_ms": 9.3,
    "within": 0.7,
    "tested_copies": 0,
}
EXPECTED = {"top1_expected": 0.9, "top1_expected_low": 0.85, "top1_expected_high": 0.94}
TESTED = {"top1": 0.9, "top1_low": 0.83, "top1_high": 0.94, "n_test": 100, "chance": 0.1, "at_chance": False}


def sentence(**changes):
    frame = pd.DataFrame([LINE | EXPECTED | TESTED | {"line": SMALLEST} | changes])
    return model_statements(frame, frame)[0].sentence


@pytest.mark.parametrize(
    ("verdict", "words"), [(CHOSEN, "the model chosen on other images, net"), (GUESS, "the best guess, net")]
)
def test_at_chance_only_a_best_guess_is_called_one(verdict, words):
    said = sentence(verdict=verdict, at_chance=True)
    assert said.startswith(f"None yet: {words} (linear probe), is right on")
    assert ("best guess" in said) == (verdict == GUESS)


@pytest.mark.parametrize("at_chance", [False, True])
def test_one_test_image_is_not_several(at_chance):
    assert " of 1 test image" in (said := sentence(verdict=CHOSEN, n_test=1, at_chance=at_chance))
    assert "1 test images" not in said


def candidates(**parameters):
    lines = [LINE | EXPECTED | {"verdict": CHOSEN, "on_front": True, "weights": None}]
    lines.append(lines[0] | {"model": "large", "latency_ms": 31.0, "verdict": "over a limit", "on_front": False})
    return RECOMMENDATION.table(RECOMMENDATION.frame(lines), parameters, ["0123456789ab"])


def test_a_limit_of_time_stands_in_the_figure_and_its_caption():
    spec = front_figure(candidates(latency_ms=10.0)).to_dict()
    rules = [layer for layer in spec["spec"]["layer"] if layer["mark"]["type"] == "rule" and "data" in layer]
    assert [spec["datasets"][rule["data"]["name"]] for rule in rules] == [[{"latency_ms": 10.0}]]
    assert "limit of 10 ms" in " ".join(spec["title"]["subtitle"])
    without = front_figure(candidates(latency_ms=None)).to_dict()
    assert "limit" not in " ".join(without["title"]["subtitle"])


def test_no_two_verdicts_that_can_stand_beside_each_other_look_alike():
    words = list(VERDICT.choices)
    assert words[:2] == [CHOSEN, GUESS], "a page has one of these two"
    assert len(set(_VERDICT_COLOURS[1:])) == len(words) - 1


def test_counts_begin_at_0_and_have_whole_numbers():
    frame = pd.DataFrame({"label": ["a", "b"], "predicted_class": ["b", "a"], "errors": [34, 32], "dataset": "d"})
    spec = confusion_statements(frame)[0].small.to_dict()
    [axis] = [layer["encoding"]["x"] for layer in spec["layer"] if "x" in layer["encoding"]]
    assert axis["scale"]["zero"] is True
    assert axis["axis"]["tickMinStep"] == 1
    assert axis["axis"]["format"] == ",.0f"
    assert small._axis(alt.X, ERRORS).to_dict()["scale"]["zero"] is True
