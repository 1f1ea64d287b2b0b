"""What a few-class study answers at the top of a page, the most useful first."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fca.report import small
from fca.report.figure import Answer
from fca.report.small import ALIKE, interval
from fca.studies.few_class import accuracy, comparison
from fca.studies.few_class import difficulty_map as difficulty
from fca.studies.few_class import prediction as predicted
from fca.studies.few_class import similarity as alike
from fca.studies.few_class.correlation import COEFFICIENT, CORRELATION, CORRELATION_POINTS, METHOD, PREDICTOR, TARGET
from fca.studies.few_class.figures.prediction import NAMES as PREDICTORS
from fca.studies.table import (
    CHANCE,
    DATASET,
    ENCODER,
    MODEL,
    MODELS,
    NCL,
    PROTOCOL,
    SUBSETS,
    TOP1,
    all_at_chance,
)
from fca.types import Column, with_interval

Found = tuple[str, Any] | None
KINDS = {  # protocol -> a model of this kind, and several
    "sub": ("a {} trained on them", "sub-models"),
    "masked": ("a {} trained on all classes, asked among them", "full models (masked)"),
    "open": ("a {} trained on all classes", "full models (open)"),
    "grouped": ("a {} trained on all classes, in groups", "full models (grouped)"),
}
SHARE = Column(TOP1, float, ".1%", "accuracy")
GUESS = Column(CHANCE, float, ".1%", "accuracy of guessing")
GAIN = Column(accuracy.SUB_MINUS_OPEN, float, "+.1%", "gain of a sub-model")
LIMITED = Column(accuracy.SUB_MINUS_MASKED, float, "+.1%", "gain of a sub-model")
LEAD = Column(comparison.DIFFERENCE, float, "+.1%", "lead")
R = Column(COEFFICIENT, float, ".2f", "correlation")
ERROR = Column(predicted.ERROR, float, ".1f", "error (% points)")
SIMSS = Column(alike.SIMSS, float, ".3f", "SimSS")
NO_ACCURACY = "all models are at the level of chance, so there is no accuracy to predict"
FEWEST_POINTS = 4  # for a correlation: three lie near a line too often
CLASSES = Column(NCL, int, ".0f", "classes")


def accuracy_answer(means: pd.DataFrame) -> Found:
    """The best model at the fewest classes, and the best one at the most.

    >>> line = {"dataset": "digits", "protocol": "sub", "model": "vit", "subsets": 3}
    >>> few = line | {"ncl": 2, "top1": 0.98, "top1_low": 0.97, "top1_high": 0.99}
    >>> many = line | {"ncl": 10, "top1": 0.91, "top1_low": 0.89, "top1_high": 0.93}
    >>> print(accuracy_answer(pd.DataFrame([few, many]))[0])
    With 2 classes of digits, a vit trained on them reaches 98.0 % [97.0, 99.0]; with 10, 91.0 %.
    >>> other = {"model": "net", "top1": 0.95}
    >>> print(accuracy_answer(pd.DataFrame([few, few | other, many, many | other]))[0])
    With 2 classes of digits, the best of 2 sub-models, vit, reaches 98.0 % [97.0, 99.0]; with 10, net, 95.0 %.
    >>> print(accuracy_answer(pd.DataFrame([few | {"chance": 0.98, "at_chance": True}, many]))[0])
    With 2 classes of digits, a vit trained on them is at the level of chance (98.0 %): 98.0 % [97.0, 99.0]; with 10, \
