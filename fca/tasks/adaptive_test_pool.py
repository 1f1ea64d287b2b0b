"""What an adaptive test may ask: images by level, session and attribute; the policy's options; the bank's items."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int

from fca.analysis.ability import read_bank
from fca.analysis.levelled import levels_of, sessions_of
from fca.nouns import FcaError, ImageData, Run, Shift
from fca.stats.adaptive import LEVELS, MAPPING_L, MAPPING_Q, POLICIES, Pool, StartPolicy, check_mapping, make_pool
from fca.stats.irt import ItemBank
from fca.store import Store

MAPPINGS = {"Q": MAPPING_Q, "L": MAPPING_L}
LEAKED = "task.bank was fitted on this model's own answers too; fit it on others"
OTHER_DATA = "task.bank was fitted on another version of these data: its items may have shown other pixels"
OF_POLICY = {"mapping": ("gre_two_stage",), "objective": ("optimal_allocation", "neyman_irt")}


class Questions(NamedTuple):
    """Images that may be asked.

    rows:  their positions in `data.items`, in its order.    places: those among all test images of the classes.
    pool:  their levels, sessions (class and attribute) and groups (attributes).
    """

    rows: Int[np.ndarray, " items"]
    places: Int[np.ndarray, " items"]
    pool: Pool


class Chosen(NamedTuple):
    """A policy with its options: how to start it, what of it is not the default, and its name in tables."""

    start: StartPolicy
    options: dict[str, Any]
    label: str


def questions(data: ImageData, split: str, classes: Sequence[int]) -> Questions:
    """The images of a split and of these label indices that have an attribute and a level.

    Raises FcaError for a data set without such columns or images, for a level of another name, and for a session that
    lacks a level.
    """
    lacking = [column for column in ("attribute", "level") if column not in data.items]
    if lacking:
        there = ", ".join(map(str, data.items.columns))
        step = "take dataset=rendered, or give a manifest's images these columns"
        raise FcaError(f"columns of {data.name}", there, f"also {' and '.join(lacking)}", step)
    listed = data.rows(split, classes)
    items = data.items.iloc[listed]
    places = np.flatnonzero(items["attribute"].notna() & items["level"].notna())
    items = items.iloc[places]
    if wrong := sorted(set(items["level"].astype(str)) - set(LEVELS)):
        raise FcaError(f"level of images of {data.name}", ", ".join(wrong[:5]), ", ".join(LEVELS), "name levels so")
    pool = make_pool(levels_of(items), sessions_of(items), items["attribute"].to_numpy(dtype=str))
    return Questions(listed[places], places, pool)


def choose_policy(policy: str, mapping: Any, objective: str) -> Chosen:
    """A policy by name. Raises FcaError for an unknown one, a mapping that is none, an option of another policy.

    mapping: Q or L, or ten triples, for gre_two_stage.    objective: accuracy or score, where a policy has one.

    >>> choose_policy("gre_two_stage", "L", "accuracy").label
    'gre_two_stage mapping=L'
    """
    if policy not in POLICIES:
        raise FcaError("task.policy", policy, ", ".join(POLICIES), "take one of these")
    if isinstance(mapping, str) and mapping not in MAPPINGS:
        raise FcaError("task.mapping", mapping, f"{', '.join(MAPPINGS)}, or ten triples", "take one of these")
    table = check_mapping(MAPPINGS[mapping] if isinstance(mapping, str) else mapping).tolist()
    named = next((name for name, known in MAPPINGS.items() if table == [list(line) for line in known]), "own")
    given: dict[str, Any] = {} if named == "Q" else {"mapping": table}
    if objective != "accuracy":
        given["objective"] = objective
    for option in given:
        if policy not in OF_POLICY[option]:
            step = f"leave it out, or set task.policy={OF_POLICY[option][0]}"
            raise FcaError(f"task.{option}", objective if option == "objective" else named, f"none for {policy}", step)
    words = [policy, *(f"{key}={named if key == 'mapping' else value}" for key, value in given.items())]
    start: Any = POLICIES[policy]
    return Chosen(partial(start, **given), given, " ".join(words))


def read_items(store: Store, table_id: str, data: ImageData, rows: Int[np.ndarray, " items"], shift: Shift) -> ItemBank:
    """The bank's items of these images as the shift shows them, in their order.

    Raises FcaError for an id that is no bank, for images that it lacks, and where two of its items have one name.
    """
    kind = shift.label().split("/")[1] if "/" in shift.label() else shift.label()
    frame = read_bank(store, table_id)
    for column, wanted in (("dataset", data.name), ("corruption", kind)):
        same = frame[frame[column] == wanted]
        frame = same if len(same) else frame  # files of answers have names of their own
    if frame["item"].duplicated().any():
        found = ", ".join(sorted(set(frame["dataset"])))
        step = f"save one of this set alone: fca analyse analysis=irt analysis.query=\"dataset == '{data.name}'\""
        raise FcaError("data sets of task.bank", found, f"{data.name}, or another one", step)
    images = data.items["image_id"].iloc[rows].astype(str)
    names = images if shift.label() == "clean" else images + f"@{shift.label()}"
    at = pd.Index(frame["item"]).get_indexer(pd.Index(names))
    if (at < 0).any():
        missing = names[at < 0]
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        what = f"items that task.bank {table_id} lacks"
        step = "fit one on other models' answers to all of these images: fca analyse analysis=irt"
        raise FcaError(what, f"{shown} ({len(missing)} of {len(names)})", "none", step)
    parameters: Any = [frame[name].to_numpy(dtype=np.float64)[at] for name in ItemBank._fields[1:]]
    return ItemBank(str(frame["irt_model"].iloc[0]), *parameters)


def doubts(store: Store, table_id: str, predictions: Sequence[Run]) -> list[str]:
    """What is wrong with a bank for these tests, by the stored runs whose answers it was fitted on.

    predictions: the runs that would predict every image.
    """
    about = json.loads((store.outputs / "tables" / table_id / "table.json").read_text())
    rows = store.rows()
    fitted = rows[rows["run_id"].isin(about["runs"]) & (rows["dataset"] == predictions[0].about["dataset"])]
    leaked = set(fitted["run_id"]) & {run.run_id for run in predictions}
    other = set(fitted["fingerprint"]) - {run.about["fingerprint"] for run in predictions}
    return [LEAKED] * bool(leaked) + [OTHER_DATA] * bool(other)
