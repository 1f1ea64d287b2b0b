"""The columns of rows that all tasks share; each task declares further ones.

A row is the record of one finished run: flat JSON, without the columns for which the run has no value.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from fca.types import Column, interval_columns

Row = dict[str, Any]
log = logging.getLogger(__name__)

RENAMED = {"n_asked": "n_evaluated"}
"""Names of columns in rows that earlier versions wrote -> their present names, which are given to them on reading."""
RECIPE = "recipe_"  # one column per key of the recipe, e.g. recipe_epochs

RUN_ID = Column("run_id", str, "", "run, 12 hex digits of its identity")
TASK = Column("task", str, "", "what was done: train, predict, score, embed, describe, ...")
PARENT = Column("parent", str, "", "the run whose weights or arrays this one read")
DATASET = Column("dataset", str, "", "data set", filters=True)
FINGERPRINT = Column("fingerprint", str, "", "of the images, labels and splits")
FINGERPRINT_KIND = Column("fingerprint_kind", str, "", "what that is of: content, version or (older) names and sizes")
LIMIT = Column("limit", int, ".0f", "first images of every class and split that were used; missing: all")
NUM_CLASSES = Column("num_classes", int, ".0f", "classes of the data set")
SPLIT = Column("split", str, "", "split of the images")
MODEL = Column("model", str, "", "model", filters=True)
WEIGHTS = Column("weights", str, "", "weights of the network")
SNAPSHOT = Column("snapshot", str, "", "which weights of a training: best, or a share of its steps")
ENCODER = Column("encoder", str, "", "encoder whose features are compared")
SHIFT = Column("shift", str, "", "change of the images, e.g. corruption/fog/3")
CORRUPTED_AT = Column(
    "corrupted_at",
    str,
    "",
    "where images above 96 pixels were corrupted: at the reference size (224) or as stored; missing: there are none",
)
ADAPTATION = Column("adaptation", str, "", "how the network comes to the classes")
COMPAT = Column("compat")
LEFT_OUT = "training images, each left out"
PENALTY_BY = Column("penalty_by", str, "", "images that chose a probe's penalty")
N_JUDGED = Column("n_judged", int, ",", "training and validation images that judge a probe that did not see them")
JUDGED_IMAGES = "judged_images"  # array of a probe: the images of N_JUDGED
LEFT_OUT_LOGITS = "left_out_logits"  # array of a probe: its logits for these images
ZERO_SHOT = Column("zero_shot_classes", meaning="what a zero-shot model chooses among, if not the data set's classes")
NCL = Column("ncl", int, ".0f", "ncl, number of classes", filters=True)
SUBSET_SEED = Column("subset_seed", int, ".0f", "seed of the draw of the classes")
SAMPLER = Column("sampler", str, "", "how the classes were drawn")
CLASSES = Column("classes", tuple, "", "label indices of the classes, sorted")
SEED = Column("seed", int, ".0f", "seed of initial weights and batch order, or of which images a test evaluates")
TOP1 = Column("top1", float, ".2%", "top-1 accuracy")
TOP1_OPEN = Column("top1_open", float, ".2%", "accuracy over all classes of the model")
TOP1_MASKED = Column("top1_masked", float, ".2%", "accuracy over the subset's classes")
TOP1_GROUPED = Column("top1_grouped", float, ".2%", "accuracy with class probabilities summed over groups")
N_TRAIN = Column("n_train", int, ",", "training images")  # of trainings and of descriptions of data sets
N_VAL = Column("n_val", int, ",", "validation images")
N_TEST = Column("n_test", int, ".0f", "test images")
N_FITS = Column("n_fits", int, ",", "probes that were fitted to training images and to parts of them")
DIVERGED = "diverged"  # of a training whose losses or weights were no longer finite: it has no accuracy
FLAG = Column("flag", str, "", "diverged, or chance: not significantly above always predicting the commonest class")
TRAIN_S = Column("train_s", float, ".1f", "training time, seconds")
PREDICT_S = Column("predict_s", float, ".1f", "prediction time, seconds")
IMAGES_PER_S = Column("images_per_s", float, ".0f")
PARAMS = Column("params", int, ".0f", "parameters of the network")
INPUT_SIZE = Column("input_size", int, ".0f", "side of the network's square input, pixels")
PRECISION = Column("precision", str, "", "of the weights and activations of a program: fp32 or int8")
FILE_MB = Column("file_mb", float, ".1f", "size of the program's file, MB")
LATENCY = Column("latency_ms", float, ".2f", "time for one image, milliseconds (median over rounds)")
SPEED = Column("batch_images_per_s", float, ",.0f", "images a second in batches (median over rounds)")
GFLOPS = Column("gflops", float, ".2f", "floating-point operations for one image, in billions; a multiply-add is two")
MEMORY = Column("memory_mb", float, ",.1f", "weights and intermediate results of one image, MB")
LOAD = Column("load", float, ".2f", "processes that compute or wait to, a core, in the minute before: 0 is idle")
OTHERS_CPU = Column(
    "others_cpu", float, ".0%", "share of the machine's processor time that other processes used while it was measured"
)
DEVICE = Column("device")
HOST = Column("host")
COMMAND = Column("command")
COMMIT = Column("commit")
VERSIONS = Column("versions")
FINISHED = Column("finished", str, "", "UTC, ISO 8601")

HEADLINES = (TOP1, TOP1_OPEN, TOP1_MASKED, TOP1_GROUPED)
BASE = (
    RUN_ID,
    TASK,
    PARENT,
    DATASET,
    FINGERPRINT,
    FINGERPRINT_KIND,
    LIMIT,
    SPLIT,
    NUM_CLASSES,
    *(
        MODEL,
        WEIGHTS,
        SNAPSHOT,
        ENCODER,
        SHIFT,
        CORRUPTED_AT,
        ADAPTATION,
        PENALTY_BY,
        NCL,
        SUBSET_SEED,
        SAMPLER,
        CLASSES,
        SEED,
        COMPAT,
    ),
    *(end for headline in HEADLINES for end in interval_columns(headline)),
    *(N_TEST, FLAG, TRAIN_S, PREDICT_S, IMAGES_PER_S, PARAMS, INPUT_SIZE),
    *(DEVICE, HOST, COMMAND, COMMIT, VERSIONS, FINISHED),
)
MAIN = (  # what `fca results` shows
    RUN_ID,
    TASK,
    DATASET,
    MODEL,
    ENCODER,
    SNAPSHOT,
    SHIFT,
    CORRUPTED_AT,
    NCL,
    SUBSET_SEED,
    SEED,
    TOP1,
    TOP1_OPEN,
    TOP1_MASKED,
    N_TEST,
    FLAG,
    TRAIN_S,
)


@cache  # each process logs the hint once
def present_name(name: str) -> str:
    """The present name of a column. For a name of an earlier version, a warning in the log gives the new one.

    >>> present_name("top1"), present_name("n_asked")
    ('top1', 'n_evaluated')
    """
    if name not in RENAMED:
        return name
    log.warning("column %s is now called %s", name, RENAMED[name])
    return RENAMED[name]


def checked(values: Mapping[str, Any], columns: Iterable[Column] = ()) -> Row:
    """The row (stored result of a run) with these values, in types that JSON can hold; None values are left out.

    Its columns are in the order of their declaration.

    values:  column -> value.
    columns: the columns that the task of the run declares in addition to BASE, the columns of every task. Columns of
             the recipe need no declaration.
    Raises ValueError for any other column, for a value of the wrong type, and for NaN or an infinite number.

    >>> checked({"task": "score", "run_id": "0123456789ab", "top1": None})
    {'run_id': '0123456789ab', 'task': 'score'}
    """
    declared = {str(column): column for column in (*BASE, *columns)}
    undeclared_names = sorted(set(values) - set(declared))

    row = {}
    for name in [*declared, *undeclared_names]:
        value = values.get(name)
        if value is None:
            continue

        if name in declared:
            row[name] = _typed(declared[name], value)
        elif name.startswith(RECIPE):
            row[name] = list(value) if isinstance(value, tuple) else value
        else:
            raise ValueError(f"column {name!r} (value {value!r}) is declared neither by the task nor in BASE")
    return row


def _typed(column: Column, value: Any) -> Any:
    """A value as the type that its column declares: NumPy's numbers become Python's, and tuples become lists.

    Raises ValueError for a value that is not of that type, and for NaN or an infinite number.
    """
    if column.value_type is tuple:  # of texts or whole numbers
        return [item if isinstance(item, str) else int(item) for item in value]
    if column.value_type is float:
        value = float(value)
        if not math.isfinite(value):
            raise ValueError(f"{column}={value} is not a number; leave out what was not measured")
        return value
    if column.value_type is int and int(value) != value:
        raise ValueError(f"{column}={value!r} is not a whole number")
    if column.value_type in (int, bool):
        return column.value_type(value)
    if not isinstance(value, str):
        raise ValueError(f"{column}={value!r} is a {type(value).__name__}, not a string")
    return value
