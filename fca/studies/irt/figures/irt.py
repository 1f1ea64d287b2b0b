"""How able the subjects are, and whether to trust it: figure and sentences of the tables of analysis=irt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.report import style
from fca.report.part import Part
from fca.types import Table

_ROW = 17  # pixels a model


def abilities_figure(abilities: Table, fits: Table) -> alt.FacetChart:
    """Every subject's ability with its interval, one line a model, ablest first; one panel a scale."""
    again = (abilities.frame["severity"] == 0).fillna(value=False) & (abilities.frame["corruption"] != "clean")
    frame = with_panel(abilities.frame[~again])  # with scales of their own, severity 0 of every kind is the clean fit
    heading = {line["panel"]: f"{line['panel']}\n{_tau(line)}" for line in with_panel(fits.frame).to_dict("records")}
    frame["panel"] = frame["panel"].map(heading)
    [trait, *_] = frame["trait"]
    sort = alt.EncodingSortField("ability", op="max", order="descending")
    base = alt.Chart().encode(
        y=alt.Y("model:N", title=None, sort=sort, axis=alt.Axis(grid=True, ticks=False)), **_snapshots(frame)
    )
    told = {"dataset": "", "corruption": "", "subject": "", "top1": ".2%", "ability": ".3f", "ability_low": ".3f"}
    x = alt.X("ability:Q", title=trait, scale=alt.Scale(zero=False))
    layers = alt.layer(
        base.mark_rule(strokeWidth=2).encode(x="ability_low:Q", x2="ability_high:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, tooltip=style.tooltips({**told, "ability_high": ".3f", "n_items": ".0f"})
        ),
    )
    title = alt.Title(
        "How able is each model?" if trait == "ability" else f"Which subjects show most {trait}?",
        subtitle=[
            f"Estimated {trait} with its 95 % interval, in standard deviations of the subjects (1pl: logits); one line",
            "a model. Kendall's tau: 1 where it orders the subjects exactly as accuracy does.",
        ],
    )
    drawn = style.faceted(layers, frame, title, ("dataset", "model", "corruption"))
    own: alt.FacetChart = drawn.resolve_scale(y="independent")  # panels have their own models, and as tall as they need
    own.spec.height, own.align = alt.Step(_ROW), "each"
    return own


def with_panel(frame: pd.DataFrame) -> pd.DataFrame:
    """With a heading a line: the data set, the corruption, and the severity where each has its own scale."""
    scale = frame["severity"].where(frame["corruption"] != "clean").map(lambda at: "" if pd.isna(at) else f" {at}")
    named = frame.assign(scale=frame["corruption"] + scale)
    several = style.differs(named["scale"])
    return named.assign(panel=style.panels(named, *(("dataset", "scale") if several else ("scale", "dataset"))))


def _tau(line: Mapping[Any, Any]) -> str:
    tau = "tau not defined" if pd.isna(line["tau"]) else f"tau {line['tau']:.3f}"
    low, high = line["tau_low"], line["tau_high"]
    return tau if pd.isna(low) else f"{tau} [{low:.3f}, {high:.3f}]"


def _snapshots(frame: pd.DataFrame) -> dict[str, Any]:
    """A colour a snapshot, where there are several."""
    known = sorted(frame["snapshot"].dropna().unique())
    if len(known) < 2:
        return {"color": alt.value("#0072b2")}
    scale = alt.Scale(domain=known)
    return {"color": alt.Color("snapshot:O", scale=scale, legend=alt.Legend(title="snapshot (share of all steps)"))}


def ability_answers(abilities: pd.DataFrame) -> Iterator[str]:
    """Who is ablest on clean images, and by how much.

    >>> line = {"dataset": "zoo", "corruption": "clean", "trait": "ability", "ability_low": 0.5, "ability_high": 1.5}
    >>> lines = [{**line, "subject": "vit", "ability": 1.0}, {**line, "subject": "vgg", "ability": -1.0}]
    >>> list(ability_answers(pd.DataFrame(lines)))
    ['zoo: highest ability of 2 subjects: vit, 1.00 [0.50, 1.50]; lowest: vgg, -1.00 [0.50, 1.50].']
    """
    clean = abilities[abilities["corruption"] == "clean"]
    for dataset, part in clean.groupby("dataset", sort=False):
        part = part.sort_values("ability", ascending=False, kind="stable")
        first, last = (_told(part.iloc[at].to_dict()) for at in (0, -1))
        yield f"{dataset}: highest {part['trait'].iloc[0]} of {len(part)} subjects: {first}; lowest: {last}."


