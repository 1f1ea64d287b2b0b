"""The first lines of a page: what the tables say, in words. Every number in them stands in a table."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import pandas as pd

from fca.studies.few_class.figures.similarity import says

MODELS = {
    "sub": "sub-models",
    "open": "open full models",
    "masked": "masked full models",
    "grouped": "grouped full models",
}
FEW = 5  # subsets at each ncl, or data sets
_VERDICTS = {
    "sub-models above open full models": "sub-models are more accurate than open full models",
    "not above": "sub-models are not above open full models",
    "cannot tell": "it cannot be told whether sub-models are above open full models",
}


def gap_answers(gap: pd.DataFrame) -> Iterator[str]:
    """Whether sub-models beat open full models, verdict by verdict, and how they stand against masked ones.

    >>> line = {"dataset": "digits", "ncl": 2, "subsets": 9, "verdict": "not above"}
    >>> line |= {"sub_minus_open": -0.041, "sub_minus_open_low": -0.08, "sub_minus_open_high": -0.002}
    >>> next(gap_answers(pd.DataFrame([line])))
    'digits: sub-models are not above open full models at ncl 2 (-4.1 [-8.0, -0.2]); points, 95 % over 9 subsets.'
    """
    for (dataset, verdict), part in gap.groupby(["dataset", "verdict"], sort=False):
        at = ", ".join(_points(line, "open") for line in part.to_dict("records"))
        yield f"{dataset}: {_VERDICTS[str(verdict)]} at ncl {at}; {_unit(part)}."
    for dataset, part in gap.groupby("dataset", sort=False):
        at = ", ".join(_points(line, "masked") for line in part.to_dict("records"))
        yield f"{dataset!s}: sub-models minus masked full models at ncl {at}; {_unit(part)}."


def _unit(part: pd.DataFrame) -> str:
    """Of the numbers in a sentence; the bootstrap sees only the spread of the subsets that were drawn."""
    fewest = part["subsets"].min()
    return f"points, 95 % over {fewest} subsets" + (", too few for a trusty interval" if fewest < FEW else "")


def _points(line: Mapping[Hashable, Any], protocol: str) -> str:
    mean, low, high = (line[f"sub_minus_{protocol}{end}"] for end in ("", "_low", "_high"))
    interval = "one subset" if pd.isna(low) else f"[{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{line['ncl']} ({100 * mean:+.1f} {interval})"


def correlation_answers(correlation: pd.DataFrame) -> Iterator[str]:
    """SimSS against the best sub-model and the best open full model: all subsets, equal ncl, and ncl alone."""
    frame = correlation[(correlation["method"] == "pearson") & correlation["target"].isin(["DCN sub", "DCN open"])]
    for (dataset, encoder, target), part in frame.groupby(["dataset", "encoder", "target"], sort=False):
        line = {(one["predictor"], one["scope"]): says(one) for one in part.to_dict("records")}
        best = MODELS[str(target).removeprefix("DCN ")]
        told = f"{dataset}: SimSS by {encoder} and the best of the {best} ({target}): "
        if part["r"].isna().all():
            yield told + "no correlation, because the accuracies do not differ or there are too few."
            continue
        yield (
            f"{told}{line['simss', 'all']} over all subsets; {line['simss', 'within ncl']} among subsets of equal ncl; "
            f"the number of classes alone: {line['ncl', 'all']}."
        )


ANSWERS = {"correlation": correlation_answers}
