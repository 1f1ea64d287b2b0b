"""Every YAML of the group `shift`, also those in folders, composes and lists its shifts."""

import re

import pytest
from hydra import compose, initialize_config_dir

from fca.cli.application import CONF
from fca.cli.configure import plug, typed
from fca.shifts import Shifts
from fca.shifts.constants import CONSTANTS

NAMES = sorted(str(path.relative_to(CONF / "shift").with_suffix("")) for path in (CONF / "shift").rglob("*.yaml"))
EXTRA = {"speckle_noise", "gaussian_blur", "spatter", "saturate"}


@pytest.fixture(autouse=True)
def hydra():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def composed(name, *words):
    return compose(None, [f"+shift={name}", *words])


@pytest.mark.parametrize("name", NAMES)
def test_every_yaml_binds_and_says_question_command_and_cost(name):
    config = composed(name)
    assert set(typed(config, "shift")) == set(config.shift) - {"_target_"}
    head = [line for line in (CONF / "shift" / f"{name}.yaml").read_text().splitlines() if line.startswith("#")]
    assert head[0].endswith("?")
    assert f"shift={name}" in "".join(head)
    assert re.search(r"\d+ runs?|one run", "".join(head))


def test_there_is_a_yaml_for_every_kind_and_one_for_all():
    assert {name.removeprefix("corruption/") for name in NAMES if name.startswith("corruption/")} == {
        *CONSTANTS, "all", "common",
    }  # fmt: skip
    for kind in CONSTANTS:
        shifts = plug(composed(f"corruption/{kind}"), "shift").shifts()
        assert [s.label() for s in shifts] == [f"corruption/{kind}/{s}" for s in range(1, 6)]
    everything = plug(composed("corruption/all"), "shift").shifts()
    assert [s.label() for s in everything] == [f"corruption/{kind}/{s}" for kind in CONSTANTS for s in range(1, 6)]
    common = plug(composed("corruption/common"), "shift")
    assert set(CONSTANTS) - set(common.kinds) == EXTRA
    for name in ("cifar_c/all", "imagenet_c/all"):
        assert plug(composed(name, "shift.root=somewhere"), "shift").kinds == list(CONSTANTS)


def test_severities_and_seed_are_set_from_the_command_line():
    made = plug(composed("corruption/defocus_blur", "shift.severities=[1,3]", "shift.seed=4"), "shift")
    assert isinstance(made, Shifts)
    assert [s.label() for s in made.shifts()] == ["corruption/defocus_blur/1", "corruption/defocus_blur/3"]
    assert [s.label() for s in plug(composed("clean"), "shift").shifts()] == ["clean"]
