"""Every YAML composes, and binds to the fields of the class it names."""

from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from fca.cli.application import register
from fca.cli.commands import commands, composes
from fca.cli.configure import component, typed
from fca.cli.help import question_of
from fca.cli.options import option_files, rows
from fca.cli.places import CONF
from fca.cli.trust import plain_values
from tests.support.whole_tree import of_studies_that_are_here

ROOTS = [name for name in commands() if composes(name)]
YAMLS = sorted(path.relative_to(CONF) for path in CONF.glob("*/*.yaml") if path.parent.name not in ("hydra", "local"))
OPTIONS = [Path(f"{name}.yaml") for name in option_files("")]  # files, and rows in place of files
OPTIONS = [path for path in OPTIONS if len(path.parts) == 2 and path.parts[0] not in ("hydra", "local")]
OVERLAYS = ("subset", "debug", "experiment")  # they name no class
SHARED = CONF.joinpath("recipe", "shared.yaml").relative_to(CONF)  # a recipe but for its augmentation
COMPONENTS = [path for path in OPTIONS if path.parent.name not in OVERLAYS and path != SHARED]


@pytest.fixture(autouse=True, scope="module")
def hydra():
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        plain = {key: value for key, value in compose("run").items() if not OmegaConf.is_config(value)}
        ConfigStore.instance().store("alone", plain)
        yield


@cache  # most are needed twice
def composed(group, name):
    """A component under a root of plain values alone: a third of the time of a whole configuration."""
    return compose("alone", [f"+{group}={name}"])


def groups_with_a_choice(root):
    """The groups of a root's defaults for which an option is chosen, by the key that has it."""
    entries = [entry for entry in plain_values(CONF / f"{root}.yaml")["defaults"] if isinstance(entry, dict)]
    chosen = [group for entry in entries for group, option in entry.items() if option is not None]
    keys = [group.partition("@")[2] or group for group in chosen if " " not in group]  # "override hydra/launcher"
    return [key for key in keys if key != "subset"]  # which writes into keys of the root


@pytest.mark.parametrize("root", ROOTS)
def test_every_root_composes_with_its_groups(root):
    register(root)
    with of_studies_that_are_here():
        config = compose(root)
    groups = groups_with_a_choice(root)
    assert groups
    assert all(OmegaConf.is_config(config[group]) for group in groups)


@pytest.mark.parametrize("path", [path for path in YAMLS if path.parent.name in OVERLAYS], ids=str)
def test_every_overlay_composes_into_its_root(path):
    with of_studies_that_are_here():
        assert OmegaConf.is_config(compose("run", [f"{path.parent.name}={path.stem}"]))


@pytest.mark.parametrize("path", COMPONENTS, ids=str)
def test_every_component_composes_and_binds_to_the_fields_of_its_class(path):
    group = path.parent.name
    with of_studies_that_are_here():
        given = OmegaConf.to_container(composed(group, path.stem)[group], resolve=True)
        values = typed(given, group)  # raises for a key that is no field, or a value of another type
    del given["_target_"]
    assert set(values) == set(given), "a field that is not in the YAML cannot be set from the command line"


@pytest.mark.parametrize("path", YAMLS, ids=str)
def test_every_yaml_begins_with_what_it_is_for(path):
    first = (CONF / path).read_text().splitlines()
    assert first[0].startswith("#")
    assert len(first) <= 40, "a YAML of over 40 lines"


@pytest.mark.parametrize("path", sorted(set(OPTIONS) - set(YAMLS)), ids=str)
def test_every_row_has_what_it_is_for_behind_it(path):
    assert len(question_of(CONF / path)) > 20


def test_no_row_stands_where_a_file_is():
    assert [file for file in rows() if file.is_file()] == [], "Hydra would take the file, help and messages the row"


@pytest.mark.parametrize("name", [path.stem for path in YAMLS if path.parent.name == "analysis"])
def test_an_analysis_in_a_notebook_asks_what_its_yaml_asks(name):
    with of_studies_that_are_here():
        made = component(composed("analysis", name), "analysis")
    assert type(made)() == made


PAPER = [
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "vgg16", "convnextv2_base", "inception_v3",
    "efficientnetv2_m", "shufflenet_v2_x1_0", "mobilenetv3_small", "vit_base_patch16", "swinv2_base", "mobilevit_s",
]  # fmt: skip

OF_ITEM_RESPONSES = [  # of Sharma et al. (2023), beside those that are above
    "vit_b16", "vit_b32", "swin_base", "convnext_base", "convnext_tiny", "efficientnetv2_s", "mobilenetv2",
    "mobilenetv3_large", "alexnet", "vgg19", "densenet121",
]  # fmt: skip

OTHERS = [
    "cifar_resnet20", "cifar_resnet56", "resnet18_cifar", "deit_s", "dinov2_vit_b14", "efficientnet_b0",
    "mobilenetv1_025", "mobilenetv1_050", "mobilenetv1_100", "resnet50_robust", "squeezenet1_0",
]  # fmt: skip


@pytest.mark.parametrize("model", PAPER)
def test_a_model_of_the_paper_takes_its_own_recipe_ours_or_as_released(model):
    ours = compose("run", ["experiment=fc_sub", f"model={model}"])
    assert ours.recipe == composed("recipe", model).recipe
    assert ours.recipe.lr_batch > 0, "ours is for any batch size"
    released = compose("run", ["experiment=fc_sub", f"model={model}", "recipe=fca_${model}"])
    assert released.recipe == composed("recipe", f"fca_{model}").recipe
    assert released.recipe.lr_batch == 0
    assert ours.recipe.epochs < 300
    for config in (ours, released):
        component(config, "recipe").check()


@pytest.mark.parametrize("model", OF_ITEM_RESPONSES)
def test_a_model_of_the_item_response_paper_takes_its_own_recipe(model):
    taken = compose("run", ["experiment=fc_sub", f"model={model}"])
    assert taken.recipe == composed("recipe", model).recipe
    assert taken.recipe.lr_batch > 0, "for any batch size"
    component(taken, "recipe").check()


def test_two_names_of_one_network_plan_the_same_runs():
    short, long = (compose("run", [f"model={name}", f"recipe={name}"]) for name in ("vit_b16", "vit_base_patch16"))
    assert (short.model, short.recipe) == (long.model, long.recipe)


def test_every_recipe_is_of_a_model():
    names = {path.stem.removeprefix("fca_") for path in OPTIONS if path.parent.name == "recipe"}
    assert names == {*PAPER, *OF_ITEM_RESPONSES, *OTHERS, "default", "few_images", "shared"}
