"""How many images a second does one core draw at 128 pixels, and how many with their scenes, which are measured first?

python experiments/speed/rendered.py            20 classes x 11 attributes x 3 levels, CPU seconds of one thread
"""

import time

from fca.render import ATTRIBUTES, BACKGROUND, CLASSES, LEVELS, render, scene_of

SIZE = 128


def main():
    """Print images a CPU second; the grid of a class is made once and is not counted."""
    keys = [(c, a, level, 0, 0) for c in CLASSES for a in (*ATTRIBUTES, BACKGROUND) for level in LEVELS]
    for label in CLASSES:
        render(scene_of(label, "size", "easy", 1, 0), SIZE)
    start = time.process_time()
    scenes = [scene_of(*key) for key in keys]
    placed = time.process_time()
    for scene in scenes:
        render(scene, SIZE)
    drawn = time.process_time()
    print(f"{len(keys)} images of {SIZE} pixels: drawn {len(keys) / (drawn - placed):.0f} a CPU second")
    print(f"scenes placed by measurement {len(keys) / (placed - start):.0f} a CPU second")
    print(f"both {len(keys) / (drawn - start):.0f} a CPU second")


if __name__ == "__main__":
    main()
