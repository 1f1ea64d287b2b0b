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
GUESSING_ACCURACY = CHANCE.with_format(".1%", "accuracy of guessing")
EXPECTED_ACCURACY = EXPECTED.with_format(".1%", "expected accuracy")
EXPECTED_COST = COST_EXPECTED.with_format(".3g", "expected cost of an image")
TIME_MS = LATENCY.with_format(".1f", "ms an image")
SURE = WITHIN.with_format(".0%", "sure to be good enough")
SUSPICION = images.MARGIN.with_format(".2f", "how sure")
HEIGHT = 320  # of the figure of accuracy and time, pixels
MAX_BELOW_BEST = 0.25  # of accuracy: candidates so far below the best would press the others together
MAX_CONFUSIONS = 15  # confusions in the figure
_PLACES_OF_NAMES: dict[str, dict[str, Any]] = {  # of names above intervals, so that two close ones do not meet
    SMALLEST: {"align": "right", "dx": 5},
    BEST: {"align": "left", "dx": -5},
    FASTER: {"align": "right", "dx": 5},
}
# One colour for each verdict, 3:1 on white and on black; only one candidate is recommended, or the best guess.
_VERDICT_COLOURS = ("#0072b2", "#0072b2", "#009e73", "#b07d00", "#a9629a", "#c4562b", "#6a5acd", "#7d8590")


def front_figure(candidates: Table) -> alt.FacetChart:
    """The figure of each candidate's expected accuracy against its time for one image.

    With costs it shows the expected cost of an image instead of the accuracy. Candidates of which either value is
    missing are not drawn.
    candidates: table `recommendation`, with a line for each candidate. Its parameter latency_ms is the longest time
                that the user allows; None or no parameter: any time.
    """
    value = _compared_column(candidates.frame)  # the expected accuracy, or the expected cost
    measured = candidates.frame.dropna(subset=[value, LATENCY])
    frame = _near_the_best(measured, value)
    far_sentence = ""
    if len(frame) < len(measured):  # candidates far below the best are left out of the figure, unless there are costs
        far_sentence = f" Candidates more than {100 * MAX_BELOW_BEST:.0f} points below the best are only in the table."
    frame = frame.assign(panel=style.panels(frame, DATASET))

    # one mark per candidate, with its interval; its colour shows the verdict, its shape the precision
    by_verdict = kinds.hue(VERDICT, frame, _VERDICT_COLOURS, title="Colour: verdict", columns=4)
    by_precision = kinds.hue(PRECISION, frame, title="Shape: precision")
    across = kinds.quantity(alt.X, LATENCY, "time for one image, ms", grid=True, type="log", padding=70, nice=False)
    up = kinds.quantity(alt.Y, value, value.meaning, grid=True)
    base = alt.Chart().encode(x=across, color=by_verdict.colour(), opacity=by_verdict.opacity())
    # the tooltip has the name of the candidate instead of these three columns
    hover = tuple(column for column in candidates.columns if column not in (MODEL, "adaptation", "weights"))
    dots: Any = base.mark_point(filled=True, size=90)
    dots = dots.encode(y=up, shape=by_precision.shape(), tooltip=kinds.tooltips(hover))
    dots = dots.add_params(by_verdict.picked)  # a click in the legend dims the other verdicts
    # names beside the recommended candidates: the smallest, the best, and one of half the time
    names = [_line_names(line, value, across, **place) for line, place in _PLACES_OF_NAMES.items()]
    layers = [kinds.interval_marks(base, value, on_y=True), dots, *names]

    # the limit of the time is in the first layers, so that marks are drawn over it
    limit = candidates.parameters.get("latency_ms")
    limit_sentence = ""
    if limit is not None:
        layers = [*_limit_line(float(limit), across), *layers]
        limit_sentence = f" The dashed line is the limit of {limit:g} ms: candidates to its right are too slow."

    question, best = "Which model is accurate enough, and how fast is it?", "the most accurate"
    if value is EXPECTED_COST:
        question, best = "Which model costs little, and how fast is it?", "the one of least cost"
    title = style.title(
        question,
        f"Each mark is a candidate: its {value.meaning} with the 90 % interval. Those of the answer are labelled: the "
        f"smallest within the margin of the best, {best}, and one of half the time."
        f"{limit_sentence}{far_sentence}",
    )
    return style.faceted(kinds.layers(*layers), frame, title, filters=(DATASET,), height=HEIGHT)


