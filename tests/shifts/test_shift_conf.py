"""Every YAML of the group `shift`, also those in folders, composes and lists its shifts."""

import re

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from fca.cli.application import register
from fca.cli.configure import component, typed
from fca.cli.help import question_of
from fca.cli.options import option_files, words_of
from fca.cli.places import CONF
from fca.shifts import Shifts
from fca.shifts.constants import CONSTANTS, PUBLISHED
from fca.types import FcaError

FILES = [path for path in option_files("shift").values() if path.is_file()]
NAMES = list(option_files("shift"))
EXTRA = {"speckle_noise", "gaussian_blur", "spatter", "saturate"}


@pytest.fixture(autouse=True)
def hydra():
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def composed(name, *words):
    return compose(None, [f"+shift={name}", *words])


@pytest.mark.wide
@pytest.mark.parametrize("name", NAMES)
def test_every_option_binds_and_has_a_question(name):
    config = composed(name)
    assert set(typed(OmegaConf.to_container(config.shift), "shift")) == set(config.shift) - {"_target_"}
    assert "?" in question_of(CONF / "shift" / f"{name}.yaml")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_yaml_has_question_command_and_cost(file):
    head = [line for line in file.read_text().splitlines() if line.startswith("#")]
    assert head[0].endswith("?")
    assert f"shift={file.relative_to(CONF / 'shift').with_suffix('')}" in "".join(head)
    assert re.search(r"\d+ runs?|one run", "".join(head))


def test_there_is_an_option_for_every_kind_and_one_for_all_published_ones():
    assert {name.removeprefix("corruption/") for name in NAMES if name.startswith("corruption/")} == {
        *CONSTANTS, "all", "common",
    }  # fmt: skip
    for kind in CONSTANTS:
        shifts = component(composed(f"corruption/{kind}"), "shift").shifts()
        assert [s.label() for s in shifts] == [f"corruption/{kind}/{s}" for s in range(1, 6)]
    everything = component(composed("corruption/all"), "shift").shifts()
    assert [s.label() for s in everything] == [f"corruption/{kind}/{s}" for kind in PUBLISHED for s in range(1, 6)]
    common = component(composed("corruption/common"), "shift")
    assert set(PUBLISHED) - set(common.kinds) == EXTRA
    for name in ("cifar_c/all", "imagenet_c/all"):
        assert component(composed(name, "shift.root=somewhere"), "shift").kinds == list(PUBLISHED)


def test_severities_and_seed_are_set_from_the_command_line():
    made = component(composed("corruption/defocus_blur", "shift.severities=[1,3]", "shift.seed=4"), "shift")
    assert isinstance(made, Shifts)
    assert [s.label() for s in made.shifts()] == ["corruption/defocus_blur/1", "corruption/defocus_blur/3"]
    assert [s.label() for s in component(composed("clean"), "shift").shifts()] == ["clean"]


@pytest.mark.parametrize("label", ["corruption/fog/3", "corruption/frost/1", "cifar_c/snow/5", "imagenet_c/fog/2"])
def test_a_shift_as_rows_spell_it_is_selected_by_its_overrides(label, tmp_path):
    (tmp_path / "fog/2").mkdir(parents=True)
    for name in ("snow", "labels"):
        (tmp_path / f"{name}.npy").touch()
    choice, *rest = words_of("shift", label)
    root = [] if label.startswith("corruption") else [f"shift.root={tmp_path}"]
    [shift] = component(composed(choice.removeprefix("shift="), *rest, *root), "shift").shifts()
    assert shift.label() == label
    if label == "corruption/fog/3":
        [alone] = component(composed("corruption/fog", "shift.severities=[3]"), "shift").shifts()
        assert shift.identity() == alone.identity()


@pytest.mark.parametrize("option", ["clean", "corruption/all", "corruption/fog", "corruption/fog/weak"])
def test_other_options_stay_as_they_are(option):
    assert words_of("shift", option) == [f"shift={option}"]


def test_a_kind_or_severity_that_does_not_exist_is_named_when_a_row_s_spelling_has_it():
    for label, message in (("corruption/mist/3", "shift.kinds = mist"), ("corruption/fog/6", "shift.severities = 6")):
        choice, *rest = words_of("shift", label)
        with pytest.raises(FcaError, match=message):
            component(composed(choice.removeprefix("shift="), *rest), "shift").shifts()
