"""What a study by item response theory answers at the top of a page, the most useful first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fca.report import small
from fca.report.figure import Answer
from fca.report.small import interval
from fca.studies.irt import class_robustness as robust
from fca.studies.irt import corruption_accuracy as harm
from fca.studies.irt import difficulty_segments as segments
from fca.studies.irt import gallery as shown_images
from fca.studies.irt import irt
from fca.studies.irt import label_errors as errors
from fca.studies.irt.fits import ABILITY, ITEM_TOP1, SUBJECT, TRAIT
from fca.studies.irt.irt import TAU
from fca.studies.table import AT_CHANCE, CORRUPTION, DATASET, IMAGE_ID, LABEL, SEVERITY, TOP1, all_at_chance
from fca.types import Column, with_interval

Found = tuple[str, Any] | None
RECALL = Column(errors.RECALLS[-1], float, ".0%", "wrong labels found")
RIGHT = Column(segments.SHARE_RIGHT, float, ".0%", "right on the hard quarter")
ORDER = Column(TAU, float, ".3f", "Kendall's tau")
SHARE = Column(TOP1, float, ".1%", "accuracy")
BY_CHANCE = 0.25  # of the wrong labels, in a quarter of the images
FEWEST_ORDERED = 3  # subjects: two are in one of two orders anyway


def label_answer(rules: pd.DataFrame, curve: pd.DataFrame) -> Found:
    """How many of the wrong labels are among the quarter that the best rule suspects most.

    >>> line = {"dataset": "zoo", "rule": "low_top1", "auc": 0.9, "errors": 54}
    >>> line |= {"recall_25": 0.75, "recall_25_low": 0.6, "recall_25_high": 0.85}
    >>> points = pd.DataFrame([{"dataset": "zoo", "rule": "low_top1", "share_flagged": 0.25, "recall": 0.75}])
    >>> print(label_answer(pd.DataFrame([line]), points)[0])
    Reviewing the 25 % most suspect images of zoo finds 75 % [60, 85] of the 54 known wrong labels.
    """
    part = rules.dropna(subset=RECALL).sort_values(errors.AUC, ascending=False, kind="stable")
    if part.empty:
        return None
    line = part.iloc[0].to_dict()
    labels = "1 known wrong label" if line["errors"] == 1 else f"{line['errors']:.0f} known wrong labels"
    found = f"finds {interval(line, RECALL)} of the {labels}"
    if line.get(RECALL.low, 1.0) <= BY_CHANCE:
        found += f", not significantly more than the {100 * BY_CHANCE:.0f} % that chance finds"
    shown = curve[curve[errors.RULE] == line[errors.RULE]].reset_index(drop=True)
    drawn = small.lines(shown, errors.SHARE_FLAGGED, errors.RECALL, errors.RULE, (errors.SHARE_FLAGGED, errors.RECALL))
    return f"Reviewing the 25 % most suspect images of {line[DATASET]} {found}.", drawn


def images_answer(gallery: pd.DataFrame) -> Found:
    """The hardest image, and the label that looks most wrong.

    >>> hard = {"dataset": "zoo", "kind": "hardest", "rank": 1, "image_id": "7.png", "thumbnail": None}
    >>> hard |= {"label": "cat", "predicted": "dog (9)", "top1": 0.0}
    >>> print(images_answer(pd.DataFrame([hard, hard | {"kind": "suspect", "image_id": "3.png"}]))[0])
    The hardest image of zoo is 7.png: its label is cat, the models predict dog (9). Look first at the label of 3.png: \