def _near_the_best(frame: pd.DataFrame, value: Column) -> pd.DataFrame:
    """The candidates in the figure: at most MAX_BELOW_BEST below the best of their data set; all of them with costs."""
    if value is EXPECTED_COST:
        return frame.reset_index(drop=True)
    # for each candidate, the highest value of its data set
    best = frame.groupby(DATASET)[str(value)].transform("max")
    return frame[frame[value] >= best - MAX_BELOW_BEST].reset_index(drop=True)


def _compared_column(frame: pd.DataFrame) -> Column:
    """The column by which candidates are compared: EXPECTED_COST if there are costs, else EXPECTED_ACCURACY."""
    has_costs = COST_EXPECTED in frame and frame[COST_EXPECTED].notna().any()
    return EXPECTED_COST if has_costs else EXPECTED_ACCURACY


def _line_names(line: str, value: Column, across: Any, align: Any, dx: int) -> Any:
    """A layer with the name of a recommended line, such as "smallest", above the interval of its candidate."""
    text: Any = alt.Chart().mark_text(align=align, dx=dx, dy=-9, fontSize=12, fontWeight="bold")
    text = text.transform_filter(f"datum.{LINE} == '{line}'")
    return text.encode(x=across, y=f"{value.high}:Q", text=f"{LINE}:N")


def _limit_line(limit: float, across: Any) -> list[Any]:
    """Two layers: a dashed line at the longest time that is allowed, in ms, and its label at the bottom."""
    base: Any = alt.Chart(alt.InlineData(values=[{str(LATENCY): limit}])).encode(x=across)
    rule = base.mark_rule(strokeDash=[4, 3], strokeWidth=1.5)
    name = base.mark_text(align="left", baseline="bottom", dx=5, fontSize=11, text=f"limit: {limit:g} ms")
    return [rule, name.encode(y=alt.value(HEIGHT - 3))]


def confusions_figure(confusions: Table) -> alt.FacetChart:
    """The figure of the first MAX_CONFUSIONS confusions of each data set: a bar for each class and wrong prediction.

    confusions: table `recommendation_confusions`, with the most frequent confusions first; with costs, the most
                expensive ones.
    """
    frame = confusions.frame.groupby(DATASET).head(MAX_CONFUSIONS).reset_index(drop=True)
    frame = frame.assign(panel=style.panels(frame, DATASET), pair=frame[LABEL] + " → " + frame[PREDICTED_CLASS])
    down = kinds.category(alt.Y, "pair", None)
    chart = kinds.bars(kinds.quantity(alt.X, ERRORS, "test images", zero=True, padding=0), down, confusions.columns)
    title = style.title(
        "What does the recommended model confuse?",
        "Each bar counts the test images of one class that were predicted as another (class → prediction).",
    )
    return style.faceted(chart, frame, title, filters=(DATASET,), row=18)


def relabel_figure(relabel: Table) -> alt.FacetChart:
    """The figure of images whose label looks wrong: pictures with the label and the class of similar images.

    relabel: table `recommendation_relabel`, the most suspicious images first. Columns `row` and `column` are the place
             of a picture in the grid, from 0.
    """
    frame = relabel.frame.dropna(subset=THUMBNAIL)  # only the most suspicious images have a picture
    frame = frame.assign(panel=style.panels(frame, DATASET), suggestion="→ " + frame[images.SUGGESTED].astype(str))
    hover = [column for column in relabel.columns if column not in (THUMBNAIL, ROW, COLUMN)]
    pictures = kinds.pictures(frame, hover, LABEL, "suggestion")
    title = style.title(
        "Which labels look wrong?",
        "Below each picture are its label and the class of similar images. Look before you change a label.",
    )
    n_rows = int(frame[ROW].max()) + 1  # places count from 0
    n_columns = int(frame[COLUMN].max()) + 1
    height = n_rows * (kinds.SIDE + 40)  # 40 pixels for the two lines of text below a picture
    figure = style.faceted(pictures, frame, title, filters=(DATASET,), height=height, columns=1)
    figure.usermeta = kinds.FIXED  # pictures are not scaled to the width of the page
    figure.spec.width = n_columns * (kinds.SIDE + kinds.GAP)
    return figure