def _told(line: Mapping[Any, Any]) -> str:
    return f"{line['subject']}, {line['ability']:.2f} [{line['ability_low']:.2f}, {line['ability_high']:.2f}]"


def fit_answers(fits: pd.DataFrame) -> Iterator[str]:
    """Whether ability orders the subjects as accuracy does, and whether hidden answers are predicted.

    >>> line = {"dataset": "zoo", "corruption": "clean", "trait": "ability", "irt_model": "2pl", "n_subjects": 9}
    >>> line |= {"n_models": 3, "n_items": 48, "tau": 0.97, "tau_low": 0.9, "tau_high": 1.0}
    >>> line |= {"held_out_nll": 0.2, "held_out_auc": 0.9, "baseline_nll": 0.3, "converged": True}
    >>> for told in fit_answers(pd.DataFrame([line])): print(told)
    zoo: ability orders 9 subjects (3 models) on 48 items with accuracy, tau 0.970 [0.900, 1.000].
    zoo: 2pl predicts hidden answers with log loss 0.200 and AUC 0.900; subject and item means alone: 0.300.
    """
    for dataset, part in fits.groupby("dataset", sort=False):
        clean, shifted = (part[(part["corruption"] == "clean") == is_clean] for is_clean in (True, False))
        for line in clean.to_dict("records"):
            counts = f"{line['n_subjects']} subjects ({line['n_models']} models) on {line['n_items']:,} items"
            yield f"{dataset}: {line['trait']} orders {counts} with accuracy, {_tau(line)}."
            if pd.notna(line["held_out_nll"]):
                told = f"log loss {line['held_out_nll']:.3f} and AUC {line['held_out_auc']:.3f}"
                no = ", no worse" if line["baseline_nll"] <= line["held_out_nll"] else ""
                alone = f"subject and item means alone: {line['baseline_nll']:.3f}{no}"
                yield f"{dataset}: {line['irt_model']} predicts hidden answers with {told}; {alone}."
        known = shifted.dropna(subset="tau").sort_values("tau", kind="stable")
        if len(known):
            low, high = known.iloc[0].to_dict(), known.iloc[-1].to_dict()
            of = f"{known['corruption'].nunique()} corruptions"
            ends = f"{low['tau']:.3f} ({low['corruption']}) to {high['tau']:.3f} ({high['corruption']})"
            yield f"{dataset}: under {of} tau of {low['trait']} with accuracy is {ends}."
        if not part["converged"].all():
            failed = ", ".join(part.loc[~part["converged"].astype(bool), "corruption"])
            yield f"{dataset}: the fit did not converge for {failed}; do not read its numbers."


def choice_answers(choice: pd.DataFrame) -> Iterator[str]:
    """Which model was chosen by its prediction of hidden answers.

    >>> line = {"dataset": "zoo", "irt_model": "2pl", "held_out_nll": 0.2, "chosen": True}
    >>> list(choice_answers(pd.DataFrame([line, {**line, "irt_model": "1pl", "held_out_nll": 0.3, "chosen": False}])))
    ['zoo: hidden answers chose 2pl (log loss: 2pl 0.2000, 1pl 0.3000).']
    """
    for dataset, part in choice.groupby("dataset", sort=False):
        each = ", ".join(f"{line['irt_model']} {line['held_out_nll']:.4f}" for line in part.to_dict("records"))
        [best] = part.loc[part["chosen"].astype(bool), "irt_model"]
        yield f"{dataset}: hidden answers chose {best} (log loss: {each})."


PARTS = (Part("irt_abilities", "Abilities", "irt", ("irt_abilities", "irt_fits"), abilities_figure),)
ANSWERS = {"irt_fits": fit_answers, "irt_abilities": ability_answers, "irt_choice": choice_answers}
