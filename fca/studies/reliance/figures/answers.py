"""What the reliance study answers at the top of a page, the most useful first."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fca.report import small
from fca.report.figure import Answer
from fca.report.small import interval
from fca.studies.reliance import object_statistics as objects
from fca.studies.reliance import reliance as made
from fca.studies.reliance import spurious_rank as cues
from fca.studies.reliance.figures.reliance import ALTHOUGH
from fca.studies.reliance.metric_truth import UNCONFIRMED
from fca.studies.table import DATASET, LABEL, MODEL, TOP1, all_at_chance
from fca.types import Column, with_interval

Found = tuple[str, Any] | None
SHARE = Column(TOP1, float, ".0%", "accuracy without the object")
KEPT = Column(made.KEPT, float, ".0%", "accuracy kept")
GAP = Column(cues.GAP, float, "+.0%", "lead of images with strong cues")
BIAS = Column(made.BIAS, float, ".0%", "decisions for shape")
RAW = Column(objects.RAW, float, ".0%", "share of the image that is object")


def object_answer(accuracy: pd.DataFrame) -> Found:
    """How often the most accurate model is right although the object is gone.

    >>> line = {"dataset": "zoo", "model": "vgg16", "protocol": "open", "condition": "ablate/gray", "top1": 0.62}
    >>> line |= {"top1_low": 0.55, "top1_high": 0.69, "chance": 0.001, "trust": None}
    >>> print(object_answer(pd.DataFrame([line]))[0])
    Although the object is gray, vgg16 is still right on 62 % [55, 69] of the images of zoo (chance 0.1 %).
    """
    known = accuracy[accuracy[made.PROTOCOL] == "open"]
    change = next((name for name in ALTHOUGH if name in set(known[made.CONDITION])), None)
    if change is None:
        return None
    part = known[known[made.CONDITION] == change].sort_values(TOP1, ascending=False, kind="stable")
    line = part.iloc[0].to_dict()
    doubt = f"; with known cues this metric is {UNCONFIRMED}" if str(line[made.TRUST]).startswith(UNCONFIRMED) else ""
    chance = f"chance {100 * line[made.CHANCE]:.2g} %{doubt}"
    images = f"{interval(line, SHARE)} of the images of {line[DATASET]} ({chance})"
    chart = small.dots(part, MODEL, SHARE, (MODEL, *with_interval(SHARE)), line=float(line[made.CHANCE]))
    best = small.best_of(part, SHARE)[MODEL].tolist()
    names, verb = small.listed(best), "is" if len(best) == 1 else "are each"
    if all_at_chance(known[known[made.CONDITION] == made.CLEAN]):
        return f"Not known: models are at the level of chance on clean images of {line[DATASET]}, too.", chart
    if all_at_chance(part):
        return f"No: where {ALTHOUGH[change]}, no model is better than chance; {names} {verb} right on {images}.", chart
    return f"Although {ALTHOUGH[change]}, {names} {verb} still right on {images}.", chart


def class_answer(classes: pd.DataFrame, accuracy: pd.DataFrame) -> Found:
    """The class that keeps most of its accuracy without its object.

    >>> line = {"dataset": "zoo", "model": "vit", "protocol": "open", "label": "fish", "kept": 0.6, "kept_low": 0.5}
    >>> lines = [line | {"kept_high": 0.7, "rank": 1}, line | {"label": "car", "kept": 0.1, "rank": 2}]
    >>> print(class_answer(pd.DataFrame(lines), pd.DataFrame([line | {"condition": "clean"}]))[0])
    Of the classes of zoo, fish leans most on its surroundings: it keeps 60 % [50, 70] of its accuracy when its object \