def classes_figure(classes: Table) -> alt.FacetChart:
    """The figure of the number of images of each class: bars in parts, coloured by split (train, val, test).

    classes: table `recommendation_classes`, with a line for each class and a column of numbers for each split.
    """
    split_of_column = {str(column): split for split, column in images.N_SPLITS.items()}
    # the columns that are repeated for each split; SUSPECTS, the number of labels that look wrong, only comes along in
    # the data of the figure: no mark shows it
    columns_of_class = [DATASET, LABEL, images.SUSPECTS]
    # `melt` makes a line for each class and split. Its column `split` holds the name of the column that the number
    # comes from, which is then replaced by the name of the split
    frame = classes.frame.melt(columns_of_class, list(split_of_column), var_name="split", value_name="images")
    frame = frame.assign(panel=style.panels(frame, DATASET), split=frame["split"].map(split_of_column))

    split = SPLIT.with_choices({name: name for name in images.N_SPLITS})
    n_images = IMAGES.with_format(",.0f")
    by_split = kinds.hue(split, frame, shapes=None)  # bars differ in colour alone
    across = kinds.quantity(alt.X, n_images, "images", zero=True, padding=0)
    bars = kinds.bars(across, kinds.category(alt.Y, str(LABEL)), (LABEL, split, n_images), by_split)
    return style.faceted(bars, frame, style.title(CLASSES.question), filters=(DATASET,), row=18)


