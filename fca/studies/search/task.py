"""`task=search`: under which conditions does a classifier fail? Images are drawn where a policy looks next.

Subdomain by subdomain, a generator draws images, a filter keeps those that match their prompt, the classifier predicts
them, and the run's journal records every verdict before the next choice. A killed search resumes: it makes the same
choices, and draws and predicts nothing twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float
from PIL import Image

from fca.identity import fingerprint
from fca.stats.ask import FixedQuestions
from fca.stats.intervals import wilson
from fca.store.columns import DEVICE, FINGERPRINT
from fca.studies.generate.domain import EvaluationDomain
from fca.studies.generate.drawing import price_of
from fca.studies.generate.filters import Filter
from fca.studies.generate.protocols import Conditional, Generator
from fca.studies.generate.zero_shot import name_of, zero_shot_classifier
from fca.studies.search.columns import (
    ACCEPTANCE,
    ACCURACY,
    CLEAN_ACCURACY,
    COVERING,
    DOMAIN,
    FILTER,
    GENERATOR,
    MONEY,
    N_DRAWN,
    N_SUBDOMAINS,
    N_VISITED,
    POLICY,
    SECOND,
    SKILL,
    SUBJECT,
    TARGET,
)
from fca.studies.search.stats.explain import find_rules, members
from fca.studies.search.stats.policies import POLICIES, Policy, make_policy
from fca.studies.search.stats.visits import SearchVisits
from fca.studies.search.studio import Draw, Studio, Visit, Work, history_of
from fca.subset import read_superclasses
from fca.tables.predictions import predictions as stored_predictions
from fca.tables.table import WARNING
from fca.tasks import RunContext
from fca.tasks.checks import known_keys
from fca.tasks.predict import ForwardWork, check_forward, finish_predictions, runs_of_split
from fca.types import (
    Arrays,
    Column,
    FcaError,
    Finished,
    ImageData,
    Model,
    Run,
    check_choice,
    interval_columns,
    keyed_rng,
)
from fca.validation import Allowed, Workers

# options of policies, and the default values, which are left out of rows and of a run's identity
OPTIONS = {"strength": None, "acquisition": None, "reserve": None, "starts": 10, "features": "one_hot", "visits": 1}
BUDGETS = ("max_subdomains", "max_images", "max_hours", "max_money")
IDENTITY_FIELDS = (*BUDGETS, "images", "visits", "max_draws", "parallel", "stored_px", "confirm")
# statistics whose results changed since an earlier version; part of the identity, so that old runs are not reused
REVISED_RULES = "null tables"
REVISED_POLICIES = {"gp_pairwise": "binomial likelihood"}
IMAGE_ARRAYS = {
    "visit": np.int32,
    "accepted": bool,
    "correct": bool,
    "p": np.float32,
    "score": np.float32,
    "second": np.int8,
}
MAX_BARREN_VISITS = 5  # in a row, without an accepted image, after which a search stops with an error
GALLERY_PX = 64  # side of a picture


@dataclass(frozen=True)
class Search:
    """`task=search`: where in a domain a classifier is least accurate, from images of a part of its subdomains.

    domain:   the conditions, and the prompts that describe them.
    generator: draws the images.
    filter:   accepts images that show what the prompt asks for (by the run's encoder, where the filter reads prompts).
    second:   a model to compare with.
    policy:   see fca.studies.search.stats.policies, also for its options strength, acquisition, reserve (null: the
              policy's default), starts and features (one_hot, or words: prompts as the encoder embeds them).
    images:   accepted images of the first, second, ... visit of a subdomain.
    visits:   of one subdomain, at most.
    max_*:    visits, accepted images, hours of drawing and predicting, money; null: no limit. Visits in hand are
              finished, and images that confirm rules come on top.
    max_draws: of a visit.
    parallel: visits in hand at once; a choice knows those that are over.
    workers:  processes that draw; 0: one a core.
    stored_px: the shorter side of larger images as they are kept and predicted; null: as drawn.
    clean_accuracy: accuracy on the test images of the run's data set, below which nothing is searched; null: not
              measured.
    confirm:  subdomains with new images for each rule that was found, and as many outside all rules.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        *(DOMAIN, SUBJECT, TARGET, GENERATOR, FILTER, POLICY),
        Column("images", str, "", "accepted images of the first, second, ... visit of a subdomain"),
        *(SECOND, N_SUBDOMAINS, N_VISITED, N_DRAWN),
        Column("n_accepted", int, ",", "images that the filter kept"),
        *(ACCEPTANCE, ACCURACY, *interval_columns(CLEAN_ACCURACY)),
        Column("ended", str, "", "the budget that ended the search, or that all subdomains were visited"),
        Column("search_s", float, ".1f", "time of the search, seconds"),
        Column("gpu_s", float, ".1f", "time of drawing and predicting, summed over images, seconds"),
        *(MONEY, SKILL, COVERING, WARNING),
    )
    summary: ClassVar[tuple[Column | str, ...]] = (ACCURACY, "{n_visited} of {n_subdomains} subdomains, end: {ended}")

    contracts: ClassVar[Mapping[str, type]] = {"generator": Generator, "filter": Filter, "second": Model}

    domain: Any  # an EvaluationDomain
    generator: Any
    filter: Any
    second: Any  # or null
    policy: Annotated[str, Allowed(choices=tuple(POLICIES))]
    strength: Annotated[int | None, Allowed(2, 5)]
    acquisition: str | None
    reserve: Annotated[float | None, Allowed(0, 1)]
    starts: Annotated[int, Allowed(0)]
    features: Annotated[str, Allowed(choices=("one_hot", "words"))]
    images: Annotated[list[int], Allowed(1, non_empty=True)]
    visits: Annotated[int, Allowed(1)]
    max_subdomains: Annotated[int | None, Allowed(1)]
    max_images: Annotated[int | None, Allowed(1)]
    max_hours: Annotated[float | None, Allowed(above=0)]
    max_money: Annotated[float | None, Allowed(above=0)]
    max_draws: Annotated[int, Allowed(1)]
    parallel: Annotated[int, Allowed(1)]
    workers: Workers
    stored_px: Annotated[int | None, Allowed(1, 8192)]
    clean_accuracy: Annotated[float | None, Allowed(above=0, most=1)]
    confirm: Annotated[int, Allowed(0)]

    def check(self) -> None:
        """Raise FcaError for an invalid domain, for one that the generator cannot draw, and for too few draws.

        A visit has at most `max_draws` draws, so this must not be below the number of accepted images that it should
        have.
        """
        self.domain.check()
        if isinstance(self.generator, Conditional):  # it draws only certain attributes and values
            label, conditions = self.generator.label(), self.generator.conditions
            for attribute, values in self.domain.attributes.items():
                check_choice(f"attribute for {label}", attribute, conditions)
                for value in values:
                    check_choice(f"{attribute} for {label}", value, conditions[attribute])

        if self.max_draws < max(self.images):
            step = "raise it, or ask for fewer images"
            raise FcaError("task.max_draws", self.max_draws, f"at least {max(self.images)}, as task.images", step)

    def plan(self, context: RunContext) -> list[Run]:
        """The runs of the task: the search, and before it the prediction of test images, if `clean_accuracy` is set.

        Raises FcaError for a shift, and for models, options and prices that cannot be used.
        """
        context.check_clean("search")
        domain = self.domain
        generator = self.generator
        # the run that predicts the test images, without a shift; it is planned only if `clean_accuracy` is set, but the
        # search tests the same model
        clean = runs_of_split(context, "test")[0]
        data = subdomain_data(domain, generator)
        self._check_models(clean.work)
        # made only to raise for options that this policy does not have; real features may need the encoder
        placeholder_features = np.zeros((len(domain.space), 1))
        self._policy(context.seed, placeholder_features)
        price = self._price()  # of an image; None unless money is limited: only then it decides how many are drawn
        needs_reader = self.filter.texts(domain) or self.features == "words"
        # the encoder as a classifier over the prompts, for filters and policies that read them
        reader = zero_shot_classifier(context.encoder, domain.prompts) if needs_reader else None
        clean_runs = [] if self.clean_accuracy is None else [clean]
        parent = clean.run_id if clean_runs else None  # the run that has to be finished before the search

        # what decides the results, and so the run's id; settings that are None are left out of it
        options = self._options()
        meaning = {
            "data": data.fingerprint,
            "model": clean.identity["model"],
            "filter": self.filter.label(),
            "encoder": context.encoder.identity() if reader else None,
            "second": self.second.identity() if self.second else None,
            "generator": [generator.label(), generator.version()],
            "policy": [self.policy, options],
            # marks of statistics whose results have changed, so that runs of earlier versions are not used again
            "revised_rules": REVISED_RULES,
            "revised_policy": REVISED_POLICIES.get(self.policy),
            "price": price,
            "seed": context.seed,
            "clean": parent,
            **{name: getattr(self, name) for name in IDENTITY_FIELDS},
        }
        identity = {key: value for key, value in meaning.items() if value is not None}

        # what tables show of the search while it has no results yet
        encoder_words = f", {name_of(context.encoder)}" if reader else ""
        option_words = [f"{name}={value}" for name, value in options.items()]
        description = {
            **{name: clean.metadata[name] for name in ("model", "weights", "snapshot")},
            "dataset": domain.name,
            FINGERPRINT: data.fingerprint,
            "seed": context.seed,
            "domain": domain.name,
            "subject": domain.subject,
            "target": domain.target,
            "generator": generator.label(),
            "filter": self.filter.label() + encoder_words,
            "policy": " ".join([self.policy, *option_words]),
            "images": ",".join(map(str, self.images)),
            "n_subdomains": len(domain.space),
            "second": name_of(self.second) if self.second else None,
        }
        work = Work(data, clean.work.model, reader, clean)
        return [*clean_runs, Run("search", identity, description, parent, work=work)]

    def _check_models(self, clean: ForwardWork) -> None:
        """Raise FcaError for a model that cannot predict, and for a target that a model is known to lack."""
        check_forward(clean)
        models = [clean.model, self.second] if self.second else [clean.model]
        for model in models:
            class_keys = known_keys(model)
            if class_keys is not None:  # else the classes are known only when the model is loaded
                self.domain.columns(class_keys)  # raises for a target that is none of these classes

    def _price(self) -> float | None:
        """The price of an image; None where money is no limit. Raises FcaError where there is not enough for one."""
        if self.max_money is None:
            return None
        price = self.generator.price()
        if price is not None and self.max_money < price:
            raise FcaError("task.max_money", self.max_money, f"at least {price}, the price of an image", "raise it")
        return price

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """Predict the test images if their accuracy matters, then search."""
        yield from finish_predictions([run for run in runs if run.task == "predict"], context)
        for run in runs:
            if run.task == "search":
                yield self._search(run, context)

    def _options(self) -> dict[str, Any]:
        """The policy's options that differ from their default."""
        values = {name: getattr(self, name) for name in OPTIONS}
        return {name: value for name, value in values.items() if value != OPTIONS[name]}

    def _policy(self, seed: int, prompt_features: Float[np.ndarray, "subdomains features"] | None) -> Policy:
        """The policy, with the embedded prompts where its features are `words`."""
        options = self._options()
        if "features" in options:
            options["features"] = prompt_features
        return make_policy(self.policy, self.domain.space, seed, **options)

    def _search(self, run: Run[Work], context: RunContext) -> Finished:
        """Run the search, find rules for low accuracy, and test the rules on fresh images.

        Returns the columns and arrays to store. Raises FcaError if no image was accepted, or the model is too poor.
        """
        from fca.training.devices import device_name

        clean_columns = self._clean_columns(run.work, context)  # first, as it raises for a poor model
        context.store.keep_items(run.work.data)  # the prompts of the subdomains, to which the stored arrays refer
        studio = Studio(self, run, context)
        policy = self._policy(context.seed, studio.words)  # words: the prompts as the encoder embeds them, or None
        chooser = Chooser(self, SearchVisits(policy))
        try:
            studio.finish(chooser, "subdomains", self.max_subdomains)
            visits = chooser.finished
            check_any_accepted(visits)
            visited, correct, shown = history_of(visits)
            rules = find_rules(self.domain.space, visited, correct, shown)
            fresh_visits = self._fresh_visits(rules, context.seed)
            # these visits do not depend on each other's results, so the asker has a fixed list
            studio.finish(FixedQuestions(fresh_visits), "confirming", len(fresh_visits))
        finally:
            studio.pool.shutdown(cancel_futures=True)  # images drawn ahead are no longer needed

        arrays = self._arrays(studio, visits) | _confirming_arrays(rules, fresh_visits)
        visit_counts = pd.DataFrame({"subdomain": visited, "correct": correct, "shown": shown})
        counts = visit_counts.groupby("subdomain").sum()
        n_drawn = int(arrays["drawn"].sum())
        n_accepted = int(counts["shown"].sum())
        skill = policy.skill(visited, correct, shown)
        price = price_of(self.generator)
        all_visits = [*visits, *fresh_visits]  # for time and money; all counts leave the fresh visits out
        columns = {
            **clean_columns,
            "n_visited": len(counts),
            "n_drawn": n_drawn,
            "n_accepted": n_accepted,
            "acceptance": n_accepted / n_drawn,
            ACCURACY: (counts["correct"] / counts["shown"]).mean(),
            "ended": chooser.ended,
            "skill": skill,
            "search_s": studio.elapsed,
            "gpu_s": sum(visit.seconds for visit in all_visits),
            "money": None if price is None else price * sum(visit.n_paid for visit in all_visits),
            "covering": chooser.n_covering / len(visits),  # choices that the policy's model did not guide
            DEVICE: device_name(context.machine.accelerator),
            "warning": _warning(visits, skill),
        }
        return Finished(run, columns, arrays)

    def _clean_columns(self, work: Work, context: RunContext) -> dict[str, Any]:
        """Accuracy on the test images of the run's data set, with its interval, as columns of the search's row.

        An image is right if the classifier rightly decides whether it shows the target. Empty if `clean_accuracy` is
        None. Raises FcaError if the accuracy is below it: failures of a poor classifier reveal little about conditions.
        """
        if self.clean_accuracy is None:
            return {}

        stored = stored_predictions(context.store, context.store.row(work.clean.run_id))
        target_columns = self.domain.columns(stored.logit_classes)  # positions of the logits of the target's classes
        judged_as_target, _ = self.domain.judged(stored.logits, target_columns)
        is_target = np.isin(stored.true, target_columns)  # `true` has the position of each true class's logit
        n = len(stored.true)
        n_right = int((judged_as_target == is_target).sum())

        if n_right / n < self.clean_accuracy:
            allowed = (
                f"at least {self.clean_accuracy}, as task.clean_accuracy, on {context.data.name} ({n_right} of {n})"
            )
            raise FcaError("clean accuracy", f"{n_right / n:.4f}", allowed, "take a better model, or lower it")
        return dict(zip(interval_columns(CLEAN_ACCURACY), (n_right / n, *wilson(n_right, n)), strict=True))

    def _fresh_visits(self, rules: list[dict[str, Any]], seed: int) -> list[Visit]:
        """Visits that test the rules on fresh images: `confirm` random subdomains of each rule, and as many outside.

        The visits outside all rules are for comparison; the number of their rule is -1. Without rules there are none.
        """
        if not rules:
            return []

        members_by_rule = [members(self.domain.space, rule) for rule in rules]
        is_outside = ~np.any(members_by_rule, axis=0)
        visits: list[Visit] = []
        for rule, is_member in [*enumerate(members_by_rule), (-1, is_outside)]:
            candidates = keyed_rng("confirm", seed, rule).permutation(np.flatnonzero(is_member))
            for subdomain in candidates[: self.confirm].tolist():
                # rules may overlap, so that a subdomain has several visits here: each has image numbers, and so seeds,
                # of its own
                n_earlier = sum(visit.subdomain == subdomain for visit in visits)
                visit = Visit(
                    name=f"fresh-{len(visits):04d}-{subdomain}",
                    subdomain=subdomain,
                    n_wanted=self.images[0],  # accepted images, as many as in a subdomain's first visit by the search
                    max_draws=self.max_draws,
                    first_number=self.max_draws * n_earlier,
                    kind="fresh",
                    rule=rule,
                )
                visits.append(visit)
        return visits

    def _arrays(self, studio: Studio, visits: list[Visit]) -> Arrays:
        """The arrays of the search to store: its domain, its visits, its images and a gallery.

        Arrays of visits have an entry for each visit in order. Arrays `image_*` have one for each drawn or refused
        image, in the order of visits and draws.
        """
        draws = [
            (position, number, *draw)
            for position, visit in enumerate(visits)
            for number, draw in enumerate(visit.draws)
        ]
        images = pd.DataFrame(draws, columns=["visit", "number", *Draw._fields])
        visited, correct, shown = history_of(visits)
        accuracy_of_visit = correct / np.maximum(shown, 1)  # 0 without accepted images
        return {
            "domain": np.array([self.domain.space.as_json()]),
            "prompts": np.array(self.domain.prompts),
            "visited": visited,
            "correct": correct,
            "shown": shown,
            "drawn": np.array([len(visit.draws) for visit in visits], np.int32),
            "visit_s": np.array([visit.seconds for visit in visits], np.float32),
            **{f"image_{name}": images[name].to_numpy().astype(kind) for name, kind in IMAGE_ARRAYS.items()},
            **_gallery_arrays(studio, visits, images, accuracy_of_visit),
        }


def _gallery_arrays(
    studio: Studio, visits: list[Visit], images: pd.DataFrame, accuracy_of_visit: Float[np.ndarray, " visits"]
) -> Arrays:
    """Small pictures for the report, from the visits of lowest accuracy: 48 wrong, 24 right, 24 rejected by the filter.

    No more than 8 pictures of one kind come from the same visit. Returns the arrays `gallery` (the pictures) and
    `gallery_image` (the line of `images` that each picture belongs to).

    images: a line for each image that was drawn or refused; its `visit` is a position in `visits`, its `number` the
        position of the image in this visit.
    accuracy_of_visit: share of each visit's accepted images that are right; 0 if none was accepted.
    """
    lowest_first = images.iloc[np.argsort(accuracy_of_visit[images["visit"]], kind="stable")]
    is_accepted = lowest_first["accepted"]
    is_right = lowest_first["correct"]
    was_drawn = lowest_first["refused"].isna()
    kinds_and_counts = (
        (is_accepted & ~is_right, 48),
        (is_accepted & is_right, 24),
        (~is_accepted & was_drawn, 24),
    )
    chosen_of_kind = [
        lowest_first[is_of_kind].groupby("visit", sort=False).head(8).head(n_pictures)
        for is_of_kind, n_pictures in kinds_and_counts
    ]
    chosen = pd.concat(chosen_of_kind)

    chosen_draws = [(visits[i], number) for i, number in zip(chosen["visit"], chosen["number"], strict=True)]
    studio.draw_again(chosen_draws)  # only the images whose files are missing or damaged
    pictures = []
    for visit, number in chosen_draws:
        picture = Image.open(studio.file(visit, number)).convert("RGB")
        pictures.append(np.asarray(picture.resize((GALLERY_PX, GALLERY_PX), Image.Resampling.BICUBIC)))
    return {"gallery": np.array(pictures, np.uint8), "gallery_image": chosen.index.to_numpy().astype(np.int32)}


# Which visit is next.


@dataclass
class Chooser:
    """The questions of a search: its visits, until a budget is spent. See `fca.stats.ask` for the protocol.

    visits:     chooses their subdomains by the policy.
    finished:   visits that are over.    pending: visits in hand.
    ended:      the budget that ended the search.
    n_covering: choices that covered the domain.
    """

    search: Search
    visits: SearchVisits
    finished: list[Visit] = field(default_factory=list)
    pending: list[Visit] = field(default_factory=list)
    ended: str = ""
    n_covering: int = 0

    def ask(self) -> Visit | None:
        """The next visit; None if a budget is spent, which `ended` then names.

        Pending visits count with all that they may spend, even if they turn out to spend less. Raises FcaError after
        MAX_BARREN_VISITS finished visits in a row without an accepted image.
        """
        if len(self.finished) >= MAX_BARREN_VISITS:
            check_any_accepted(self.finished[-MAX_BARREN_VISITS:])

        remaining = self._remaining()
        spent_budgets = [name for name, amount in remaining.items() if amount <= 0]
        self.ended = spent_budgets[0] if spent_budgets else ""
        if spent_budgets:
            return None

        # whether the policy's next choice only covers the domain, as its model has no skill; this must come before
        # `ask`, which adds to the history
        self.n_covering += self.visits.policy.covers(*self.visits.history)
        subdomain = self.visits.ask()
        assert subdomain is not None  # the policy itself has no limit

        # images and draws of this visit: fewer if the budget allows fewer ("max_money" is in draws, too)
        search = self.search
        earlier_visits = [visit for visit in self.finished if visit.subdomain == subdomain]
        # `images` has the sizes of the first, second, ... visit of a subdomain; the last one is for all later visits
        n_wanted = search.images[min(len(earlier_visits), len(search.images) - 1)]
        n_wanted = min(n_wanted, remaining.get("max_images", n_wanted))
        max_draws = min(search.max_draws, remaining.get("max_money", search.max_draws))
        number = len(self.finished) + len(self.pending)
        visit = Visit(
            name=f"{number:04d}-{subdomain}",
            subdomain=subdomain,
            n_wanted=n_wanted,
            max_draws=max_draws,
            first_number=sum(len(visit.draws) for visit in earlier_visits),  # its images have numbers of their own
        )
        self.pending.append(visit)
        return visit

    def tell(self, visit: Visit, counts: tuple[int, int]) -> None:
        """Record that the oldest visit in hand is over, and how many of its images were right and shown."""
        self.finished.append(self.pending.pop(0))
        self.visits.tell(visit.subdomain, counts)

    def _remaining(self) -> dict[str, Any]:
        """What is left of each budget, by its name; 0 or less means that it is spent.

        The first entry, "all visited", is the number of subdomains that may still be visited. "max_subdomains" is a
        number of visits, where a second visit of a subdomain counts, too. "max_money" is the number of draws that the
        rest of the money pays. Budgets without a limit are left out.
        """
        search = self.search
        finished = self.finished
        pending = self.pending
        n_visits = Counter(visit.subdomain for visit in finished)
        # subdomains that the policy does not visit again: they had `search.visits` visits, or one without an accepted
        # image
        closed = set()
        for visit in finished:
            if not visit.n_accepted or n_visits[visit.subdomain] >= search.visits:
                closed.add(visit.subdomain)
        in_hand = {visit.subdomain for visit in pending}

        spent = {  # pending visits count as if they took all that they may, but for hours, which cannot be foreseen
            "max_subdomains": len(finished) + len(pending),
            "max_hours": sum(visit.seconds for visit in finished) / 3600,
            "max_images": sum(visit.n_accepted for visit in finished) + sum(visit.n_wanted for visit in pending),
            "max_money": sum(visit.n_paid for visit in finished) + sum(visit.max_draws for visit in pending),
        }
        limits = {name: getattr(search, name) for name in spent}
        if search.max_money is not None:
            price = search.generator.price()
            # in draws; 1e-9 is against rounding. A generator that is free has no limit
            limits["max_money"] = int(search.max_money / price + 1e-9) if price else None

        budgets_left = {name: limit - spent[name] for name, limit in limits.items() if limit is not None}
        return {"all visited": len(search.domain.space) - len(closed | in_hand), **budgets_left}


def _confirming_arrays(rules: Sequence[dict[str, Any]], fresh_visits: Sequence[Visit]) -> dict[str, Any]:
    """The arrays of a search about its rules: the rules as JSON, and the visits that test them on fresh images.

    fresh_visits: as of `Search._fresh_visits`; each has the number of its rule, -1 outside all rules.
    """
    subdomain, correct, shown = history_of(fresh_visits)
    return {
        "rules": np.array([json.dumps(rules)]),
        "fresh_subdomain": subdomain,
        "fresh_correct": correct,
        "fresh_shown": shown,
        "fresh_rule": np.array([visit.rule for visit in fresh_visits], np.int32),
    }


def _warning(visits: Sequence[Visit], skill: float | None) -> str | None:
    """What limits a search, in words; None where nothing does.

    skill: of the policy's model, its share of explained variance; None for a policy without a model.
    """
    warnings = []
    if skill is not None and skill <= 0:
        warnings.append("the policy's model predicts no better than the mean")
    n_short = sum(visit.n_accepted < visit.n_wanted for visit in visits)
    if n_short:
        warnings.append(f"{n_short} of {len(visits)} visits have fewer images than task.images asks for")
    return "; ".join(warnings) or None


def check_any_accepted(visits: Sequence[Visit]) -> None:
    """Raise FcaError if the filter accepted no image of these visits.

    The message counts the images, and those that the generator refused to draw, with the reason of the last refusal.
    """
    draws = [draw for visit in visits for draw in visit.draws]
    if any(draw.accepted for draw in draws):
        return

    counts = f"0 of {len(draws)} images accepted"
    refusals = [draw.refused for draw in draws if draw.refused]
    if refusals:
        counts += f"; {len(refusals)} refused: {refusals[-1]}"
    step = "look at the images in the run's folder; filter.rule=top_k is milder, task.max_draws allows more"
    raise FcaError("filter", counts, "a filter and a generator that leave some images", step)


# The data that a search is about.


def subdomain_data(domain: EvaluationDomain, generator: Generator) -> ImageData:
    """The subdomains of a domain as a data set for the store: each subdomain is one item, with its prompt as the id.

    The fingerprint covers the prompts, and everything that decides whether a class counts as the target. A target is a
    class, several classes, or a group of classes, as in a file of superclasses (`domain.groups`). An image of an item
    is drawn by the generator when it is read.
    """
    group_of_class: Mapping[str, str] = {}
    if domain.groups is not None:
        group_of_class = read_superclasses(domain.groups, domain.group_columns).of

    # a class counts as the target by its own key, or by the name of its group. A target in `domain.targets` is a list
    # of several such names; any other target is itself the only name
    target_names = domain.targets.get(domain.target, [domain.target])
    classes_of_groups = [class_key for class_key, group in group_of_class.items() if group in target_names]
    target = sorted({*target_names, *classes_of_groups})
    # what decides the verdicts on images, beside the prompts of the items: it is part of the fingerprint
    meaning = [domain.subject, domain.prompt, target, domain.decision, domain.space.as_json()]

    image_ids = [f"{number:05d} {prompt}" for number, prompt in enumerate(domain.prompts)]
    items = pd.DataFrame({"image_id": image_ids, "label": domain.target, "split": "test"})

    def read(row: int) -> Any:
        """An example image of a subdomain, drawn with seed 0."""
        return generator.draw(domain.wanted(row, 0)).image

    data_fingerprint = fingerprint(items, json.dumps(meaning))
    return ImageData(domain.name, items, (domain.target,), data_fingerprint, read)
