"""The tables of the parity page: Table 1 with its ranks and regret, accuracy by ncl (figures 1, 3, 4), and figure 5.

A study is what stored runs may stand together: one for each data set, and for each way of making its sub-models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import arena_paper as paper
import numpy as np
import pandas as pd
from arena_paper import DATASETS, DCN, FAMILY, IMAGENET, TARGETS, base

from fca.stats.correlation import correlation, correlation_interval
from fca.stats.intervals import mean_with_interval
from fca.store import Store
from fca.store.query import rows_matching
from fca.studies.few_class import correlation as similarity
from fca.studies.few_class.accuracy import SPREAD, FewClass, accuracy, dcn, per_subset
from fca.studies.few_class.findings import FINDING, FINDING_VALUE, MEASURES, measures
from fca.studies.few_class.subset_accuracy import SUBSET_SEEDS
from fca.tables import table as columns
from fca.tables.rows import records
from fca.tables.table import DATASET, ENCODER, MEASURE, MODEL, NCL, PROTOCOL, TOP1, TableSpec
from fca.types import Column, FcaError, Table, interval_columns

AXES = ("fingerprint", "adaptation", "sampler", "compat")  # sub-models that differ in these are studies of their own
SHORT = {dataset: short for short, dataset in DATASETS.items()}
ORDER = ("sub", "open", "masked")  # of the protocols
SCOPES = (("simss", "all"), ("simss", "within ncl"), ("ncl", "all"))
PLACE = {name: place for names in (paper.ENCODERS, TARGETS.values()) for place, name in enumerate(names)}

PAPER_DATASET = Column("paper_dataset", str, "", "data set, as the paper calls it")
PAPER_MODEL = Column("paper_model", str, "", "model, as the paper calls it")
TOP1_PAPER = Column("top1_paper", float, ".2%", "top-1 accuracy in the paper")
DIFFERENCE = Column("top1_minus_paper", float, "+.2%", "top-1 accuracy, ours minus the paper's")
NOTE = Column("note", str, "", "the best model, and of how many")
WHOSE = Column("whose", str, "", "whose result", {"paper": "paper", "ours": "ours"})
RANK = Column("rank", float, ".2~f", "rank by top-1 on all classes, 1 is the most accurate")
RHO = Column("rho", float, ".2f", "Spearman's rho with the ranking on ImageNet")
REGRET = Column("top1_regret", float, ".2%", "mean distance to the best model")
WORST = Column("top1_regret_worst", float, ".2%", "largest distance to the best model")
WORST_ON = Column("worst_on", str, "", "data set of the largest distance")
DATASETS_OF = Column("datasets", int, ".0f", "data sets")
COMMAND = Column("command", str, "", "command that makes the missing runs")
R_PAPER = Column("r_paper", float, ".3f", "correlation with accuracy in the paper")
P_PAPER = Column("p_paper", float, ".2g", "p in the paper")
N_PAPER = Column("n_paper", int, ".0f", "subsets in the paper")
PAPER_SAYS, PAPER_SIGN = Column("paper_says", str, "", "what the paper reports"), Column("paper_sign")
SIGNIFICANT = Column("significant", str, "", "whether the interval excludes 0 (of a ratio: 1), and on whose side")
AGREES = Column("agrees", str, "", "whether each r lies in the other's interval")
CELL = (DATASET, PAPER_DATASET, MODEL, PAPER_MODEL)
BOTH = (TOP1_PAPER, *interval_columns(TOP1))
COMPARED = (DIFFERENCE, columns.MODELS, NOTE)
RUN = (Column("weights"), Column("adaptation"), columns.SEED, Column("compat"), columns.RUN_ID)
MEANS = (TOP1, SPREAD, TOP1.low, TOP1.high, columns.SUBSETS)
R = (*interval_columns(similarity.COEFFICIENT), similarity.NAIVE_P, similarity.N_SUBSETS, SUBSET_SEEDS, columns.MODELS)
SAME = (DATASET, ENCODER, similarity.TARGET, similarity.PREDICTOR, similarity.SCOPE)

_POINT = (PROTOCOL, NCL, *MEANS)
_DCN = (PAPER_DATASET, *_POINT, columns.MODELS, TOP1_PAPER, COMMAND)
_PUBLISHED = (*interval_columns(R_PAPER), P_PAPER, N_PAPER)


def spec(name: str, *declared: Column) -> TableSpec:
    """A table of the page; paper.yaml has its question and source."""
    text = paper.TEXTS["tables"][name]
    return TableSpec(name, text["question"], text["source"], declared)


TABLE1 = spec("table1", *CELL, *BOTH, columns.N_TEST, *COMPARED, *RUN, COMMAND)
FIGURE2A = spec("figure2a", *CELL, *BOTH, *COMPARED, COMMAND)
FIGURE2B = spec("figure2b", *CELL, TOP1, RANK, columns.MODELS, WHOSE)
RANK_AGREEMENT = spec(
    "rank_agreement", PAPER_DATASET, DATASET, WHOSE, *interval_columns(RHO), similarity.P, columns.MODELS
)
REGRETS = spec("regret", PAPER_MODEL, *interval_columns(REGRET), WORST, WORST_ON, DATASETS_OF)
FIGURE1 = spec("figure1", DATASET, MODEL, *_POINT, COMMAND)
BEYOND_FIGURE1 = spec("beyond_figure1", DATASET, MODEL, *_POINT)
FIGURE3, FIGURE4 = (spec(name, DATASET, *_DCN) for name in ("figure3", "figure4"))
BEYOND_DCN = spec("beyond_dcn", DATASET, *_POINT, columns.MODELS)
_FINDING = (FINDING, PAPER_SAYS, MEASURE, PAPER_SIGN, *interval_columns(FINDING_VALUE))
FIGURE1_FINDINGS, BEYOND_FINDINGS = (
    spec(name, DATASET, *_FINDING, SUBSET_SEEDS, columns.MODELS, SIGNIFICANT, COMMAND)
    for name in ("figure1_findings", "beyond_findings")
)
FIGURE5 = spec("figure5", *SAME, *_PUBLISHED, *R, AGREES, COMMAND)
BEYOND_FIGURE5 = spec("beyond_figure5", *SAME, *R)


@dataclass(frozen=True)
class View(Store):
    """A store of which an analysis sees some rows."""

    frame: pd.DataFrame = field(default_factory=pd.DataFrame)

    def rows(self, query: str | None = None) -> pd.DataFrame:
        """Those rows; a query narrows them further."""
        return self.frame if query is None else rows_matching(self.frame, query)


@dataclass(frozen=True, eq=False)
class Study:
    """Runs of one data set that may be compared; the name has what distinguishes it from others of the data set."""

    name: str
    dataset: str
    view: View

    @property
    def num_classes(self) -> int:
        """Classes of the data set."""
        return int(self.view.frame["num_classes"].max())

    def grid(self, wanted: Iterable[int] | None = None) -> dict[str, Any]:
        """What an analysis scores: the paper's draws of the classes (or those of the wanted sizes), and its own.

        As in the paper, every network may have its own recipe. Without sub-models, subsets are drawn as the Arena does.
        """
        trained = sub_models(self.view.frame)
        sampler = "fca" if trained["sampler"].isna().all() else str(trained["sampler"].dropna().iloc[0])
        drawn = self.num_classes - (sampler == "fca")  # the released sampler never draws the last class
        sizes = {*wanted} if wanted is not None else {*paper.grid(self.num_classes), *map(int, trained["ncl"])}
        seeds = sorted({*paper.SEEDS, *map(int, trained["subset_seed"].dropna())})
        ncl = sorted(float(n) for n in sizes if n <= drawn or n == self.num_classes)
        return {"ncl": ncl, "seeds": seeds, "sampler": sampler, "per_model": ["recipe"]}

    @cached_property
    def points(self) -> pd.DataFrame:
        """Accuracy of every model on every subset, from `analysis=few_class`; FcaError if there is none."""
        tables = {table.name: table.frame for table in FewClass(**self.grid())(self.view)}
        return tables["accuracy_points"].assign(dataset=self.name)

    @property
    def correlated(self) -> dict[str, Table]:
        """`analysis=correlation` at figure 5's numbers of classes; on ImageNet, of the ResNet family."""
        rows = self.view.frame
        if self.dataset == IMAGENET:
            rows = rows[(rows["task"] == "embed") | rows["model"].isin(FAMILY)]
        sizes = [n for n in paper.FIGURE5 if n < self.num_classes]
        tables = similarity.Correlation(**self.grid(sizes))(replace(self.view, frame=rows))
        named = [t.frame.assign(dataset=self.name, encoder=t.frame["encoder"].map(paper.short_encoder)) for t in tables]
        return {table.name: replace(table, frame=frame) for table, frame in zip(tables, named, strict=True)}


