"""Table 1 and Figure 2: the accuracy of full models, the paper's beside ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from paper import DATASETS, DCN, MODELS, full_command, short_model
from studies import full_models

from fca.studies.rows import records

CELL = ["dataset", "paper_dataset", "model", "paper_model"]
OURS = ["top1", "top1_low", "top1_high", "n_test"]
ABOUT = ["weights", "adaptation", "seed", "compat", "run_id"]
COLUMNS = [*CELL, "top1_paper", *OURS, "top1_minus_paper", "models", "note", *ABOUT, "command"]


def table1(paper: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """A line a cell of Table 1, or one a run where several fill it; an empty cell has the command that fills it.

    top1: open, with Wilson's interval.    top1_minus_paper: ours minus the paper's.
    DCN: the best model; compared only when all ten are there. Its interval is the best model's, of test sampling alone.
    """
    full = full_models(rows)
    full = full.assign(paper_model=full["model"].map(short_model))
    lines: list[dict[str, Any]] = []
    values = paper.to_dict("index")
    for short, dataset in DATASETS.items():
        if short not in paper.index:
            continue
        here = full[full["dataset"] == dataset]
        for model, (conf, _) in MODELS.items():
            cell = {"dataset": dataset, "paper_dataset": short, "model": conf, "paper_model": model}
            lines += _cell(cell, values[short][model], here[here["paper_model"] == model])
        lines.append(_dcn(dataset, short, values[short][DCN], here))
    frame = pd.DataFrame(lines, columns=COLUMNS)
    numbers = [name for name in COLUMNS if name.startswith("top1")]
    return frame.astype(dict.fromkeys(numbers, "float64") | {"n_test": "Int64", "seed": "Int64", "models": "Int64"})


def _cell(cell: dict[str, Any], paper: float, runs: pd.DataFrame) -> list[dict[str, Any]]:
    if runs.empty:
        return [{**cell, "top1_paper": paper, "command": full_command(cell["dataset"], [cell["model"]])}]
    return [
        {**cell, "top1_paper": paper, **_ours(run), "top1_minus_paper": run["top1_open"] - paper}
        for run in records(runs)
    ]


def _dcn(dataset: str, short: str, paper: float, runs: pd.DataFrame) -> dict[str, Any]:
    cell = {"dataset": dataset, "paper_dataset": short, "model": DCN, "paper_model": DCN, "top1_paper": paper}
    ten = runs.dropna(subset="paper_model")
    models = ten["paper_model"].nunique()
    missing = [conf for model, (conf, _) in MODELS.items() if model not in set(ten["paper_model"])]
    command = full_command(dataset, missing) if missing else None
    if not models:
        return {**cell, "models": 0, "command": command}
    best_model = ten.groupby("paper_model")["top1_open"].mean().idxmax()
    best = ten[ten["paper_model"] == best_model]
    top1 = best["top1_open"].mean()  # of the best model over its runs, not the luckiest run
    ours = {"top1": top1, **{name: best[f"top1_open{name[4:]}"].mean() for name in ("top1_low", "top1_high")}}
    note = f"{best_model}, the best of {models} of 10 models" + ("" if models == 10 else ": not compared")
    difference = top1 - paper if models == 10 else np.nan
    return {**cell, **ours, "top1_minus_paper": difference, "models": models, "note": note, "command": command}


def _ours(run: dict[str, Any]) -> dict[str, Any]:
    top1 = {name: run[f"top1_open{name[4:]}"] for name in ("top1", "top1_low", "top1_high")}
    return {**top1, **{name: run[name] for name in ("n_test", *ABOUT)}}


def ranks(table: pd.DataFrame) -> pd.DataFrame:
    """Figure 2b: the rank of every model on every data set (1 = best; equals share theirs), the paper's and ours.

    Ours: over the models that have a run there (`models` of them), by the mean of their runs.
    """
    cells = table[table["paper_model"] != DCN].groupby(CELL, sort=False)[["top1_paper", "top1"]].mean().reset_index()
    parts = []
    for whose, name in (("paper", "top1_paper"), ("ours", "top1")):
        known = cells.dropna(subset=name)
        by = known.groupby("dataset")[name]
        ranked = known[CELL].assign(top1=known[name], rank=by.rank(ascending=False), models=by.transform("size"))
        parts.append(ranked.assign(whose=whose))
    return pd.concat(parts, ignore_index=True)
