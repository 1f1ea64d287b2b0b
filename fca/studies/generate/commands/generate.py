"""Test images in levels of difficulty:  fca generate generator=rendered plan=rendered"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from fca.cli.application import application, check_folder, check_root
from fca.cli.configure import component
from fca.data.manifest import MANIFEST
from fca.studies.generate.drawing import Budget, generate, outstanding, price_of, spent, undescribed, with_descriptions
from fca.studies.generate.folder import REVIEW, Folder, check_generator
from fca.studies.generate.masks import add_masks
from fca.studies.generate.pilot import pilot
from fca.studies.generate.plan import Plan
from fca.studies.generate.protocols import Generator, Request, Writer
from fca.studies.generate.segmenters import Segmenter

FEW = (1, 5, 9)  # sublevels whose prompts a dry run shows


def generation(config: DictConfig) -> None:
    """Draw what is left, or with dry=true only show what would be drawn and what it would cost.

    A pilot draws a few of the images, which are kept.
    """
    check_root("generate", config)
    plan: Plan = component(config, "plan").resolved(config.per_level)
    generator: Generator = component(config, "generator", Generator)
    writer: Writer | None = None if config.writer is None else component(config, "writer", Writer)
    root = Path(config.out or Path(config.outputs) / "generated" / plan.name)
    check_folder("outputs" if config.out is None else "out", str(root))
    checks = None if config.checks is None else component(config, "checks")
    segmenter = None if config.segmenter is None else component(config, "segmenter", Segmenter)
    folder = Folder(root)
    budget = Budget(config.budget.images, config.budget.money)
    budget.check()
    if config.dry:
        _preview(plan, generator, writer, folder, config.verbose)
        if config.pilot:
            found = pilot(plan, generator, folder, budget, writer, config.workers, config.pilot)
            print(found.text(price_of(generator), config.hour_price))
        return
    done = generate(plan, generator, folder, budget, writer, config.workers)
    why = f", {budget} reached" if done.left else ""
    refused = f", {done.refused} refused" if done.refused else ""
    print(f"{done.drawn:,} drawn{refused}, {done.left:,} left{why}; {done.money:,.2f} for all so far")
    if segmenter is not None:
        print(add_masks(folder, segmenter, plan.name))
    if checks is not None:
        print(checks.examine(plan, folder))
    for name in (MANIFEST, REVIEW):
        if (folder.root / name).exists():
            print(f"{name.partition('.')[0]}: {folder.root / name}")


main = partial(application, "generate", generation)  # exit code 0, also when a budget ends; 2 for what cannot be drawn


def _preview(plan: Plan, generator: Generator, writer: Writer | None, folder: Folder, verbose: bool) -> None:
    lines = folder.journal.lines()
    check_generator(lines, generator, folder.root)
    written = with_descriptions(plan, lines)
    wanted = outstanding(written, folder, lines)
    print(f"plan {plan.name}: {len(plan.classes)} classes x {len(plan.attributes)} attributes x 3 levels", end=" ")
    print(f"x {plan.per_level} = {len(plan):,} images, {len(wanted):,} left; {spent(lines):,.2f} for all so far")
    print(f"{generator.label()} ({generator.version()}): {_cost(len(wanted), generator)}")
    if not generator.prompted:
        print("it draws without words")
        return
    asked = set() if writer is None else set(undescribed(plan, lines))
    if writer is None:
        written.check_words()
    else:
        print(f"{writer.label()}, descriptions to write: {_cost(len(asked), writer)}")
    for request in wanted if verbose else _few(written):
        to_write = (request.label, request.attribute) in asked
        print(f"{request.key}: {'(to be written)' if to_write else request.prompt}")


def _few(plan: Plan) -> list[Request]:
    """Three images of every attribute, of the first class."""
    first = next(iter(plan.classes))
    small = replace(plan, classes={first: plan.classes[first]}, per_level=3)
    return sorted((r for r in small.requests() if r.sublevel in FEW), key=lambda r: r.attribute)


def _cost(count: int, seller: Generator | Writer) -> str:
    price = price_of(seller)
    return f"{count:,} at an unknown price" if price is None else f"{count:,} x {price:g} = {count * price:,.2f}"
