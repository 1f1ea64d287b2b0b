"""How many images a second does one core draw at 128 pixels, and how many with their scenes, which are measured first?

python experiments/speed/rendered.py            20 classes x 11 attributes x 3 levels, CPU seconds of one thread
"""

from harness import machine, options, timed

from fca.render import ATTRIBUTES, BACKGROUND, CLASSES, LEVELS, render, scene_of


def main():
    size = options(__doc__, pixels=(128, 32), classes=(len(CLASSES), 1))
    names = CLASSES[: size.classes]
    keys = [(c, a, level, 0, 0) for c in names for a in (*ATTRIBUTES, BACKGROUND) for level in LEVELS]
    for label in names:  # the grid of a class is made once and is not counted
        render(scene_of(label, "size", "easy", 1, 0), size.pixels)
    placed = timed(lambda: [scene_of(*key) for key in keys])
    drawn = timed(lambda: [render(scene, size.pixels) for scene in placed.result])
    print(f"{len(keys)} images of {size.pixels} pixels: drawn {len(keys) / drawn.cpu:.0f} a CPU second")
    print(f"scenes placed by measurement {len(keys) / placed.cpu:.0f} a CPU second")
    print(f"both {len(keys) / (placed.cpu + drawn.cpu):.0f} a CPU second")
    machine()


if __name__ == "__main__":
    main()