def model_statements(lines: pd.DataFrame, candidates: pd.DataFrame) -> list[Statement]:
    """The statement on which model to use, with its accuracy or cost on test images, its time and its size.

    The recommended model is the smallest one that is good enough. If it is at the level of chance, the sentence states
    this instead of recommending it.

    lines:      table `recommendation_answer` of one data set: the smallest, the most accurate and the fast model.
    candidates: table `recommendation` of the same data set, with all candidates, for the chart.

    >>> line = {"dataset": "photos", "line": "smallest", "candidate": "net 160 px int8 (linear probe)"}
    >>> line |= {"verdict": "recommended", "latency_ms": 9.31, "file_mb": 3.9, "tested_copies": 3, "n_test": 100}
    >>> line |= {"top1": 0.9, "top1_low": 0.83, "top1_high": 0.94}
    >>> line |= {"top1_expected": 0.9, "top1_expected_low": 0.85, "top1_expected_high": 0.94}
    >>> frame = pd.DataFrame([line])
    >>> print(*model_statements(frame, frame)[0].sentence.split(". "), sep="\\n")
    Use net 160 px int8 (linear probe): 90.0 % [83.0, 94.0] of 100 test images right, 9.3 ms an image, 3.9 MB
    It was chosen on other images, which suggest an accuracy of 90.0 % [85.0, 94.0]
    3 test images are copies of training or validation images: new ones are harder.
    >>> balanced = {"metric": "balanced", "balanced_top1": 0.8, "balanced_top1_low": 0.7, "balanced_top1_high": 0.84}
    >>> sentences = model_statements(pd.DataFrame([line | balanced]), frame)[0].sentence.split(". ")
    >>> print(sentences[0].split(", 9.3")[0], sentences[2], sep="\\n")
    Use net 160 px int8 (linear probe): 80.0 % [70.0, 84.0] of balanced accuracy on 100 test images
    Test images are harder than those on which the model was chosen
    >>> guessing = {"top1": 0.1, "top1_low": 0.06, "top1_high": 0.17, "chance": 0.1, "at_chance": True}
    >>> print(model_statements(pd.DataFrame([line | guessing]), frame)[0].sentence)
    None yet: the model chosen on other images, net 160 px int8 (linear probe), is right on 10.0 % [6.0, 17.0] of \
100 test images, and always guessing the most frequent class is right on 10.0 %. That is the level of chance.
    >>> lucky = guessing | {"n_test": 2, "top1": 1.0, "top1_low": 0.34, "top1_high": 1.0, "chance": 0.5}
    >>> print(model_statements(pd.DataFrame([line | lucky]), frame)[0].sentence.rsplit(". ")[-1])
    So few images do not show that it is better than guessing.
    """
    answer = lines[lines[LINE] == SMALLEST].iloc[0].to_dict()
    name = answer[CANDIDATE]
    tested_images = "1 test image" if answer[N_TEST] == 1 else f"{answer[N_TEST]:.0f} test images"

    value = _compared_column(candidates)
    chart = small.dots(
        candidates.dropna(subset=value),
        CANDIDATE,
        value,
        (CANDIDATE, VERDICT, *interval_columns(value), TIME_MS),
    )
    if answer.get(AT_CHANCE):
        return [Statement(_at_chance_sentence(answer, tested_images), chart)]

    unsure = ""
    if answer[VERDICT] == GUESS:  # no candidate is surely good enough
        unsure = f"; a best guess, {100 * answer[WITHIN]:.0f} % sure"
    if value is EXPECTED_COST:
        result = _cost_on_test_images(answer, tested_images)
        further_sentences = _expected_cost_sentences(answer)
    elif _is_balanced(answer):
        result = f"{small.format_with_interval(answer, SHARE_BALANCED)} of balanced accuracy on {tested_images}"
        further_sentences = _expected_accuracy_sentences(answer)
    else:
        result = f"{small.format_with_interval(answer, SHARE_RIGHT)} of {tested_images} right"
        further_sentences = _expected_accuracy_sentences(answer)
    use = f"Use {name}: {result}, {_time_and_size(answer)}{unsure}."
    return [Statement(use + further_sentences, chart)]


def _at_chance_sentence(answer: Mapping[Any, Any], tested_images: str) -> str:
    """The sentence about a model that is no better than guessing on test images.

    answer:        the line of the recommended model in table `recommendation_answer`.
    tested_images: the number of test images in words, such as "100 test images".
    """
    model = "the best guess" if answer[VERDICT] == GUESS else "the model chosen on other images"
    right = f"is right on {small.format_with_interval(answer, SHARE_RIGHT)} of {tested_images}"
    guess = (
        f"always guessing the most frequent class is right on {small.format_with_interval(answer, GUESSING_ACCURACY)}"
    )

    verdict = "That is the level of chance"
    if answer[TOP1] > answer[CHANCE]:  # better, but its interval contains the accuracy of guessing
        verdict = "So few images do not show that it is better than guessing"
    return f"None yet: {model}, {answer[CANDIDATE]}, {right}, and {guess}. {verdict}."


def _time_and_size(line: Mapping[Any, Any]) -> str:
    """Time for one image, and the size of the file if there is one: "9.3 ms an image, 3.9 MB"."""
    size = "" if pd.isna(line.get(FILE_MB)) else f", {line[FILE_MB]:.1f} MB"
    return f"{line[LATENCY]:.1f} ms an image{size}"


