"""What several tests share: answers of a language model that describes images."""

import json

NINE = [f"A car, harder by {number}." for number in range(1, 10)]


def as_json(texts):
    return json.dumps({str(number): text for number, text in enumerate(texts, 1)})
