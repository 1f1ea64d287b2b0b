"""Figures and headlines of analysis=recommendation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.costs import amount
from fca.metric import BALANCED
from fca.report import kinds, small, style
from fca.report.finding import Finding, Statement
from fca.store.columns import FILE_MB, LATENCY, PRECISION
from fca.studies.recommend import images
from fca.studies.recommend.choice import (
    BALANCED_TOP1,
    BEST,
    CANDIDATE,
    COST,
    COST_EXPECTED,
    COST_OF_ONE_ANSWER,
    EXPECTED,
    FASTER,
    GUESS,
    LINE,
    METRIC,
    ON_FRONT,
    ONE_ANSWER,
    SMALLEST,
    TESTED_COPIES,
    VERDICT,
    WITHIN,
)
from fca.studies.recommend.figures.finetuning import finetuning_figure, finetuning_statements
from fca.studies.recommend.figures.more_images import more_images_figure, more_images_statements
from fca.studies.recommend.finetuning import FINETUNING
from fca.studies.recommend.images import (
    CLASSES,
    CONFUSIONS,
    COST_OF_ERRORS,
    ERRORS,
    PREDICTED_CLASS,
    RELABEL,
)
from fca.studies.recommend.more_images import MORE_IMAGES
from fca.studies.recommend.recommendation import ANSWER, NEXT, REASON, RECOMMENDATION, STEP
from fca.tables.table import (
    AT_CHANCE,
    CHANCE,
    COLUMN,
    DATASET,
    IMAGE_ID,
    IMAGES,
    LABEL,
    MODEL,
    N_TEST,
    ROW,
    SPLIT,
    THUMBNAIL,
    TOP1,
)
from fca.types import Column, Table, with_interval

FRONT_LINE = Column("front")
SHARE_BALANCED = BALANCED_TOP1.with_format(".1%", "balanced accuracy")
SHARE_RIGHT = TOP1.with_format(".1%", "accuracy")
GUESS_RIGHT = CHANCE.with_format(".1%", "accuracy of guessing")
RIGHT = EXPECTED.with_format(".1%", "expected accuracy")
PAID = COST_EXPECTED.with_format(".3g", "expected cost of an image")
MS = LATENCY.with_format(".1f", "ms an image")
SURE = WITHIN.with_format(".0%", "sure to be good enough")
DOUBT = images.MARGIN.with_format(".2f", "how sure")
HEIGHT = 320  # of the figure of accuracy and time, pixels
FAR = 0.25  # of accuracy: candidates so far below the best would press the others together
SHOWN = 15  # confusions in the figure
_PLACES: dict[str, dict[str, Any]] = {  # of names above intervals, so that two close ones do not meet
    SMALLEST: {"align": "right", "dx": 5},
    BEST: {"align": "left", "dx": -5},
    FASTER: {"align": "right", "dx": 5},
}
# One colour for each verdict, 3:1 on white and on black; only one candidate is recommended, or the best guess.
_VERDICTS = ("#0072b2", "#0072b2", "#009e73", "#b07d00", "#a9629a", "#c4562b", "#6a5acd", "#7d8590")


def front_figure(candidates: Table) -> alt.FacetChart:
    """Expected accuracy of each candidate, or its expected cost, against the time for one image."""
    value = _value(candidates.frame)
    known = candidates.frame.dropna(subset=[value, LATENCY])
    frame = _near_the_best(known, value)
    far = (
        ""
        if len(frame) == len(known)
        else f" Candidates more than {100 * FAR:.0f} points below the best are in the table alone."
    )
    frame = frame.assign(panel=style.panels(frame, DATASET))
    coloured = kinds.hue(VERDICT, frame, _VERDICTS, title="Colour: verdict", columns=4)
    way = kinds.hue(PRECISION, frame, title="Shape: precision")
    across = kinds.quantity(alt.X, LATENCY, "time for one image, ms", grid=True, type="log", padding=70, nice=False)
    up = kinds.quantity(alt.Y, value, value.meaning, grid=True)
    base = alt.Chart().encode(x=across, color=coloured.colour(), opacity=coloured.opacity())
    hover = tuple(column for column in candidates.columns if column not in (MODEL, "adaptation", "weights"))
    dots: Any = base.mark_point(filled=True, size=90)
    dots = dots.encode(y=up, shape=way.shape(), tooltip=kinds.tooltips(hover)).add_params(coloured.picked)
    names = [_named(line, value, across, **place) for line, place in _PLACES.items()]
    drawn = [kinds.interval(base, value, True), dots, *names]
    limit = candidates.parameters.get("latency_ms")
    limited = ""
    if limit is not None:
        drawn[:0] = _limit_line(float(limit), across)
        limited = f" The dashed line is the limit of {limit:g} ms: what is right of it is too slow."
    question, best = "Which model is accurate enough, and how fast is it?", "the most accurate"
    if value is PAID:
        question, best = "Which model costs little, and how fast is it?", "the one of least cost"
    title = style.title(
        question,
        f"Each mark is a candidate: its {value.meaning} with the 90 % interval. Those of the answer are named: the "
        f"smallest within the margin of the best, {best}, and one of half the time."
        f"{limited}{far}",
    )
    return style.faceted(kinds.layers(*drawn), frame, title, (DATASET,), HEIGHT)


def _near_the_best(frame: pd.DataFrame, value: Column) -> pd.DataFrame:
    """The candidates that a figure has room for: all by costs; by accuracy those that are not far below the best."""
    if value is PAID:
        return frame.reset_index(drop=True)
    best = frame.groupby(DATASET)[str(value)].transform("max")
    return frame[frame[value] >= best - FAR].reset_index(drop=True)


def _value(frame: pd.DataFrame) -> Column:
    """What candidates are compared by: expected accuracy, or expected cost."""
    return PAID if COST_EXPECTED in frame and frame[COST_EXPECTED].notna().any() else RIGHT


def _named(line: str, value: Column, across: Any, align: Any, dx: int) -> Any:
    """The name of a line of the answer above the interval of its candidate."""
    text: Any = alt.Chart().mark_text(align=align, dx=dx, dy=-9, fontSize=12, fontWeight="bold")
    text = text.transform_filter(f"datum.{LINE} == '{line}'")
    return text.encode(x=across, y=f"{value.high}:Q", text=f"{LINE}:N")


def _limit_line(limit: float, across: Any) -> list[Any]:
    """A dashed line at the longest time that is allowed, and its name at the bottom."""
    base: Any = alt.Chart(alt.InlineData(values=[{str(LATENCY): limit}])).encode(x=across)
    rule = base.mark_rule(strokeDash=[4, 3], strokeWidth=1.5)
    name = base.mark_text(align="left", baseline="bottom", dx=5, fontSize=11, text=f"limit: {limit:g} ms")
    return [rule, name.encode(y=alt.value(HEIGHT - 3))]


def confusions_figure(confusions: Table) -> alt.FacetChart:
    """The pairs of classes with the most errors."""
    frame = confusions.frame.groupby(DATASET).head(SHOWN).reset_index(drop=True)
    frame = frame.assign(panel=style.panels(frame, DATASET), pair=frame[LABEL] + " → " + frame[PREDICTED_CLASS])
    down = kinds.category(alt.Y, "pair", None)
    chart = kinds.bars(kinds.quantity(alt.X, ERRORS, "test images", zero=True, padding=0), down, confusions.columns)
    title = style.title(
        "What does the recommended model confuse?",
        "Each bar counts the test images of one class that were taken for another (class → what it was taken for).",
    )
    return style.faceted(chart, frame, title, (DATASET,), row=18)


def relabel_figure(relabel: Table) -> alt.FacetChart:
    """Images whose label looks wrong, with the label and the class that similar images have."""
    frame = relabel.frame.dropna(subset=THUMBNAIL)
    frame = frame.assign(panel=style.panels(frame, DATASET), suggestion="→ " + frame[images.SUGGESTED].astype(str))
    hover = [column for column in relabel.columns if column not in (THUMBNAIL, ROW, COLUMN)]
    chart = kinds.pictures(frame, hover, LABEL, "suggestion")
    lines = "Below each picture stand its label and the class that similar images have. Look before you change one."
    tall, wide = (int(frame[name].max()) + 1 for name in (ROW, COLUMN))
    title = style.title("Which labels look wrong?", lines)
    drawn = style.faceted(chart, frame, title, (DATASET,), height=tall * (kinds.SIDE + 40), columns=1)
    drawn.usermeta, drawn.spec.width = kinds.FIXED, wide * (kinds.SIDE + kinds.GAP)
    return drawn


def classes_figure(classes: Table) -> alt.FacetChart:
    """Images of each class, by split."""
    splits = {str(column): split for split, column in images.N_SPLITS.items()}
    frame = classes.frame.melt([DATASET, LABEL, images.SUSPECTS], list(splits), "split", "images")
    frame = frame.assign(panel=style.panels(frame, DATASET), split=frame["split"].map(splits))
    split = SPLIT.with_choices({name: name for name in images.N_SPLITS})
    number = IMAGES.with_format(",.0f")
    coloured = kinds.hue(split, frame, shapes=None)
    across = kinds.quantity(alt.X, number, "images", zero=True, padding=0)
    chart = kinds.bars(across, kinds.category(alt.Y, str(LABEL)), (LABEL, split, number), coloured)
    return style.faceted(chart, frame, style.title(CLASSES.question), (DATASET,), row=18)


def model_statements(lines: pd.DataFrame, candidates: pd.DataFrame) -> list[Statement]:
    """Which model to use, how accurate and how fast it is.

    >>> line = {"dataset": "photos", "line": "smallest", "candidate": "net 160 px int8 (linear probe)"}
    >>> line |= {"verdict": "recommended", "latency_ms": 9.31, "file_mb": 3.9, "tested_copies": 3, "n_test": 100}
    >>> line |= {"top1": 0.9, "top1_low": 0.83, "top1_high": 0.94}
    >>> line |= {"top1_expected": 0.9, "top1_expected_low": 0.85, "top1_expected_high": 0.94}
    >>> frame = pd.DataFrame([line])
    >>> print(*model_statements(frame, frame)[0].sentence.split(". "), sep="\\n")
    Use net 160 px int8 (linear probe): 90.0 % [83.0, 94.0] of 100 test images right, 9.3 ms an image, 3.9 MB
    Other images chose it; by them 90.0 % [85.0, 94.0] is expected
    3 test images are copies of training or validation images: new ones are harder.
    >>> alike = {"metric": "balanced", "balanced_top1": 0.8, "balanced_top1_low": 0.7, "balanced_top1_high": 0.84}
    >>> sentences = model_statements(pd.DataFrame([line | alike]), frame)[0].sentence.split(". ")
    >>> print(sentences[0].split(", 9.3")[0], sentences[2], sep="\\n")
    Use net 160 px int8 (linear probe): 80.0 % [70.0, 84.0] of balanced accuracy on 100 test images
    Test images are harder than those that chose the model
    >>> guessing = {"top1": 0.1, "top1_low": 0.06, "top1_high": 0.17, "chance": 0.1, "at_chance": True}
    >>> print(model_statements(pd.DataFrame([line | guessing]), frame)[0].sentence)
    None yet: the model that other images chose, net 160 px int8 (linear probe), is right on 10.0 % [6.0, 17.0] of \
