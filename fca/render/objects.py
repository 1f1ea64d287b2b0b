"""The first ten objects: parts in any unit, y up, the front towards +z; they are scaled to one size when drawn."""

from __future__ import annotations

from fca.render.solids import Part, ball, box, cone, egg, pill, ring, rod, roof, tube


def airplane() -> list[Part]:
    """A propeller plane with its nose towards +z."""
    return [
        Part(egg(0.17, 0.19, 1.0)),
        Part(box(2.0, 0.05, 0.38), (0, -0.02, 0.15), tint="accent"),
        Part(box(0.75, 0.04, 0.22), (0, 0.08, -0.85), tint="accent"),
        Part(box(0.05, 0.42, 0.26), (0, 0.26, -0.84), (14, 0, 0), "accent"),
        Part(egg(0.11, 0.12, 0.28), (0, 0.15, 0.35), tint="dark"),
        Part(box(0.6, 0.07, 0.03), (0, 0, 1.0), (0, 0, 35), "dark"),
    ]


def car() -> list[Part]:
    """A saloon that drives towards +x."""
    wheels = [Part(rod(0.23, 0.16), (x, -0.25, z), (90, 0, 0), "dark") for x in (-0.58, 0.6) for z in (-0.4, 0.4)]
    return [
        Part(box(1.9, 0.36, 0.82, 0.08)),
        Part(box(1.0, 0.36, 0.7, 0.1), (-0.1, 0.3, 0), tint="main"),
        Part(box(0.78, 0.2, 0.74, 0.04), (-0.1, 0.32, 0), tint="light"),
        Part(box(0.06, 0.1, 0.7, 0.02), (0.94, 0.02, 0), tint="light"),
        *wheels,
    ]


def chair() -> list[Part]:
    """A kitchen chair."""
    legs = [Part(box(0.09, 0.75, 0.09), (x, -0.4, z), tint="accent") for x in (-0.34, 0.34) for z in (-0.34, 0.34)]
    return [
        Part(box(0.84, 0.1, 0.84)),
        Part(box(0.84, 0.3, 0.08), (0, 0.72, -0.38), (-4, 0, 0)),
        Part(box(0.08, 0.85, 0.08), (-0.36, 0.4, -0.37), tint="accent"),
        Part(box(0.08, 0.85, 0.08), (0.36, 0.4, -0.37), tint="accent"),
        *legs,
    ]


def house() -> list[Part]:
    """A house with a door, a window and a chimney."""
    return [
        Part(box(1.1, 0.8, 0.95), (0, -0.1, 0)),
        Part(roof(1.4, 0.6, 1.15), (0, 0.3, 0), tint="accent"),
        Part(box(0.16, 0.5, 0.16), (0.36, 0.72, -0.15), tint="dark"),
        Part(box(0.26, 0.48, 0.06), (-0.22, -0.26, 0.48), tint="dark"),
        Part(box(0.3, 0.28, 0.06), (0.25, 0.0, 0.48), tint="light"),
        Part(box(0.06, 0.28, 0.34), (0.55, 0.0, 0.0), tint="light"),
    ]


def lamp() -> list[Part]:
    """A table lamp."""
    return [
        Part(cone(0.55, 0.3, 0.55), (0, 0.55, 0), tint="light"),
        Part(rod(0.05, 1.1), (0, -0.1, 0), tint="main"),
        Part(rod(0.34, 0.1), (0, -0.62, 0)),
        Part(ball(0.12), (0, -0.3, 0)),
    ]


def mug() -> list[Part]:
    """A mug with its handle towards +x."""
    return [
        Part(tube(0.5, 0.09, 1.1)),
        Part(rod(0.5, 0.1), (0, -0.5, 0)),
        Part(ring(0.3, 0.07), (0.55, 0.0, 0), (90, 0, 0)),
        Part(rod(0.46, 0.06), (0, 0.25, 0), tint="dark"),
    ]


def rocket() -> list[Part]:
    """A rocket that stands on its fins."""
    fins = [Part(box(0.4, 0.42, 0.05), (x, -0.62, z), (0, t, 0), "accent") for x, z, t in _AROUND]
    return [
        Part(rod(0.24, 1.0), (0, -0.15, 0), tint="light"),
        Part(cone(0.25, 0.01, 0.6), (0, 0.64, 0)),
        Part(cone(0.25, 0.16, 0.14), (0, -0.7, 0), (180, 0, 0), "dark"),
        Part(ball(0.1), (0, 0.1, 0.2), tint="dark"),
        *fins,
    ]


_AROUND = ((0.33, 0.0, 0.0), (-0.33, 0.0, 0.0), (0.0, 0.33, 90.0), (0.0, -0.33, 90.0))


def snowman() -> list[Part]:
    """Three balls, a hat and a nose towards +z."""
    return [
        Part(ball(0.46), (0, -0.5, 0), tint="light"),
        Part(ball(0.34), (0, 0.1, 0), tint="light"),
        Part(ball(0.24), (0, 0.54, 0), tint="light"),
        Part(rod(0.3, 0.04), (0, 0.72, 0), tint="dark"),
        Part(rod(0.19, 0.28), (0, 0.87, 0), tint="dark"),
        Part(cone(0.05, 0.005, 0.3), (0, 0.54, 0.36), (90, 0, 0), "accent"),
        Part(ring(0.25, 0.07), (0, 0.33, 0)),
        Part(pill(0.03, 0.5), (0.5, 0.22, 0), (0, 0, -60), "dark"),
        Part(pill(0.03, 0.5), (-0.5, 0.22, 0), (0, 0, 60), "dark"),
    ]


def table() -> list[Part]:
    """A round table on one foot."""
    return [
        Part(rod(0.95, 0.1), (0, 0.45, 0)),
        Part(rod(0.1, 0.9), (0, 0.0, 0), tint="accent"),
        Part(box(1.0, 0.09, 0.14), (0, -0.45, 0), tint="accent"),
        Part(box(0.14, 0.09, 1.0), (0, -0.45, 0), tint="accent"),
    ]


def tree() -> list[Part]:
    """A fir tree."""
    return [
        Part(rod(0.12, 0.5), (0, -0.75, 0), tint="dark"),
        Part(cone(0.62, 0.1, 0.6), (0, -0.3, 0)),
        Part(cone(0.5, 0.08, 0.55), (0, 0.1, 0)),
        Part(cone(0.36, 0.01, 0.6), (0, 0.52, 0)),
    ]
