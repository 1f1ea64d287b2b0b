"""Figures and headlines of analysis=recommendation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pandas as pd

from fca.costs import format_cost
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
from fca.types import Column, Table, interval_columns

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
    measured = candidates.frame.dropna(subset=[value, LATENCY])
    frame = _near_the_best(measured, value)
    far_sentence = ""
    if len(frame) < len(measured):
        far_sentence = f" Candidates more than {100 * FAR:.0f} points below the best are only in the table."
    frame = frame.assign(panel=style.panels(frame, DATASET))

    # one mark per candidate, with its interval
    by_verdict = kinds.hue(VERDICT, frame, _VERDICTS, title="Colour: verdict", columns=4)
    by_precision = kinds.hue(PRECISION, frame, title="Shape: precision")
    across = kinds.quantity(alt.X, LATENCY, "time for one image, ms", grid=True, type="log", padding=70, nice=False)
    up = kinds.quantity(alt.Y, value, value.meaning, grid=True)
    base = alt.Chart().encode(x=across, color=by_verdict.colour(), opacity=by_verdict.opacity())
    hover = tuple(column for column in candidates.columns if column not in (MODEL, "adaptation", "weights"))
    dots: Any = base.mark_point(filled=True, size=90)
    dots = dots.encode(y=up, shape=by_precision.shape(), tooltip=kinds.tooltips(hover))
    dots = dots.add_params(by_verdict.picked)
    names = [_named(line, value, across, **place) for line, place in _PLACES.items()]
    layers = [kinds.interval_marks(base, value, True), dots, *names]

    # the limit of the time, below the marks
    limit = candidates.parameters.get("latency_ms")
    limit_sentence = ""
    if limit is not None:
        layers = [*_limit_line(float(limit), across), *layers]
        limit_sentence = f" The dashed line is the limit of {limit:g} ms: candidates to its right are too slow."

    question, best = "Which model is accurate enough, and how fast is it?", "the most accurate"
    if value is PAID:
        question, best = "Which model costs little, and how fast is it?", "the one of least cost"
    title = style.title(
        question,
        f"Each mark is a candidate: its {value.meaning} with the 90 % interval. Those of the answer are named: the "
        f"smallest within the margin of the best, {best}, and one of half the time."
        f"{limit_sentence}{far_sentence}",
    )
    return style.faceted(kinds.layers(*layers), frame, title, (DATASET,), HEIGHT)


def _near_the_best(frame: pd.DataFrame, value: Column) -> pd.DataFrame:
    """The candidates in the figure: with costs all of them, by accuracy those that are not far below the best."""
    if value is PAID:
        return frame.reset_index(drop=True)
    best = frame.groupby(DATASET)[str(value)].transform("max")
    return frame[frame[value] >= best - FAR].reset_index(drop=True)


def _value(frame: pd.DataFrame) -> Column:
    """The column by which candidates are compared: expected accuracy, or expected cost."""
    has_costs = COST_EXPECTED in frame and frame[COST_EXPECTED].notna().any()
    return PAID if has_costs else RIGHT


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
        "Each bar counts the test images of one class that were predicted as another (class → prediction).",
    )
    return style.faceted(chart, frame, title, (DATASET,), row=18)


def relabel_figure(relabel: Table) -> alt.FacetChart:
    """Images whose label looks wrong, with the label and the class that similar images have."""
    frame = relabel.frame.dropna(subset=THUMBNAIL)
    frame = frame.assign(panel=style.panels(frame, DATASET), suggestion="→ " + frame[images.SUGGESTED].astype(str))
    hover = [column for column in relabel.columns if column not in (THUMBNAIL, ROW, COLUMN)]
    pictures = kinds.pictures(frame, hover, LABEL, "suggestion")
    title = style.title(
        "Which labels look wrong?",
        "Below each picture are its label and the class of similar images. Look before you change a label.",
    )
    n_rows = int(frame[ROW].max()) + 1
    n_columns = int(frame[COLUMN].max()) + 1
    figure = style.faceted(pictures, frame, title, (DATASET,), height=n_rows * (kinds.SIDE + 40), columns=1)
    figure.usermeta = kinds.FIXED
    figure.spec.width = n_columns * (kinds.SIDE + kinds.GAP)
    return figure


def classes_figure(classes: Table) -> alt.FacetChart:
    """Images of each class, by split."""
    split_of_column = {str(column): split for split, column in images.N_SPLITS.items()}
    frame = classes.frame.melt([DATASET, LABEL, images.SUSPECTS], list(split_of_column), "split", "images")
    frame = frame.assign(panel=style.panels(frame, DATASET), split=frame["split"].map(split_of_column))

    split = SPLIT.with_choices({name: name for name in images.N_SPLITS})
    n_images = IMAGES.with_format(",.0f")
    by_split = kinds.hue(split, frame, shapes=None)
    across = kinds.quantity(alt.X, n_images, "images", zero=True, padding=0)
    bars = kinds.bars(across, kinds.category(alt.Y, str(LABEL)), (LABEL, split, n_images), by_split)
    return style.faceted(bars, frame, style.title(CLASSES.question), (DATASET,), row=18)


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
    >>> balanced = {"metric": "balanced", "balanced_top1": 0.8, "balanced_top1_low": 0.7, "balanced_top1_high": 0.84}
    >>> sentences = model_statements(pd.DataFrame([line | balanced]), frame)[0].sentence.split(". ")
    >>> print(sentences[0].split(", 9.3")[0], sentences[2], sep="\\n")
    Use net 160 px int8 (linear probe): 80.0 % [70.0, 84.0] of balanced accuracy on 100 test images
    Test images are harder than those that chose the model
    >>> guessing = {"top1": 0.1, "top1_low": 0.06, "top1_high": 0.17, "chance": 0.1, "at_chance": True}
    >>> print(model_statements(pd.DataFrame([line | guessing]), frame)[0].sentence)
    None yet: the model that other images chose, net 160 px int8 (linear probe), is right on 10.0 % [6.0, 17.0] of \
100 test images, and always guessing the most frequent class is right on 10.0 %. That is the level of chance.
    >>> lucky = guessing | {"n_test": 2, "top1": 1.0, "top1_low": 0.34, "top1_high": 1.0, "chance": 0.5}
    >>> print(model_statements(pd.DataFrame([line | lucky]), frame)[0].sentence.rsplit(". ")[-1])
    So few images do not show that it is better than guessing.
    """
    answer = lines[lines[LINE] == SMALLEST].iloc[0].to_dict()
    name = answer[CANDIDATE]
    tested_images = "1 test image" if answer[N_TEST] == 1 else f"{answer[N_TEST]:.0f} test images"

    value = _value(candidates)
    chart = small.dots(
        candidates.dropna(subset=value),
        CANDIDATE,
        value,
        (CANDIDATE, VERDICT, *interval_columns(value), MS),
    )
    if answer.get(AT_CHANCE):
        return [Statement(_at_chance_sentence(answer, tested_images), chart)]

    unsure = ""
    if answer[VERDICT] == GUESS:
        unsure = f"; a best guess, {100 * answer[WITHIN]:.0f} % sure"
    if value is PAID:
        costs = f"{_costs(answer, tested_images)}, {_time_and_size(answer)}{unsure}.{_expected_costs(answer)}"
        return [Statement(f"Use {name}: {costs}", chart)]

    right = f"{small.format_with_interval(answer, SHARE_RIGHT)} of {tested_images} right"
    if _is_balanced(answer):
        right = f"{small.format_with_interval(answer, SHARE_BALANCED)} of balanced accuracy on {tested_images}"
    return [Statement(f"Use {name}: {right}, {_time_and_size(answer)}{unsure}.{_expectation(answer)}", chart)]


