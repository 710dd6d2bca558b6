"""Draws the diagrams of pages, which are written in Mermaid, as SVG.

Mermaid's own program runs in the reader's browser and is loaded from another host, so the site does without it. This
module understands what the pages use: state diagrams, and flow charts of nodes and arrows. Nodes are below each
other, in the order in which the text has arrows from them, or names them. Arrows down are on the right, arrows up are
on the left.
"""

from __future__ import annotations

import html
import re
import zlib
from dataclasses import dataclass, field

CHARACTER, LINE, PADDING, GAP = 8.2, 17, 9, 30  # px
MARGIN = 8
STATE = re.compile(r"(\S+) --> ([^\s:]+)(?:: (.*))?")
NODE = r'(\w+)(?:\["([^"]*)"\]|\(\(([^)]*)\)\))?'
FLOW = re.compile(rf"{NODE} (-->|-\.->)(?:\|([^|]*)\|)? {NODE}")


@dataclass(frozen=True)
class Arrow:
    """An arrow from one node to another."""

    start: str
    end: str
    label: str = ""
    dashed: bool = False


@dataclass
class Diagram:
    """Nodes with their texts, and the arrows between them."""

    nodes: dict[str, list[str]] = field(default_factory=dict)
    arrows: list[Arrow] = field(default_factory=list)
    first: str = ""  # the state in which a machine starts


def parse(text: str) -> Diagram:
    """Returns the diagram that a text in Mermaid describes. Raises ValueError for a line that is not understood."""
    kind, *lines = [line.strip() for line in text.strip().splitlines()]
    diagram = Diagram()
    for line in lines:
        if kind == "stateDiagram-v2" and (match := STATE.fullmatch(line)):
            start, end, label = match.groups()
            if start == "[*]":
                diagram.first = end
                diagram.nodes.setdefault(end, [end])
                continue
            _add(diagram, Arrow(start, end, label or ""), [start], [end])
        elif kind.startswith("flowchart") and (match := FLOW.fullmatch(line)):
            start, box, circle, kind_of, label, end, end_box, end_circle = match.groups()
            texts = [_lines(box or circle), _lines(end_box or end_circle)]
            _add(diagram, Arrow(start, end, label or "", kind_of == "-.->"), *texts)
        else:
            raise ValueError(f"the diagrams of the site cannot have the line {line!r}")
    starts = [arrow.start for arrow in diagram.arrows if kind == "stateDiagram-v2"]
    order = dict.fromkeys([*starts, *diagram.nodes])
    diagram.nodes = {name: diagram.nodes[name] for name in order}
    return diagram


def _lines(text: str | None) -> list[str]:
    return re.split("<br>", text) if text else []


def _add(diagram: Diagram, arrow: Arrow, start: list[str], end: list[str]) -> None:
    for name, text in ((arrow.start, start), (arrow.end, end)):
        if text or name not in diagram.nodes:
            diagram.nodes[name] = text or [name]
    diagram.arrows.append(arrow)


