"""What the tests of the report share: the package on the path, sample files, pages made of them.
SPDX-License-Identifier: MIT"""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from samples import write_samples  # noqa: E402

from report.__main__ import main  # noqa: E402


def make_page(output, paths):
    """The page of these files, with no program to ask; its exit status and its text."""
    status = main([*map(str, paths), "--output", str(output), "--program", str(output / "none")])
    return status, (output / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def full(tmp_path_factory):
    """The folder of a page with every section filled."""
    folder = tmp_path_factory.mktemp("full")
    status, _ = make_page(folder, write_samples(tmp_path_factory.mktemp("results")))
    assert status == 0
    return folder


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """The folder of a page with one small file, so that most sections have nothing to show."""
    folder = tmp_path_factory.mktemp("bare")
    status, _ = make_page(folder, write_samples(tmp_path_factory.mktemp("results"), ["machine-cpu"]))
    assert status == 0
    return folder
