"""How far the SimSS that the released script logs is from ours."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

_SIGNED = alt.Axis(labelExpr="datum.value == 0 ? '0' : format(datum.value, '+')")


def released_figure(released: Table, agreement: Table) -> alt.FacetChart:
    """Released minus our SimSS of every subset against ncl, one panel an encoder; headings tell how far and r."""
    frame = released.frame.dropna(subset="simss_released").sort_values(["dataset", "encoder", "step"])
    panels = style.panels(frame, "dataset", "encoder")
    told = {
        (line["dataset"], line["encoder"]): f"mean |difference| {line['difference_absolute']:.4f}, {_r(line['r'])}"
        for line in agreement.frame.to_dict("records")
    }
    keys = frame[["dataset", "encoder"]].itertuples(index=False, name=None)
    frame = frame.assign(panel=panels + "\n" + pd.Series([told[key] for key in keys], index=frame.index))
    hover = {"dataset": "", "encoder": "", "ncl": ".0f", "subset_seed": ".0f", "simss": ".4f", "simss_pooled": ".4f"}
    hover |= {"simss_released": ".4f", "difference": "+.4f", "step": ".0f", "classes": ""}
    layers = alt.layer(
        alt.Chart().mark_rule(strokeDash=[4, 3]).encode(y=alt.datum(0)),
        alt.Chart()
        .mark_point(filled=True, size=80, opacity=0.8)
        .encode(
            x=style.ncl_axis(gap=None),
            y=alt.Y("difference:Q", title="SimSS, released minus ours", axis=_SIGNED),
            tooltip=style.tooltips(hover),
        ),
    )
    title = alt.Title(
        "How far is the released similarity script from the definition?",
        subtitle=["One dot a class subset, in the script's own order: its lists of images grow from subset to subset."],
    )
    return style.faceted(layers, frame, title, ("dataset", "ncl"))


def released_answers(agreement: pd.DataFrame) -> Iterator[str]:
    """How far the released scores are, in a sentence an encoder.

    >>> line = {"dataset": "digits", "encoder": "hog", "subsets": 9, "difference_absolute": 0.0021, "r": 0.999}
    >>> line |= {"difference_largest": 0.0108, "pooled_absolute": 0.0019, "difference": 0.0}
    >>> next(released_answers(pd.DataFrame([line])))[:99]
    'digits: SimSS by hog as the released script logs it differs from ours by 0.0021 on average (at most'
    """
    for line in agreement.to_dict("records"):
        if line["subsets"]:
            yield (
                f"{line['dataset']}: SimSS by {line['encoder']} as the released script logs it differs from ours by "
                f"{line['difference_absolute']:.4f} on average (at most {line['difference_largest']:.4f}) over "
                f"{line['subsets']} subsets, {_r(line['r'])}; from ours pooled over images, as its mean is, by "
                f"{line['pooled_absolute']:.4f}."
            )


def _r(r: float | None) -> str:
    return "r undefined" if pd.isna(r) else f"r = {r:.4f}"


PARTS = (Part("released", "The released script", "similarity", ("released", "released_agreement"), released_figure),)
ANSWERS = {"released_agreement": released_answers}
