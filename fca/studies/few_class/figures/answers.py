"""What a few-class study answers at the top of a page, the most useful first."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fca.report import small
from fca.report.figure import Answer
from fca.report.small import interval
from fca.studies.few_class import accuracy, comparison
from fca.studies.few_class import difficulty_map as difficulty
from fca.studies.few_class import prediction as predicted
from fca.studies.few_class import similarity as alike
from fca.studies.few_class.correlation import COEFFICIENT, CORRELATION, CORRELATION_POINTS, METHOD, PREDICTOR, TARGET
from fca.studies.few_class.figures.prediction import NAMES as PREDICTORS
from fca.studies.table import DATASET, ENCODER, MODEL, MODELS, NCL, PROTOCOL, SUBSETS, TOP1
from fca.types import Column, with_interval

Found = tuple[str, Any] | None
KINDS = {  # protocol -> a model of this kind, and several
    "sub": ("a {} trained on them", "sub-models"),
    "masked": ("a {} trained on all classes, asked among them", "full models (masked)"),
    "open": ("a {} trained on all classes", "full models (open)"),
    "grouped": ("a {} trained on all classes, in groups", "full models (grouped)"),
}
SHARE = Column(TOP1, float, ".1%", "accuracy")
GAIN = Column(accuracy.SUB_MINUS_OPEN, float, "+.1%", "gain of a sub-model")
LIMITED = Column(accuracy.SUB_MINUS_MASKED, float, "+.1%", "gain of a sub-model")
LEAD = Column(comparison.DIFFERENCE, float, "+.1%", "lead")
R = Column(COEFFICIENT, float, ".2f", "correlation")
ERROR = Column(predicted.ERROR, float, ".1f", "error (% points)")
SIMSS = Column(alike.SIMSS, float, ".3f", "SimSS")
CLASSES = Column(NCL, int, ".0f", "classes")


def accuracy_answer(means: pd.DataFrame) -> Found:
    """The best model at the fewest classes, and what it reaches at the most.

    >>> line = {"dataset": "digits", "protocol": "sub", "model": "vit", "subsets": 3}
    >>> few = line | {"ncl": 2, "top1": 0.98, "top1_low": 0.97, "top1_high": 0.99}
    >>> many = line | {"ncl": 10, "top1": 0.91, "top1_low": 0.89, "top1_high": 0.93}
    >>> print(accuracy_answer(pd.DataFrame([few, many]))[0])
    With 2 classes of digits, a vit trained on them reaches 98.0 % [97.0, 99.0]; with 10, 91.0 %.
    """
    part = means.dropna(subset=TOP1)
    protocol = next(name for name in KINDS if (part[PROTOCOL] == name).any())
    part = part[part[PROTOCOL] == protocol]
    best = part.sort_values([NCL, TOP1], ascending=[True, False], kind="stable")[MODEL].iloc[0]
    curve = part[part[MODEL] == best].sort_values(NCL)
    known = curve[curve[SHARE.low].notna()]  # where all subsets score alike there is no interval
    few, many = (known if len(known) else curve).iloc[0].to_dict(), curve.iloc[-1].to_dict()
    who = KINDS[protocol][0].format(few[MODEL])
    most = f"; with {many[NCL]}, {interval({TOP1: many[TOP1]}, SHARE)}" if many[NCL] > few[NCL] else ""
    sentence = f"With {few[NCL]} classes of {few[DATASET]}, {who} reaches {interval(few, SHARE)}{most}."
    hover = (MODEL, CLASSES, *with_interval(SHARE), SUBSETS)
    return sentence, small.curve(curve, CLASSES, SHARE, hover)


def gain_answer(gap: pd.DataFrame) -> Found:
    """Sub-models against full models at the fewest classes; the full ones with all labels, then limited to the few.

    >>> line = {"dataset": "digits", "ncl": 2, "sub_minus_open": 0.022, "sub_minus_open_low": 0.004}
    >>> line |= {"sub_minus_open_high": 0.039, "sub_minus_masked": -0.01, "models": 3, "subsets": 3}
    >>> print(gain_answer(pd.DataFrame([line]))[0])
    Training on only the 2 classes gains +2.2 points [+0.4, +3.9] over a model of all classes of digits; \
against that model limited to the 2 labels, -1.0 points.
    >>> print(gain_answer(pd.DataFrame([line | {"sub_minus_open_low": -0.01, "sub_minus_open_high": 0.05}]))[0])
    Training on only the 2 classes makes no significant difference to a model of all classes of digits: \
