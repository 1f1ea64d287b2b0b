"""Wrong command lines: one line that names what was typed, exit code 2, no traceback, nothing written."""

import importlib
import os
import pickle
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import open_dict
from safetensors.torch import save_file

from fca.cli import analyse, main, report, run
from fca.cli.application import RunConfig, SubsetConfig, SweepConfig
from fca.cli.commands import commands
from fca.data.splits import Share
from fca.models.handmade import Hog
from fca.models.own import OwnEmbedding
from fca.models.timm_models import TimmModel
from fca.shifts.corruption import Corruptions
from fca.tasks import Machine
from fca.tasks.embed import Embed
from fca.tasks.predict import Predict
from fca.training.trainer import TrainerKeys
from fca.types import FcaError
from fca.validation import rules_by_field
from tests.support.images import write_images
from tests.support.of_studies import parts
from tests.support.refused_values import refused_values

ROOT = Path(__file__).parents[2]
OF_STUDIES = parts("refusals")  # each has VALUES, DECLARED, LINES and AS_PROCESSES, like those here

VALUES = {  # what stands before them -> key -> wrong values, beside those that a declared range refuses
    "run": {
        "subset.ncl": ["five", "nan", "inf", "1e400", "1", "11", "-2", "2.5", "true", "[2,3]"],
        "subset.seed": ["1.5", "null", "x"],
        "subset.sampler": ["null", ""],
        "subset.classes": [
            "5",
            "[]",
            "[0]",
            "[0,0]",
            "[0,10]",
            "[0,-1]",
            "[0,1.5]",
            "[[0],[1]]",
            "[true,false]",
            "[0,cat]",
        ],
        "seed": ["x", "1.5", "null", "true", "", "[1,2]", "10**22", "1" + "0" * 22, "1,2", "ü"],
        "limit": ["1.5", "x"],
        "compat": ["1", ""],
        "outputs": ["", "null", "file.txt/deeper", "dangling", "/dev/null", "[a]"],
        "sweep.head": ["x"],
        "sweep.max": ["inf"],
        "sweep.print": ["maybe"],
        "recipe.epochs": ["0", "1.5", "1e9", "ten", "null", "[1]"],
        "recipe.batch_size": ["0", "1"],
        "recipe.lr": ["0", "nan", "inf", "fast"],
        "recipe.lr_min": ["1"],
        "recipe.optimiser": ["sdg"],
        "recipe.schedule": ["linear"],
        "recipe.precision": ["float"],
        "recipe.milestones": ["[2]", "[nan]", "0.5"],
        "recipe.ema": ["1"],
        "recipe.mixup": ["-1", "inf"],
        "recipe.snapshots": ["[0]", "[1.5]"],
        "recipe.flip": ["perhaps"],
        "recipe.layer_decay": ["0"],
        "trainer.callbacks": ["5"],
        "machine.accelerator": ["CPU", "null"],
        "machine.workers": ["many", "null"],
        "machine.cache_gb": ["nan", "inf"],
        "dataset.version": [""],
        "dataset.test.share": ["nan"],
        "model.input_size": ["big"],
        "model.crop_pct": ["nan"],
        "model.mean": ["[1,2]", "[nan,0,0]", "0.5"],
        "model.weights": ["5", "nowhere.safetensors", "empty"],
        "logger.project": [""],
        "logger.tags": ["x"],
        "dataset": ["digit", "5", "null", ""],
        "model": ["nosuch", "null"],
        "task": ["nosuch"],
        "recipe": ["nosuch"],
        "experiment": ["nosuch"],
        "shift": ["fog", "corruption/fog/x", "clean/3"],
        "hydra.mode": ["nonsense"],
        "hydra.searchpath": ["[nowhere]"],
    },
    "run task=predict model.weights=pretrained": {"task.split": ["", "null"], "task.keep": ["all"]},
    "run task=embed": {
        "model@encoder": ["nosuch", "null"],
    },
    "run task=embed model@encoder=test_resnet": {"encoder.weights": ["nowhere.pt", "null"]},
    "run task=embed model@encoder=run": {"encoder.run_id": ["nope"]},
    "run task=embed model@encoder=own": {"encoder.function": ["nosuch.f", "own.g", ""]},
    "run shift=corruption/fog": {
        "shift.kinds": ["[fgo]", "[]", "fog"],
        "shift.severities": ["[0]", "[6]", "[1.5]", "[]", "3"],
        "shift.seed": ["nan"],
    },
    "run dataset=folder": {"dataset.root": ["", "null", "nowhere", "file.txt", "dangling", "/dev/null", "/proc"]},
    "run dataset=folder dataset.root=photos": {
        "dataset.layout": ["x/y"],
        "dataset.name": [""],
    },
    "run dataset=manifest dataset.root=photos": {"dataset.file": ["nosuch.csv", "photos", ""]},
    "analyse": {
        "analysis": ["nosuch", "null"],
        "analysis.ncl": ["5", "[nan]", "[]", "[two]"],
        "analysis.seeds": ["[0.5]", "0"],
        "analysis.per_model": ["recipe"],
        "analysis.groups": ["nosuch", "empty"],
        "query": ["1", ""],
        "outputs": ["nosuch", "file.txt", "dangling", ""],
    },
    "report": {
        "report": ["nosuch"],
        "report.title": [""],
        "report.analyses": ["[nosuch]", "[]", "few_class"],
        "query": ["1", "", "'nosuch == 1'"],
        "logger.project": [""],
        "outputs": ["file.txt", "nosuch"],
    },
}