def _at_chance_sentence(answer: Mapping[Any, Any], tested_images: str) -> str:
    model = "the best guess" if answer[VERDICT] == GUESS else "the model that other images chose"
    right = f"is right on {small.format_with_interval(answer, SHARE_RIGHT)} of {tested_images}"
    guess = f"always guessing the most frequent class is right on {small.format_with_interval(answer, GUESS_RIGHT)}"

    verdict = "That is the level of chance"
    if answer[TOP1] > answer[CHANCE]:
        verdict = "So few images do not show that it is better than guessing"
    return f"None yet: {model}, {answer[CANDIDATE]}, {right}, and {guess}. {verdict}."


def _time_and_size(line: Mapping[Any, Any]) -> str:
    """Time for one image, and the size of the file if there is one."""
    size = "" if pd.isna(line.get(FILE_MB)) else f", {line[FILE_MB]:.1f} MB"
    return f"{line[LATENCY]:.1f} ms an image{size}"


def _expectation(line: Mapping[Any, Any]) -> str:
    """The accuracy expected from the images that chose the model, and whether test images contradict it."""
    has_same_metric = line.get(METRIC) != BALANCED or _is_balanced(line)
    metric = "" if has_same_metric else " of balanced accuracy"
    sentence = f" Other images chose it; by them {small.format_with_interval(line, RIGHT)}{metric} is expected."

    tested = BALANCED_TOP1 if _is_balanced(line) else TOP1
    is_harder = line[tested.high] < line[EXPECTED.low]
    is_easier = line[tested.low] > line[EXPECTED.high]
    if has_same_metric and (is_harder or is_easier):
        comparative = "harder" if is_harder else "easier"
        sentence += f" Test images are {comparative} than those that chose the model."
    return sentence + _copies(line)


