"""What several tests share: the parts of a page, read from its HTML."""

import re
from html.parser import HTMLParser


class Parts(HTMLParser):
    """Attributes of all elements, visible text, and the embedded data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.words, self.data, self.styles, self.inside = [], [], "", "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside = dict(attrs).get("id", tag) if tag in ("script", "style") else self.inside

    def handle_endtag(self, tag):
        self.inside = "" if tag in ("script", "style") else self.inside

    def handle_data(self, data):
        if self.inside == "data":
            self.data += data
        elif self.inside == "style":
            self.styles += data
        elif self.inside != "script":
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))
