"""An HTML page as a tree, strict about its form: the tests of the report ask it. SPDX-License-Identifier: MIT"""

from html.parser import HTMLParser

VOID = {"meta", "link", "input", "br", "hr", "img"}


class Element:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.children, self.text = [], ""

    def all(self, tag=None):
        """Elements below this one, in order."""
        for child in self.children:
            if tag is None or child.tag == tag:
                yield child
            yield from child.all(tag)

    def words(self):
        return self.text + "".join(child.words() for child in self.children)


class Document(HTMLParser):
    """`wrong` holds what a strict reader objects to."""

    def __init__(self, text):
        super().__init__()
        self.root = self.now = Element("", {}, None)
        self.wrong = []
        self.feed(text)
        self.close()
        if self.now is not self.root:
            self.wrong.append(f"<{self.now.tag}> is never closed")

    def handle_starttag(self, tag, attributes):
        if len({name for name, _ in attributes}) != len(attributes):
            self.wrong.append(f"<{tag}> has an attribute twice")
        element = Element(tag, dict(attributes), self.now)
        self.now.children.append(element)
        if tag not in VOID:
            self.now = element

    def handle_startendtag(self, tag, attributes):
        self.now.children.append(Element(tag, dict(attributes), self.now))

    def handle_endtag(self, tag):
        if tag != self.now.tag:
            self.wrong.append(f"</{tag}> closes <{self.now.tag}> at line {self.getpos()[0]}")
        elif self.now.parent is not None:
            self.now = self.now.parent

    def handle_data(self, data):
        self.now.text += data

    def all(self, tag=None):
        return list(self.root.all(tag))
