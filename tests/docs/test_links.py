"""Everything that the documentation points at is there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from tests.docs.markdown import PAGES, ROOT, anchors, links

SVG = "{http://www.w3.org/2000/svg}"
DRAWINGS = ("bound", "gears", "job", "overlay", "snapshot")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_images_lead_somewhere(page: Path) -> None:
    wrong = []
    for where, target in links(page):
        if "://" in target:
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or not file.is_relative_to(ROOT):
            wrong.append(f"{where}: {target} is not there")
        elif anchor and anchor not in anchors(file):
            wrong.append(f"{where}: {file.name} has no heading #{anchor}")
    assert not wrong, "\n".join(wrong)


def test_every_page_can_be_reached_from_the_index() -> None:
    docs = ROOT / "docs"
    reached = {(docs / target.partition("#")[0]).resolve() for _, target in links(docs / "index.md")}
    assert {page for page in docs.glob("*.md") if page.name != "index.md"} <= reached


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_stands_alone_in_light_and_dark(name: str) -> None:
    file = ROOT / "docs" / "img" / f"{name}.svg"
    drawing = ElementTree.parse(file).getroot()
    assert drawing.tag == f"{SVG}svg"
    assert "viewBox" in drawing.attrib
    assert (drawing.findtext(f"{SVG}title") or "").strip()
    assert "prefers-color-scheme: dark" in (drawing.findtext(f"{SVG}style") or "")
    width, height = map(float, drawing.attrib["viewBox"].split()[2:])
    for element in drawing.iter():
        assert element.tag not in (f"{SVG}script", f"{SVG}image", f"{SVG}use")
        assert not any(key.endswith("href") for key in element.attrib)
        for key, limit in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            assert 0 <= float(element.attrib.get(key, 0)) <= limit
