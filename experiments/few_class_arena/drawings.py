"""The figures of Table 1, ranks and coefficients. They draw tables of the parity page and compute nothing."""

from __future__ import annotations

import altair as alt
import pandas as pd
from paper import DATASETS, DCN, MODELS

from fca.report import style

WHOSE = alt.Scale(domain=["paper", "ours"], range=["#7d8590", "#d55e00"])
SHAPE = alt.Scale(domain=["paper", "ours"], range=["diamond", "circle"])


def table1(table: pd.DataFrame) -> alt.FacetChart:
    """Every cell of Table 1: the paper's number and ours with its interval, one panel a data set."""
    cells = table[table["paper_model"] != DCN]
    told = {"dataset": "", "model": "", "whose": "", "top1": ".2%", "top1_low": ".2%", "top1_high": ".2%"}
    title = alt.Title(
        "Table 1: are full models as accurate as in the paper?",
        subtitle=["Top-1 over all classes. Ours: open, on the test split, with Wilson's 95 % interval."],
    )
    axis = alt.Axis(format=".2~%", values=[0, 0.25, 0.5, 0.75, 1])
    x = alt.X("top1:Q", title="top-1 accuracy (%)", axis=axis, scale=alt.Scale(domain=[0, 1]))
    return _paired(_both(cells, "paper_dataset"), x, "paper_model", list(MODELS), told, title, columns=5)


def dcn(table: pd.DataFrame) -> alt.FacetChart:
    """Figure 2a: the best of the models on every data set, the paper's and ours."""
    frame = _both(table[table["paper_model"] == DCN]).assign(panel="all classes")
    order = frame.loc[frame["whose"] == "paper"].sort_values("top1")["paper_dataset"].tolist()
    told = {"dataset": "", "whose": "", "top1": ".2%", "top1_low": ".2%", "top1_high": ".2%", "note": ""}
    title = alt.Title(
        "Figure 2a: how accurate is the best of the models on all classes (DCN)?",
        subtitle=["Ours: the best of the models that have a run there; the tooltip says which and of how many."],
    )
    x = alt.X("top1:Q", title="DCN (%)", axis=style.PERCENT)
    return _paired(frame, x, "paper_dataset", order[::-1], told, title, fields=("dataset",))


def ranks(frame: pd.DataFrame) -> alt.FacetChart:
    """Figure 2b: the rank of every model on every data set, as a heat map; the paper's, and ours where it exists."""
    heading = {"paper": "the paper", "ours": "ours, among the models that have a run"}
    frame = frame.assign(panel=frame["whose"].map(heading))
    told = {"dataset": "", "model": "", "whose": "", "rank": ".1f", "models": ".0f", "top1": ".2%"}
    base = alt.Chart().encode(
        x=alt.X("paper_dataset:N", title=None, sort=list(DATASETS), scale=alt.Scale(domain=list(DATASETS))),
        y=alt.Y("paper_model:N", title=None, sort=list(MODELS), scale=alt.Scale(domain=list(MODELS))),
        tooltip=style.tooltips(told),
    )
    bright = alt.Scale(domain=[1, 10], reverse=True)
    ink = alt.condition("datum.rank > 5.5", alt.value("#ffffff"), alt.value("#000000"))
    layers = alt.layer(
        base.mark_rect().encode(color=alt.Color("rank:Q", scale=bright, legend=None)),
        base.mark_text(fontSize=12).encode(text=alt.Text("rank:Q", format=".2~f"), color=ink),
    )
    title = alt.Title(
        "Figure 2b: does the ranking of the models change with the data set?",
        subtitle=["Rank by top-1 on all classes; 1 is the most accurate."],
    )
    return wide(style.faceted(layers, frame, title, ("dataset", "model"), height=260, columns=1), 560)


def agreement(frame: pd.DataFrame) -> alt.FacetChart:
    """Spearman's rho of every data set's ranking with ImageNet's."""
    frame = frame.assign(panel="up to ten models")
    told = {"dataset": "", "whose": "", "rho": ".2f", "rho_low": ".2f", "rho_high": ".2f", "p": ".2g", "models": ".0f"}
    order = frame.drop_duplicates("paper_dataset")["paper_dataset"].tolist()
    title = alt.Title(
        "Does the ranking on ImageNet tell that on another data set?",
        subtitle=["Spearman's rho over the models and its 95 % interval over models; 1: the same order, 0: unrelated."],
    )
    x = alt.X("rho:Q", title="Spearman's rho with the ranking on ImageNet", scale=alt.Scale(domain=[-1, 1]))
    return _paired(frame, x, "paper_dataset", order, told, title, name="rho", zero=True)


