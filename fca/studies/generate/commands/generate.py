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

SHOWN_SUBLEVELS = (1, 5, 9)  # whose prompts a dry run prints


def generation(config: DictConfig) -> None:
    """The command `fca generate`: draw the pending images of a plan, then add masks and run checks if configured.

    With dry=true it only prints the plan and its cost. With dry=true and a pilot, it then draws a few images, which are
    kept, and prints an estimate of the time and cost of all others.

    Configured parts that may be None: the writer is a language model that writes missing descriptions of what to draw;
    the segmenter makes masks of the objects; the checks reject images.
    """
    check_root("generate", config)  # raises for unknown keys and for values that are not allowed
    plan: Plan = component(config, "plan").resolved(config.per_level)  # with the values of its file, checked
    generator: Generator = component(config, "generator", Generator)
    writer: Writer | None = None if config.writer is None else component(config, "writer", Writer)
    root = Path(config.out or Path(config.outputs) / "generated" / plan.name)
    key_of_folder = "outputs" if config.out is None else "out"  # named in the error if the folder cannot be written to
    check_folder(key_of_folder, str(root))
    checks = None if config.checks is None else component(config, "checks")
    segmenter = None if config.segmenter is None else component(config, "segmenter", Segmenter)
    folder = Folder(root)
    budget = Budget(config.budget.images, config.budget.money)
    budget.check()  # here, so that a limit that allows nothing is an error in a dry run, too

    if config.dry:
        _preview(plan, generator, writer, folder, config.verbose)
        if config.pilot:
            estimate = pilot(plan, generator, folder, budget, writer, config.workers, config.pilot)
            print(estimate.text(price_of(generator), config.hour_price))
        return

    result = generate(plan, generator, folder, budget, writer, config.workers)
    limit = f", {budget} reached" if result.left else ""  # only the budget leaves images undrawn
    refused = f", {result.refused} refused" if result.refused else ""
    print(f"{result.drawn:,} drawn{refused}, {result.left:,} left{limit}; {result.money:,.2f} for all so far")

    if segmenter is not None:
        print(add_masks(folder, segmenter, plan.name))
    if checks is not None:
        print(checks.examine(plan, folder))
    for name in (MANIFEST, REVIEW):
        if (folder.root / name).exists():  # made with the first image or refusal
            print(f"{name.partition('.')[0]}: {folder.root / name}")


main = partial(application, "generate", generation)  # exit code 0, also when a budget ends; 2 for what cannot be drawn


def _preview(plan: Plan, generator: Generator, writer: Writer | None, folder: Folder, verbose: bool) -> None:
    """Print a plan's size, the number of images that are left, their cost, and prompts; nothing is drawn.

    writer:  the language model that would write missing descriptions; None: they are not written.
    verbose: print the prompts of all pending images; otherwise of a few examples.

    Raises FcaError for a folder of another generator, and for descriptions that are missing without a writer.
    """
    lines = folder.journal.lines()  # a line for each image, refusal and description so far
    check_generator(lines, generator, folder.root)
    described_plan = with_descriptions(plan, lines)
    pending = outstanding(described_plan, folder, lines)
    print(f"plan {plan.name}: {len(plan.classes)} classes x {len(plan.attributes)} attributes x 3 levels", end=" ")
    print(f"x {plan.per_level} = {len(plan):,} images, {len(pending):,} left; {spent(lines):,.2f} for all so far")
    print(f"{generator.label()} ({generator.version()}): {_cost(len(pending), generator)}")
    if not generator.prompted:  # there are no prompts to print
        print("it draws without words")
        return

    pairs_to_describe: set[tuple[str, str]] = set()  # (class, attribute) for which the writer will write
    if writer is None:
        described_plan.check_words()  # raises if descriptions are missing
    else:
        pairs_to_describe = set(undescribed(plan, lines))
        print(f"{writer.label()}, descriptions to write: {_cost(len(pairs_to_describe), writer)}")
    for request in pending if verbose else _example_requests(described_plan):
        is_to_be_written = (request.label, request.attribute) in pairs_to_describe
        print(f"{request.key}: {'(to be written)' if is_to_be_written else request.prompt}")


def _example_requests(plan: Plan) -> list[Request]:
    """For every attribute, an easy, a medium and a hard image of the first class, as examples of the prompts."""
    first_class = next(iter(plan.classes))
    small_plan = replace(plan, classes={first_class: plan.classes[first_class]}, per_level=3)
    requests = [request for request in small_plan.requests() if request.sublevel in SHOWN_SUBLEVELS]
    return sorted(requests, key=lambda request: request.attribute)


def _cost(count: int, seller: Generator | Writer) -> str:
    """The cost of so many images or descriptions, in words."""
    price = price_of(seller)
    return f"{count:,} at an unknown price" if price is None else f"{count:,} x {price:g} = {count * price:,.2f}"
