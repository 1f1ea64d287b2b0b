"""Objects drawn by fca.render as a generator: no words, no network, no money, exact masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from fca.render import VERSION, render, scene_of
from fca.render.conditions import VALUES, scene_under
from fca.studies.generate.protocols import Conditioned, Drawn, Wanted
from fca.validation import Allowed


@dataclass(frozen=True)
class RenderedGenerator:
    """`generator=rendered`: the ten attributes and background on the renderer's classes, levels placed by measurement.

    It also draws subdomains of an evaluation domain, whose attributes and values must be among its `values`.

    size: pixels a side.

    Its levels are ranges of what is measured in the image; the three sublevels of a level share its range.
    """

    size: Annotated[int, Allowed(1)]

    prompted: ClassVar[bool] = False
    parallel: ClassVar[bool] = True

    def label(self) -> str:
        return "rendered"

    def version(self) -> str:
        """The renderer's version, and the size."""
        return f"drawing {VERSION}, size {self.size}"

    def price(self) -> float:
        return 0.0

    @property
    def conditions(self) -> Mapping[str, tuple[str, ...]]:
        """Attribute -> values that it can draw."""
        return VALUES

    def draw(self, request: Wanted) -> Drawn:
        """The image, its masks, and all true parameters as facts. Raises FcaError for a name the renderer lacks.

        >>> from fca.studies.generate.protocols import Request
        >>> request = Request("mug", "mug", "occlusion", "hard", 7, 0, 3, None)
        >>> drawn = RenderedGenerator(32).draw(request)
        >>> drawn.image.shape, bool(drawn.visible.sum() < drawn.full.sum()), drawn.facts["measure"]
        ((32, 32, 3), True, 'hidden_share')
        """
        if isinstance(request, Conditioned):
            scene = scene_under(request.label, request.values, request.seed)
        else:
            scene = scene_of(request.label, request.attribute, request.level, request.index, request.seed)
        image, visible, full = render(scene, self.size)
        return Drawn(image, visible, full, scene.parameters())