def regret(frame: pd.DataFrame) -> alt.FacetChart:
    """What always taking one model costs, over the paper's data sets."""
    frame = frame.assign(panel="the paper's ten data sets", whose="paper")
    told = {"paper_model": "", "top1_regret": ".2%", "top1_regret_low": ".2%", "top1_regret_high": ".2%"}
    title = alt.Title(
        "What does always taking the same model cost?",
        subtitle=["Points below each data set's best, mean over the ten and its 95 % interval over data sets."],
    )
    axis = alt.Axis(labelExpr="format(100 * datum.value, '')")
    x = alt.X("top1_regret:Q", title="mean regret (% points)", axis=axis)
    told |= {"top1_regret_worst": ".2%", "worst_on": ""}
    return _paired(frame, x, "paper_model", frame["paper_model"].tolist(), told, title, name="top1_regret")


def coefficients(frame: pd.DataFrame, title: alt.Title) -> alt.FacetChart:
    """Figure 5: Pearson's r with its interval, the paper's and ours, over all subsets and within ncl, and ncl alone."""
    names = {("simss", "all"): "SimSS", ("simss", "within ncl"): "SimSS within ncl", ("ncl", "all"): "ncl alone"}
    says = [names[pair] for pair in zip(frame["predictor"], frame["scope"], strict=True)]
    frame = frame.assign(says=says).rename(columns={"p": "p_ours"})
    parts = [frame.assign(whose="ours")]
    if "r_paper" in frame:
        renamed = {"r_paper": "r", "r_paper_low": "r_low", "r_paper_high": "r_high", "n_paper": "n"}
        parts.insert(0, frame.drop(columns=["r", "r_low", "r_high", "n"]).rename(columns=renamed).assign(whose="paper"))
    frame = pd.concat(parts, ignore_index=True).dropna(subset="r")
    frame = stacked(frame, "dataset", "encoder", "target")
    told = {"dataset": "", "encoder": "", "target": "", "says": "", "whose": "", "r": ".2f", "r_low": ".2f"}
    told |= {"r_high": ".2f", "n": ".0f", "seeds": ".0f", "models": ".0f"}
    x = alt.X("r:Q", title="Pearson's r with accuracy", scale=alt.Scale(domain=[-1, 1]))
    return _paired(frame, x, "says", list(names.values()), told, title, name="r", zero=True, columns=4)


def _both(cells: pd.DataFrame, *panel: str) -> pd.DataFrame:
    """The paper's numbers and ours as lines of their own."""
    paper = cells.drop(columns=["top1", "top1_low", "top1_high"]).rename(columns={"top1_paper": "top1"})
    parts = [paper.drop_duplicates(["dataset", "model"]).assign(whose="paper"), cells.assign(whose="ours")]
    frame = pd.concat(parts, ignore_index=True).dropna(subset="top1")
    return frame.assign(panel=style.panels(frame, *panel)) if panel else frame


def _paired(
    frame: pd.DataFrame,
    x: alt.X,
    y: str,
    order: list[str],
    told: dict[str, str],
    title: alt.Title,
    *,
    name: str = "top1",
    zero: bool = False,
    columns: int | None = None,
    fields: tuple[str, ...] = ("dataset", "model"),
) -> alt.FacetChart:
    """Dots with intervals on rows named by `y`: the paper's diamond above our circle."""
    both = style.differs(frame["whose"])
    legend = alt.Legend(title=None, values=list(dict.fromkeys(frame["whose"])))
    base = alt.Chart().encode(
        y=alt.Y(f"{y}:N", title=None, sort=order, axis=alt.Axis(grid=True, bandPosition=0, ticks=False)),
        color=alt.Color("whose:N", scale=WHOSE, legend=legend),
        yOffset=alt.YOffset("whose:N", scale=alt.Scale(domain=["paper", "ours"])) if both else alt.Undefined,
    )
    layers = [
        base.transform_filter(f"isValid(datum.{name}_low)")
        .mark_rule(strokeWidth=2)
        .encode(x=f"{name}_low:Q", x2=f"{name}_high:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, shape=alt.Shape("whose:N", scale=SHAPE, legend=legend), tooltip=style.tooltips(told)
        ),
    ]
    if zero:
        layers.insert(0, alt.Chart().mark_rule(strokeDash=[4, 3]).encode(x=alt.datum(0)))
    rows = frame[y].nunique()
    return style.faceted(alt.layer(*layers), frame, title, fields, height=max(70, 22 * rows), columns=columns)


def stacked(frame: pd.DataFrame, *fields: str) -> pd.DataFrame:
    """With panels whose heading has a line for the first field, if it differs, and one for the others."""
    if frame.empty or not style.differs(frame[fields[0]]):
        return frame.assign(panel=style.panels(frame, *fields[1:]))
    return frame.assign(panel=frame[fields[0]] + "\n" + style.panels(frame, *fields[1:]))


def wide(drawn: alt.FacetChart, width: int) -> alt.FacetChart:
    """With panels of this width."""
    drawn.spec.width = width
    return drawn
