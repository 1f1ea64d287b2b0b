"""How the tests check shapes and types: pyproject.toml names `tests.checked` to jaxtyping."""

from typing import Any

from beartype import beartype


def checked(function):
    """Beartype's check, for the two functions that jaxtyping makes of each of ours: of parameters, and of the result.

    The second would look at the parameters again, whose axes jaxtyping knows since the first.
    """
    hints = function.__annotations__
    if hints.get("return", Any) is not Any:
        function.__annotations__ = {"return": hints["return"]}
    return beartype(function)