def _expected_accuracy_sentences(line: Mapping[Any, Any]) -> str:
    """Sentences, each after a space, on the accuracy that was expected when the model was chosen.

    Models are chosen on other images than the test images. If the interval of the accuracy on test images is below (or
    above) the interval of the expected accuracy, a second sentence states that test images are harder (or easier). If
    some test images are copies of training or validation images, a last sentence gives their number.
    line: the line of the recommended model in table `recommendation_answer`.
    """
    # If models were compared by balanced accuracy (the mean over classes), the expected accuracy is balanced. For test
    # images only plain accuracy may be known, and then `_is_balanced` is False: the two cannot be compared
    has_same_metric = line.get(METRIC) != BALANCED or _is_balanced(line)
    metric = "a balanced accuracy" if line.get(METRIC) == BALANCED else "an accuracy"
    expected = small.format_with_interval(line, EXPECTED_ACCURACY)
    sentences = f" It was chosen on other images, which suggest {metric} of {expected}."

    tested = BALANCED_TOP1 if _is_balanced(line) else TOP1
    is_harder = line[tested.high] < line[EXPECTED.low]
    is_easier = line[tested.low] > line[EXPECTED.high]
    if has_same_metric and (is_harder or is_easier):
        comparative = "harder" if is_harder else "easier"
        sentences += f" Test images are {comparative} than those on which the model was chosen."
    return sentences + _copies_sentence(line)


def _is_balanced(line: Mapping[Any, Any]) -> bool:
    """Whether models were compared by balanced accuracy, and it is known for test images."""
    return line.get(METRIC) == BALANCED and not pd.isna(line.get(BALANCED_TOP1))


def _copies_sentence(line: Mapping[Any, Any]) -> str:
    """A sentence, after a space, on test images that are copies of training or validation images; empty if none is."""
    copies = line[TESTED_COPIES]
    if not copies > 0:
        return ""
    number = "1 test image is a copy" if copies == 1 else f"{copies:.0f} test images are copies"
    return f" {number} of training or validation images: new ones are harder."


def _cost_with_interval(line: Mapping[Any, Any], value: Column) -> str:
    """A cost with its interval in the user's unit; without the interval where an end is missing.

    >>> _cost_with_interval({"cost": 0.4166, "cost_low": 0.31, "cost_high": 1234.5}, COST)
    '0.417 [0.31, 1,230]'
    """
    cost, low, high = (float(line.get(column, "nan")) for column in interval_columns(value))
    if pd.isna(low) or pd.isna(high):
        return format_cost(cost)
    return f"{format_cost(cost)} [{format_cost(low)}, {format_cost(high)}]"


def _cost_on_test_images(line: Mapping[Any, Any], tested_images: str) -> str:
    """The mean cost of the answers for test images in words; "not tested" if it is unknown."""
    if pd.isna(line[COST]):
        return "not tested"
    return f"costs {_cost_with_interval(line, COST)} an image on {tested_images}"


def _expected_cost_sentences(line: Mapping[Any, Any]) -> str:
    """Sentences, each after a space, on the cost of an image that was expected when the model was chosen.

    If the cost on test images is known, a second sentence gives the cost of always giving the same answer (the cheapest
    such answer). A last one counts test images that are copies of training or validation images, if there are any.
    line: the line of the recommended model in table `recommendation_answer`.
    """
    sentences = (
        f" It was chosen on other images, which suggest a cost of {_cost_with_interval(line, COST_EXPECTED)} an image."
    )
    if not pd.isna(line[COST]):
        cost_of_one_answer = format_cost(float(line[COST_OF_ONE_ANSWER]))
        sentences += f" Always answering {line[ONE_ANSWER]} would cost {cost_of_one_answer} an image"
        # The model may cost as much if the interval of its cost reaches up to the cost of the one answer. In a table
        # without the interval, 0 takes the place of its upper end, so that nothing is added
        if line.get(COST.high, 0) >= line[COST_OF_ONE_ANSWER]:
            sentences += ": the test images do not show that the model costs less"
        sentences += "."
    return sentences + _copies_sentence(line)