def _is_balanced(line: Mapping[Any, Any]) -> bool:
    """Whether balanced accuracy decided, and is known for test images."""
    return line.get(METRIC) == BALANCED and not pd.isna(line.get(BALANCED_TOP1))


def _copies(line: Mapping[Any, Any]) -> str:
    """A sentence about test images that are copies of others; empty without any."""
    copies = line[TESTED_COPIES]
    if not copies > 0:
        return ""
    number = "1 test image is a copy" if copies == 1 else f"{copies:.0f} test images are copies"
    return f" {number} of training or validation images: new ones are harder."


def _paid(line: Mapping[Any, Any], value: Column) -> str:
    """A cost with its interval, in the user's unit.

    >>> _paid({"cost": 0.4166, "cost_low": 0.31, "cost_high": 1234.5}, COST)
    '0.417 [0.31, 1,230]'
    """
    cost, low, high = (float(line.get(column, "nan")) for column in interval_columns(value))
    if pd.isna(low) or pd.isna(high):
        return format_cost(cost)
    return f"{format_cost(cost)} [{format_cost(low)}, {format_cost(high)}]"


def _costs(line: Mapping[Any, Any], tested_images: str) -> str:
    """The mean cost of the answers for test images."""
    if pd.isna(line[COST]):
        return "not tested"
    return f"costs {_paid(line, COST)} an image on {tested_images}"


def _expected_costs(line: Mapping[Any, Any]) -> str:
    """The cost expected from the images that chose the model, and the cost of the best single answer to all images."""
    sentence = f" Other images chose it; by them {_paid(line, COST_EXPECTED)} is expected."
    if not pd.isna(line[COST]):
        cost_of_one_answer = format_cost(float(line[COST_OF_ONE_ANSWER]))
        sentence += f" Always answering {line[ONE_ANSWER]} would cost {cost_of_one_answer} an image"
        if line.get(COST.high, 0) >= line[COST_OF_ONE_ANSWER]:
            sentence += ": the test images do not show that the model costs less"
        sentence += "."
    return sentence + _copies(line)


def front_statements(lines: pd.DataFrame, candidates: pd.DataFrame) -> list[Statement]:
    """The other lines of the answer: the most accurate, and one of half the time.

    >>> line = {"dataset": "photos", "file_mb": 4.0}
    >>> smallest = line | {"line": "smallest", "candidate": "small", "top1_expected": 0.9, "latency_ms": 4.0}
    >>> best = line | {"line": "most accurate", "candidate": "large", "top1_expected": 0.908, "latency_ms": 40.0}
    >>> best |= {"top1_expected_low": 0.85, "top1_expected_high": 0.95}
    >>> frame = pd.DataFrame([smallest, best])
    >>> print(front_statements(frame, frame.assign(on_front=True))[0].sentence)
    Most accurate within the limits: large, 90.8 % [85.0, 95.0] expected, 40.0 ms an image, 4.0 MB.
    """
    answer = lines[lines[LINE] == SMALLEST].iloc[0]
    if answer.get(AT_CHANCE):
        return []

    value = _value(candidates)
    headings = {BEST: "Most accurate within the limits", FASTER: "Half the time for at most 2 points"}
    better = "more accurate"
    if value is PAID:
        headings = {BEST: "Least cost within the limits", FASTER: "Half the time for little more cost"}
        better = "of less cost"

    sentences = []
    for line in lines[lines[LINE] != SMALLEST].to_dict("records"):
        if line[CANDIDATE] == answer[CANDIDATE]:
            sentences.append(f"No model within the limits is expected to be {better}.")
            continue
        expected = f"{_paid(line, PAID)} an image" if value is PAID else small.format_with_interval(line, RIGHT)
        heading = headings[line[LINE]]
        sentences.append(f"{heading}: {line[CANDIDATE]}, {expected} expected, {_time_and_size(line)}.")
    if not sentences:
        return []

    measured = candidates.dropna(subset=[value, LATENCY])
    front = measured[measured[ON_FRONT].astype(bool)].sort_values(LATENCY).assign(front="front")
    chart = small.lines(front, MS, value, FRONT_LINE, (CANDIDATE, MS, value))
    return [Statement(" ".join(sentences), chart)]


