"""What comes from somebody else (configurations, commands, stores, data) runs no code and leaves no folder.

Before there was a check, such attacks left a file behind or wrote where they should not.
"""

import re
from pathlib import Path

import pandas as pd
import pytest
from omegaconf import OmegaConf

from fca.cli import analyse, report
from fca.cli.configure import component
from fca.cli.trust import check_file, check_words
from fca.data.files import content_of, open_root
from fca.plugins import use_plugins
from fca.store import Store
from fca.store.files import DamagedFile
from fca.types import FcaError, UnreadableImage
from fca.validation import plain_name

CALL = "{_target_: os.system, command: touch made}"


@pytest.fixture
def shared(tmp_path):
    """Writes files of a stranger's folder; returns the word that adds it."""

    def write(**files):
        for name, text in files.items():
            path = tmp_path / "shared" / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return f"hydra.searchpath=[file://{tmp_path}/shared]"

    return write


def nothing_was_done(tmp_path):
    return not [path for path in tmp_path.rglob("*") if path.name == "made" or "outputs" in path.parts]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"hydra: {{callbacks: {{x: {CALL}}}}}", "hydra.callbacks.x._target_"),
        (f"hydra: {{launcher: {CALL}}}", "hydra.launcher._target_"),
        (f"hydra: {{launcher: {{n_jobs: {CALL}}}}}", "hydra.launcher.n_jobs._target_"),
        ("hydra: {launcher: {setup: [touch made]}}", "hydra.launcher.setup.0"),
        ("hydra: {launcher: {python: ./made}}", "hydra.launcher.python"),
        ("hydra: {launcher: {pre_dispatch: 'os.getpid()'}}", "hydra.launcher.pre_dispatch"),
        ("hydra: {launcher: {partition: 'a --wrap=x'}}", "hydra.launcher.partition"),
        (f"hydra: {{sweeper: {CALL}}}", "hydra.sweeper._target_"),
        (f"hydra: {{sweeper: {{params: {{seed: {CALL}}}}}}}", "hydra.sweeper.params.seed._target_"),
        ("hydra: {sweeper: {params: {hydra.job.chdir: 'true'}}}", "hydra.sweeper.params.hydra.job.chdir"),
        ("hydra: {sweeper: {params: {+plugins: '[evil]'}}}", "hydra.sweeper.params.+plugins"),
        ("hydra: {job_logging: {handlers: {x: {(): os.system}}}}", "hydra.job_logging.handlers.x.()"),
        ("hydra: {hydra_logging: {handlers: {x: {class: os.system}}}}", "hydra.hydra_logging.handlers.x.class"),
        ("hydra: {run: {dir: ../../elsewhere}}", "hydra.run.dir"),
        ("hydra: {sweep: {dir: /elsewhere}}", "hydra.sweep.dir"),
        ("hydra: {output_subdir: ../elsewhere}", "hydra.output_subdir"),
        ("hydra: {job: {chdir: true}}", "hydra.job.chdir"),
        ("hydra: {job: {env_set: {PATH: /elsewhere}}}", "hydra.job.env_set.PATH"),
        ("hydra: {job: {env_copy: [TOKEN]}}", "hydra.job.env_copy.0"),
        ("hydra: {searchpath: [file:///elsewhere]}", "hydra.searchpath.0"),
        ("hydra: {of_tomorrow: 1}", "hydra.of_tomorrow"),
        ("hydra: evil", "hydra"),
        ("plugins: [evil]", "plugins"),
        ("plugins: evil", "plugins"),
        ("logger: {tags: ['${oc.env:HOME}']}", "logger.tags.0"),
        ("outputs: 'a/${oc.env:HOME}/b'", "outputs"),
        ("outputs: '${oc.${x}:HOME}'", "outputs"),
        ("outputs: '${evil:1}'", "outputs"),
        ("hydra: {launcher: {partition: '${oc.env:HOME}'}}", "hydra.launcher.partition"),
    ],
)
def test_a_file_that_may_be_somebody_elses_names_no_code_no_folder_and_no_secret(text, key):
    with pytest.raises(FcaError, match=rf"^{re.escape(key)} in theirs.yaml = "):
        check_file("theirs.yaml", OmegaConf.create(text))


def test_such_a_file_may_choose_its_axes_and_the_size_of_its_launcher(fca, shared):
    text = "# @package _global_\ndefaults: [override /hydra/launcher: joblib]\noutputs: ${.seed}/${now:%Y}\nhydra:\n"
    text += "  mode: MULTIRUN\n  launcher: {n_jobs: 1, verbose: 0}\n  sweeper: {params: {subset.ncl: '2,3'}}\n"
    cluster = "hydra: {launcher: {partition: gpu, gres: 'gpu:1', timeout_min: 60, mem_gb: null}}"
    check_file("x", OmegaConf.create(cluster))
    code, out, err = fca(shared(experiment__theirs=text), "experiment=theirs", "limit=8", "sweep.print=true")
    assert code == 0, err
    assert len(out.splitlines()) == 2