91.0 %.
    """
    part = means.dropna(subset=TOP1)
    protocol = next(name for name in KINDS if (part[PROTOCOL] == name).any())
    part = part[part[PROTOCOL] == protocol]
    best = pd.concat([small.best_of(same, SHARE) for _, same in part.groupby(NCL, sort=True)])
    has_interval = best[best[SHARE.low].notna()]  # where all subsets score alike there is no interval
    fewest, most = (has_interval if len(has_interval) else best)[NCL].min(), best[NCL].max()

    few = best[best[NCL] == fewest].iloc[0].to_dict()
    at_fewest = part[part[NCL] == fewest]
    models_at_fewest = at_fewest[MODEL].nunique()
    one_model = len(part[MODEL].unique()) == 1
    who = KINDS[protocol][0].format(few[MODEL]) if one_model else _best_in_words(part, best, fewest, KINDS[protocol][1])
    value = interval(few, SHARE)
    is_at_chance = all_at_chance(at_fewest)
    if is_at_chance and models_at_fewest > 1:
        who = small.all_of(models_at_fewest, KINDS[protocol][1])
        answer = f"{who} are at the level of chance ({_guess(few)})"
    elif is_at_chance:
        answer = f"{who} is at the level of chance ({_guess(few)}): {value}"
    else:
        several = not one_model and (best[NCL] == fewest).sum() > 1
        answer = f"{who} {'reach' if several else 'reaches'} {value}"
    sentence = f"With {fewest} classes of {few[DATASET]}, {answer}"

    if most > fewest:
        sentence += f"; with {most}, {_at_most_classes(part[part[NCL] == most], best[best[NCL] == most], one_model)}"
    hover = (MODEL, CLASSES, *with_interval(SHARE), SUBSETS)
    return f"{sentence}.", small.curve(best.drop_duplicates(NCL), CLASSES, SHARE, hover)


def _best_in_words(part: pd.DataFrame, best: pd.DataFrame, ncl: int, kind: str) -> str:
    """`the best of 3 sub-models, vit,`; of models that are all equal, `each of 3 sub-models`."""
    names, count = best.loc[best[NCL] == ncl, MODEL].tolist(), part.loc[part[NCL] == ncl, MODEL].nunique()
    if count == 1:
        return f"{names[0]}, the only one of the {kind} there,"
    if len(names) == count:
        return small.all_of(count, kind)
    return f"the best of {count} {kind}, {small.listed(names)},"


def _guess(line: dict[Any, Any]) -> str:
    return interval({CHANCE: line[CHANCE]}, GUESS)


def _at_most_classes(every: pd.DataFrame, best: pd.DataFrame, one_model: bool) -> str:
    """The best models at the most classes with their accuracy, or that all are at the level of chance, without a name.

    every: the models there.    best: those of them that are the best.    one_model: whether the page has but one.
    """
    count = every[MODEL].nunique()
    if all_at_chance(every):
        level = f"at the level of chance ({_guess(every.iloc[0].to_dict())})"
        if one_model:
            return f"it is {level}"
        if count == 1:
            return f"{every[MODEL].iloc[0]}, the only one, is {level}"
        return f"{small.all_of(count)} are {level}"

    value = interval({TOP1: best[TOP1].iloc[0]}, SHARE)
    if one_model:
        return value
    if len(best) == count > 1:
        return f"{small.all_of(count)}, {value}"
    return f"{small.listed(best[MODEL].tolist())}{', the only one' if count == 1 else ''}, {value}"


def gain_answer(gap: pd.DataFrame, means: pd.DataFrame) -> Found:
    """Sub-models against full models at the fewest classes: limited to the same labels, then open to all.

    Only the first is fair, as both then know which classes there are. The second is large by construction.

    >>> line = {"dataset": "digits", "ncl": 2, "sub_minus_open": 0.22, "models": 3, "subsets": 3}
    >>> line |= {"sub_minus_masked": 0.022, "sub_minus_masked_low": 0.004, "sub_minus_masked_high": 0.039}
    >>> means = pd.DataFrame([{"dataset": "digits", "ncl": 2, "protocol": "sub", "at_chance": False}])
    >>> print(gain_answer(pd.DataFrame([line]), means)[0])
    Yes: at 2 classes of digits, sub-models are +2.2 points [+0.4, +3.9] better than models of all classes limited to \
