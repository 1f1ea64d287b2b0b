"""One store, many experiments: filters are typed alike for every command, and a conflict costs its data set only."""

import html
import itertools
from dataclasses import replace

import pytest

import fca as package
from fca.cli import analyse, report, results
from fca.store import Store
from fca.types import FcaError
from tests.support.lab import Lab, images

PAGE = ("report.analyses=[findings]", "logger=none")


@pytest.fixture
def labs(tmp_path):
    """Two data sets in one store, with sub-models and full models of two networks each, all of one recipe."""
    store = Store(tmp_path / "outputs")
    zoo = Lab(store)
    flowers = Lab(store, replace(images(per_class=9, seed=1), name="flowers"), itertools.count(1000))
    for lab in (zoo, flowers):
        for number, model in enumerate(("slow", "quick")):
            for place, subset in enumerate(dict.fromkeys(lab.subsets(ncl=(2, 3)))):
                lab.train(model, subset, 0.6 + 0.01 * place + 0.1 * number, recipe_augment="none")
    return zoo, flowers


def mix(flowers):
    """Trainings on flowers with another augmentation and learning rate."""
    for subset in flowers.subsets(ncl=(2,)):
        flowers.train("slow", subset, 0.7, recipe_augment="trivial", recipe_lr=0.2)


def datasets(out):
    """The data sets in the printed table findings."""
    lines = out.partition("findings: ")[2].splitlines()[2:]
    return {line.split()[0] for line in lines if line.split() and line.split()[0] in ("zoo", "flowers")}


@pytest.mark.wide
@pytest.mark.parametrize(
    "words",
    [
        ["dataset=flowers"],
        ["dataset=[flowers]", "model=slow,quick"],
        ["dataset!=zoo", "subset.ncl<=3"],
        ['query=dataset == "flowers"'],
        ["query=dataset == 'flowers'"],
        ["query=\"dataset == 'flowers'\""],  # as it had to be typed
        ["query=ncl > 1 and `dataset` in ['flowers']"],
    ],
)
def test_every_command_takes_the_same_filters_as_they_are_typed(fca, labs, words):
    code, out, err = fca("analysis=findings", *words, door=analyse)
    assert (code, datasets(out)) == (0, {"flowers"}), err
    if not words[0].startswith('query="'):
        code, out, err = fca(*words, "--format", "csv", "--columns", "dataset", door=results)
        assert (code, set(out.split())) == (0, {"dataset", "flowers"}), err


def test_a_report_takes_filters_and_its_command_makes_it_again(fca, labs, tmp_path):
    words = ["dataset=flowers", "model=slow,quick", "query=ncl == 2 or ncl == 3"]
    code, out, err = fca(*PAGE, *words, door=report)
    assert (code, "zoo" in out) == (0, False), err
    page = html.unescape((tmp_path / "outputs/reports/few_class/index.html").read_text())
    filters = "'query=ncl == 2 or ncl == 3' dataset=flowers model=slow,quick"
    assert f"fca report 'report.analyses=[findings]' logger=none {filters}" in page
    assert f"fca analyse analysis=findings {filters}" in page


@pytest.mark.parametrize("door", [analyse, report])
def test_an_unknown_column_or_value_is_refused_with_one_that_is_alike(fca, labs, door):
    code, _, err = fca("datset=flowers", door=door)
    assert (code, "did you mean dataset?" in err) == (2, True), err
    code, _, err = fca("dataset=roses", door=door)
    assert code == 2
    assert "filter = dataset=roses; allowed: one that keeps a run; dataset is flowers, zoo" in err


def test_a_conflict_in_one_data_set_leaves_the_answers_about_another(fca, labs):
    mix(labs[1])
    code, out, err = fca("analysis=findings", door=analyse)
    assert (code, datasets(out)) == (0, {"zoo"}), err
    assert err.count("flowers is left out: its rows differ in recipe_augment (none, trivial)") == 1
    assert """keep one, e.g. query='dataset != "flowers" or recipe_augment == "none"'""" in err


def test_the_filter_that_is_named_brings_the_data_set_back_and_keeps_the_other(fca, labs):
    mix(labs[1])
    code, out, err = fca("analysis=findings", 'query=dataset != "flowers" or recipe_augment == "none"', door=analyse)
    assert (code, datasets(out), "left out" in err) == (0, {"zoo", "flowers"}, False)


def test_a_conflict_in_the_only_data_set_is_an_error_with_a_plain_filter(fca, labs):
    mix(labs[1])
    code, _, err = fca("analysis=findings", "dataset=flowers", door=analyse)
    assert code == 2
    assert "recipe_augment of the rows read = none, trivial; allowed: one value on flowers" in err
    assert "next: keep one, e.g. recipe_augment=none" in err
    code, out, _ = fca("analysis=findings", "dataset=flowers", "recipe_augment=none", door=analyse)
    assert (code, datasets(out)) == (0, {"flowers"})


def test_a_conflict_in_every_data_set_is_an_error_with_a_filter_for_all_of_them(fca, labs):
    for lab in labs:
        mix(lab)
    code, _, err = fca("analysis=findings", door=analyse)
    assert (code, "one value on flowers, zoo: " in err) == (2, True), err
    assert "next: keep one, e.g. recipe_augment=none" in err
    code, out, err = fca("analysis=findings", "recipe_augment=none", door=analyse)
    assert (code, datasets(out)) == (0, {"flowers", "zoo"}), err


def test_a_value_that_only_some_models_lack_is_kept_by_the_filter(fca, labs):
    _, flowers = labs
    flowers.predict("published", flowers.logits(0), seed=0)  # has no recipe
    mix(flowers)
    code, _, err = fca("analysis=findings", "dataset=flowers", door=analyse)
    assert (code, "keep one, e.g. recipe_augment=none,null" in err) == (2, True)


@pytest.mark.wide
def test_a_page_with_fewer_answers_than_before_prints_what_is_missing_and_why(fca, labs, tmp_path):
    assert fca(*PAGE, door=report)[0] == 0
    mix(labs[1])
    code, out, err = fca(*PAGE, door=report)
    assert code == 0, err
    assert err.count("flowers is left out: its rows differ in recipe_augment") == 1
    assert "the page before also had flowers in findings; now: flowers is left out" in out
    assert "flowers is left out: its rows differ in recipe_augment" in (
        tmp_path / "outputs/reports/few_class/index.html"
    ).read_text().replace("&#39;", "'")
    code, out, _ = fca(*PAGE, door=report)
    assert "the page before also had" not in out


def test_notebooks_take_the_same_filters(labs, tmp_path):
    outputs = tmp_path / "outputs"
    assert set(package.results(outputs, filters={"dataset": "flowers"})["dataset"]) == {"flowers"}
    assert set(package.results(outputs, filters=["dataset=flowers", "ncl=2"])["ncl"]) == {2}
    found = package.analyse("findings", outputs, filters={"dataset": ["flowers"]})
    assert set(found["findings"]["dataset"]) == {"flowers"}
    page = package.write_report("few_class", outputs, filters={"dataset": "zoo"}, analyses=["findings"])
    assert "flowers" not in page.read_text()
    with pytest.raises(FcaError, match=r"did you mean dataset\?"):
        package.analyse("findings", outputs, filters={"datset": "flowers"})
