"""The first lines of a page on predicted accuracy: does anything known before training tell more than ncl?"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import pandas as pd

from fca.studies.few_class.figures.answers import FEW
from fca.studies.few_class.figures.prediction import BASELINE, NAMES, PANEL

_WAYS = {"subset seed": "new subsets of known data sets", "data set": "new data sets"}
_VERDICTS = {"beyond ncl": "predicts", "not beyond ncl": "does not predict", "cannot tell": "may or may not predict"}


def prediction_answers(prediction: pd.DataFrame) -> Iterator[str]:
    """Whether SimSS predicts beyond ncl, and what else does; a sentence each for every encoder and way of holding out.

    >>> line = {"encoder": "hog", "target": "DCN sub", "held_out": "subset seed", "verdict": "not beyond ncl"}
    >>> line |= {"within_ncl_r": 0.1, "within_ncl_r_low": -0.2, "within_ncl_r_high": 0.4}
    >>> line |= {"coverage": 0.9, "better_in": 1, "datasets": 1}
    >>> line |= {f"{name}_points{end}": 3.0 for name in ("error", "gain") for end in ("", "_low", "_high")}
    >>> lines = [{**line, "predictor": "log_ncl", "verdict": "baseline"}, {**line, "predictor": "simss"}]
    >>> next(prediction_answers(pd.DataFrame(lines))).partition(": ")[0]
    'SimSS by hog does not predict accuracy (DCN sub) beyond the number of classes, on new subsets of known data sets'
    """
    for (encoder, target, way), part in prediction.groupby(PANEL, sort=False):
        line = part.set_index("predictor").to_dict("index")
        simss, alone = line["simss"], line[BASELINE]
        told = f"SimSS by {encoder} {_VERDICTS[simss['verdict']]} accuracy ({target}) beyond the number of "
        told += (
            f"classes, on {_WAYS[str(way)]}: r = {_interval(simss, 'within_ncl_r', '.2f')} among subsets of equal ncl"
        )
        if pd.isna(simss["error_points"]):
            yield f"{told}; with one subset seed there is nothing unseen."
            continue
        yield (
            f"{told}; it errs by {_interval(simss, 'error_points', '.1f')} points and ncl alone by "
            f"{_interval(alone, 'error_points', '.1f')}, a gain of {_interval(simss, 'gain_points', '+.2f')} "
            f"(better in {simss['better_in']:.0f} of {simss['datasets']} data sets{_few(way, simss)}); "
            f"{_covers(simss)}."
        )
        best = part[part["verdict"] != "baseline"].sort_values("error_points", kind="stable").iloc[0]
        beyond = [NAMES[name] for name in part.loc[part["verdict"] == "beyond ncl", "predictor"]]
        yield (
            f"On {_WAYS[str(way)]}, of all that is added to ncl to predict {target} by {encoder}, "
            f"{NAMES[best['predictor']]} errs least ({_interval(best, 'error_points', '.1f')} points); beyond ncl, "
            f"each judged by itself: {', '.join(beyond) or 'none that can be told'}."
        )


def _few(way: object, line: Mapping[Hashable, Any]) -> str:
    """The bootstrap sees only the spread of the data sets at hand."""
    return ", too few for a trusty interval" if way == "data set" and line["datasets"] < FEW else ""


def _covers(line: Mapping[Hashable, Any]) -> str:
    if pd.isna(line["coverage"]):
        return "too few subsets or data sets for prediction intervals"
    return f"its 90 % prediction intervals hold {100 * line['coverage']:.0f} % of the measured accuracies"


def _interval(line: Any, name: str, form: str) -> str:
    """`1.5 [0.9, 2.2]`; without the interval where one seed is all there is."""
    if pd.isna(line[name]):
        return "undefined"
    low, high = line[f"{name}_low"], line[f"{name}_high"]
    return f"{line[name]:{form}}" + ("" if pd.isna(low) else f" [{low:{form}}, {high:{form}}]")


ANSWERS = {"prediction": prediction_answers}
