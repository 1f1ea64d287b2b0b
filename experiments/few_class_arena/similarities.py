"""Figure 5: Pearson's r of SimSS with the best full model and the best sub-model, the paper's beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
from paper import (
    ENCODERS,
    FAMILY,
    FIGURE5,
    IMAGENET,
    TARGETS,
    base,
    full_command,
    short_encoder,
    sim_command,
    sub_command,
)
from studies import Study

from fca.studies.few_class.correlation import Correlation
from fca.studies.rows import records
from fca.types import FcaError, Table

SCOPES = (("simss", "all"), ("simss", "within ncl"), ("ncl", "all"))
KEY = ["encoder", "target"]
OURS = ["r", "r_low", "r_high", "p", "n", "seeds", "models"]
PUBLISHED = ["r_paper", "r_paper_low", "r_paper_high", "p_paper", "n_paper"]
COLUMNS = ["dataset", *KEY, "predictor", "scope", *PUBLISHED, *OURS, "agrees", "command"]

PLACE = {name: place for names in (ENCODERS, TARGETS.values()) for place, name in enumerate(names)}


def correlated(study: Study) -> dict[str, Table]:
    """`analysis=correlation` of a study at the figure's numbers of classes; on ImageNet, of the ResNet family."""
    rows = study.rows
    if study.dataset == IMAGENET:
        rows = rows[(rows["task"] == "embed") | rows["model"].isin(FAMILY)]
    ncl = [n for n in study.sizes(FIGURE5) if n < study.num_classes]
    ask = Correlation(ncl=ncl, seeds=study.seeds, sampler=study.sampler, per_model=study.per_model)
    tables = {table.name: table for table in ask(replace(study.view, frame=rows))}
    return {
        name: replace(table, frame=table.frame.assign(dataset=study.name, encoder=table.frame["encoder"].map(_plain)))
        for name, table in tables.items()
    }


def gathered(studies: Iterable[Study]) -> tuple[dict[str, dict[str, Table]], dict[str, str]]:
    """By the name of the study: its tables; and why the others have none."""
    found, reasons = {}, {}
    for study in studies:
        try:
            found[study.name] = correlated(study)
        except FcaError as error:
            reasons[study.name] = str(error)
    return found, reasons


def figure5(paper: pd.DataFrame, found: dict[str, dict[str, Table]]) -> pd.DataFrame:
    """On ImageNet, a line a target, encoder and scope. agrees: whether each r lies in the other's interval;
    missing where ours has none.

    Empty lines have the commands that fill them.
    """
    lines = list(_ours({name: tables for name, tables in found.items() if base(name) == IMAGENET}))
    there = {(line["encoder"], line["target"], line["predictor"], line["scope"]) for line in lines}
    for encoder in ENCODERS:
        for target in TARGETS.values():
            wanted = [pair for pair in SCOPES if (encoder, target, *pair) not in there]
            empty = {"dataset": IMAGENET, "encoder": encoder, "target": target, "command": _commands(encoder, target)}
            lines += [{**empty, "predictor": predictor, "scope": scope} for predictor, scope in wanted]
    frame = pd.DataFrame(lines, columns=[c for c in COLUMNS if c not in {*PUBLISHED, "agrees"}])
    published = paper.assign(predictor="simss", scope="all")
    frame = frame.merge(published, on=[*KEY, "predictor", "scope"], how="left")
    inside = frame["r"].between(frame["r_paper_low"], frame["r_paper_high"])
    inside &= frame["r_paper"].between(frame["r_low"], frame["r_high"])
    frame["agrees"] = inside.map({True: "yes", False: "no"}).where(frame["r_low"].notna() & frame["r_paper"].notna())
    frame = frame.sort_values(KEY, key=lambda column: column.map(PLACE), kind="stable", ignore_index=True)
    return frame[COLUMNS]


def elsewhere(found: dict[str, dict[str, Table]]) -> pd.DataFrame:
    """The same of every other study and encoder."""
    lines = list(_ours({name: tables for name, tables in found.items() if base(name) != IMAGENET}))
    return pd.DataFrame(lines, columns=["dataset", *KEY, "predictor", "scope", *OURS])


def _ours(found: dict[str, dict[str, Table]]) -> Iterator[dict[str, Any]]:
    for tables in found.values():
        frame = tables["correlation"].frame
        kept = frame["target"].isin(TARGETS.values()) & (frame["method"] == "pearson")
        for line in records(frame[kept]):
            if (line["predictor"], line["scope"]) in SCOPES:
                yield {name: line[name] for name in ("dataset", *KEY, "predictor", "scope", *OURS)}


def _commands(encoder: str, target: str) -> str:
    make = full_command if target == TARGETS["DCN-Full"] else sub_command
    return " && ".join([make(IMAGENET, FAMILY), sim_command(IMAGENET, ENCODERS[encoder][0])])


def _plain(encoder: str) -> str:
    return short_encoder(encoder) or encoder
