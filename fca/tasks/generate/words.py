"""Descriptions that a language model writes for every class and attribute: asked once, kept in the journal."""

from __future__ import annotations

import time
from dataclasses import replace

from fca.generation import Refused, Writer
from fca.tasks.generate.folder import Folder, Line
from fca.tasks.generate.money import Budget, price_of, spent
from fca.tasks.generate.plan import SUBLEVELS, Plan
from fca.types import FcaError


def unwritten(plan: Plan, lines: list[Line]) -> list[tuple[str, str]]:
    """(class, attribute) without descriptions of their own, in the plan or the journal; refused ones are answered."""
    asked = {(line["label"], line["attribute"]) for line in lines if line["kind"] == "description"}
    pairs = [(label, attribute) for label in plan.classes for attribute in plan.attributes]
    return [pair for pair in pairs if pair not in asked and not plan.descriptions.get(pair[0], {}).get(pair[1])]


def ask(plan: Plan, writer: Writer, folder: Folder, budget: Budget) -> bool:
    """Have all missing descriptions written; false when the budget ended before. Raises Unavailable."""
    lines = folder.journal()
    for label, attribute in unwritten(plan, lines):
        if not budget.pays(spent(lines), price_of(writer)):
            return False
        lines.append(_asked(plan.classes[label], label, attribute, writer))
        folder.add(lines[-1])
    return True


def _asked(name: str, label: str, attribute: str, writer: Writer) -> Line:
    line: Line = {"kind": "description", "label": label, "name": name, "attribute": attribute, "writer": writer.label()}
    started = time.perf_counter()
    try:
        nine = writer.describe(name, attribute)
    except Refused as refusal:
        return {**line, "refused": str(refusal)}
    if len(nine) != SUBLEVELS:
        raise FcaError(f"descriptions by {writer.label()}", len(nine), str(SUBLEVELS), "run again, or take another one")
    seconds = round(time.perf_counter() - started, 3)
    return {**line, "descriptions": nine, "money": price_of(writer), "seconds": seconds}


def with_written(plan: Plan, lines: list[Line]) -> Plan:
    """The plan with the journal's descriptions of its classes; what the plan has itself goes before."""
    descriptions = {label: dict(own) for label, own in plan.descriptions.items()}
    for line in lines:
        label, attribute = line["label"], line["attribute"]
        if line["kind"] == "description" and "descriptions" in line and (label, attribute) in _pairs(plan):
            own = descriptions.setdefault(label, {})
            own[attribute] = own.get(attribute) or line["descriptions"]
    return replace(plan, descriptions=descriptions)


def _pairs(plan: Plan) -> set[tuple[str, str]]:
    return {(label, attribute) for label in plan.classes for attribute in plan.attributes}