DECLARED = {  # what stands before them -> dataclass that declares the ranges -> its keys
    "run": {
        RunConfig: ["seed", "limit", "compat"],
        SubsetConfig: ["subset.seed", "subset.sampler"],
        SweepConfig: ["sweep.head", "sweep.max"],
        TrainerKeys: ["trainer.profiler"],
        Machine: ["machine.accelerator", "machine.workers", "machine.cache_gb"],
        Share: ["dataset.test.share", "dataset.val.seed"],
        TimmModel: ["model.input_size", "model.crop_pct", "model.interpolation"],
    },
    "run -m seed=1,2": {SweepConfig: ["sweep.head"]},
    "run task=predict model.weights=pretrained": {Predict: ["task.split"]},
    "run task=embed": {Embed: ["task.split"], Hog: ["encoder.cell", "encoder.orientations"]},
    "run task=embed model@encoder=own": {OwnEmbedding: ["encoder.crop_pct"]},
    "run shift=corruption/fog": {Corruptions: ["shift.seed"]},
    "run dataset=folder dataset.root=photos": {Share: ["dataset.val.share"]},
}
SWEPT_RANGES = {  # dataclass -> its keys, each swept over a value that is right and one that is not
    RunConfig: {"seed": 1},
    Machine: {"machine.workers": 1},
}
LARGEST_SEED = rules_by_field(RunConfig)["seed"][1].most
REFUSED_WORKERS = refused_values(Machine, "workers")[0].typed
REFUSED_ACCELERATOR = refused_values(Machine, "accelerator")[0].typed