the same labels (open to all labels: +22.0 points, as there is more to confuse).
    >>> print(gain_answer(pd.DataFrame([line | {"sub_minus_masked_low": -0.01}]), means)[0].partition(",")[0])
    Not significantly: at 2 classes of digits
    """
    part = gap.dropna(subset=GAIN).sort_values(NCL, kind="stable")
    if part.empty:
        return None
    line = part.iloc[0].to_dict()
    where = f"at {line[NCL]} classes of {line[DATASET]}"
    ours = means[(means[NCL] == line[NCL]) & means[PROTOCOL].isin(["sub", "masked"])]
    column = LIMITED if pd.notna(line.get(LIMITED)) else GAIN
    chart = small.curve(part, CLASSES, column, (CLASSES, *with_interval(column), MODELS, SUBSETS), line=0.0)
    if all_at_chance(ours):
        return f"Not known: {where}, sub-models and full models are at the level of chance.", chart

    open_gain = interval({GAIN: line[GAIN]}, GAIN)
    if column is GAIN:
        lacking = "no full model limited to the same labels is stored"
        return f"Not known: {where}, {lacking} (open to all labels: {open_gain}, as there is more to confuse).", chart
    limited = "models of all classes limited to the same labels"
    beside = f"(open to all labels: {open_gain}, as there is more to confuse)"
    low, high = (float(line.get(end, float("nan"))) for end in (LIMITED.low, LIMITED.high))
    if pd.isna(low) or low == high:
        return f"{_without_interval(line, where, limited)} {beside}.", chart
    if low > 0:
        verdict, compared = "Yes", f"are {interval(line, LIMITED)} better than"
    elif high < 0:
        verdict, compared = "No", f"are worse, by {interval(line, LIMITED)}, than"
    else:
        verdict, compared = "Not significantly", f"differ by {interval(line, LIMITED)} from"
    return f"{verdict}: {where}, sub-models {compared} {limited} {beside}.", chart


def _without_interval(line: dict[Any, Any], where: str, limited: str) -> str:
    """What a difference shows that has no interval; an exact 0 of several subsets is a difference, too: none."""
    difference = abs(float(line[LIMITED]))
    one_subset = line[SUBSETS] == 1
    if difference <= ALIKE:
        compared = f"as accurate as {limited}"
        if not one_subset:
            return f"No: {where}, sub-models are on average {compared}"
        return f"Not known from one subset: {where}, sub-models are {compared} on it"

    is_small = f"{100 * difference:.1f}" == "0.0"
    differ = f"differ by {'less than 0.05 points' if is_small else interval(line, LIMITED)} from {limited}"
    verdict = "Not known from one subset" if one_subset else "Not known without an interval"
    return f"{verdict}: {where}, sub-models {differ}"


def similarity_answer(correlation: pd.DataFrame, points: pd.DataFrame) -> Found:
    """Correlation of SimSS with accuracy, over all subsets and within equal ncl.

    >>> line = {"dataset": "digits", "encoder": "hog", "target": "DCN sub", "method": "pearson", "predictor": "simss"}
    >>> over = {"scope": "all", "r": 0.84, "r_low": 0.7, "r_high": 0.93, "n": 30}
    >>> lines = [line | over, line | {"scope": "within ncl", "r": 0.55, "r_low": 0.2, "r_high": 0.8, "n": 24}]
    >>> point = {"dataset": "digits", "encoder": "hog", "target": "DCN sub", "simss": 0.1, "top1": 0.9}
    >>> print(similarity_answer(pd.DataFrame(lines), pd.DataFrame([point]))[0])
    Class similarity predicts accuracy on digits: r = 0.84 [0.70, 0.93] (SimSS by hog, 30 subsets); \
