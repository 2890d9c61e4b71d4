"""docs/troubleshooting.md against the messages of the sources: run.py calls the checks. A message is quoted in the
first column of a table, `…` for each of its values; a quote may be a part of it. SPDX-License-Identifier: MIT"""

import re
from typing import NamedTuple

from sources import ROOT, Message, messages, statuses, texts

GUIDE = ROOT / "docs/troubleshooting.md"
FAILURE = ROOT / "python/core/failure.c"


class Quote(NamedTuple):
    text: str
    heading: str  # of level two


def _quotes() -> list[Quote]:
    """What the first columns of the tables of messages have in code type."""
    found, heading, of_messages = [], "", False
    for line in GUIDE.read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:].strip("` ")
        elif not line.startswith("|"):
            of_messages = False
        elif line.startswith("| message |"):
            of_messages = True
        elif of_messages:
            cell = re.split(r"(?<!\\)\|", line)[1].replace("\\|", "|")
            found += [Quote(text.strip(), heading) for text in re.findall(r"`([^`]+)`", cell)]
    return found


def every_status_is_a_heading() -> list[str]:
    headings = re.findall(r"^## `(EK_\w+)`$", GUIDE.read_text(), re.M)
    if headings == statuses():
        return []
    return [f"headings are {' '.join(headings)}", f"include/evenkeel.h has {' '.join(statuses())}"]


def _exceptions() -> dict[str, str]:
    """The exception of each status, as the extension raises it."""
    cases = re.findall(r"((?:case EK_\w+:\s*)+|default:\s*)return PyExc_(\w+);", FAILURE.read_text())
    named = {status: exception for labels, exception in cases for status in re.findall(r"EK_\w+", labels)}
    otherwise = next(exception for labels, exception in cases if labels.startswith("default"))
    return {status: named.get(status, otherwise) for status in statuses() if status != "EK_OK"}


def every_status_has_the_exception_that_is_raised() -> list[str]:
    rows = re.findall(r"^\| (EK_[^|]+) \| `(\w+)` \|", GUIDE.read_text(), re.M)
    said = {status: exception for names, exception in rows for status in names.split(", ")}
    raised = _exceptions()
    return [
        f"{status}: the guide has {said.get(status)}, {FAILURE.relative_to(ROOT)} {raised.get(status)}"
        for status in sorted(said.keys() | raised.keys())
        if said.get(status) != raised.get(status)
    ]


def every_quote_is_in_the_sources() -> list[str]:
    known = texts()
    return [f"no message has `{quote.text}`" for quote in _quotes() if not any(quote.text in text for text in known)]


# Under these headings are the messages of one folder, under the others those that may come with a status.
FOLDERS = {"The program": "cli", "The Python package": "python", "The folder and the pack": "src/gpu"}


def _covers(quote: Quote, message: Message) -> bool:
    """A status that the call names must be the heading."""
    if quote.text not in message.text:
        return False
    if quote.heading in FOLDERS:
        return message.status is None and message.path.is_relative_to(ROOT / FOLDERS[quote.heading])
    return message.status in (None, quote.heading) and not message.path.is_relative_to(ROOT / "python")


def every_message_has_an_entry() -> list[str]:
    quotes = _quotes()
    wrong = [message for message in messages() if not any(_covers(quote, message) for quote in quotes)]
    return [f"{message}{f' ({message.status})' if message.status else ''}" for message in wrong]


def no_quote_is_so_short_that_it_says_nothing() -> list[str]:
    return [f"`{quote.text}`: too few letters" for quote in _quotes() if len(re.findall(r"[A-Za-z]", quote.text)) < 4]


CHECKS = [
    every_status_is_a_heading,
    every_status_has_the_exception_that_is_raised,
    every_quote_is_in_the_sources,
    every_message_has_an_entry,
    no_quote_is_so_short_that_it_says_nothing,
]