+2.2 points [-1.0, +5.0]; against that model limited to the 2 labels, -1.0 points.
    """
    part = gap.dropna(subset=GAIN).sort_values(NCL, kind="stable")
    if part.empty:
        return None
    line = part.iloc[0].to_dict()
    only, against = f"Training on only the {line[NCL]} classes", f"a model of all classes of {line[DATASET]}"
    sentence = f"{only} gains {interval(line, GAIN)} over {against}"
    if line[GAIN.low] <= 0 <= line[GAIN.high]:
        sentence = f"{only} makes no significant difference to {against}: {interval(line, GAIN)}"
    elif line[GAIN] < 0:
        sentence = f"{only} costs accuracy: {interval(line, GAIN)} against {against}"
    if pd.notna(line.get(LIMITED)):
        sentence += f"; against that model limited to the {line[NCL]} labels, {interval(line, LIMITED)}"
    return f"{sentence}.", small.curve(part, CLASSES, GAIN, (CLASSES, *with_interval(GAIN), MODELS, SUBSETS), line=0.0)


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
    same = f"; {interval(lines['within ncl'], R)} among subsets of equal size" if len(lines) > 1 else ""
    about = f"r = {interval(line, R)} (SimSS by {line[ENCODER]}, {line['n']} subsets){same}"
    sentence = f"Class similarity {_predicts(line)} accuracy on {line[DATASET]}: {about}."
    here = (points[ENCODER] == line[ENCODER]) & (points[TARGET] == way)
    shown = points[here].reset_index(drop=True)
    return sentence, small.cloud(shown, SIMSS, SHARE, [name for name in (CLASSES, SIMSS, SHARE) if name in shown])


def _predicts(line: dict[Any, Any]) -> str:
    if pd.isna(line[R.low]):
        return "may or may not predict" if line.get("p", 1.0) > 0.05 else "goes with"
    return "predicts" if line[R.low] > 0 or line[R.high] < 0 else "does not significantly predict"


def winner_answer(paired: pd.DataFrame, means: pd.DataFrame) -> Found:
    """The most accurate model at the fewest classes, and its lead over the next.

    >>> line = {"dataset": "zoo", "protocol": "sub", "ncl": 2}
    >>> means = [line | {"model": "b", "top1": 0.9}, line | {"model": "a", "top1": 0.8}]
    >>> means += [line | {"ncl": 9, "model": "a", "top1": 0.7}]
    >>> pair = line | {"model_a": "a", "model_b": "b", "told_apart": True, "difference": -0.1}
    >>> pair |= {"difference_low": -0.15, "difference_high": -0.05}
    >>> print(winner_answer(pd.DataFrame([pair]), pd.DataFrame(means))[0])
    b is the most accurate of 2 sub-models at 2 classes of zoo: +10.0 points [+5.0, +15.0] ahead of a.
    """
    part = means.dropna(subset=TOP1)
    protocol = next(name for name in KINDS if (part[PROTOCOL] == name).any())
    part = part[(part[PROTOCOL] == protocol) & (part[NCL] < part[NCL].max())]
    part = part[part[NCL] == part[NCL].min()].sort_values(TOP1, ascending=False, kind="stable")
    if part[MODEL].nunique() < 2:
        return None
    dataset, ncl = part[DATASET].iloc[0], part[NCL].iloc[0]
    first, second = part[MODEL].iloc[0], part[MODEL].iloc[1]
    of = paired[(paired[NCL] == ncl) & (paired[PROTOCOL] == protocol)]
    both = of[[comparison.MODEL_A, comparison.MODEL_B]].isin([first, second]).all(axis="columns")
    if not both.any():
        return None
    line = of[both].iloc[0].to_dict()
    if line[comparison.MODEL_A] != first:
        line |= {LEAD: -line[LEAD], LEAD.low: -line[LEAD.high], LEAD.high: -line[LEAD.low]}
    clear = line[comparison.SIGNIFICANT] is True or line[comparison.SIGNIFICANT] == 1
    what = f"is the most accurate of {part[MODEL].nunique()} {KINDS[protocol][1]} at {ncl} classes of {dataset}"
    by = f"{interval(line, LEAD)} ahead of {second}{'' if clear else ', which is not significant'}"
    by = f"level with {second}" if line[LEAD] == 0 else by
    return f"{first} {what}: {by}.", small.dots(part, MODEL, SHARE, (MODEL, *with_interval(SHARE), SUBSETS))


def prediction_answer(prediction: pd.DataFrame) -> Found:
    """The predictor with the smallest error, beside the number of classes alone.

    >>> line = {"encoder": "hog", "target": "DCN sub", "held_out": "subset seed", "error_points_low": 1.0}
    >>> lines = [{**line, "predictor": "log_ncl", "error_points": 2.0, "error_points_high": 3.0}]
    >>> lines += [{**line, "predictor": "simss", "error_points": 1.5, "error_points_high": 2.0}]
    >>> print(prediction_answer(pd.DataFrame(lines))[0])
    Before training, the best predictor (SimSS) misses the accuracy of a new subset by 1.5 points [1.0, 2.0] on \
average; the number of classes alone by 2.0 [1.0, 3.0].
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
    line, base = others.iloc[0].to_dict(), interval(alone.iloc[0].to_dict(), ERROR)
    unseen = {"subset seed": "subset", "data set": "data set"}[line[predicted.HELD]]
    value, _, ends = interval(line, ERROR).partition(" ")
    error = f"misses the accuracy of a new {unseen} by {value} points {ends}".rstrip()
    sentence = f"Before training, the best predictor ({PREDICTORS[line[PREDICTOR]]}) {error} on average; "
    shown = pd.concat([others.head(3), alone]).assign(named=lambda few: few[PREDICTOR].map(PREDICTORS))
    hover = (Column("named", str, "", "predictor"), *with_interval(ERROR))
    return f"{sentence}the number of classes alone by {base}.", small.dots(shown, "named", ERROR, hover)


def hardest_answer(subsets: pd.DataFrame) -> Found:
    """The two classes that are hardest to separate."""
    part = subsets[(subsets[NCL] == subsets[NCL].min()) & (subsets["random"] > 1)]
    part = part[part[ENCODER] == subsets[ENCODER].iloc[0]]
    if part[difficulty.EXTREME].nunique() < 2:
        return None
    hard, easy = (part[part[difficulty.EXTREME] == which].iloc[0].to_dict() for which in ("hardest", "easiest"))
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
    Answer("Does training on only the few classes pay?", (accuracy.GAP,), gain_answer),
    Answer("Which model is best?", (comparison.PAIRED, accuracy.ACCURACY_MEANS), winner_answer),
    Answer("Can accuracy be known before training?", (predicted.PREDICTION,), prediction_answer),
    Answer("Which classes are hard?", (difficulty.DIFFICULTY_SUBSETS,), hardest_answer),
)