0.55 [0.20, 0.80] among subsets of equal size.
    """
    known = correlation[(correlation[METHOD] == "pearson") & (correlation[PREDICTOR] == "simss")]
    part = known[known[TARGET].str.startswith("DCN ")].dropna(subset=COEFFICIENT)
    if part.empty:
        return None
    way = next(target for target in ("DCN sub", "DCN open", *part[TARGET]) if (part[TARGET] == target).any())
    part = part[part[TARGET] == way].sort_values("scope", kind="stable")
    part = part[part[ENCODER] == part[ENCODER].iloc[0]]
    lines = {str(line["scope"]): line for line in part.to_dict("records")}
    line = lines.get("all", part.iloc[0].to_dict())
    here = (points[ENCODER] == line[ENCODER]) & (points[TARGET] == way)
    shown = points[here].reset_index(drop=True)
    chart = small.cloud(shown, SIMSS, SHARE, [name for name in (CLASSES, SIMSS, SHARE) if name in shown])
    if all_at_chance(part):
        return f"Not known: on {line[DATASET]}, {NO_ACCURACY}.", chart

    same = f"; {interval(lines['within ncl'], R)} among subsets of equal size" if len(lines) > 1 else ""
    about = f"r = {interval(line, R)} (SimSS by {line[ENCODER]}, {line['n']} subsets){same}"
    sentence = f"Class similarity {_predicts(line)} accuracy on {line[DATASET]}: {about}."
    if line["n"] < FEWEST_POINTS:
        subsets = f"{line['n']} subset{'' if line['n'] == 1 else 's'}"
        sentence = f"Not known: {subsets} of {line[DATASET]} cannot show whether similarity predicts accuracy."
    return sentence, chart


def _predicts(line: dict[Any, Any]) -> str:
    if pd.isna(line[R.low]):
        return "may or may not predict" if not line.get("p", 1.0) <= 0.05 else "goes with"
    if line[R.high] < 0:
        return "predicts, the wrong way round,"
    return "predicts" if line[R.low] > 0 else "does not significantly predict"


def winner_answer(paired: pd.DataFrame, means: pd.DataFrame) -> Found:
    """The most accurate model at the fewest classes, and its lead over the next.

    >>> line = {"dataset": "zoo", "protocol": "sub", "ncl": 2}
    >>> means = [line | {"model": "b", "top1": 0.9}, line | {"model": "a", "top1": 0.8}]
    >>> means += [line | {"ncl": 9, "model": "a", "top1": 0.7}]
    >>> pair = line | {"model_a": "a", "model_b": "b", "told_apart": True, "difference": -0.1}
    >>> pair |= {"difference_low": -0.15, "difference_high": -0.05}
    >>> print(winner_answer(pd.DataFrame([pair]), pd.DataFrame(means))[0])
    b is the most accurate of 2 sub-models at 2 classes of zoo: +10.0 points [+5.0, +15.0] ahead of a.
    >>> print(winner_answer(pd.DataFrame([pair | {"told_apart": False}]), pd.DataFrame(means))[0])
    None of 2 sub-models is significantly the best at 2 classes of zoo: b is +10.0 points [+5.0, +15.0] ahead of a.
    """
    part = means.dropna(subset=TOP1)
    protocol = next(name for name in KINDS if (part[PROTOCOL] == name).any())
    part = part[(part[PROTOCOL] == protocol) & (part[NCL] < part[NCL].max())]
    part = part[part[NCL] == part[NCL].min()].sort_values(TOP1, ascending=False, kind="stable")
    if part[MODEL].nunique() < 2:
        return None
    dataset, ncl = part[DATASET].iloc[0], part[NCL].iloc[0]
    several = f"{part[MODEL].nunique()} {KINDS[protocol][1]}"
    every = small.all_of(part[MODEL].nunique(), KINDS[protocol][1])
    where = f"at {ncl} classes of {dataset}"
    chart = small.dots(part, MODEL, SHARE, (MODEL, *with_interval(SHARE), SUBSETS))
    if all_at_chance(part):
        return f"Not known: {every} {where} are at the level of chance.", chart
    best = small.best_of(part, SHARE)[MODEL].tolist()
    if len(best) > 1:
        equal = every if len(best) == part[MODEL].nunique() else f"{small.listed(best)}, of {several},"
        return f"None alone: {equal} are equally accurate {where}.", chart

    first, second = part[MODEL].iloc[0], part[MODEL].iloc[1]
    of = paired[(paired[NCL] == ncl) & (paired[PROTOCOL] == protocol)]
    both = of[[comparison.MODEL_A, comparison.MODEL_B]].isin([first, second]).all(axis="columns")
    if not both.any():
        return None
    line = of[both].iloc[0].to_dict()
    if line[comparison.MODEL_A] != first:
        line |= {LEAD: -line[LEAD], LEAD.low: -line[LEAD.high], LEAD.high: -line[LEAD.low]}
    clear = line[comparison.SIGNIFICANT]
    lead = f"{interval(line, LEAD)} ahead of {second}"
    if pd.isna(clear):
        return f"Not tested: of {several} {where}, {first} is {lead}.", chart
    if clear:
        return f"{first} is the most accurate of {several} {where}: {lead}.", chart
    return f"None of {several} is significantly the best {where}: {first} is {lead}.", chart


def prediction_answer(prediction: pd.DataFrame) -> Found:
    """The predictor with the smallest error, beside the number of classes alone.

    >>> line = {"encoder": "hog", "target": "DCN sub", "held_out": "subset seed", "error_points_low": 1.0}
    >>> lines = [{**line, "predictor": "log_ncl", "error_points": 2.0, "error_points_high": 3.0}]
    >>> lines += [{**line, "predictor": "simss", "error_points": 1.5, "error_points_high": 2.0}]
    >>> print(prediction_answer(pd.DataFrame(lines).assign(verdict="beyond ncl"))[0])
    Before training, the best predictor (SimSS) misses the accuracy of a new subset by 1.5 points [1.0, 2.0] on \
