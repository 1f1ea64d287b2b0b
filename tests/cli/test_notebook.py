"""`import fca` in a notebook: data, models, tables, figures and pages as objects; nothing heavy before it is used."""

import shutil
import subprocess
import sys
from pathlib import Path

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra

import fca
from fca.cli.places import CONF
from fca.types import FcaError, ImageData, Model


@pytest.fixture(scope="module")
def outputs(digits_store, tmp_path_factory):
    """A store that fca wrote, which tests may add to."""
    return shutil.copytree(digits_store, tmp_path_factory.mktemp("notebook") / "outputs")


@pytest.fixture(scope="module")
def similarity(outputs):
    return fca.analyse("similarity", outputs)


def test_importing_fca_takes_no_time_and_loads_nothing_heavy():
    code = "import fca, sys; print([name for name in ('pandas', 'numpy', 'hydra', 'torch') if name in sys.modules])"
    durations = []
    for _ in range(3):  # the shortest of three, as other processes may slow one down
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True,
            cwd=Path(__file__).parents[2],
        )  # fmt: skip
        (line,) = [line for line in done.stderr.splitlines() if line.endswith("| fca")]
        durations.append(int(line.split("|")[1]))
    assert min(durations) < 100_000, "microseconds"
    assert done.stdout.strip() == "[]"


def test_what_it_offers_is_listed_and_the_rest_is_refused():
    assert set(fca.__all__) <= set(dir(fca))
    for name in fca.__all__:
        assert callable(getattr(fca, name))
    with pytest.raises(AttributeError, match="no attribute 'reslts'; it has analyse, draw_subset"):
        fca.reslts  # noqa: B018


def test_results_and_subsets(outputs):
    assert len(fca.results(outputs, "task == 'embed'")) == 3
    assert fca.draw_subset(10, 3, 0).ncl == 3


def test_results_may_name_a_column_that_a_task_declares_though_no_run_has_it(outputs):
    assert fca.results(outputs, "n_unused > 3").empty
    assert list(fca.results(outputs, columns=["run_id", "n_unused"])) == ["run_id", "n_unused"]
    with pytest.raises(FcaError, match=r"query = n_unusd == 1; allowed: .*run_id"):
        fca.results(outputs, "n_unusd == 1")
    with pytest.raises(FcaError, match=r"columns = n_unusd; allowed: n_unused, "):
        fca.results(outputs, columns=["n_unusd"])


def test_data_are_those_of_the_yaml_with_some_keys_changed():
    data = fca.load_data("digits")
    assert isinstance(data, ImageData)
    assert (data.name, len(data.classes), data.read(0).shape) == ("digits", 10, (32, 32, 3))
    small = fca.load_data("rendered", per_level=1)
    assert 0 < len(small.items) < len(fca.load_data("rendered").items)


@pytest.mark.parametrize(
    ("load", "name", "keys", "message"),
    [
        ("load_data", "digts", {}, r"dataset = digts; allowed: .*digits"),
        ("load_data", "folder", {}, r"dataset.root = None; allowed: a text, not empty"),
        ("load_data", "folder", {"rot": "x"}, r"dataset.rot = x; allowed: dataset.root"),
        ("load_data", "folder", {"root": Path("no/such")}, r"dataset.root = no/such"),
        ("load_model", "resnt18", {}, r"model = resnt18; allowed: .*resnet18"),
        ("load_model", "test_resnet", {"input_size": "big"}, r"model.input_size = big"),
    ],
)
def test_what_does_not_exist_is_refused_as_on_the_command_line(load, name, keys, message):
    with pytest.raises(FcaError, match=message):
        getattr(fca, load)(name, **keys)


def test_a_model_is_that_of_the_yaml_with_some_keys_changed():
    model = fca.load_model("test_resnet", input_size=64)
    assert isinstance(model, Model)
    assert model.build(["cat", "dog"]).input_size == 64


def test_an_analysis_prints_its_tables(similarity):
    assert list(similarity.tables) == ["similarity", "released", "released_agreement"]
    assert similarity["similarity"]["encoder"].unique().tolist() == ["hog", "pixels"]
    text = repr(similarity)
    assert "similarity: How alike are the images" in text
    assert "0.06117" in text
    assert "arXiv:2411.01099" in text