def sub_models(rows: pd.DataFrame) -> pd.DataFrame:
    """`train` runs on fewer classes than there are."""
    return rows[(rows["task"] == "train") & (rows["ncl"] < rows["num_classes"]).fillna(value=False)]


def full_models(rows: pd.DataFrame) -> pd.DataFrame:
    """Predictions of models that know every class, on the clean test images."""
    full = (rows["ncl"] == rows["num_classes"]).fillna(value=False) & (rows["split"] == "test")
    return rows[full & (rows["task"] == "predict") & (rows["shift"] == "clean")]


def studies(store: Store, query: str | None = None) -> Iterator[Study]:
    """The studies of a store, the paper's data sets first."""
    rows = store.rows(query)
    order = {dataset: place for place, dataset in enumerate(SHORT)}
    for dataset in sorted(rows["dataset"].dropna().unique(), key=lambda name: (order.get(name, len(order)), name)):
        part = rows[rows["dataset"] == dataset]
        reference = next((kind for kind in (sub_models(part), full_models(part)) if len(kind)), None)
        if reference is None:
            continue
        found = reference[list(AXES)].drop_duplicates()
        for values in found.to_dict("records"):
            lines, words = part, [dataset]
            for axis, value in values.items():
                lines = lines[lines[axis].isna() | (lines[axis] == value)]
                if len(found[axis].unique()) > 1 and pd.notna(value):
                    words.append(value if axis == "adaptation" else f"{axis} {value[:8]}")
            yield Study(" · ".join(words), dataset, View(store.outputs, frame=lines))