def test_every_file_of_every_command_is_looked_at_before_anything_of_it_is_used(fca, shared, tmp_path):
    node = f"hydra: {{callbacks: {{x: {CALL}}}}}\n"
    local = shared(local__default=f"# @package _global_\n{node}")
    assert "error: hydra.callbacks.x._target_ in " in fca(local)[2]
    (tmp_path / "shared" / "local" / "default.yaml").unlink()
    word = shared(
        experiment__theirs=f"# @package _global_\nhydra: {{sweeper: {{params: {{seed: {CALL}}}}}}}\n",
        hydra__launcher__theirs=f"_target_: os.system\nx: {CALL}\n",
        analysis__theirs=f"# @package _global_\n{node}",
    )
    for words, door, key in (
        (["-m", "experiment=theirs"], {}, "hydra.sweeper.params.seed._target_"),
        (["hydra/launcher=theirs", "--cfg", "job"], {}, "hydra."),
        (["analysis=theirs"], {"door": analyse}, "hydra.callbacks.x._target_"),
    ):
        code, _, err = fca(word, *words, **door)
        assert (code, "Traceback" in err) == (2, False), err
        assert re.search(rf"^error: {re.escape(key)}.* in {tmp_path}/shared/\S+.yaml = ", err), err
    assert nothing_was_done(tmp_path)


@pytest.mark.parametrize(
    "word",
    [
        "+hydra.callbacks.x._target_=subprocess.call",
        f"+hydra.callbacks.x={CALL}",
        "hydra.launcher._target_=subprocess.call",
        f"+hydra.sweeper.params.seed={CALL}",
        "++hydra.job_logging.handlers={x: {class: subprocess.Popen, args: [touch, made]}}",
        "hydra.hydra_logging={version: 1, formatters: {x: {'()': subprocess.call}}}",
        f"hydra={{callbacks: {{x: {CALL}}}}}",
    ],
)
def test_a_command_that_somebody_sent_names_no_code_for_hydra(word):
    with pytest.raises(FcaError, match="allowed: keys of hydra that name no code"):
        check_words(["seed=1", word])


EVIL = "open('made', 'w').close()\nfrom dataclasses import dataclass\n@dataclass\nclass Evil:\n    x: int = 0\n"


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A class of a stranger's that can be imported, whose module then leaves a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil_module.py").write_text(EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    yield "evil_module.Evil"
    use_plugins([])


@pytest.mark.parametrize("group", ["model", "dataset", "task", "logger", "analysis", "report", "generator", "plan"])
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("evil_module.Evil", r"type plugins=\[evil_module\]"),
        ("subprocess.call", "allowed: a component of fca"),
        ("os.system", "allowed: a component of fca"),
        ("fca.store.files.write_text", "has no dataclass write_text"),
        ("fca.store.files.Path", "has no dataclass Path"),
        ("fca.cli.execute.subprocess.Popen", "allowed: a class in a module that imports"),
        ("fcax.Evil", "allowed: a component of fca"),
        ("Evil", "allowed: a component of fca"),
        ("", "allowed: a component of fca"),
        (None, "allowed: a component of fca"),
        ("../evil_module.Evil", "allowed: a component of fca"),
    ],
)
def test_a_class_that_is_neither_ours_nor_listed_is_not_even_imported(group, target, message, evil, tmp_path):
    with pytest.raises(FcaError, match=rf"^{group}._target_ = .*{message}"):
        component(OmegaConf.create({group: {"_target_": target, "x": 1}}), group)
    assert not (tmp_path / "made").exists()


def test_nor_is_one_in_a_file_of_an_analysis_or_inside_another_component(fca, evil, shared, tmp_path):
    word = shared(analysis__theirs=f"_target_: {evil}\n", dataset__theirs=f"x: {{_target_: {evil}}}\n")
    for words, door in ((["report.analyses=[theirs]", "logger=none"], {"door": report}), (["dataset=theirs"], {})):
        code, _, err = fca(word, *words, **door)
        assert (code, "Traceback" in err) == (2, False), err
        assert "_target_ = evil_module.Evil; allowed: a component of fca" in err or "dataset._target_ = None" in err
    assert nothing_was_done(tmp_path)


