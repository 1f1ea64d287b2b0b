"""Figures of difficulty and of the released script draw every line of their tables and nothing that they computed."""

from functools import cache
from typing import ClassVar

import numpy as np
import pandas as pd
import vl_convert

from fca.report import style
from fca.report.finding import findings_of
from fca.studies.few_class.difficulty_map import QUANTILES, RANDOM_MEAN, DifficultyMap
from fca.studies.few_class.figures import difficulty, similarity
from fca.studies.few_class.similarity import RELEASED, RELEASED_AGREEMENT, Similarity
from fca.types import Table
from tests.support.figure_claims import FigureClaims, drawn_findings, marks, sentences_of, values

RELEASED_KEYS = ("released", "released_agreement")
SHOWN = [
    *findings_of(DifficultyMap()),
    *(finding for finding in findings_of(Similarity()) if finding.key in RELEASED_KEYS),
]
SPECS = {spec.name: spec for spec in (*DifficultyMap.tables, RELEASED, RELEASED_AGREEMENT)}


def released_frames(same):
    """One subset of three that the script logs as nan."""
    logged = pd.DataFrame({"ncl": [2, 2, 3], "subset_seed": [0, 1, 0], "step": [0, 1, 2], "simss": 0.2})
    logged = logged.assign(simss_released=[0.21, 0.19, np.nan], difference=[0.01, -0.01, np.nan])
    logged = logged.assign(classes=[(0, 1), (1, 2), (0, 1, 2)], **same)
    agreement = {"subsets": 2, "difference": 0.0, "difference_absolute": 0.01, "difference_largest": 0.012}
    agreement |= {"pooled_absolute": 0.009, "r": 0.98}
    return {
        "released": RELEASED.frame(logged),
        "released_agreement": RELEASED_AGREEMENT.frame([{**same, **agreement}]),
    }


@cache
def tables(classes=5, encoders=("hog",)) -> dict[str, Table]:
    """Invented lines; every table of two encoders or one."""
    rng = np.random.default_rng(0)
    keys = [f"class {k}" for k in range(classes)]
    a, b = np.triu_indices(classes, 1)
    found: dict[str, list[pd.DataFrame]] = {name: [] for name in SPECS}
    for encoder in encoders:
        same = {"dataset": "zoo", "encoder": encoder, "split": "test"}
        simss = rng.uniform(0, 0.5, len(a))
        places = {"place_a": a, "place_b": b}
        pairs = pd.DataFrame({"class_a": np.array(keys)[a], "class_b": np.array(keys)[b], **places, "simss": simss})
        found["difficulty_map"].append(pairs.assign(**same))
        scored = pd.DataFrame({"class": keys, "images": 9, "simss_mean": 0.3, "nearest": keys[::-1]})
        scored = scored.assign(simss_nearest=rng.uniform(0, 0.3, classes), place=range(classes))
        found["difficulty_classes"].append(scored.assign(**same))
        random = dict(zip((RANDOM_MEAN, *QUANTILES), (0.2, 0.1, 0.2, 0.3), strict=True)) | {"random": 10, "seed": 0}
        lines = [
            {
                "ncl": n,
                "extreme": extreme,
                "simss": value,
                **random,
                "classes": tuple(range(n)),
                "keys": tuple(keys[:n]),
            }
            for n in (2, 3)
            for extreme, value in (("hardest", 0.05), ("easiest", 0.4))
        ]
        found["difficulty_subsets"].append(pd.DataFrame(lines).assign(**same))
        change = {"subset": tuple(keys[:3]), "simss_before": 0.1, "simss_after": 0.2, "difference": 0.1}
        changes = [{**change, "change": "add", "class_a": key, "class_b": None} for key in keys[3:]]
        changes += [{**change, "change": "merge", "class_a": keys[0], "class_b": keys[1], "difference": -0.05}]
        found["difficulty_what_if"].append(pd.DataFrame(changes).assign(**same))
        for name, frame in released_frames(same).items():
            found[name].append(frame)
    return {
        name: SPECS[name].table(SPECS[name].frame(pd.concat(frames, ignore_index=True)), {}, ())
        for name, frames in found.items()
        if frames
    }


class TestEveryFigure(FigureClaims):
    FINDINGS, tables = SHOWN, staticmethod(tables)
    CASES: ClassVar = {"few": {"classes": 4}, "many": {"classes": 30, "encoders": ("hog", "clip")}}
    MARKS: ClassVar = {"difficulty_map": "rect", "difficulty_what_if": "rect"}


figure = TestEveryFigure.figure


def test_the_map_draws_every_pair_from_both_sides_and_no_diagonal():
    pairs = tables()["difficulty_map"].frame
    drawn = values(figure(difficulty.map_figure))
    assert len(drawn) == 2 * len(pairs)
    simss = {(line.class_a, line.class_b): line.simss for line in drawn.itertuples()}
    for line in pairs.itertuples():
        assert simss[line.class_a, line.class_b] == simss[line.class_b, line.class_a] == line.simss
    assert marks(figure(difficulty.map_figure), "rect") == len(drawn)


def test_alike_classes_stand_in_the_order_of_their_places():
    svg = vl_convert.vegalite_to_svg(figure(difficulty.map_figure, classes=12), vl_version=style.VEGA_LITE)
    shown = [svg.index(f">class {k}<") for k in range(12)]
    assert shown == sorted(shown)


def test_a_subset_that_the_script_cannot_score_is_not_drawn():
    assert marks(figure(similarity.released_figure), "symbol") == 2


def test_the_heading_gives_the_distance_of_the_script():
    (heading,) = values(figure(similarity.released_figure))["panel"].unique()
    assert heading == "hog\nmean |difference| 0.0100, r = 0.9800"


def test_statements_repeat_the_tables():
    known = tables()
    [sentence] = sentences_of(similarity.released_statements, known["released_agreement"].frame)
    assert "by hog as the released script logs it differs from ours by 0.0100 on average (at most 0.0120)" in sentence
    assert sentences_of(difficulty.subsets_statements, known["difficulty_subsets"].frame) == [
        "The classes of zoo hardest to separate are class 0 and class 1 (SimSS 0.050, against 0.100 to 0.300 for 90 % "
        "of random ones).",
        "The 2 classes of zoo easiest to separate by hog are class 0 and class 1 (SimSS 0.400; mean of random ones "
        "0.200).",
        "The 3 classes of zoo hardest to separate by hog are class 0, class 1 and class 2 (SimSS 0.050, against 0.100 "
        "to 0.300 for 90 % of random ones).",
        "The 3 classes of zoo easiest to separate by hog are class 0, class 1 and class 2 (SimSS 0.400; mean of random "
        "ones 0.200).",
    ]


def test_all_classes_together_are_no_hardest_subset():
    frame = tables()["difficulty_subsets"].frame.assign(random=1)
    assert sentences_of(difficulty.subsets_statements, frame) == []


def test_the_report_finds_these_figures():
    keys = [finding.key for finding in drawn_findings(DifficultyMap(), Similarity())]
    assert keys == [
        *("difficulty_map", "difficulty_classes", "difficulty_subsets", "difficulty_what_if"),
        *("similarity", "released"),
    ]