@pytest.mark.wide
def test_an_analysis_shows_its_tables_and_figures_in_a_notebook(similarity):
    shown = similarity._repr_html_()
    assert shown.count("<table") == 3
    assert shown.count("data:image/svg+xml;base64,") == len(similarity.figures) > 0
    assert "<script" not in shown, "it shows without a network and in a notebook that is not trusted"
    assert similarity.figures["similarity"].to_dict()["$schema"].startswith("https://vega.github.io/schema/vega-lite")


def test_an_analysis_takes_options_and_is_saved_on_request(outputs):
    found = fca.analyse("similarity", outputs, query="encoder == 'hog'")
    assert set(found["similarity"]["encoder"]) == {"hog"}
    before = set((outputs / "tables").glob("*"))
    saved = found.save()
    assert set((outputs / "tables").iterdir()) - before == set(saved)
    with pytest.raises(FcaError, match=r"analysis.ncls = 2; allowed: .*did you mean analysis.ncl=2"):
        fca.analyse("similarity", outputs, ncls=2)
    with pytest.raises(FcaError, match=f"none among the {len(fca.results(outputs))} stored rows"):
        fca.analyse("similarity", outputs, query="encoder == 'clip'")


@pytest.mark.wide
@pytest.mark.parametrize("some", [pytest.param({}, marks=pytest.mark.slow), {"analyses": ["similarity"]}])
def test_a_report_is_written(outputs, some):
    page = fca.write_report("few_class", outputs, query="model != 'hog'", title="Our <digits>", **some)
    assert page == outputs / "reports" / "few_class" / "index.html"
    text = page.read_text()
    assert "<title>Our &lt;digits&gt;</title>" in text
    assert "fca report report=few_class outputs=" in text


@pytest.mark.parametrize("make", [fca.analyse, fca.write_report])
@pytest.mark.parametrize(
    ("name", "folder", "keys", "message"),
    [
        ("few_class", "no/such", {}, r"outputs = no/such; allowed: a folder that fca run filled"),
        ("few_class", "file", {}, r"outputs = file; allowed: a folder that"),
        ("few_class", "file/deeper", {}, r"outputs = file/deeper; allowed: a folder that"),
        ("few_class", "dangling", {}, r"outputs = dangling; allowed: a folder that"),
        ("few_class", "", {}, r"outputs = ; allowed: "),
        ("few_clas", "empty", {}, r"= few_clas; allowed: .*few_class"),
        ("../analysis/few_class", "empty", {}, r"= ../analysis/few_class; allowed: \w+, "),
        ("../report/few_class", "empty", {}, r"= ../report/few_class; allowed: \w+, "),
        ("few_class,irt", "empty", {}, r"= few_class,irt; allowed: .*few_class"),
        ("null", "empty", {}, r"= null; allowed: \w+, "),
        ("", "empty", {}, r"= ; allowed: \w+, "),
        ("few_class", "empty", {"query": ""}, r"query = ; allowed: a text, not empty, or null"),
        ("few_class", "empty", {"query": "@os.system('touch x')"}, r"query = @os.system\('touch x'\); allowed: comp"),
        ("few_class", "empty", {"query": "${nonsense}"}, r"query = \${nonsense}; allowed: .* next: correct"),
        ("few_class", "empty", {"_target_": "subprocess.call"}, r"_target_ = subprocess.call; allowed: a component"),
    ],
)
def test_wrong_names_folders_and_queries_are_one_line_and_leave_nothing(
    tmp_path, monkeypatch, make, name, folder, keys, message
):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("mine")
    Path("dangling").symlink_to("nowhere")
    Path("empty").mkdir()
    with pytest.raises(FcaError, match=message) as refusal:
        make(name, folder, **keys)
    assert "\n" not in str(refusal.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["dangling", "empty", "file"]


def test_a_folder_that_is_none_has_no_runs_to_list():
    with pytest.raises(FcaError, match="outputs = no/such; allowed: a folder that fca run filled"):
        fca.results("no/such")


def test_a_report_replaces_only_a_page(outputs):
    mine = outputs / "reports" / "progressive" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("keep")
    with pytest.raises(FcaError, match=r"progressive; allowed: a new or empty folder, or one with an earlier page"):
        fca.write_report("progressive", outputs, analyses=["similarity"])
    assert [path.name for path in mine.parent.iterdir()] == ["mine.txt"]


def test_a_notebook_that_uses_hydra_itself_keeps_its_state():
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        own = GlobalHydra.instance().hydra
        fca.load_data("digits")
        assert GlobalHydra.instance().hydra is own
