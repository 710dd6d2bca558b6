"""The diagrams of the documentation site, which docs/site/diagrams.py draws."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from support.harnesses.doc_blocks import BLOCKS, Block

ROOT = Path(__file__).parents[3]
DRAWN = [block for block in BLOCKS if block.language == "mermaid"]


@pytest.fixture
def diagrams() -> Iterator[ModuleType]:
    """The module, which is not in a package."""
    spec = importlib.util.spec_from_file_location("diagrams", ROOT / "docs" / "site" / "diagrams.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["diagrams"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["diagrams"]


@pytest.mark.parametrize("block", DRAWN, ids=lambda block: block.name)
def test_every_diagram_of_a_page_is_drawn(block: Block, diagrams: ModuleType) -> None:
    """The drawing of each diagram has all its nodes, arrows and labels, inside its borders."""
    diagram = diagrams.parse(block.text)
    drawing = ElementTree.fromstring(diagrams.svg(block.text))
    boxes = [element for element in drawing.iter() if element.tag.endswith("rect")]
    texts = [element for element in drawing.iter() if element.tag.endswith("text")]
    arrows = [element for element in drawing.iter() if "arrow" in element.get("class", "")]
    width, height = (float(drawing.get(name, "0")) for name in ("width", "height"))
    assert len(boxes) == len(diagram.nodes)
    assert len(arrows) == len(diagram.arrows) + bool(diagram.first) == len(re.findall(r"-->|-\.->", block.text))
    wanted = [line for lines in diagram.nodes.values() for line in lines]
    assert sorted([*wanted, *(arrow.label for arrow in diagram.arrows if arrow.label)]) == sorted(
        text.text or "" for text in texts
    )
    for box in boxes:
        assert 0 <= float(box.get("x", "-1"))
        assert float(box.get("x", "0")) + float(box.get("width", "0")) <= width
        assert float(box.get("y", "0")) + float(box.get("height", "0")) <= height


def test_what_is_not_understood_is_an_error(diagrams: ModuleType) -> None:
    """A line of Mermaid that the module cannot draw raises an error that contains the line."""
    with pytest.raises(ValueError, match="subgraph one"):
        diagrams.svg("flowchart LR\n    subgraph one\n")