def confusion_statements(confusions: pd.DataFrame) -> list[Statement]:
    """The most frequent confusion; with costs, the most expensive one.

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
    chart = small.dots(_with_pairs(ordered), "pair", ERRORS, (LABEL, PREDICTED_CLASS, ERRORS))
    return [Statement(_most_frequent_confusions(ordered), chart)]


def _with_pairs(confusions: pd.DataFrame) -> pd.DataFrame:
    """With a column that names the true and the predicted class."""
    return confusions.assign(pair=confusions[LABEL].astype(str) + " → " + confusions[PREDICTED_CLASS].astype(str))


def _most_frequent_confusions(confusions: pd.DataFrame) -> str:
    errors = confusions[ERRORS].max()
    total = int(confusions[ERRORS].sum())
    most_frequent = confusions[confusions[ERRORS] == errors]
    pairs = [
        f"{label} taken for {predicted}"
        for label, predicted in zip(most_frequent[LABEL], most_frequent[PREDICTED_CLASS], strict=True)
    ]
    if total == 1:
        return f"Its only error on test images is {pairs[0]}."
    if len(pairs) == 1:
        return f"Its most frequent error is {pairs[0]}: {errors:.0f} of {total} errors on test images."
    if len(pairs) < len(confusions):
        return f"Its most frequent errors are {small.listed(pairs)}: {errors:.0f} each of {total} on test images."

    names = ", ".join(pairs[: small.NAMED])
    n_unnamed = len(pairs) - small.NAMED
    if n_unnamed > 0:
        names += f" and {n_unnamed} more"
    return f"None of its {total} errors on test images is more frequent than the others: {names}."


def _cost_of_confusions(confusions: pd.DataFrame) -> list[Statement]:
    """The pair of classes whose errors cost most in total.

    >>> line = {"dataset": "photos", "label": "wolf", "predicted_class": "dog", "errors": 1, "cost_of_errors": 20.0}
    >>> few = pd.DataFrame([line, line | {"label": "dog", "predicted_class": "wolf", "errors": 3, "cost_of_errors": 3}])
    >>> print(_cost_of_confusions(few)[0].sentence)
    Its dearest errors are wolf answered as dog: 1 of 4 on test images, 20 of 23 that all errors cost.
    """
    ordered = confusions.sort_values(COST_OF_ERRORS, ascending=False, kind="stable")
    first = ordered.iloc[0]
    pair = f"{first[LABEL]} answered as {first[PREDICTED_CLASS]}"
    costs = f"{format_cost(first[COST_OF_ERRORS])} of {format_cost(ordered[COST_OF_ERRORS].sum())} that all errors cost"
    number = f"{first[ERRORS]:.0f} of {ordered[ERRORS].sum():.0f} on test images"
    hover = (LABEL, PREDICTED_CLASS, ERRORS, COST_OF_ERRORS)
    chart = small.dots(_with_pairs(ordered), "pair", COST_OF_ERRORS, hover)
    return [Statement(f"Its dearest errors are {pair}: {number}, {costs}.", chart)]


def label_statements(relabel: pd.DataFrame) -> list[Statement]:
    """The number of labels to look at, and the most suspicious one.

    >>> line = {"dataset": "photos", "image_id": "7.png", "label": "wolf", "suggested": "dog", "margin": 0.8}
    >>> print(label_statements(pd.DataFrame([line]))[0].sentence)
    1 label disagrees with images that resemble theirs: look first at 7.png, labelled wolf, which resembles dog.
    """
    worst = relabel.iloc[0]
    number = "1 label disagrees" if len(relabel) == 1 else f"{len(relabel)} labels disagree"
    first = f"look first at {worst[IMAGE_ID]}, labelled {worst[LABEL]}, which resembles {worst[images.SUGGESTED]}"
    changes = relabel.assign(change=relabel[LABEL].astype(str) + " → " + relabel[images.SUGGESTED].astype(str))
    chart = small.dots(changes, "change", DOUBT, (IMAGE_ID, LABEL, images.SUGGESTED, DOUBT))
    return [Statement(f"{number} with images that resemble theirs: {first}.", chart)]


def step_statements(steps: pd.DataFrame, candidates: pd.DataFrame) -> list[Statement]:
    """The first thing to try.

    >>> candidate = {"dataset": "photos", "candidate": "net", "within": 0.7, "verdict": "best guess"}
    >>> step = {"dataset": "photos", "step": "train net", "reason": "it may be better"}
    >>> print(step_statements(pd.DataFrame([step]), pd.DataFrame([candidate]))[0].sentence)
    To change the answer: train net; it may be better.
    """
    first_step = steps.iloc[0]
    sentence = f"To change the answer: {first_step[STEP]}; {first_step[REASON]}."
    compared = candidates.dropna(subset=WITHIN)
    return [Statement(sentence, small.dots(compared, CANDIDATE, SURE, (CANDIDATE, VERDICT, SURE)))]


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