def svg(text: str) -> str:
    """Returns the drawing of a text in Mermaid."""
    diagram = parse(text)
    names = list(diagram.nodes)
    widest = max(len(line) for lines in diagram.nodes.values() for line in lines) * CHARACTER + 2 * PADDING
    sides = {arrow: _side(names, arrow) for arrow in diagram.arrows}
    left = max((_depth(names, a) for a, side in sides.items() if side == "left"), default=0) + MARGIN
    right = max((_depth(names, a) for a, side in sides.items() if side == "right"), default=0) + MARGIN
    tops, top = {}, MARGIN + (GAP if diagram.first else 0)
    for name, lines in diagram.nodes.items():
        tops[name] = top
        top += len(lines) * LINE + 2 * PADDING + GAP
    ends = {name: tops[name] + len(lines) * LINE + 2 * PADDING for name, lines in diagram.nodes.items()}
    height, width = top - GAP + MARGIN, left + widest + right
    middle = left + widest / 2
    drawn = []
    if diagram.first:
        drawn.append(f'<circle cx="{middle:.0f}" cy="{MARGIN + 5}" r="5"/>')
        drawn.append(_path(f"M {middle:.0f} {MARGIN + 10} V {tops[diagram.first] - 2}"))
    ports = _ports(names, sides, tops, ends)
    for arrow, side in sides.items():
        drawn += _arrow(arrow, side, ports[arrow], (left, left + widest, middle), _depth(names, arrow))
    for name, lines in diagram.nodes.items():
        drawn.append(
            f'<rect x="{left:.0f}" y="{tops[name]}" width="{widest:.0f}" height="{ends[name] - tops[name]}" rx="6"/>'
        )
        for number, line in enumerate(lines):
            y = tops[name] + PADDING + LINE * number + 13
            drawn.append(f'<text x="{middle:.0f}" y="{y}">{html.escape(line)}</text>')
    tip = zlib.crc32(text.encode())  # an id that no other diagram of the page has
    described = "; ".join(f"{a.start} to {a.end}" for a in diagram.arrows)
    return (
        f'<svg class="diagram" role="img" aria-label="{html.escape(described)}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" xmlns="http://www.w3.org/2000/svg">'
        f'<defs><marker id="tip-{tip}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto">'
        f'<path d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>{"".join(drawn).replace("#tip", f"#tip-{tip}")}</svg>'
    )


def _side(names: list[str], arrow: Arrow) -> str:
    """Returns where an arrow is drawn: "down" to the next node, or at the right or the left of the nodes."""
    steps = names.index(arrow.end) - names.index(arrow.start)
    return "down" if steps == 1 else "right" if steps > 0 else "left"


def _depth(names: list[str], arrow: Arrow) -> float:
    """Returns how far an arrow at a side is from the nodes, in pixels."""
    return 18 + 15 * abs(names.index(arrow.end) - names.index(arrow.start)) + (CHARACTER * len(arrow.label))


def _ports(
    names: list[str], sides: dict[Arrow, str], tops: dict[str, int], ends: dict[str, int]
) -> dict[Arrow, tuple[float, float]]:
    """Returns the heights at which each arrow starts and ends. Arrows at one side of a node are spread over it."""
    found: dict[Arrow, list[float]] = {arrow: [0.0, 0.0] for arrow in sides}
    for name in names:
        for side in ("left", "right"):
            here = [(a, at) for a, s in sides.items() if s == side for at in (0, 1) if (a.start, a.end)[at] == name]
            here.sort(key=lambda entry: names.index((entry[0].end, entry[0].start)[entry[1]]))
            for number, (arrow, at) in enumerate(here, 1):
                found[arrow][at] = tops[name] + (ends[name] - tops[name]) * number / (len(here) + 1)
        for arrow, side in sides.items():
            if side == "down" and arrow.start == name:
                found[arrow] = [ends[name], tops[arrow.end]]
    return {arrow: (heights[0], heights[1]) for arrow, heights in found.items()}


def _arrow(
    arrow: Arrow, side: str, heights: tuple[float, float], columns: tuple[float, float, float], depth: float
) -> list[str]:
    start, end = heights
    left, right, middle = columns
    if side == "down":
        drawn = [_path(f"M {middle:.0f} {start:.0f} V {end - 2:.0f}", dashed=arrow.dashed)]
        x, anchor = middle + 8, "start"
    else:
        x, sign = (left, -1) if side == "left" else (right, 1)
        bend = x + sign * (depth - CHARACTER * len(arrow.label)) * 4 / 3
        path = f"M {x:.0f} {start:.1f} C {bend:.0f} {start:.1f} {bend:.0f} {end:.1f} {x + 2 * sign:.0f} {end:.1f}"
        drawn = [_path(path, dashed=arrow.dashed)]
        x, anchor = x + sign * (depth - CHARACTER * len(arrow.label) + 4), "end" if sign < 0 else "start"
    if arrow.label:
        y = (start + end) / 2 + 4
        drawn.append(
            f'<text class="label" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{html.escape(arrow.label)}</text>'
        )
    return drawn


def _path(commands: str, *, dashed: bool = False) -> str:
    return f'<path class="arrow{" dashed" * dashed}" d="{commands}" marker-end="url(#tip)"/>'