is gone.
    """
    known = classes[classes[made.PROTOCOL] == "open"].dropna(subset=made.KEPT)
    known = known.sort_values(made.KEPT, ascending=False, kind="stable")
    if known.empty:
        return None
    mean = known[known[MODEL] == made.MEAN]
    part = (mean if len(mean) else known[known[MODEL] == known[MODEL].iloc[0]]).sort_values(made.RANK, kind="stable")
    best = small.best_of(part, KEPT)
    line = small.shared_line(best, KEPT)
    chart = small.dots(part, LABEL, KEPT, (LABEL, MODEL, *with_interval(KEPT)))
    if all_at_chance(accuracy[(accuracy[made.PROTOCOL] == "open") & (accuracy[made.CONDITION] == made.CLEAN)]):
        return f"Not known: models are at the level of chance on clean images of {line[DATASET]}.", chart
    keeps, gone = f"{interval(line, KEPT)} of its accuracy", "when its object is gone"
    most = best[LABEL].tolist()
    if len(part) == 1:
        return f"Of {line[DATASET]}, only {line[LABEL]} could be tested: it keeps {keeps} {gone}.", chart
    if len(most) == len(part):
        return f"None more than the others: each class of {line[DATASET]} keeps {keeps} {gone}.", chart
    verb, it = ("leans", "it keeps") if len(most) == 1 else ("lean", "each keeps")
    what = f"{small.listed(most)} {verb} most on {'its' if len(most) == 1 else 'their'} surroundings: {it} {keeps}"
    return f"Of the classes of {line[DATASET]}, {what} {gone}.", chart


def cue_answer(gap: pd.DataFrame) -> Found:
    """The model that gains most from strong cues, of those that gain significantly.

    >>> line = {"dataset": "zoo", "label": "all classes", "subject": "net", "gap": 0.12}
    >>> print(cue_answer(pd.DataFrame([line | {"label": cues.EVERY, "gap_low": 0.03, "gap_high": 0.21}]))[0])
    Where the cues of a class of zoo are strong, net is +12 points [+3, +21] more accurate than where they are weak.
    """
    known = gap[gap[LABEL] == cues.EVERY].dropna(subset=GAP)
    known = known[~known[cues.SUBJECT].str.contains("the encoder")]  # it has a gap by construction
    if known.empty:
        return None
    part = known.sort_values(GAP, ascending=False, kind="stable")
    significant = part[part[GAP.low] > 0]
    most = small.best_of(significant if len(significant) else part, GAP)
    line = small.shared_line(most, GAP)
    chart = small.dots(part, cues.SUBJECT, GAP, (cues.SUBJECT, *with_interval(GAP)), line=0.0)
    where = f"Where the cues of a class of {line[DATASET]} are strong"
    who, one = small.listed(most[cues.SUBJECT].tolist()), len(most) == 1
    if len(significant):
        verb = "is" if one else "are each"
        return f"{where}, {who} {verb} {interval(line, GAP)} more accurate than where they are weak.", chart
    models = "the model" if len(part) == 1 else f"none of {len(part)} models"
    not_clearly = "is not" if len(part) == 1 else "is"
    if most[GAP.low].isna().any():
        gain = "gains" if one else "each gain"
        return (
            f"Not known without an interval: {where[0].lower()}{where[1:]}, {who} {gain} {interval(line, GAP)}.",
            chart,
        )
    return f"{where}, {models} {not_clearly} significantly more accurate: {who} by {interval(line, GAP)}.", chart


def shape_answer(shapes: pd.DataFrame) -> Found:
    """The model that decides for shape most often.

    >>> line = {"dataset": "zoo", "model": "vit", "shape_bias": 0.6, "shape_bias_low": 0.55, "shape_bias_high": 0.7}
    >>> print(shape_answer(pd.DataFrame([line]))[0])
    Between shape and texture, vit decides for shape in 60 % [55, 70] of cases.
    """
    part = shapes.dropna(subset=BIAS).sort_values(BIAS, ascending=False, kind="stable")
    if part.empty:
        return None
    line = part.iloc[0].to_dict()
    most = small.best_of(part, BIAS)[MODEL].tolist()
    verb = "decides" if len(most) == 1 else "each decide"
    cases = f"in {interval(line, BIAS)} of cases"
    if line[BIAS.low] <= 0.5 <= line[BIAS.high]:
        cases += ", no significant preference"
    sentence = f"Between shape and texture, {small.listed(most)} {verb} for shape {cases}."
    return sentence, small.dots(part, MODEL, BIAS, (MODEL, *with_interval(BIAS)))


def size_answer(statistics: pd.DataFrame) -> Found:
    """How much of an image its object takes.

    >>> line = {"dataset": "zoo", "mask_area_raw": 0.3, "mask_area_raw_low": 0.2, "mask_area_raw_high": 0.4}
    >>> print(size_answer(pd.DataFrame([line | {"label": objects.ALL}, line | {"label": "cat"}]))[0])
    Objects take 30 % [20, 40] of an image of zoo.
    """
    known = statistics.dropna(subset=RAW)
    whole = known[known[LABEL] == objects.ALL]
    if whole.empty:
        return None
    line = whole.iloc[0].to_dict()
    part = known[known[LABEL] != objects.ALL].sort_values(RAW, kind="stable")
    shown = pd.concat([whole, part.head(2), part.tail(1)]).drop_duplicates(LABEL)
    sentence = f"Objects take {interval(line, RAW)} of an image of {line[DATASET]}."
    return sentence, small.dots(shown, LABEL, RAW, (LABEL, *with_interval(RAW)))


ANSWERS = (
    Answer("Is the class still predicted without its object?", (made.ACCURACY,), object_answer),
    Answer("Which class leans on its surroundings?", (made.BY_CLASS, made.ACCURACY), class_answer),
    Answer("Do spurious cues help?", (cues.SPURIOUS_GAP,), cue_answer),
    Answer("Shape or texture?", (made.SHAPES,), shape_answer),
    Answer("How large are the objects?", (objects.OBJECT_STATISTICS,), size_answer),
)