average; the number of classes alone by 2.0 [1.0, 3.0].
    >>> near = {**lines[1], "predictor": "logme", "error_points": 1.4, "error_points_high": 2.1, "verdict": "undecided"}
    >>> tied = pd.DataFrame([line | {"verdict": "beyond ncl"} for line in lines] + [near])
    >>> print(prediction_answer(tied)[0].partition(" by 2.0 ")[2])
    [1.0, 3.0]. Other predictors have errors within that interval, so none is shown to be the best: LogME 1.4.
    >>> print(prediction_answer(pd.DataFrame(lines).assign(verdict="not beyond ncl"))[0])
    Before training, nothing predicts significantly better than the number of classes alone, which misses the accuracy \
of a new subset by 2.0 points [1.0, 3.0] on average; SimSS by 1.5 [1.0, 2.0].
    """
    known = prediction.dropna(subset=predicted.ERROR)
    if known.empty:
        return None
    panel = [ENCODER, TARGET, predicted.HELD]
    here = (known[panel] == known[panel].iloc[0].tolist()).all(axis="columns")
    part = known[here].sort_values(predicted.ERROR, kind="stable")
    alone = part[part[PREDICTOR] == predicted.BASELINE]
    others = part[~part[PREDICTOR].isin(["mean", "ncl", predicted.BASELINE])]
    if alone.empty or others.empty:
        return None
    shown = pd.concat([others.head(3), alone]).assign(named=lambda few: few[PREDICTOR].map(PREDICTORS))
    chart = small.dots(shown, "named", ERROR, (Column("named", str, "", "predictor"), *with_interval(ERROR)))

    if all_at_chance(part):
        return f"Not known: {NO_ACCURACY}.", chart

    unseen = {"subset seed": "subset", "data set": "data set"}[others[predicted.HELD].iloc[0]]
    helping = others[others[predicted.VERDICT] == "beyond ncl"]
    best = small.best_of(helping if len(helping) else others, ERROR, largest=False)
    line, base = best.iloc[0].to_dict(), alone.iloc[0].to_dict()
    name = small.listed([PREDICTORS[predictor] for predictor in best[PREDICTOR]])
    misses = f"misses the accuracy of a new {unseen} by"
    if helping.empty:
        nothing = "nothing predicts significantly better than the number of classes alone, which"
        sentence = f"{nothing} {misses} {_in_points(base)} on average; {name} by {interval(line, ERROR)}"
    else:
        near = _near_ties(others, best)
        predictors = f"the best predictor ({name})"
        if len(best) > 1:
            predictors = f"each of the best predictors ({name})"
        elif near:
            predictors = name
        alone_by = f"the number of classes alone by {interval(base, ERROR)}"
        sentence = f"{predictors} {misses} {_in_points(line)} on average; {alone_by}"
        if near:
            tie = "Other predictors have errors within that interval, so none is shown to be the best"
            sentence += f". {tie}: {small.listed(near)}"
    return f"Before training, {sentence}.", chart


def _near_ties(others: pd.DataFrame, best: pd.DataFrame) -> list[str]:
    """The other predictors whose error lies within the interval of the best, with their errors."""
    low, high = best[ERROR.low].iloc[0], best[ERROR.high].iloc[0]
    near = others[others[ERROR].between(low, high) & ~others.index.isin(best.index)]
    return [f"{PREDICTORS[line[PREDICTOR]]} {line[ERROR]:.1f}" for line in near.to_dict("records")]


def _in_points(line: Any) -> str:
    value, _, ends = interval(line, ERROR).partition(" ")
    return f"{value} points {ends}".rstrip()


def hardest_answer(subsets: pd.DataFrame) -> Found:
    """The two classes that are hardest to separate."""
    part = subsets[(subsets[NCL] == subsets[NCL].min()) & (subsets["random"] > 1)]
    part = part[part[ENCODER] == subsets[ENCODER].iloc[0]]
    if part[difficulty.EXTREME].nunique() < 2:
        return None
    hard, easy = (part[part[difficulty.EXTREME] == which].iloc[0].to_dict() for which in ("hardest", "easiest"))
    if not hard[SIMSS] < easy[SIMSS]:  # all subsets are equally hard
        return None
    names = [" and ".join(map(str, line[difficulty.KEYS])) for line in (hard, easy)]
    ends = f"{hard[SIMSS]:.3f}, against {hard['random_q05']:.3f} to {hard['random_q95']:.3f} for 90 % of random ones"
    sentence = f"The classes of {hard[DATASET]} hardest to separate are {names[0]} (SimSS {ends})."
    random: dict[str, Any] = {SIMSS: hard["random_mean"], SIMSS.low: hard["random_q05"], SIMSS.high: hard["random_q95"]}
    lines = [{"named": names[0], SIMSS: hard[SIMSS]}, {"named": "random", **random}]
    lines.append({"named": names[1], SIMSS: easy[SIMSS]})
    frame = pd.DataFrame(lines, columns=["named", *with_interval(SIMSS)])
    return sentence, small.dots(frame, "named", SIMSS, (Column("named", str, "", "classes"), *with_interval(SIMSS)))


ANSWERS = (
    Answer("How accurate is a model of few classes?", (accuracy.ACCURACY_MEANS,), accuracy_answer),
    Answer("Does similarity predict accuracy?", (CORRELATION, CORRELATION_POINTS), similarity_answer),
    Answer("Does training on only the few classes pay?", (accuracy.GAP, accuracy.ACCURACY_MEANS), gain_answer),
    Answer("Which model is best?", (comparison.PAIRED, accuracy.ACCURACY_MEANS), winner_answer),
    Answer("Can accuracy be known before training?", (predicted.PREDICTION,), prediction_answer),
    Answer("Which classes are hard?", (difficulty.DIFFICULTY_SUBSETS,), hardest_answer),
)