def test_what_is_typed_lists_plugins_for_that_command_only(fca, evil, tmp_path, monkeypatch):
    words = ["model._target_=evil_module.Evil", "logger=none"]
    assert "allowed: a component of fca" in fca(*words)[2]
    code, _, err = fca(*words, "plugins=[evil_module]")
    assert code == 2
    assert "error: model.name = test_resnet; allowed: model.x; " in err, "it was imported, and has no such field"
    (tmp_path / "made").unlink()
    assert "allowed: a component of fca" in fca(*words)[2]
    monkeypatch.setenv("FCA_PLUGINS", "other, evil_module")
    assert "error: model.name = test_resnet; allowed: model.x; " in fca(*words)[2]


# Folders


@pytest.mark.parametrize("name", ["..", "../../x", ".", "/x", "a/b", "", ".hid", "x" * 101, "a\nb", "~", "a.", 3, None])
def test_a_name_of_a_folder_leads_nowhere(name):
    with pytest.raises(FcaError, match=r"^report.name = .*; allowed: a plain name: letters, digits, "):
        plain_name("report.name", name)


@pytest.mark.parametrize("name", ["few_class", "a", "Übersicht 2.0", "x-1"])
def test_what_people_call_their_reports_is_a_plain_name(name):
    assert plain_name("report.name", name) == name


@pytest.mark.parametrize("name", ["..", "../../x"])
def test_a_report_is_a_folder_of_its_own(name, fca, tmp_path):
    (tmp_path / "outputs" / "tables").mkdir(parents=True)
    (tmp_path / "outputs" / "tables" / "precious").write_text("kept")
    code, _, err = fca(f"report.name={name}", "report.analyses=[similarity]", "logger=none", door=report)
    assert (code, "Traceback" in err) == (2, False)
    assert f"error: report.name = '{name}'; allowed: a plain name" in err
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["precious"]


@pytest.mark.parametrize("path", ["../secret.png", "images/../../secret.png", "{folder}/secret.png", "~/secret.png"])
def test_a_journal_reads_no_file_above_its_folder(path, tmp_path):
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "set" / "images").mkdir(parents=True)
    with pytest.raises(UnreadableImage, match="lies outside of the data set's folder"):
        content_of(open_root(str(tmp_path / "set"), "images"), path.format(folder=tmp_path))


@pytest.mark.parametrize("name", ["../../secret", "..", "", "/secret", "a/b"])
def test_an_id_in_somebodys_row_leads_out_of_no_folder(name, tmp_path):
    store = Store(tmp_path)
    with pytest.raises(FcaError, match=r"run_id = .*; allowed: the name of a folder in runs/"):
        store.array(name, "pred")
    with pytest.raises((DamagedFile, FileNotFoundError)):
        store.items(name)


def test_the_query_of_a_manifest_runs_nothing(fca, tmp_path):
    pd.DataFrame({"path": ["a"], "label": ["b"]}).to_csv(tmp_path / "list.csv")
    where = "dataset.where=\"@__import__('os').system('touch made') == 0\""
    code, _, err = fca("dataset=manifest", "dataset.root=.", "dataset.file=list.csv", where, "logger=none")
    assert (code, "Traceback" in err) == (2, False)
    assert "error: dataset.where = @__import__('os').system('touch made') == 0; allowed: comparisons" in err
    assert nothing_was_done(tmp_path)


# What would run the code of a file, or of a text in one. `weights_only=False` stands in an advice to users, as text.
FORBIDDEN = r"\.query\(|(?<![\w.])(eval|exec)\(|\.eval\((?!\))|read_pickle|pickle\.loads?\(|joblib\.load|shell=True"
FORBIDDEN += r"|os\.system|dill|allow_pickle=True|jsonpickle|runpy|marshal|shelve"
FORBIDDEN += r"|yaml\.(unsafe_|full_)?load\((?!.*(S506|yaml\.CSafeLoader\)))"


def test_no_module_has_a_call_that_would_run_what_a_file_says():
    lines = [
        (path.name, line)
        for path in sorted((Path(__file__).parents[2] / "fca").rglob("*.py"))
        for line in path.read_text().splitlines()
    ]
    assert len(lines) > 20_000
    between = [found for found in lines if found[0] == "devices.py" and "pickle.loads(" in found[1]]
    assert len(between) == 2, "what one process of a training pickled for another, through a pipe of their own"
    in_memory = [found for found in lines if found[0] == "jobs.py" and "pickle.loads(self._composed[" in found[1]]
    assert len(in_memory) == 1, "a configuration that this process pickled itself, to copy it"
    trusted = between + in_memory
    assert not [found for found in lines if re.search(FORBIDDEN, found[1]) and found not in trusted]
    loads = [line for _, line in lines if re.search(r"\b(torch|np)\.load\(", line) and "print" not in line]
    safe = r"weights_only=True|allow_pickle=False|import torch, safetensors"
    assert all(re.search(safe, line) for line in loads), loads