it is cat, the models predict dog (9).
    >>> print(images_answer(pd.DataFrame([hard, hard | {"kind": "suspect"}]))[0])
    The hardest image of zoo is 7.png: its label is cat, the models predict dog (9). Its label is also the most suspect.
    """
    kinds_of_images = gallery[shown_images.KIND]
    hardest = gallery[kinds_of_images == "hardest"].sort_values("rank", kind="stable")
    suspects = gallery[kinds_of_images == "suspect"].sort_values("rank", kind="stable")
    if hardest.empty:
        return None
    first = hardest.iloc[0].to_dict()
    sentence = f"The hardest image of {first[DATASET]} is {first[IMAGE_ID]}: its label is {_predicted_instead(first)}."
    if len(suspects):
        suspect = suspects.iloc[0].to_dict()
        if suspect[IMAGE_ID] == first[IMAGE_ID]:
            sentence += " Its label is also the most suspect."
        else:
            sentence += f" Look first at the label of {suspect[IMAGE_ID]}: it is {_predicted_instead(suspect)}."

    pictured = hardest.dropna(subset="thumbnail")
    if len(pictured):
        hover = (IMAGE_ID, LABEL, shown_images.PREDICTED)
        return sentence, small.strip(pictured, LABEL, hover)
    share_right = Column(ITEM_TOP1, float, ".0%", "models that are right")
    return sentence, small.dots(hardest, IMAGE_ID, share_right, (IMAGE_ID, LABEL, share_right))


def _predicted_instead(line: Mapping[Any, Any]) -> str:
    """The label of an image, and what the models predict where that is known."""
    predicted = line[shown_images.PREDICTED]
    return f"{line[LABEL]}" if pd.isna(predicted) else f"{line[LABEL]}, the models predict {predicted}"


def hard_answer(models: pd.DataFrame) -> Found:
    """Who solves most and fewest of the hard quarter of clean images.

    >>> line = {"dataset": "zoo", "severity": 0, "segment": "hard"}
    >>> a = {"subject": "a", "share": 0.5, "share_low": 0.4, "share_high": 0.6}
    >>> b = {"subject": "b", "share": 0.2, "share_low": 0.1, "share_high": 0.3}
    >>> print(hard_answer(pd.DataFrame([line | a, line | b]))[0])
    On the hard quarter of the images of zoo, a is right on 50 % [40, 60]; the weakest of 2, b, on 20 %.
    """
    hard = models[(models[segments.SEGMENT] == "hard") & (models[SEVERITY] == 0)]
    part = hard.sort_values(RIGHT, ascending=False, kind="stable")
    if part.empty:
        return None
    first, last = part.iloc[0].to_dict(), part.iloc[-1].to_dict()
    where = f"On the hard quarter of the images of {first[DATASET]}"
    shown = pd.concat([part.head(3), part.tail(1)]).drop_duplicates(SUBJECT)
    chart = small.dots(shown, SUBJECT, RIGHT, (SUBJECT, *with_interval(RIGHT)))
    if all_at_chance(part):
        return f"Not known: on clean images of {first[DATASET]}, all subjects are at the level of chance.", chart

    best, worst = (small.best_of(part, RIGHT, largest)[SUBJECT].tolist() for largest in (True, False))
    if len(part) > 1 and len(best) == len(part):
        sentence = f"{where}, {small.all_of(len(part), 'subjects')} are equally often right: {interval(first, RIGHT)}"
    else:
        verb = "is" if len(best) == 1 else "are each"
        sentence = f"{where}, {small.listed(best)} {verb} right on {interval(first, RIGHT)}"
    if len(best) < len(part):
        sentence += f"; the weakest of {len(part)}, {small.listed(worst)}, on {interval({RIGHT: last[RIGHT]}, RIGHT)}"
    return f"{sentence}.", chart


def order_answer(fits: pd.DataFrame, abilities: pd.DataFrame) -> Found:
    """Whether ability orders the subjects as accuracy does.

    >>> line = {"dataset": "zoo", "corruption": "clean", "trait": "ability", "n_subjects": 9}
    >>> fits = pd.DataFrame([line | {"tau": 0.97, "tau_low": 0.9, "tau_high": 1.0}])
    >>> who = pd.DataFrame([{"dataset": "zoo", "corruption": "clean", "subject": "a", "top1": 0.9, "ability": 1.0}])
    >>> print(order_answer(fits, who)[0])
    Ability orders the 9 subjects of zoo nearly as accuracy does: Kendall's tau 0.970 [0.900, 1.000].
    """
    clean = fits[fits[CORRUPTION] == "clean"].dropna(subset=TAU)
    if clean.empty:
        return None
    line = clean.sort_values("n_subjects", ascending=False, kind="stable").iloc[0].to_dict()
    if line["n_subjects"] < FEWEST_ORDERED:
        return None
    as_much = (
        "exactly as"
        if line[TAU] == 1
        else "nearly as"
        if line[TAU] > 0.9
        else "not quite as"
        if line[TAU] > 0.5
        else "unlike"
    )
    sentence = f"{str(line[TRAIT]).capitalize()} orders the {line['n_subjects']} subjects of {line[DATASET]} {as_much}"
    shown = abilities[abilities[CORRUPTION] == "clean"].dropna(subset=[TOP1, ABILITY]).reset_index(drop=True)
    drawn = small.cloud(shown, SHARE, Column(ABILITY, float, ".2f", str(line[TRAIT])), (SUBJECT, SHARE, ABILITY))
    return f"{sentence} accuracy does: Kendall's tau {interval(line, ORDER)}.", drawn


def corruption_answer(losses: pd.DataFrame) -> Found:
    """Which corruption costs the most accurate model most.

    >>> line = {"dataset": "zoo", "subject": "vit", "top1_clean": 0.9, "top1_mean_low": 0.4, "top1_mean_high": 0.6}
    >>> fog = {**line, "corruption": "fog", "top1_mean": 0.5, "loss": 0.4, "loss_low": 0.3, "loss_high": 0.5}
    >>> snow = {**line, "corruption": "snow", "top1_mean": 0.55, "loss": 0.35, "loss_low": 0.2, "loss_high": 0.5}
    >>> print(corruption_answer(pd.DataFrame([fog, snow]))[0])
    Of 2 corruptions of zoo, fog hurts vit most: 50.0 % [40.0, 60.0] right over its severities, 90.0 % on clean images.
    >>> jpeg = {**fog, "corruption": "jpeg", "top1_mean": 0.4, "severity_levels": "1, 2, 3, 4"}
    >>> lines = [fog | {"severity_levels": "1, 2, 3, 4, 5"}, snow | {"severity_levels": "1, 2, 3, 4, 5"}, jpeg]
    >>> print(corruption_answer(pd.DataFrame(lines))[0].partition("; ")[2])
    not compared, because of other severities: jpeg (1, 2, 3, 4).
    >>> print(corruption_answer(pd.DataFrame([fog, snow]).assign(at_chance=True, top1_clean=0.1))[0])
    Not known: on clean images of zoo, vit is at the level of chance (10.0 % right).
    """
    best = losses.sort_values(harm.CLEAN, ascending=False, kind="stable")[SUBJECT].iloc[0]
    every = losses[losses[SUBJECT] == best].sort_values(harm.MEAN, kind="stable")
    part, left_out = harm.of_equal_severities(every)
    line = part.iloc[0].to_dict()
    is_clean_known = pd.notna(line[harm.CLEAN])
    on_clean = interval({harm.CLEAN: line[harm.CLEAN]}, harm.CLEAN) if is_clean_known else ""
    hover = (CORRUPTION, *with_interval(harm.MEAN), harm.CLEAN)
    chart = small.dots(part, CORRUPTION, harm.MEAN, hover, line=line[harm.CLEAN] if is_clean_known else None)
    if line.get(AT_CHANCE):
        return (
            f"Not known: on clean images of {line[DATASET]}, {best} is at the level of chance ({on_clean} right).",
            chart,
        )
    if len(part) < 2:
        return None
    worst = small.best_of(part, harm.MEAN, largest=False)[CORRUPTION].tolist()
    right = f"{interval(line, harm.MEAN)} right over {'its' if len(worst) == 1 else 'their'} severities"
    clean = f", {on_clean} on clean images" if is_clean_known else ""
    of = f"Of {len(part)} corruptions of {line[DATASET]}"
    ending = f"; {left_out}." if left_out else "."
    has_interval = pd.notna(line.get(harm.LOSS.low))
    if is_clean_known and has_interval and not line[harm.LOSS.low] > 0:
        return f"{of}, none lowers the accuracy of {best} significantly: at least {right}{clean}{ending}", chart
    if is_clean_known and not has_interval:
        if line[harm.MEAN] >= line[harm.CLEAN]:
            return f"{of}, none lowers the accuracy of {best}: at least {right}{clean}{ending}", chart
        clean += " (the difference has no interval)"
    if len(worst) == len(part):
        return f"{of}, {small.all_of(len(part))} hurt {best} as much: {right}{clean}{ending}", chart
    verb = "hurts" if len(worst) == 1 else "hurt"
    return f"{of}, {small.listed(worst)} {verb} {best} most: {right}{clean}{ending}", chart


def class_answer(classes: pd.DataFrame) -> Found:
    """The class that moves most under a corruption.

    >>> line = {"dataset": "zoo", "corruption": "fog", "mode": "count", "label": "cat", "instability": 0.2}
    >>> cat = line | {"instability_low": 0.1, "instability_high": 0.3}
    >>> print(class_answer(pd.DataFrame([cat, cat | {"label": "yak", "instability": 0.1}]))[0])
    Class cat of zoo changes most under fog: its shares of easy to hard images vary by 0.20 [0.10, 0.30] over \
