"""Searches that cannot be made are refused with a named error, and nothing that was drawn is lost."""

from dataclasses import replace

import pytest

from fca.studies.generate.filters import PromptFilter
from fca.types import FcaError
from tests.studies.search.support.search_task import RULES, Eye, Lab, Painter, domain, search


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.max_images=0"], "task.max_images = 0; allowed: a whole number, at least 1, or null"),
        (["domain=dog"], "attribute for rendered = weather; allowed: light, view, size, color"),
        (
            ["domain.attributes.light=[noon,dusk,night,midnight]"],
            "light for rendered = midnight; allowed: noon, dusk, night",
        ),
        pytest.param(
            ["task.max_subdomains=0"],
            "task.max_subdomains = 0; allowed: a whole number, at least 1, or null",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["task.max_hours=0"],
            "task.max_hours = 0.0; allowed: a finite number, above 0, or null",
            marks=pytest.mark.slow,
        ),
        pytest.param(["task.max_money=-1"], "task.max_money = -1.0", marks=pytest.mark.slow),
        pytest.param(["task.images=[]"], "task.images = []; allowed: one value or more", marks=pytest.mark.slow),
        pytest.param(["task.images=[20,0]"], "task.images = 0", marks=pytest.mark.slow),
        pytest.param(
            ["task.max_draws=30"], "task.max_draws = 30; allowed: at least 50, as task.images", marks=pytest.mark.slow
        ),
        pytest.param(
            ["task.policy=best"], "task.policy = best; allowed: random, nwise, genetic, bo", marks=pytest.mark.slow
        ),
        pytest.param(
            ["task.policy=random", "task.strength=2"],
            "option of random = strength; allowed: visits",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["task.acquisition=best"], "acquisition = best; allowed: worst_decile, straddle", marks=pytest.mark.slow
        ),
        (["domain.prompt='A {wether} view'"], "attribute in domain.prompt = wether; allowed: subject, light, view"),
        pytest.param(
            ["domain.prompt='A {view} view'"],
            "attributes that domain.prompt lacks: light, size",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["domain.rules=[{not: {light: [noon, dusk, night]}}]"],
            "rules = 1 rules; allowed: rules that leave a combination",
            marks=pytest.mark.slow,
        ),
        (["domain.rules=[{not: {lihgt: noon}}]"], "attribute in rules = lihgt; allowed: light, view"),
        (["filter=clip"], "encoder = hog; allowed: a model of images and texts, with weights; next: add model@encoder"),
        pytest.param(
            ["task.features=words", "task.policy=bo"],
            "encoder = hog; allowed: a model of images and texts",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["filter=clip", "filter.rule=best"],
            "filter.rule = best; allowed: all, top_k, per_attribute",
            marks=pytest.mark.slow,
        ),
        pytest.param(["shift=corruption/fog"], "shift = corruption/fog/1", marks=pytest.mark.slow),
        pytest.param(["generator=openai", "task.max_money=1"], "generator.image_price = None", marks=pytest.mark.slow),
        pytest.param(
            ["model=test_resnet", "model.weights=null"],
            "model.weights = None; allowed: weights",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["task.steps=3"],
            "key = task.steps; allowed: domain, generator, filter, second, policy",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_searched_is_refused_before_any_work(fca, tmp_path, words, message):
    given = [] if any(word.startswith("model=") for word in words) else WEIGHTS
    code, _, err = fca("task=search", "logger=none", *given, *words)
    assert (code, "Traceback" in err) == (2, False)
    assert message in err
    assert not list(tmp_path.rglob("*.json"))


WEIGHTS = ["model=own"]


def test_a_classifier_without_the_target_is_refused_before_anything_is_drawn(lab):
    for model, task in ((Eye(classes=("dog", "cat")), search()), (Eye(), search(second=Eye(classes=("dog", "cat"))))):
        with pytest.raises(FcaError, match=r"domain\.target = car; allowed: classes of the model, .*dog, cat"):
            lab(task, model=model)
        assert not task.generator.keys


@pytest.mark.parametrize("refuses", [(), ("near", "far")])
def test_a_generator_that_returns_nothing_acceptable_ends_it_and_its_images_stay(lab, refuses):
    class Strict(PromptFilter):
        def texts(self, domain):
            return []

        def accept(self, logits, subdomain, domain):
            import numpy as np

            return np.zeros(len(logits), bool), np.full(len(logits), np.nan)

    task = search(filter=Strict("all", 5), generator=(painter := Painter(refuses=refuses)), max_draws=6)
    reason = "; 30 refused: not this one" if refuses else ""
    with pytest.raises(FcaError, match=f"filter = 0 of 30 images accepted{reason}; allowed: a filter and a generator"):
        lab(task)
    folder = lab.folder(task)
    lab.store.drop(folder.name)  # as the command does
    assert len(list(folder.glob("images/*/*.png"))) == (0 if refuses else len(painter.keys))
    assert len(painter.keys) >= 30
    with pytest.raises(FcaError, match="filter = 0 of 30 images accepted"):
        lab(task)
    few = replace(task, max_subdomains=2)
    with pytest.raises(FcaError, match="filter = 0 of 12 images accepted"):
        lab(few)


def test_a_classifier_that_fails_on_clean_images_is_not_searched(lab):
    found = lab(search(clean_accuracy=0.95, max_subdomains=2))
    assert (found.columns["clean_accuracy"], found.run.parent is not None) == (0.95, True)
    assert found.columns["clean_accuracy_low"] < 0.95 < found.columns["clean_accuracy_high"]
    task = search(clean_accuracy=0.96)
    with pytest.raises(
        FcaError, match=r"clean accuracy = 0\.9500; allowed: at least 0\.96.* on photographs \(19 of 20\)"
    ):
        lab(task)
    assert not task.generator.keys


def test_an_identity_has_what_decides_the_images_and_their_verdicts_and_no_more(lab):
    run_id = lambda task, **given: task.plan(lab.setup(**given))[-1].run_id  # noqa: E731
    same = [search(), search(workers=3), search(domain=domain(name="other"))]
    assert len({run_id(task) for task in same}) == 1
    changes = [
        {"policy": "genetic"},
        {"images": [6]},
        {"max_images": 9},
        {"max_draws": 21},
        {"parallel": 3},
        {"confirm": 1},
    ]
    changes += [
        {"generator": Painter(size=17)},
        {"stored_px": 4},
        {"second": Eye(1.0)},
        {"domain": domain(rules=RULES * 0)},
    ]
    changes += [
        {"domain": domain(target="tree")},
        {"domain": domain(decision="largest")},
        {"clean_accuracy": 0.5},
        {"visits": 2},
    ]
    ids = [run_id(search(**change)) for change in changes]
    ids += [run_id(search(), seed=1), run_id(search(), model=Eye(1.0)), run_id(search())]
    assert len(set(ids)) == len(ids)


def test_a_budget_that_pays_no_image_is_refused(lab):
    with pytest.raises(FcaError, match=r"task\.max_money = 0\.04; allowed: at least 0\.05, the price of an image"):
        search(max_money=0.04, generator=Painter(costs=0.05)).plan(lab.setup())
