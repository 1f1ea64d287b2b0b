"""Every number of a configuration has a range: no key takes a value that means nothing."""

from dataclasses import fields, is_dataclass
from typing import get_args

import pytest
from omegaconf import OmegaConf

from fca.cli.application import schema_of
from fca.cli.commands import commands, composes
from fca.cli.configure import component, configured
from fca.cli.places import CONF
from fca.plugins import class_of
from fca.types import FcaError
from fca.validation import rules_by_field

CHECKED_BY_THE_CLASS = {  # numbers without a declared range -> where that is checked instead
    "fca.training.recipe.Recipe": "Recipe.check, whose ranges depend on each other",
    "fca.data.rendered.RenderedObjects": "RenderedObjects.load: counts up to a million, sizes that can be drawn",
    "fca.shifts.corruption.Corruptions": "severities: `each` names those that a corruption has",
    "fca.shifts.published.CifarC": "severities, likewise",
    "fca.shifts.published.ImageNetC": "severities, likewise",
    "fca.data.masked_sets.MaskedImageNet": "classes: one of two published numbers; images: published counts",
    "fca.data.public.ImageNet": "images: published counts, compared with the files",
}


def components():
    """The names of the classes that the files of conf/ name."""
    names = set()
    for path in CONF.rglob("*.yaml"):
        node = OmegaConf.load(path)
        target = node.get("_target_") if OmegaConf.is_dict(node) else None
        if isinstance(target, str) and target.startswith("fca."):
            names.add(target)
    return sorted(names)


def leaves(hint):
    """The types in a type such as dict[str, list[float]] or int | None."""
    inner = get_args(hint)
    return [leaf for part in inner for leaf in leaves(part)] if inner else [hint]


def unbounded(kind):
    """The numbers of a dataclass for which no range is declared."""
    names = []
    for name, (hint, rule) in rules_by_field(kind).items():
        if is_dataclass(hint):
            names += [f"{name}.{inner}" for inner in unbounded(hint)]
        elif {int, float} & set(leaves(hint)) and not str(rule):
            names.append(name)
    return names


@pytest.mark.parametrize("target", components())
def test_every_number_of_a_component_has_a_range_or_is_checked_by_its_class(target):
    without = unbounded(class_of("_target_", target))
    assert not without or target in CHECKED_BY_THE_CLASS, without


@pytest.mark.parametrize("root", list(filter(composes, commands())))
def test_every_number_at_the_top_of_a_command_has_a_range(root):
    assert set(unbounded(schema_of(root))) <= {"subset.ncl"}, "its range depends on the data set"


@pytest.mark.parametrize("target", CHECKED_BY_THE_CLASS)
def test_a_class_on_the_list_still_has_numbers_without_a_range(target):
    assert unbounded(class_of("_target_", target))


RECIPE_NUMBERS = [
    field.name
    for field in fields(class_of("_target_", "fca.training.recipe.Recipe"))
    if field.type in ("int", "float", "list[float]")
]


@pytest.mark.parametrize("key", RECIPE_NUMBERS)
@pytest.mark.parametrize("value", [-1, -0.5])
def test_a_recipe_refuses_every_negative_number(key, value):
    is_list = key in ("milestones", "snapshots")
    with pytest.raises(FcaError, match=rf"recipe\.{key} = "):
        component(configured("run", "recipe", "default", {key: [value] if is_list else value}), "recipe")


NONSENSE = {  # group, option, keys -> the refusal
    ("model", "test_resnet", "std", "[0,1,1]"): "above 0, at most 1",
    ("model", "test_resnet", "std", "[0.2,-0.2,0.2]"): "above 0, at most 1",
    ("model", "test_resnet", "mean", "[123.7,116.3,103.5]"): "at least 0, at most 1",
    ("model", "test_resnet", "input_size", "100000"): "at most 8,192",
    ("model", "cifar_resnet20", "depth", "-4"): "at least 8",
    ("recipe", "default", "flip", "3"): "true or false",
    ("recipe", "default", "ema_warmup", "0.5"): "true or false",
    ("recipe", "default", "snapshots", "[0.5,0.5]"): "and named once",
    ("dataset", "digits", "mirror", "7"): "true or false",
    ("machine", "default", "workers", "9999"): "at most 1,024",
    ("task", "search", "workers", "9999"): "at most 1,024",
    ("task", "latency", "threads", "9999"): "at most 1,024",
}


@pytest.mark.parametrize(("group", "option", "key", "value"), NONSENSE)
def test_a_value_that_means_nothing_is_refused_with_the_range(group, option, key, value):
    words = [f"{group}.{key}={value}"]
    with pytest.raises(FcaError, match=rf"{group}\.{key} = .*; allowed: .*{NONSENSE[group, option, key, value]}"):
        component(configured("run", group, option, {}, *words), group)


def test_a_cue_strength_without_a_cue_is_refused():
    data = component(configured("run", "dataset", "rendered", {"cue_strength": 0.5}), "dataset")
    with pytest.raises(FcaError, match=r"dataset\.cue_strength = 0.5; allowed: 0 without a cue"):
        data.load()


def test_truth_values_stay_the_texts_they_were_where_a_text_is_due():
    machine = component(configured("run", "machine", "default", {}, "machine.compile=true"), "machine")
    assert machine.compile == "true"


REFUSED = {  # words of fca run -> the refusal
    "model.classes=[cat,dog]": "model.classes = ['cat', 'dog']; allowed: null without model.weights",
    "-m hydra/launcher=joblib hydra.launcher.backend=foo seed=0,1": "hydra.launcher.backend = foo; allowed: loky",
    "-m hydra/launcher=gpus hydra.launcher.gpus=foo seed=0,1": "hydra.launcher.gpus = foo; allowed: auto, or a list",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_key_without_what_it_is_for_and_a_launcher_without_such_a_value_are_refused(fca, words):
    code, _, err = fca(*words.split(), "sweep.print=true")
    assert code == 2
    assert REFUSED[words] in err


@pytest.mark.parametrize("words", ["model=cifar_resnet20", "model=mobilenetv1_025", "recipe.flip=yes"])
def test_what_a_file_of_ours_has_stays_accepted(fca, words):
    assert fca(words, "sweep.print=true")[0] == 0