LINES = {  # line -> part of its error
    "run =5": "word = =5; allowed: KEY=VALUE",
    "run foo": "word = foo; allowed: KEY=VALUE",
    """run dataset=folder 'dataset.root="~nosuch/photos"'""": "dataset.root = ~nosuch/photos; allowed: a path",
    """run task=predict 'model.weights="~nosuch/x.pt"'""": "model.weights = ~nosuch/x.pt; allowed: a path",
    "run -m seed": "word = seed; allowed: KEY=VALUE",
    "run foo.bar=1": "key = foo; allowed: dataset, model",
    "run subset.nlc=3": "key = subset.nlc; allowed: ncl, seed",
    "run recipe.epoch=3": "key = recipe.epoch; allowed: epochs, ",
    "run sweep.heads=1": "key = sweep.heads; allowed: head, print, retry, max",
    "run dataset.val.sede=1": "key = dataset.val.sede; allowed: seed, share",
    "run recipe..epochs=1": "recipe..epochs = 1; allowed: a value that Hydra can read",
    "run subset.ncl=[2": "subset.ncl = [2; allowed: a value that Hydra can read",
    """run "subset.classes='[0" """: "subset.classes = '[0; allowed: a value that Hydra can read",
    "run sëed=1": "sëed = 1; allowed: a value that Hydra can read",
    "run 'seed=1 limit=2'": "seed = 1 limit=2; allowed",
    "run 'seed=${nosuch}'": "Interpolation key 'nosuch' not found",
    "run 'seed=range(0,3)'": "requires --multirun",
    "run model=test_resnet,test_vit": "model = test_resnet,test_vit; allowed: one value; next: add -m",
    "run +foo=1": "key = foo; allowed: dataset",
    "run ++foo=1": "key = foo; allowed: dataset",
    "run +foo._target_=fca.shifts.Clean": "key = foo._target_; allowed: dataset",
    "run '++foo={_target_: fca.shifts.Clean}'": "key = foo; allowed: dataset",
    "run +recipe.optimiser_options.epsilon=1": "recipe.optimiser_options.epsilon = {'epsilon': 1}; allowed: keywords",
    "run 'trainer.callbacks=[{_target_: os.system}]'": "trainer.callbacks[0] = os.system; allowed: pytorch_lightning",
    "run +recipe.foo=1": "recipe.foo = 1; allowed: recipe.epochs",
    "run ++recipe.foo=1": "recipe.foo = 1; allowed: recipe.epochs",
    "run +subset.foo=1": "key = subset.foo; allowed: classes, ncl",
    "run ++sweep.foo=1": "key = sweep.foo; allowed: head, max",
    "run +seed=1": "+seed = 1; allowed: a key that is not there yet; next: type it without +: seed=1",
    "run ~seed": "seed = null; allowed: a value: it is needed",
    "run ~recipe.epochs": "recipe.epochs = None; allowed: a whole number",
    "run recipe=shared": "recipe.augment = None; allowed: keys with values: policy, ops",
    "run ~nosuch": "~nosuch = ; allowed: a key or group with that value that is there",
    "run recipe=null": "recipe = null; allowed: a value: it is needed",
    "run encoder=hog": "encoder = hog; allowed: an option of the group model@encoder",
    "run hydra/launcher=nosuch": "hydra/launcher = nosuch; allowed: basic, gpus, joblib",
    "run hydra.nosuch=1": "key = hydra.nosuch",
    "run outputs=/proc/store": "outputs = /proc/store",
    "run subset.classes=[1,2,3] subset.ncl=2": "subset.ncl = 2; allowed: 3",
    "run subset=fca": "subset.ncl = None; allowed: 2 to 10 for subset=fca",
    "run shift=corruption/fog shift.severity=[1]": "shift.severity; allowed: severities, kinds",
    "run shift=cifar_c/all": "shift.root",
    "run shift=cifar_c/all shift.root=nowhere": "shift.root = nowhere; allowed: there are no arrays",
    "run shift=imagenet_c/all shift.root=nowhere": "shift.root = nowhere; allowed: there are no kinds",
    "run task=predict": "model.weights = None; allowed: weights",
    "run task=predict recipe.epochs=0": "recipe.epochs = 0",
    "run task=predict dataset=folder dataset.root=photos/test model.weights=pretrained task.split=val": "task.split = "
    "val; allowed: test",
    "run task=predict model=run model.run_id=nope": "model.run_id = nope; allowed: a train run",
    "run task=predict model=run model.run_id=84e315790042": "model.run_id = 84e315790042; allowed: a train run",
    "run -m task=predict model=run model.run_id=nope,84e315790042": "model.run_id = nope; allowed: a train run",
    "run task=embed encoder.cell=40": "encoder.cell x encoder.block = 40 x 2; allowed: at most input_size=32",
    "run task=embed shift=corruption/fog/1": "shift = corruption/fog/1; allowed: clean",
    "run task=embed encoder.weights=x": "key = encoder.weights; allowed: input_size",
    "run dataset=folder": "dataset.root = None",
    "run dataset=folder dataset.root=empty": "images of empty = 0",
    "run dataset=rendered dataset.classes=[]": "dataset.classes = []; allowed: one value or more",
    "run -m 'seed=range(0,0)'": "seed = range(0,0); allowed: one value or more",
    "run -m 'seed=range(0,9,-1)'": "seed = range(0,9,-1); allowed: one value or more",
    "run -m 'seed=range(0,9,0)'": "seed = range(0,9,0); allowed: a range with finite ends and a step",
    "run -m 'seed=range(0,10000000)'": "configurations of the sweep = 10,000,000; allowed: at most sweep.max=100,000",
    "run -m 'seed=shuffle(range(0,10000000))' subset.seed=0,1": "= 20,000,000; allowed: at most sweep.max=100,000; "
    "next: take fewer values (seed 10,000,000, subset.seed 2)",
    "run -m 'recipe.lr=range(0,1,0.0000001)'": "= 10,000,000; allowed: at most sweep.max=100,000",
    "run -m sweep.max=3 seed=0,1 subset.seed=0,1": "= 4; allowed: at most sweep.max=3; next: take fewer values (seed 2",
    "run -m 'seed=interval(0,1)'": "seed = interval(0,1); allowed: a list or a range",
    "run -m seed=1,2,x": "seed = 1,2,x; allowed: a whole number",
    "run -m subset.ncl=11,12": "subset.ncl = 11; allowed: 2 to 10",
    "run -m nosuch=1,2": "key = nosuch",
    "run -m 'model=glob(zzz*)'": "model = glob(zzz*); allowed: one value or more",
    "run -m shift=clean,corruption/fgo": "shift = corruption/fgo; allowed: corruption/fog",
    "run -m shift=corruption/fog,corruption/snow shift.severity=[1]": "shift.severity = [1]; allowed: shift.severities",
    "run -m recipe.epochs=1,0": "recipe.epochs = 0; allowed: at least 1",
    "run -m hydra/launcher=joblib hydra.launcher.n_jobs=0 seed=1,2": "hydra.launcher.n_jobs = 0; allowed: 1 or more",
    "run -m hydra.launcher.n_jobs=2 seed=1,2": "key = hydra.launcher.n_jobs",
    "run -m hydra.launcher=5 seed=1,2": "hydra.launcher = 5; allowed: what hydra/launcher=NAME brings",
    "run -m hydra/launcher=gpus hydra.launcher.slots_per_gpu=0 seed=1,2": "slots_per_gpu = 0; allowed: auto",
    "run -m hydra/launcher=submitit_slurm seed=1,2": "hydra/launcher = submitit_slurm; allowed: a machine that has "
    "srun and sbatch; srun and sbatch not found; next: go to a machine of the cluster, or take hydra/launcher=joblib",
    "run -m hydra/launcher=ray +hydra.launcher.ray.init.address=127.0.0.1:1 seed=1,2": "hydra.launcher.ray.init."
    "address = 127.0.0.1:1; allowed: a cluster that answers ([Errno 111] Connection refused)",
    "run -m hydra/launcher=ray hydra.launcher.ray=5 seed=1,2": "hydra.launcher.ray = 5",
    "run -m outputs=a,b seed=1,2": "outputs = a,b; allowed: one value for the whole sweep",
    "run -m sweep.max=1,2 seed=1,2": "sweep.max = 1,2; allowed: one value for the whole sweep",
    "run seed=1 seed=2 seed=x": "seed = x; allowed: a whole number",
    f"run outputs={'a' * 300}": f"outputs = {'a' * 300}; allowed: a path that can be used (File name too long",
    "run plugins=[../x]": "plugins = ../x; allowed: names of modules",
    "run 'hydra.searchpath=[pkg://nosuch]'": "hydra.searchpath = pkg://nosuch; allowed: folders of configurations",
    "run --cfg job --package nosuch": "--package = nosuch; allowed: a key of the configuration; next: fca run",
    "analyse --cfg hydra -p nosuch": "--package = nosuch; allowed: a key of the configuration",
    "run --resolve": "option = --resolve; allowed: beside --cfg job",
    "run --package recipe": "option = --package recipe; allowed: beside --cfg job",
    "run --cfg nonsense": "--cfg/-c = nonsense; allowed: job, hydra, all",
    "run --cfg": "--cfg/-c = ; allowed: what fca run --help lists (expected one argument)",
    "run --info nonsense": "--info/-i = nonsense; allowed: all, config",
    "run --cfg job -m": "options = --multirun --cfg; allowed: one of them",
    "run --cfg job subset.ncl=five": "subset.ncl = five",
    "run --nonsense": "words = --nonsense; allowed: what fca run --help lists",
    "run --config-name analyse": "option = --config-name",
    "run --config-dir nowhere": "nowhere",
    "run --experimental-rerun x.pickle": "option = --experimental-rerun",
    "run -sc install=nosuch": "-sc = install=nosuch; allowed: install=bash",
    "analyse -m analysis=few_class,irt": "option = -m; allowed: fca run -m",
    "analyse analysis=few_class,irt": "analysis = few_class,irt; allowed: one value; next: give one",
    "analyse +foo=1": "key = foo; allowed: analysis, outputs",
    "analyse ++analysis.foo=1": "analysis.foo = 1; allowed: analysis.query",
    "analyse --resolve": "option = --resolve",
    "report +foo=1": "key = foo; allowed: report, logger, outputs",
    "report '+report.options={nonsense: 1}'": "report.options = nonsense; allowed: classes, draws",
    "report '+report.options={seed: x}'": "report.options.seed = x; allowed: a whole number",
    "results --query 1": "query = 1",
    "results --query ncl": "query = ncl",
    "run task._target_=": "task._target_ = ",
    "run task._target_=os.system": "task._target_ = os.system",
    "run task._target_=fca.nosuch.Task": "task._target_ = fca.nosuch.Task",
    "report report.name=..": "report.name = '..'",
    "report report.name=../../x": "report.name = '../../x'",
    "run task=predict model=run model.run_id=../../x": "model.run_id = ",
    "results --query 'nlc < 3'": "query = nlc < 3",
    "results --query ''": "query = ",
    "results --query": "--query = ; allowed: what fca results --help lists (expected one argument)",
    "results --columns nosuch": "--columns = nosuch; allowed: run_id, task",
    "results --columns ''": "--columns = ; allowed: run_id, task",
    "results --format xml": "--format = xml; allowed: table, csv, json, markdown, parquet",
    "results --outputs file.txt": "--outputs = file.txt; allowed: a folder that fca run filled",
    "results --outputs nosuch": "--outputs = nosuch; allowed: a folder that fca run filled",
    "results --outputs dangling": "--outputs = dangling; allowed",
    "results --outputs ''": "--outputs = ; allowed",
    "results outptus=empty": "column = outptus; allowed: ",
    "status --outputs file.txt": "--outputs = file.txt; allowed: a folder that fca run filled",
    "status --outputs nosuch": "--outputs = nosuch; allowed",
    f"status --outputs {'a' * 300}": "; allowed: a folder that fca run filled",
    "status --query x": "words = --query x",
    "status foo": "words = foo; allowed: what fca status --help lists",
    "trian": f"command = trian; allowed: {', '.join(commands())}",
}
OF_VALUES = {
    f"{start} '{key}={value}'": f"{key} = "
    for part in (sys.modules[__name__], *OF_STUDIES)
    for start, keys in part.VALUES.items()
    for key, values in keys.items()
    for value in (value.replace("'", '"') for value in values)
}
OUT_OF_RANGE = {
    f"{start} '{key}={refused.typed}'": f"{key} = {refused.message}"
    for part in (sys.modules[__name__], *OF_STUDIES)
    for start, keys_of_class in part.DECLARED.items()
    for kind, keys in keys_of_class.items()
    for key in keys
    for refused in refused_values(kind, key.rpartition(".")[2])
}
SWEPT_OUT_OF_RANGE = {
    f"run -m {key}={accepted},{refused.typed}": f"{key} = {refused.message}"
    for kind, keys in SWEPT_RANGES.items()
    for key, accepted in keys.items()
    for refused in refused_values(kind, key.rpartition(".")[2])
}
WRONG = OF_VALUES | OUT_OF_RANGE | SWEPT_OUT_OF_RANGE | LINES
for part in OF_STUDIES:
    WRONG |= part.LINES


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder in which somebody works, with what may be named by mistake."""
    folder = tmp_path_factory.mktemp("place")
    write_images(folder / "photos", per_class=4, classes=("ant", "bee"))
    (folder / "file.txt").write_text("text")
    (folder / "own.py").write_text("def embed(image):\n    return image.mean((0, 1))\n")
    (folder / "empty").mkdir()
    (folder / "dangling").symlink_to("nowhere")
    return folder


@pytest.fixture
def no_job_folder(monkeypatch):
    """Hydra sets up no logging and writes no file for a line."""

    def run_job(task_function, config, **_):
        HydraConfig.instance().cfg = config
        copied = pickle.loads(pickle.dumps(config))
        with open_dict(copied):
            del copied["hydra"]
        return JobReturn(_return_value=task_function(copied), status=JobStatus.COMPLETED)

    monkeypatch.setattr(shutil, "which", lambda _: None)  # as on a machine outside of any cluster
    monkeypatch.setattr("hydra._internal.hydra.run_job", run_job)


def typed(line, monkeypatch, capsys):
    """Type a line after `fca`, in this process; returns (exit code, output, errors)."""
    monkeypatch.setattr(sys, "argv", ["fca", *shlex.split(line)])
    monkeypatch.setattr(shutil, "which", lambda _: None)  # as where there is no cluster
    with pytest.raises(SystemExit) as left:
        main.main()
    return left.value.code, *capsys.readouterr()


def refusal(line, place, monkeypatch, capsys):
    """The one line with which a wrong line is refused; nothing was written."""
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    code, _, err = typed(line, monkeypatch, capsys)
    assert (code, len(err.splitlines())) == (2, 1), err
    assert err.startswith("error: ")
    assert sorted(place.rglob("*")) == before
    return err


@pytest.mark.wide
@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_line_is_refused_on_one_line_and_leaves_nothing(line, place, no_job_folder, monkeypatch, capsys):
    err = refusal(line, place, monkeypatch, capsys)
    assert WRONG[line] in err
    assert all(word in err for word in ("; allowed: ", "; next: "))


SWEPT = [
    "subset.ncl=nan",
    "subset.nlc=3",
    "seed=x",
    "recipe.epochs=0",
    f"machine.workers={REFUSED_WORKERS}",
    "outputs=/dev/null",
    "+foo=1",
]


@pytest.mark.parametrize("line", [*SWEPT, "dataset=nosuch", "dataset=folder dataset.root=nowhere", "recipe=null"])
def test_a_sweep_with_a_wrong_value_starts_nothing(line, place, no_job_folder, monkeypatch, capsys):
    err = refusal(f"run -m limit=4,8 {line}", place, monkeypatch, capsys)
    assert line.split()[-1].partition("=")[0].lstrip("+") in err


AS_PROCESSES = [
    *(
        "run subset.ncl=nan",
        "run =5",
        "run outputs=/dev/null",
        f"run 'machine.accelerator={REFUSED_ACCELERATOR}'",
        "run seed=10**22",
    ),
    *("run -m 'seed=range(0,0)'", "run -m 'seed=range(0,10000000)'", "run --resolve", "run outputs=", "run +foo=1"),
    *("run -m hydra/launcher=joblib hydra.launcher.n_jobs=0 seed=1,2", "run task=predict", "run dataset=nosuch"),
    *("run dataset=folder dataset.root=/proc", "analyse analysis.ncl=[two]", "report '+report.options={nonsense: 1}'"),
    *("results --outputs file.txt", "status foo", "trian"),
    *(line for part in OF_STUDIES for line in part.AS_PROCESSES),
]

TO_HYDRA = ["run --info", "run --hydra-help"]  # these are right


@pytest.mark.slow
def test_wrong_lines_are_refused_by_the_command_itself(place):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

    def process(line):
        command = [sys.executable, "-m", "fca.cli.main", *shlex.split(line)]
        return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)

    before = sorted(place.rglob("*"))
    with ThreadPoolExecutor(2) as pool:
        for line, done in zip(AS_PROCESSES, pool.map(process, AS_PROCESSES), strict=True):
            assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (line, done.stderr)
            assert WRONG.get(line, "error: ") in done.stderr
        for flag, done in zip(TO_HYDRA, pool.map(process, TO_HYDRA), strict=True):
            assert (done.returncode, "Hydra" in done.stdout, done.stderr) == (0, True, ""), flag
    assert sorted(place.rglob("*")) == before


RIGHT = [
    *("subset.ncl=0.5", "subset.ncl=null", "subset=null", "compat=null", "adaptation=null", f"seed={LARGEST_SEED}"),
    *(
        "shift=corruption/fog/3",
        "model@encoder=hog task=embed",
        "recipe.snapshots=[]",
        "machine.workers=0 limit=1000000",
    ),
    *("subset.classes=[0,'1',2]", "seed=1 -m limit=8", "-m 'seed=0,1' 'subset.ncl=choice(2,3)'", "task=[train]"),
    *("-m 'seed=range(0,100000)' sweep.head=1", "-m 'seed=range(0,3)' sweep.max=3", "outputs=empty/deep/deeper"),
    *("'outputs=a folder'", "hydra.launcher={}", "-m hydra/launcher=joblib hydra.launcher.n_jobs=-1 limit=8"),
]


@pytest.mark.wide
@pytest.mark.parametrize("line", RIGHT)
def test_an_odd_line_that_is_right_stays_accepted(line, place, no_job_folder, monkeypatch, capsys):
    monkeypatch.chdir(place)
    code, out, err = typed(f"run {line} sweep.print=true", monkeypatch, capsys)
    assert (code, err) == (0, "")
    assert out.startswith("fca run")


def test_a_sweep_that_is_too_large_composes_nothing(fca, monkeypatch):
    monkeypatch.setattr("fca.cli.sweeper.job_of", None)
    code, _, err = fca("-m", "seed=range(0,10000000)", "subset.seed=range(0,10000000)")
    assert code == 2
    assert "configurations of the sweep = 100,000,000,000,000; allowed: at most sweep.max=100,000" in err


FLAGS = {
    "--cfg job": "ncl: null",
    "--cfg job --resolve": "dir: outputs",
    "seed=3 --cfg job --package recipe limit=4": "epochs: 10",
    "--help": "recipe",
}


@pytest.mark.parametrize("flags", FLAGS)
def test_the_options_of_hydra_work(fca, tmp_path, flags):
    code, out, err = fca(*flags.split())
    assert (code or 0, err) == (0, "")
    assert FLAGS[flags] in out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [ZeroDivisionError("a defect"), OSError(5, "a defect")])
def test_a_defect_keeps_its_traceback(fca, monkeypatch, error):
    def defect(*_):
        raise error

    monkeypatch.setattr(run, "job_of", defect)
    with pytest.raises(type(error), match="a defect"):
        fca("seed=1")


def test_weights_that_do_not_fit_are_refused_by_their_keys_and_leave_nothing(fca, tmp_path):
    head_only = {"linear.weight": torch.zeros(10, 64), "linear.bias": torch.zeros(10), "odd": torch.zeros(1)}
    save_file(head_only, tmp_path / "other.safetensors")
    classes = "model.classes=[0,1,2,3,4,5,6,7,8,9]"
    words = ["task=predict", "model=cifar_resnet20", "model.weights=other.safetensors", classes]
    code, _, err = fca(*words, "logger=none")
    assert code == 2
    assert "other.safetensors" in err
    assert "missing: conv1.weight" in err
    assert "unexpected: odd" in err
    assert [path.name for path in tmp_path.iterdir()] == ["other.safetensors"]


def test_a_model_that_cannot_be_built_leaves_nothing(fca, tmp_path):
    code, _, err = fca("model.classes=nosuch.txt", "logger=none")
    assert (code, "model.classes = nosuch.txt" in err) == (2, True)
    assert not list(tmp_path.iterdir())


LAUNCHERS = {  # what only the launcher finds out
    "hydra/launcher=joblib hydra.launcher.pre_dispatch=nosuch": "= joblib; allowed: a launcher that can start (ValueE",
    "hydra/launcher=ray +hydra.launcher.ray.init.nosuch=1": "= ray; allowed: a launcher that can start (RuntimeError",
    "hydra.sweep.dir=/proc/x": "hydra.sweep.dir = /proc/x; allowed: a path that can be used (No such file or",
}


@pytest.mark.slow
@pytest.mark.parametrize("words", LAUNCHERS)
def test_a_launcher_that_cannot_start_is_one_line_and_leaves_nothing(fca, tmp_path, words):
    code, _, err = fca("-m", "seed=0,1", "limit=8", "logger=none", *words.split())
    assert (code, len(err.splitlines())) == (2, 1), err
    assert LAUNCHERS[words] in err
    assert not list(tmp_path.iterdir())


def test_an_empty_store_is_no_analysis_and_no_report(fca):
    for door in (analyse, report):
        code, _, err = fca("logger=none" if door is report else "analysis=few_class", door=door)
        assert code == 2
        assert "0" in err


@pytest.mark.parametrize("command", ["results", "status"])
def test_before_the_first_run_the_usual_store_is_empty(fca, command):
    code, out, _ = fca(door=importlib.import_module(f"fca.cli.{command}"))
    assert (code, out.startswith("0 ")) == (0, True)


def test_keys_without_their_group_are_named_as_typed():
    from fca.cli.configure import component, configured, keys_of

    analysis = component(configured("analyse", "analysis", "irt", {}), "analysis")
    with pytest.raises(FcaError, match=r"analysis\.model = 9pl"), keys_of("analysis", analysis):
        raise FcaError("model", "9pl", "2pl", "take it")
