"""Ten more objects, in the manner of the first."""

from __future__ import annotations

from fca.render.solids import Part, ball, box, cone, egg, pill, ring, rod, roof, tube


def bear() -> list[Part]:
    """A sitting teddy bear that looks towards +z."""
    pairs = [(x, solid) for x in (-1.0, 1.0) for solid in ("ear", "arm", "leg")]
    limbs = {
        "ear": lambda x: Part(ball(0.13), (0.25 * x, 0.72, 0)),
        "arm": lambda x: Part(pill(0.11, 0.3), (0.46 * x, 0.02, 0.12), (-30, 0, 40 * x), "main"),
        "leg": lambda x: Part(pill(0.15, 0.34), (0.3 * x, -0.42, 0.34), (80, 20 * x, 0), "main"),
    }
    return [
        Part(egg(0.4, 0.46, 0.36), (0, -0.15, 0)),
        Part(ball(0.32), (0, 0.48, 0.02)),
        Part(egg(0.15, 0.12, 0.14), (0, 0.4, 0.28), tint="light"),
        Part(ball(0.05), (0, 0.44, 0.42), tint="dark"),
        *(limbs[kind](x) for x, kind in pairs),
    ]


def boat() -> list[Part]:
    """A sailing boat with its bow towards +x."""
    return [
        Part(egg(0.95, 0.28, 0.32), (0, -0.5, 0)),
        Part(box(1.5, 0.05, 0.5), (0, -0.3, 0), tint="light"),
        Part(rod(0.035, 1.4), (0, 0.3, 0), tint="dark"),
        Part(roof(1.2, 1.15, 0.04), (0.05, -0.15, 0), tint="accent"),
    ]


def bottle() -> list[Part]:
    """A bottle with a label and a cork."""
    return [
        Part(rod(0.3, 0.95), (0, -0.4, 0)),
        Part(egg(0.3, 0.28, 0.3), (0, 0.08, 0)),
        Part(rod(0.1, 0.55), (0, 0.5, 0)),
        Part(rod(0.12, 0.14), (0, 0.8, 0), tint="dark"),
        Part(rod(0.31, 0.4), (0, -0.4, 0), tint="light"),
    ]


def dumbbell() -> list[Part]:
    """A bar along x with two discs at each end."""
    discs = [
        Part(rod(r, 0.14), (x, 0, 0), (0, 0, 90)) for x, r in ((-0.62, 0.42), (0.62, 0.42), (-0.78, 0.3), (0.78, 0.3))
    ]
    return [Part(rod(0.08, 1.9), (0, 0, 0), (0, 0, 90), "light"), *discs]


def fish() -> list[Part]:
    """A fish that swims towards +x."""
    return [
        Part(egg(0.7, 0.36, 0.18)),
        Part(roof(0.75, 0.5, 0.05), (-1.0, 0, 0), (0, 0, -90), "accent"),
        Part(roof(0.5, 0.3, 0.05), (-0.05, 0.28, 0), (0, 0, 8), "accent"),
        Part(roof(0.3, 0.2, 0.05), (-0.05, -0.28, 0), (0, 0, 180), "accent"),
        Part(ball(0.06), (0.45, 0.1, 0.13), tint="dark"),
        Part(ball(0.06), (0.45, 0.1, -0.13), tint="dark"),
    ]


def hammer() -> list[Part]:
    """A claw hammer, head up."""
    return [
        Part(pill(0.075, 1.3), (0, -0.25, 0), tint="accent"),
        Part(box(0.5, 0.2, 0.2), (0.08, 0.5, 0)),
        Part(rod(0.15, 0.18), (0.4, 0.5, 0), (0, 0, 90)),
        Part(box(0.5, 0.07, 0.06), (-0.38, 0.47, 0.06), (0, 0, 18)),
        Part(box(0.5, 0.07, 0.06), (-0.38, 0.47, -0.06), (0, 0, 18)),
    ]


def key() -> list[Part]:
    """A door key, its bow up."""
    return [
        Part(ring(0.3, 0.09), (0, 0.6, 0), (90, 0, 0)),
        Part(rod(0.07, 1.2), (0, -0.3, 0)),
        Part(box(0.32, 0.1, 0.07), (0.17, -0.85, 0)),
        Part(box(0.24, 0.1, 0.07), (0.14, -0.62, 0)),
    ]


def mushroom() -> list[Part]:
    """A toadstool with light spots."""
    spots = ((0.0, 0.72, 0.0), (0.32, 0.55, 0.3), (-0.35, 0.55, 0.25), (0.1, 0.45, 0.5), (0.45, 0.45, -0.25))
    return [
        Part(cone(0.24, 0.16, 0.9), (0, -0.35, 0), tint="light"),
        Part(egg(0.66, 0.46, 0.66), (0, 0.25, 0)),
        *(Part(ball(0.11), spot, tint="light") for spot in spots),
    ]


def robot() -> list[Part]:
    """A toy robot that looks towards +z."""
    twice = [
        part
        for x in (-1.0, 1.0)
        for part in (
            Part(box(0.14, 0.55, 0.16), (0.45 * x, 0.02, 0), tint="accent"),
            Part(box(0.2, 0.45, 0.24), (0.18 * x, -0.6, 0), tint="accent"),
            Part(ball(0.07), (0.12 * x, 0.64, 0.22), tint="light"),
        )
    ]
    return [
        Part(box(0.66, 0.7, 0.4), (0, 0, 0)),
        Part(box(0.46, 0.38, 0.4), (0, 0.6, 0)),
        Part(rod(0.02, 0.3), (0, 0.9, 0), tint="dark"),
        Part(ball(0.06), (0, 1.05, 0), tint="dark"),
        Part(box(0.36, 0.24, 0.06), (0, 0.05, 0.2), tint="dark"),
        *twice,
    ]


def umbrella() -> list[Part]:
    """An open umbrella with a hooked handle."""
    return [
        Part(cone(0.95, 0.05, 0.4), (0, 0.5, 0)),
        Part(rod(0.035, 1.6), (0, 0.05, 0), tint="dark"),
        Part(tube(0.92, 0.05, 0.06), (0, 0.3, 0), tint="accent"),
        Part(pill(0.045, 0.22), (0.1, -0.78, 0), (0, 0, 90), "accent"),
        Part(pill(0.045, 0.12), (0.2, -0.72, 0), tint="accent"),
    ]