def front_statements(lines: pd.DataFrame, candidates: pd.DataFrame) -> list[Statement]:
    """One statement on the alternatives to the recommended model: the most accurate one, and one of half its time.

    With costs, the alternative is the model of least expected cost instead of the most accurate one.
    lines:      table `recommendation_answer` of one data set. Its line of the smallest model, which is the recommended
                one, is not described here.
    candidates: table `recommendation` of the same data set, for the chart of candidates that no other candidate beats
                in both accuracy (or cost) and time: the front.
    Empty if the recommended model is at the level of chance, or if there are no alternatives.

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

    value = _compared_column(candidates)
    headings = {BEST: "Most accurate within the limits", FASTER: "Half the time for at most 2 points"}
    better = "more accurate"
    if value is EXPECTED_COST:
        headings = {BEST: "Least cost within the limits", FASTER: "Half the time for little more cost"}
        better = "of less cost"

    sentences = []
    for line in lines[lines[LINE] != SMALLEST].to_dict("records"):
        # the smallest is also the best; this is never the line FASTER, as no model takes half its own time
        if line[CANDIDATE] == answer[CANDIDATE]:
            sentences.append(f"No model within the limits is expected to be {better}.")
            continue
        expected = (
            f"{_cost_with_interval(line, EXPECTED_COST)} an image"
            if value is EXPECTED_COST
            else small.format_with_interval(line, EXPECTED_ACCURACY)
        )
        heading = headings[line[LINE]]
        sentences.append(f"{heading}: {line[CANDIDATE]}, {expected} expected, {_time_and_size(line)}.")
    if not sentences:
        return []

    measured = candidates.dropna(subset=[value, LATENCY])
    # `small.lines` draws a line for each value of FRONT_LINE, the column `front`: here a single one
    front = measured[measured[ON_FRONT].astype(bool)].sort_values(LATENCY).assign(front="front")
    chart = small.lines(front, TIME_MS, value, FRONT_LINE, (CANDIDATE, TIME_MS, value))
    return [Statement(" ".join(sentences), chart)]


def confusion_statements(confusions: pd.DataFrame) -> list[Statement]:
    """The sentence on the most frequent confusion of the recommended model; with costs, on the most expensive one.

    confusions: table `recommendation_confusions` of one data set.

    >>> line = {"dataset": "photos", "label": "wolf", "predicted_class": "dog", "errors": 3, "share": 0.75}
    >>> cat = line | {"label": "cat", "errors": 1, "share": 0.25}
    >>> print(confusion_statements(pd.DataFrame([line, cat]))[0].sentence)
    Its most frequent error is wolf taken for dog: 3 of 4 errors on test images.
    >>> print(confusion_statements(pd.DataFrame([line | {"errors": 1}, cat]))[0].sentence)
    None of its 2 errors on test images is more frequent than the others: wolf taken for dog, cat taken for dog.
    """
    if COST_OF_ERRORS in confusions and confusions[COST_OF_ERRORS].notna().any():
        return _cost_statements(confusions)
    ordered = confusions.sort_values(ERRORS, ascending=False, kind="stable")
    chart = small.dots(_with_pairs(ordered), "pair", ERRORS, (LABEL, PREDICTED_CLASS, ERRORS))
    return [Statement(_most_frequent_confusions(ordered), chart)]


def _with_pairs(confusions: pd.DataFrame) -> pd.DataFrame:
    """The table with a column `pair` of the true and the predicted class, such as "wolf → dog"."""
    return confusions.assign(pair=confusions[LABEL].astype(str) + " → " + confusions[PREDICTED_CLASS].astype(str))


def _most_frequent_confusions(confusions: pd.DataFrame) -> str:
    """The sentence on the most frequent confusion: a class and the class that was predicted instead.

    If several confusions are the most frequent, the sentence names them. If all confusions are equally frequent, it
    states this and names only the first few.
    confusions: lines of table `recommendation_confusions` of one data set, one for each pair of classes.
    """
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

    listed = ", ".join(pairs[: small.MAX_NAMES])
    n_not_listed = len(pairs) - small.MAX_NAMES
    if n_not_listed > 0:
        listed += f" and {n_not_listed} more"
    return f"None of its {total} errors on test images is more frequent than the others: {listed}."


def _cost_statements(confusions: pd.DataFrame) -> list[Statement]:
    """One statement on the confusion that costs most: a true and a predicted class, and all errors of this kind.

    confusions: lines of table `recommendation_confusions` of one data set, one for each pair of classes.

    >>> line = {"dataset": "photos", "label": "wolf", "predicted_class": "dog", "errors": 1, "cost_of_errors": 20.0}
    >>> few = pd.DataFrame([line, line | {"label": "dog", "predicted_class": "wolf", "errors": 3, "cost_of_errors": 3}])
    >>> print(_cost_statements(few)[0].sentence)
    Its most expensive confusion is wolf taken for dog: 1 of 4 errors on test images, 20 of their total cost of 23.
    """
    ordered = confusions.sort_values(COST_OF_ERRORS, ascending=False, kind="stable")
    hover = (LABEL, PREDICTED_CLASS, ERRORS, COST_OF_ERRORS)
    chart = small.dots(_with_pairs(ordered), "pair", COST_OF_ERRORS, hover)
    return [Statement(_most_expensive_confusions(ordered), chart)]


def _most_expensive_confusions(confusions: pd.DataFrame) -> str:
    """The sentence on the confusion whose errors cost most in total; it names several confusions of the same cost.

    confusions: lines of table `recommendation_confusions` of one data set, with costs, the highest first.
    """
    costs = confusions[COST_OF_ERRORS].astype(float).round(12)  # sums of equal costs may differ in their last digit
    most_expensive = confusions[costs == costs.max()]
    pairs = [
        f"{label} taken for {predicted}"
        for label, predicted in zip(most_expensive[LABEL], most_expensive[PREDICTED_CLASS], strict=True)
    ]
    n_errors = f"{confusions[ERRORS].sum():.0f} errors on test images"
    cost = format_cost(most_expensive[COST_OF_ERRORS].iloc[0])
    total_cost = format_cost(confusions[COST_OF_ERRORS].sum())
    if costs.max() == 0:
        return f"Its {n_errors} cost nothing."
    if len(confusions) == 1:
        return f"All of its errors on test images are {pairs[0]}: {confusions[ERRORS].iloc[0]:.0f}, a cost of {cost}."
    if len(pairs) == len(confusions):
        return f"None of its confusions on test images costs more than the others: {small.listed(pairs)}, {cost} each."

    errors = f"{most_expensive[ERRORS].sum():.0f} of {n_errors}"
    if len(pairs) > 1:
        return (
            f"Its most expensive confusions are {small.listed(pairs)}: {errors}, {cost} each of a cost of {total_cost}."
        )
    return f"Its most expensive confusion is {pairs[0]}: {errors}, {cost} of their total cost of {total_cost}."


def label_statements(relabel: pd.DataFrame) -> list[Statement]:
    """The sentence on labels that look wrong: their number, and the most suspicious one.

    relabel: table `recommendation_relabel` of one data set, the most suspicious image first.

    >>> line = {"dataset": "photos", "image_id": "7.png", "label": "wolf", "suggested": "dog", "margin": 0.8}
    >>> print(label_statements(pd.DataFrame([line]))[0].sentence)
    1 label disagrees with images that resemble theirs: look first at 7.png, labelled wolf, which resembles dog.
    """
    worst = relabel.iloc[0]
    number = "1 label disagrees" if len(relabel) == 1 else f"{len(relabel)} labels disagree"
    first = f"look first at {worst[IMAGE_ID]}, labelled {worst[LABEL]}, which resembles {worst[images.SUGGESTED]}"
    changes = relabel.assign(change=relabel[LABEL].astype(str) + " → " + relabel[images.SUGGESTED].astype(str))
    chart = small.dots(changes, "change", SUSPICION, (IMAGE_ID, LABEL, images.SUGGESTED, SUSPICION))
    return [Statement(f"{number} with images that resemble theirs: {first}.", chart)]


def step_statements(steps: pd.DataFrame, candidates: pd.DataFrame) -> list[Statement]:
    """The sentence on the first thing to try.

    steps: table `recommendation_next` of one data set.    candidates: table `recommendation` of it.

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
