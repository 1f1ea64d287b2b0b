"""Images of solid objects, drawn by ray marching in numpy: exact masks, known parameters, measured difficulty."""

from fca.render.draw import SIZES, render
from fca.render.levels import scene_of
from fca.render.objects import CLASSES
from fca.render.scene import ATTRIBUTES, BACKGROUND, LEVELS, VERSION, Rendered, Scene

__all__ = [
    "ATTRIBUTES",
    "BACKGROUND",
    "CLASSES",
    "LEVELS",
    "SIZES",
    "VERSION",
    "Rendered",
    "Scene",
    "render",
    "scene_of",
]