def attempted(found: Iterable[Study], work: Callable[[Study], Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """By the name of the study: what the work gives, and why the others have nothing."""
    done, reasons = {}, {}
    for study in found:
        try:
            done[study.name] = work(study)
        except FcaError as error:
            reasons[study.name] = str(error)
    return done, reasons


def ready(found: Iterable[Study]) -> tuple[list[Study], dict[str, str]]:
    """The studies that have accuracies, and why the others have none, by name."""
    usable, reasons = attempted(found, lambda study: (study, study.points)[0])
    return list(usable.values()), reasons


def typed(declared: TableSpec, lines: Iterable[Any]) -> pd.DataFrame:
    """These lines with the declared columns and types; what is missing stays missing."""
    numbers = {float: "float64", int: "Int64"}
    return declared.frame(lines).astype(
        {str(c): numbers[c.value_type] for c in declared.columns if c.value_type in numbers}
    )


def table1(published: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """A line for each cell of Table 1, or one for each of its runs; an empty cell has the command that fills it.

    top1: open, with Wilson's interval.    top1_minus_paper: ours minus the paper's.
    DCN: the best model; compared only when all ten are there. Its interval is the best model's, of test sampling alone.
    """
    full = full_models(rows).drop(columns=[*interval_columns(TOP1)])
    full = full.rename(columns={f"top1_open{end}": f"top1{end}" for end in ("", "_low", "_high")})
    full = full.assign(paper_model=full["model"].map(paper.short_model)).dropna(subset="paper_model")
    lines: list[dict[str, Any]] = []
    for short in (name for name in DATASETS if name in published.index):
        dataset, here = DATASETS[short], full[full["dataset"] == DATASETS[short]]
        cell = {"dataset": dataset, "paper_dataset": short}
        for name, (conf, _) in paper.MODELS.items():
            own = {**cell, "model": conf, "paper_model": name, "top1_paper": published.loc[short, name]}
            runs = records(here.loc[here["paper_model"] == name, [*interval_columns(TOP1), columns.N_TEST, *RUN]])
            lines += [{**own, **run} for run in runs] or [{**own, "command": paper.full_command(dataset, [conf])}]
        own = {**cell, "model": DCN, "paper_model": DCN, "top1_paper": published.loc[short, DCN]}
        lines.append({**own, **_best_of_ten(dataset, here)})
    frame = typed(TABLE1, lines)
    difference = (frame[TOP1] - frame[TOP1_PAPER]).where(frame[PAPER_MODEL].ne(DCN) | frame[columns.MODELS].eq(10))
    return frame.assign(**{DIFFERENCE: difference})


def _best_of_ten(dataset: str, runs: pd.DataFrame) -> dict[str, Any]:
    models = runs.groupby("paper_model")[[*interval_columns(TOP1)]].mean()  # not the luckiest run
    missing = [conf for name, (conf, _) in paper.MODELS.items() if name not in models.index]
    line = {"models": len(models), "command": paper.full_command(dataset, missing) if missing else None}
    if models.empty:
        return line
    best = models["top1"].idxmax()
    note = f"{best}, the best of {len(models)} of 10 models" + (": not compared" if missing else "")
    return {**line, **models.loc[best].to_dict(), "note": note}


def ranks(table: pd.DataFrame) -> pd.DataFrame:
    """Figure 2b: the rank of every model on every data set (1 = best; equals share theirs), the paper's and ours.

    Ours: over the models that have a run there (`models` of them), by the mean of their runs.
    """
    cells = table[table[PAPER_MODEL] != DCN].groupby([*CELL], sort=False)[[TOP1_PAPER, TOP1]].mean().reset_index()
    parts = []
    for whose, name in (("paper", TOP1_PAPER), ("ours", TOP1)):
        known = cells.dropna(subset=name)
        by = known.groupby("dataset")[name]
        ranked = known[[*CELL]].assign(top1=known[name], rank=by.rank(ascending=False), models=by.transform("size"))
        parts.append(ranked.assign(whose=whose))
    return FIGURE2B.frame(pd.concat(parts, ignore_index=True))


def agreement(published: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Spearman's rho over models of every data set's accuracies with those on ImageNet: the paper's, and ours.

    published: Table 1 of the paper.    table: our cells (see table1).    Interval: over models.
    """
    cells = table[table[PAPER_MODEL] != DCN]
    ours = cells.pivot_table(index=PAPER_DATASET, columns=PAPER_MODEL, values=TOP1, dropna=False)
    lines = []
    for whose, frame in (("paper", published.drop(columns=DCN)), ("ours", ours)):
        for short in (name for name in DATASETS if {name, "IN1K"} <= set(frame.index) and name != "IN1K"):
            reference, there = frame.loc[["IN1K", short]].dropna(axis="columns").to_numpy()
            if len(there) < 3:
                continue
            found = correlation(there, reference, "spearman")
            interval = correlation_interval(there, reference, np.arange(len(there)), "spearman")
            values = (
                short,
                DATASETS[short],
                whose,
                found.r,
                *interval,
                found.p,
                len(there),
            )
            lines.append(dict(zip(RANK_AGREEMENT.columns, values, strict=True)))
    frame = typed(RANK_AGREEMENT, lines).dropna(subset=RHO)
    return frame.sort_values([WHOSE, RHO], ascending=False, kind="stable", ignore_index=True)


def regret(published: pd.DataFrame) -> pd.DataFrame:
    """How far always taking one model stays below each data set's best: mean, interval over data sets, worst case."""
    models = published.drop(columns=DCN)
    lines = []
    for model, lost in models.rsub(models.max(axis="columns"), axis="index").items():
        values = (model, *mean_with_interval(lost), lost.max(), str(lost.idxmax()), len(lost))
        lines.append(dict(zip(REGRETS.columns, values, strict=True)))
    return REGRETS.frame(lines).sort_values(REGRET, ignore_index=True)


def by_ncl(found: Iterable[Study], best: pd.Series) -> dict[str, pd.DataFrame]:
    """Figures 1, 3 and 4 and what is beyond them, by name of the table; empty points have their command.

    figure1: the ResNet family on ImageNet: mean, spread and interval over subsets; beyond_figure1: every model on every
    other data set.    figure3: DCN-Full (open, and masked beside it) of the paper's data sets; figure4: DCN-Sub and
    DCN-Full at 2 to 4 classes; beyond_dcn: both of other data sets.    best: the paper's DCN on all classes.
    """
    found = list(found)
    family = [s.points[s.points["model"].isin(FAMILY)] for s in found if s.dataset == IMAGENET]
    others = [study.points for study in found if study.dataset != IMAGENET]
    sizes = {dataset: paper.grid(classes) for dataset, classes in paper.CLASSES.items()}
    lines1 = [{DATASET: IMAGENET, MODEL: m, PROTOCOL: p, NCL: n} for m, p, n in product(FAMILY, ORDER, sizes[IMAGENET])]
    lines3 = [(dataset, p, n) for dataset in sizes for p in ORDER[1:] for n in sizes[dataset]]
    return {
        "figure1": _with_gaps(FIGURE1, [_means(per_subset(points)) for points in family], lines1),
        "figure3": _dcn_by_ncl(FIGURE3, found, lines3, best),
        "figure4": _dcn_by_ncl(FIGURE4, found, list(product(sizes, ORDER, paper.FIGURE4)), best),
        "beyond_figure1": _with_gaps(BEYOND_FIGURE1, [_means(per_subset(points)) for points in others]),
        "beyond_dcn": _with_gaps(BEYOND_DCN, [_dcn(study) for study in found if study.dataset not in SHORT]),
    }


def _dcn_by_ncl(
    declared: TableSpec, found: list[Study], sizes: list[tuple[str, str, int]], best: pd.Series
) -> pd.DataFrame:
    wanted = pd.DataFrame(sizes, columns=[DATASET, PROTOCOL, NCL])
    pairs = wanted[[PROTOCOL, NCL]].drop_duplicates()
    frame = _with_gaps(declared, [_dcn(s).merge(pairs) for s in found if s.dataset in SHORT], records(wanted))
    dataset = frame[DATASET].map(base)
    whole = frame[PROTOCOL].eq("open") & frame[NCL].eq(dataset.map(paper.CLASSES))
    short = dataset.map(SHORT)
    return frame.assign(**{PAPER_DATASET: short, TOP1_PAPER: short.map(best).astype("float64").where(whole)})


def _dcn(study: Study) -> pd.DataFrame:
    """DCN of a study: mean over subsets as for a model, and how many models there were to choose from."""
    by = [DATASET, PROTOCOL, NCL]
    best = dcn(per_subset(study.points))
    models = best.groupby(by)["models"].max().reset_index()
    return _means(best.assign(model=DCN)).drop(columns=MODEL).merge(models, on=by)


def _means(subset: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracies, without what is known of guessing: the paper has none beside them."""
    return accuracy(subset).drop(columns=[columns.CHANCE, columns.AT_CHANCE])


def _with_gaps(declared: TableSpec, frames: list[pd.DataFrame], keys: Iterable[dict[str, Any]] = ()) -> pd.DataFrame:
    """All points there are, and a line with its command for every key of a data set that has no such point."""
    lines = [line for frame in frames for line in records(frame)]
    by = [c for c in (DATASET, MODEL, PROTOCOL, NCL) if c in declared.columns]
    there = {(base(line[DATASET]), *(line[c] for c in by[1:])) for line in lines}
    lines += [{**key, COMMAND: _command(**key)} for key in keys if tuple(key[c] for c in by) not in there]
    frame = typed(declared, lines)
    place = {dataset: at for at, dataset in enumerate(SHORT)}
    first = frame[DATASET].map(lambda name: place.get(base(name), len(place)))
    depth = frame[MODEL].map(lambda m: FAMILY.index(m) if m in FAMILY else len(FAMILY)) if MODEL in by else 0
    order = frame.assign(first=first, depth=depth, at=frame[PROTOCOL].map(ORDER.index))
    order = order.sort_values(["first", DATASET, "depth", "at", NCL], kind="stable")
    return frame.loc[order.index].reset_index(drop=True)


def _command(dataset: str, protocol: str, ncl: int, model: str | None = None) -> str:
    """What fills one empty point: a full model predicts at every ncl at once, a sub-model at its own."""
    models = [] if model is None else [model]
    return paper.sub_command(dataset, models, ncl) if protocol == "sub" else paper.full_command(dataset, models)


def findings(found: Iterable[Study]) -> pd.DataFrame:
    """Every finding on ImageNet (the ResNet family) and on every other study (all its models), and the paper's."""
    measured: dict[str, dict[str, Any]] = {}
    for study in found:
        subset = per_subset(study.points)
        models = study.view.frame.query("task != 'embed'").groupby("model")
        if study.dataset == IMAGENET:
            subset = subset[subset["model"].isin(FAMILY)]
        params = models["params"].max().dropna().astype("float64")
        whole = subset[(subset["ncl"] == study.num_classes) & (subset["protocol"] == "open")].set_index("model")["top1"]
        measured[study.name] = measures(subset, params, whole, study.num_classes, [*paper.FEW])
    if not any(base(name) == IMAGENET for name in measured):
        measured = {IMAGENET: {}, **measured}
    return typed(FIGURE1_FINDINGS, [line for name, lines in measured.items() for line in _findings(name, lines)])


def _findings(study: str, measured: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A line for each finding; (a) between other models only where it is measured."""
    dataset = base(study)
    models = FAMILY if dataset == IMAGENET else ()
    for name, (measure, _) in MEASURES.items():
        reported, sign = paper.TEXTS["findings"][name.partition(",")[0]]
        found = {**measured.get(name, {})}
        if found:
            verdict, _ = found.pop("verdict"), found.pop("no_effect")
            same = (verdict == "above") == sign.startswith("above")
            clear = f"yes, {'as in the paper' if same else 'the other way'}"
            found[SIGNIFICANT] = clear if verdict in ("above", "below") else "no"
        elif name.startswith("a, other models"):
            continue
        elif dataset in paper.CLASSES:
            commands = [paper.full_command(dataset, models), paper.sub_command(dataset, models)]
            found = {COMMAND: " && ".join({"c": commands[:1], "d": commands[1:]}.get(name[0], commands))}
        yield {DATASET: study, FINDING: name, PAPER_SAYS: reported, MEASURE: measure, PAPER_SIGN: sign, **found}


def figure5(published: pd.DataFrame, found: dict[str, dict[str, Table]]) -> pd.DataFrame:
    """On ImageNet, a line for each encoder, target and scope; empty lines have the commands that fill them.

    published: the paper's coefficients.    found: `Study.correlated` by name of the study.
    agrees: whether each r lies in the other's interval; missing where ours has none.
    """
    key = SAME[1:]
    lines = _coefficients(found, on=True)
    there = {tuple(line[c] for c in key) for line in lines}
    for encoder, target, pair in product(paper.ENCODERS, TARGETS.values(), SCOPES):
        if (encoder, target, *pair) not in there:
            make = paper.full_command if target == TARGETS["DCN-Full"] else paper.sub_command
            commands = [make(IMAGENET, FAMILY), paper.sim_command(IMAGENET, paper.ENCODERS[encoder][0])]
            empty = dict(zip(SAME, (IMAGENET, encoder, target, *pair), strict=True))
            lines.append({**empty, COMMAND: " && ".join(commands)})
    known = {(line["encoder"], line["target"]): line for line in records(published)}
    lines = [line | known.get((line[key[0]], line[key[1]]), {}) if _overall(line) else line for line in lines]
    frame = typed(FIGURE5, lines)
    r, paper_r = similarity.COEFFICIENT, R_PAPER
    inside = frame[r].between(frame[paper_r.low], frame[paper_r.high])
    inside &= frame[paper_r].between(frame[r.low], frame[r.high])
    agrees = inside.map({True: "yes", False: "no"}).where(frame[r.low].notna() & frame[paper_r].notna())
    frame = frame.assign(**{AGREES: agrees})
    return frame.sort_values([*key[:2]], key=lambda column: column.map(PLACE), kind="stable", ignore_index=True)


def _overall(line: dict[str, Any]) -> bool:
    return (line[similarity.PREDICTOR], line[similarity.SCOPE]) == SCOPES[0]


def elsewhere(found: dict[str, dict[str, Table]]) -> pd.DataFrame:
    """The same of every other study and encoder."""
    return typed(BEYOND_FIGURE5, _coefficients(found, on=False))


def _coefficients(found: dict[str, dict[str, Table]], on: bool) -> list[dict[str, Any]]:
    """Pearson's coefficients of DCN, of the studies on ImageNet or of the others."""
    frames = [tables["correlation"].frame for name, tables in found.items() if (base(name) == IMAGENET) is on]
    lines = [line for frame in frames for line in records(frame) if line["method"] == "pearson"]
    lines = [line for line in lines if (line["predictor"], line["scope"]) in SCOPES and line["target"] in PLACE]
    return [{str(c): line[c] for c in BEYOND_FIGURE5.columns} for line in lines]
