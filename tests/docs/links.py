"""Links between the documents: run.py calls the check. SPDX-License-Identifier: MIT"""

import re

from sources import ROOT


def _anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def every_link_in_the_documents_leads_somewhere() -> list[str]:
    wrong = []
    for document in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]):
        for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
            if target.startswith(("http://", "https://")):
                continue
            name, _, anchor = target.partition("#")
            file = (document.parent / name).resolve() if name else document
            where = f"{document.relative_to(ROOT)}: {target}"
            if not file.exists():
                wrong.append(f"{where}: no such file")
            elif anchor and anchor not in map(_anchor, re.findall(r"^#+ (.*)$", file.read_text(), re.M)):
                wrong.append(f"{where}: no such heading")
    return wrong


CHECKS = [every_link_in_the_documents_leads_somewhere]
