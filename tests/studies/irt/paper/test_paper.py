"""The numbers and statements of the paper are as printed, and its names are those of the configuration."""

import doctest
from pathlib import Path

import sharma as paper
import yaml

from fca.cli.options import nested_options
from tests.studies.irt.paper.conftest import CLASSES

CONF = Path(__file__).parents[4] / "conf"
TABLE1 = """
Defocus Blur	Frog, Truck	Airplane, Horse
Glass Blur	Automobile, Frog	Horse, Cat
Motion Blur	Bird, Truck	Ship, Dog
Zoom Blur	Frog, Deer	Horse, Ship
Gaussian Blur	Truck, Dog	Horse, Airplane
Elastic Transform	Automobile, Deer	Airplane, Horse
JPEG Compression	Cat, Automobile	Airplane, Dog
Pixelate	Automobile, Deer	Horse, Airplane
Gaussian Noise	Cat, Ship	Automobile, Horse
Impulse Noise	Cat, Ship	Bird, Deer
"""
TABLE2 = """
Elastic Transform	0.9709
Frost	0.9729
Zoom Blur	0.9698
Motion Blur	0.9776
Brightness	0.9729
Defocus Blur	0.9750
Snow	0.9735
Fog	0.9784
Spatter	0.9753
"""
TABLE3 = """
Mnetv3_E1	392	281	173	157
AlexNet	1323	575	329	255
Mnetv3_E2	246	206	246	302
Mnetv3_E3	1028	633	378	335
ViTb16_E2	2283	2431	2313	2144
SwinBase_E2	2284	2428	2336	2169
R101Best	2285	2415	2252	1578
R101_E2	2287	2400	2219	1384
"""


def lines(printed):
    return [line.split("\t") for line in printed.strip().splitlines()]


def kind(printed):
    return printed.lower().replace(" ", "_")


def test_table_1_is_as_printed():
    pairs = {kind(name): tuple(tuple(one.lower().split(", ")) for one in both) for name, *both in lines(TABLE1)}
    assert pairs == paper.TABLE1
    assert list(pairs) == list(paper.TABLE1)
    assert {label for both in pairs.values() for pair in both for label in pair} <= set(CLASSES)


def test_table_2_is_as_printed():
    assert {kind(name): float(tau) for name, tau in lines(TABLE2)} == paper.TABLE2


def test_table_3_is_as_printed():
    assert {name: list(map(int, counts)) for name, *counts in lines(TABLE3)} == paper.TABLE3
    assert max(max(counts) for counts in paper.TABLE3.values()) < paper.IMAGES


def test_five_of_eight_subjects_of_table_3_are_better_on_harder_images():
    odd = [name for name, (easy, med_easy, _, hard) in paper.TABLE3.items() if med_easy > easy or hard > easy]
    assert len(odd) == 5


def test_every_corruption_of_the_paper_is_one_of_the_configuration():
    names = {*paper.TABLE1, *paper.TABLE2, *(move.kind for move in paper.MOVES)}
    assert len(names) == 15
    assert {f"corruption/{name}" for name in names} <= set(nested_options("shift"))


def test_every_subject_of_table_3_is_one_of_the_study_s_models():
    study = yaml.safe_load((CONF / "experiment" / "irt_corruption.yaml").read_text())
    models = study["hydra"]["sweeper"]["params"]["model"].split(",")
    assert {paper.model_of(name) for name in paper.TABLE3} <= set(models)
    assert len(models) * (len(study["recipe"]["snapshots"]) + 1) == paper.SUBJECTS


def test_the_examples_are_true():
    [example] = doctest.DocTestFinder().find(paper.model_of, module=False, globs=vars(paper))
    found = doctest.DocTestRunner().run(example)
    assert (found.attempted, found.failed) == (1, 0)


def test_contradictions_have_two_places_and_their_words():
    assert all(
        list(line) == ["on", "where", "statement", "elsewhere", "other_statement"] for line in paper.CONTRADICTIONS
    )