severities (standard deviation).
    """
    part, left_out = harm.of_equal_severities(classes.dropna(subset=robust.INSTABILITY))
    ending = f"; {left_out}." if left_out else "."
    part = part.sort_values(robust.INSTABILITY, ascending=False, kind="stable")
    if part.empty:
        return None
    line = part.iloc[0].to_dict()
    same = part[part[CORRUPTION] == line[CORRUPTION]]
    moves = Column(robust.INSTABILITY, float, ".2f", "how far it moves")
    chart = small.dots(same, LABEL, moves, (LABEL, CORRUPTION, *with_interval(moves)))
    if line.get(AT_CHANCE):
        return f"Not known: on clean images of {line[DATASET]}, all subjects are at the level of chance.", chart
    counted = line[robust.MODE] == "count"
    of, verb = ("shares of easy to hard images", "vary") if counted else ("mean difficulty", "varies")
    if line[robust.INSTABILITY] == 0:
        return f"None: no class of {line[DATASET]} changes over severities.", chart
    most = small.best_of(part, robust.INSTABILITY)
    how = f"its {of} {verb} by {interval(line, moves)} over severities (standard deviation){ending}"
    if len(most) > 1:
        example = f"{line[LABEL]} under {line[CORRUPTION]} is one of {len(most)} that change equally"
        return f"No class of {line[DATASET]} changes most: {example}; {how}", chart
    much = "changes most" if len(part) > 1 else "is the only one that was tested"
    return f"Class {line[LABEL]} of {line[DATASET]} {much} under {line[CORRUPTION]}: {how}", chart


ANSWERS = (
    Answer("Which images are hard, and which labels look wrong?", (shown_images.GALLERY,), images_answer),
    Answer("How many wrong labels can be found?", (errors.LABEL_ERROR_RULES, errors.LABEL_ERROR_CURVE), label_answer),
    Answer("Which corruption hurts most?", (harm.CORRUPTION_LOSS,), corruption_answer),
    Answer("Which model is right on hard images?", (segments.SEGMENT_MODELS,), hard_answer),
    Answer("Which class breaks first?", (robust.CLASS_ROBUSTNESS,), class_answer),
    Answer("Does ability agree with accuracy?", (irt.IRT_FITS, irt.IRT_ABILITIES), order_answer),
)