100 test images, always the most frequent class on 10.0 %. That is the level of chance.
    >>> lucky = guessing | {"n_test": 2, "top1": 1.0, "top1_low": 0.34, "top1_high": 1.0, "chance": 0.5}
    >>> print(model_statements(pd.DataFrame([line | lucky]), frame)[0].sentence.rsplit(". ")[-1])
    So few do not tell it from guessing.
    """
    first = lines[lines[LINE] == SMALLEST].iloc[0].to_dict()
    name, value = first[CANDIDATE], _value(candidates)
    shown = candidates.dropna(subset=value)
    chart = small.dots(shown, CANDIDATE, value, (CANDIDATE, VERDICT, *with_interval(value), MS))
    tested_images = "1 test image" if first[N_TEST] == 1 else f"{first[N_TEST]:.0f} test images"
    if first.get(AT_CHANCE):
        model = "the best guess" if first[VERDICT] == GUESS else "the model that other images chose"
        right = f"is right on {small.interval(first, SHARE_RIGHT)} of {tested_images}"
        guess = f"always the most frequent class on {small.interval(first, GUESS_RIGHT)}"
        looks_better = first[TOP1] > first[CHANCE]
        verdict = "So few do not tell it from guessing" if looks_better else "That is the level of chance"
        return [Statement(f"None yet: {model}, {name}, {right}, {guess}. {verdict}.", chart)]

    unsure = ""
    if first[VERDICT] == GUESS:
        unsure = f"; a best guess, {100 * first[WITHIN]:.0f} % sure"
    if value is PAID:
        costs = f"{_costs(first, tested_images)}, {_takes(first)}{unsure}.{_expected_costs(first)}"
        return [Statement(f"Use {name}: {costs}", chart)]
    right = f"{small.interval(first, SHARE_RIGHT)} of {tested_images} right"
    if _is_balanced(first):
        right = f"{small.interval(first, SHARE_BALANCED)} of balanced accuracy on {tested_images}"
    return [Statement(f"Use {name}: {right}, {_takes(first)}{unsure}.{_expectation(first)}", chart)]


def _takes(of: Mapping[Any, Any]) -> str:
    """Time for one image, and the size of the file where it is one."""
    size = "" if pd.isna(of.get(FILE_MB)) else f", {of[FILE_MB]:.1f} MB"
    return f"{of[LATENCY]:.1f} ms an image{size}"


def _expectation(of: Mapping[Any, Any]) -> str:
    """What the images that chose the model expect, and whether test images agree."""
    tested = BALANCED_TOP1 if _is_balanced(of) else TOP1
    is_comparable = of.get(METRIC) != BALANCED or _is_balanced(of)
    (expected_low, expected_high), (low, high) = ([of[end] for end in with_interval(c)[1:]] for c in (EXPECTED, tested))
    kind = "" if is_comparable else " of balanced accuracy"
    sentence = f" Other images chose it; by them {small.interval(of, RIGHT)}{kind} is expected."
    if is_comparable and (high < expected_low or expected_high < low):
        word = "harder" if high < expected_low else "easier"
        sentence += f" Test images are {word} than those that chose the model."
    return sentence + _copies(of)


def _is_balanced(of: Mapping[Any, Any]) -> bool:
    """Whether a balanced accuracy decided, and is known for test images."""
    return of.get(METRIC) == BALANCED and not pd.isna(of.get(BALANCED_TOP1))


def _copies(of: Mapping[Any, Any]) -> str:
    """That test images are copies of others, where some are."""
    copies = of[TESTED_COPIES]
    if not copies > 0:
        return ""
    number = "1 test image is a copy" if copies == 1 else f"{copies:.0f} test images are copies"
    return f" {number} of training or validation images: new ones are harder."


def _paid(of: Mapping[Any, Any], value: Column) -> str:
    """A cost with its interval, in the user's unit.

    >>> _paid({"cost": 0.4166, "cost_low": 0.31, "cost_high": 1234.5}, COST)
    '0.417 [0.31, 1,230]'
    """
    cost, *ends = (float(of.get(column, "nan")) for column in with_interval(value))
    if any(pd.isna(end) for end in ends):
        return amount(cost)
    return f"{amount(cost)} [{', '.join(map(amount, ends))}]"


def _costs(of: Mapping[Any, Any], tested_images: str) -> str:
    """What the answers for test images cost."""
    if pd.isna(of[COST]):
        return "not tested"
    return f"costs {_paid(of, COST)} an image on {tested_images}"


def _expected_costs(of: Mapping[Any, Any]) -> str:
    """What the images that chose the model expect, and what it would cost to look at no image."""
    sentence = f" Other images chose it; by them {_paid(of, COST_EXPECTED)} is expected."
    if not pd.isna(of[COST]):
        no_look = f"Always answering {of[ONE_ANSWER]} would cost {amount(float(of[COST_OF_ONE_ANSWER]))} an image"
        shows_nothing = of.get(COST.high, 0) >= of[COST_OF_ONE_ANSWER]
        sentence += f" {no_look}{': the test images do not show that the model costs less' if shows_nothing else ''}."
    return sentence + _copies(of)


def front_statements(lines: pd.DataFrame, candidates: pd.DataFrame) -> list[Statement]:
    """The other lines of the answer: the most accurate, and one of half the time.

    >>> of = {"dataset": "photos", "file_mb": 4.0}
    >>> few = of | {"line": "smallest", "candidate": "small", "top1_expected": 0.9, "latency_ms": 4.0}
    >>> more = of | {"line": "most accurate", "candidate": "large", "top1_expected": 0.908, "latency_ms": 40.0}
    >>> more |= {"top1_expected_low": 0.85, "top1_expected_high": 0.95}
    >>> frame = pd.DataFrame([few, more])
    >>> print(front_statements(frame, frame.assign(on_front=True))[0].sentence)
    Most accurate within the limits: large, 90.8 % [85.0, 95.0] expected, 40.0 ms an image, 4.0 MB.
    """
    first = lines[lines[LINE] == SMALLEST].iloc[0]
    if first.get(AT_CHANCE):
        return []
    value = _value(candidates)
    words = {BEST: "Most accurate within the limits", FASTER: "Half the time for at most 2 points"}
    better = "more accurate"
    if value is PAID:
        words = {BEST: "Least cost within the limits", FASTER: "Half the time for little more cost"}
        better = "of less cost"
    sentences = []
    for line in lines[lines[LINE] != SMALLEST].to_dict("records"):
        if line[CANDIDATE] == first[CANDIDATE]:
            sentences.append(f"No model within the limits is expected to be {better}.")
        else:
            amounts = f"{_paid(line, PAID)} an image" if value is PAID else small.interval(line, RIGHT)
            expected = f"{amounts} expected"
            sentences.append(f"{words[line[LINE]]}: {line[CANDIDATE]}, {expected}, {_takes(line)}.")
    if not sentences:
        return []
    shown = candidates.dropna(subset=[value, LATENCY])
    front = shown[shown[ON_FRONT].astype(bool)].sort_values(LATENCY).assign(front="front")
    return [Statement(" ".join(sentences), small.lines(front, MS, value, FRONT_LINE, (CANDIDATE, MS, value)))]


def confusion_statements(confusions: pd.DataFrame) -> list[Statement]:
    """The pair of classes that costs most.

    >>> line = {"dataset": "photos", "label": "wolf", "predicted_class": "dog", "errors": 3, "share": 0.75}
    >>> cat = line | {"label": "cat", "errors": 1, "share": 0.25}
    >>> print(confusion_statements(pd.DataFrame([line, cat]))[0].sentence)
    Its most frequent error is wolf taken for dog: 3 of 4 errors on test images.
    >>> print(confusion_statements(pd.DataFrame([line | {"errors": 1}, cat]))[0].sentence)
    None of its 2 errors on test images is more frequent than the others: wolf taken for dog, cat taken for dog.
    """
    if COST_OF_ERRORS in confusions and confusions[COST_OF_ERRORS].notna().any():
        return _cost_of_confusions(confusions)
    ordered = confusions.sort_values(ERRORS, ascending=False, kind="stable")
    shown = ordered.assign(pair=ordered[LABEL].astype(str) + " → " + ordered[PREDICTED_CLASS].astype(str))
    chart = small.dots(shown, "pair", ERRORS, (LABEL, PREDICTED_CLASS, ERRORS))
    errors, total = ordered[ERRORS].max(), f"{ordered[ERRORS].sum():.0f}"
    most_frequent = ordered[ordered[ERRORS] == errors]
    labels, predicted = most_frequent[LABEL], most_frequent[PREDICTED_CLASS]
    pairs = [f"{label} taken for {other}" for label, other in zip(labels, predicted, strict=True)]
    if total == "1":
        sentence = f"Its only error on test images is {pairs[0]}."
    elif len(pairs) == 1:
        sentence = f"Its most frequent error is {pairs[0]}: {errors:.0f} of {total} errors on test images."
    elif len(pairs) < len(ordered):
        sentence = f"Its most frequent errors are {small.listed(pairs)}: {errors:.0f} each of {total} on test images."
    else:
        others = len(pairs) - small.NAMED
        named = ", ".join(pairs[: small.NAMED]) + (f" and {others} more" if others > 0 else "")
        sentence = f"None of its {total} errors on test images is more frequent than the others: {named}."
    return [Statement(sentence, chart)]


def _cost_of_confusions(confusions: pd.DataFrame) -> list[Statement]:
    """The pair of classes whose errors cost most together.

    >>> line = {"dataset": "photos", "label": "wolf", "predicted_class": "dog", "errors": 1, "cost_of_errors": 20.0}
    >>> few = pd.DataFrame([line, line | {"label": "dog", "predicted_class": "wolf", "errors": 3, "cost_of_errors": 3}])
    >>> print(_cost_of_confusions(few)[0].sentence)
    Its dearest errors are wolf answered as dog: 1 of 4 on test images, 20 of 23 that all errors cost.
    """
    ordered = confusions.sort_values(COST_OF_ERRORS, ascending=False, kind="stable")
    first = ordered.iloc[0]
    pair = f"{first[LABEL]} answered as {first[PREDICTED_CLASS]}"
    costs = f"{amount(first[COST_OF_ERRORS])} of {amount(ordered[COST_OF_ERRORS].sum())} that all errors cost"
    number = f"{first[ERRORS]:.0f} of {ordered[ERRORS].sum():.0f} on test images"
    shown = ordered.assign(pair=ordered[LABEL].astype(str) + " → " + ordered[PREDICTED_CLASS].astype(str))
    chart = small.dots(shown, "pair", COST_OF_ERRORS, (LABEL, PREDICTED_CLASS, ERRORS, COST_OF_ERRORS))
    return [Statement(f"Its dearest errors are {pair}: {number}, {costs}.", chart)]


def label_statements(relabel: pd.DataFrame) -> list[Statement]:
    """How many labels to look at, and the first.

    >>> line = {"dataset": "photos", "image_id": "7.png", "label": "wolf", "suggested": "dog", "margin": 0.8}
    >>> print(label_statements(pd.DataFrame([line]))[0].sentence)
    1 label disagrees with images that resemble theirs: look first at 7.png, labelled wolf, which resembles dog.
    """
    worst = relabel.iloc[0]
    number = "1 label disagrees" if len(relabel) == 1 else f"{len(relabel)} labels disagree"
    first = f"look first at {worst[IMAGE_ID]}, labelled {worst[LABEL]}, which resembles {worst[images.SUGGESTED]}"
    shown = relabel.assign(change=relabel[LABEL].astype(str) + " → " + relabel[images.SUGGESTED].astype(str))
    chart = small.dots(shown, "change", DOUBT, (IMAGE_ID, LABEL, images.SUGGESTED, DOUBT))
    return [Statement(f"{number} with images that resemble theirs: {first}.", chart)]


def step_statements(steps: pd.DataFrame, candidates: pd.DataFrame) -> list[Statement]:
    """The first thing to try.

    >>> of = {"dataset": "photos"}
    >>> known = pd.DataFrame([of | {"candidate": "net", "within": 0.7, "verdict": "best guess"}])
    >>> steps = pd.DataFrame([of | {"step": "train net", "reason": "it may be better"}])
    >>> print(step_statements(steps, known)[0].sentence)
    To change the answer: train net; it may be better.
    """
    line = steps.iloc[0]
    shown = candidates.dropna(subset=WITHIN)
    sentence = f"To change the answer: {line[STEP]}; {line[REASON]}."
    return [Statement(sentence, small.dots(shown, CANDIDATE, SURE, (CANDIDATE, VERDICT, SURE)))]


FINDINGS = (
    Finding(
        "recommendation_answer",
        "The answer",
        (ANSWER, RECOMMENDATION),
        RECOMMENDATION.question,
        model_statements,
    ),
    Finding(
        "recommendation_others",
        "The other programs",
        (ANSWER, RECOMMENDATION),
        "What would another one bring?",
        front_statements,
    ),
    Finding(
        "recommendation_finetuning",
        "Fine-tuning",
        (FINETUNING,),
        "What did fine-tuning bring?",
        finetuning_statements,
        finetuning_figure,
    ),
    Finding(
        "recommendation_confusions",
        "Confusions",
        (CONFUSIONS,),
        "What does it confuse?",
        confusion_statements,
        confusions_figure,
    ),
    Finding(
        "recommendation_relabel",
        "Labels to look at",
        (RELABEL,),
        "Which labels look wrong?",
        label_statements,
        relabel_figure,
    ),
    Finding(
        "recommendation_next",
        "What to try next",
        (NEXT, RECOMMENDATION),
        NEXT.question,
        step_statements,
    ),
    Finding(
        "recommendation_more_images",
        "More images",
        (MORE_IMAGES,),
        "Would more images help?",
        more_images_statements,
        more_images_figure,
    ),
    Finding("recommendation", "Accuracy and speed", (RECOMMENDATION,), draw=front_figure),
    Finding("recommendation_classes", "Images of each class", (CLASSES,), draw=classes_figure),
)
