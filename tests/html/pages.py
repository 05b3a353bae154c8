"""Pages of traces, what a parser finds in them, and the JSON documents that they quote."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.support.cached_reports import analysed, reported
from tests.support.trace_builder import TraceBuilder
from traceanalyzer.allocator.memory_view import MemoryView, ops_by_memory
from traceanalyzer.model.analysis import Analysis
from traceanalyzer.model.errors import Unavailable
from traceanalyzer.model.trace import Trace
from traceanalyzer.render.data.json import render_json
from traceanalyzer.render.data.table import facts_fields, memory_fields, ops_fields, table_json
from traceanalyzer.render.html.document import render_html
from traceanalyzer.render.html.markup import UNITS
from traceanalyzer.render.html.page_data import Analysed, Page, page_of
from traceanalyzer.report.diagnosis import report_of
from traceanalyzer.report.facts import facts_of
from traceanalyzer.roofline.op_rates import OpWork

# Numbers on the page that are neither quoted from a document nor marked as drawn or summed here.
LOOSE = """() => {
  const allowed = "[data-path], .drawn, .derived, .ops, svg, nav, .version, .ordinal, .rank, script, style, "
    + "h2, .flame, .found, footer";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const loose = [];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (/[0-9]/.test(node.data) && !node.parentElement.closest(allowed)) {
      const row = node.parentElement.closest("th, dt, caption");
      if (!row) loose.push(node.data);
    }
  }
  return loose;
}"""
QUOTED = """() => [...document.querySelectorAll("[data-path]")].map(
  (one) => [one.dataset.path, one.dataset.unit, one.getAttribute("value"), one.textContent])"""
_EMPTY = {"meta", "input", "br", "wbr", "link", "img"}


@dataclass
class Element:
    """An element of a page: its attributes, and the text in it."""

    name: str
    attributes: dict[str, str | None]
    text: str = ""
    parents: tuple[str, ...] = ()


@dataclass
class Parsed(HTMLParser):
    """All elements of a page in the order in which they begin."""

    elements: list[Element] = field(default_factory=list)
    unclosed: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), parents=tuple(one.name for one in self.unclosed))
        self.elements.append(element)
        if tag not in _EMPTY:
            self.unclosed.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs), parents=tuple(one.name for one in self.unclosed)))

    def handle_endtag(self, tag: str) -> None:
        assert self.unclosed, f"</{tag}> closes nothing"
        assert self.unclosed[-1].name == tag, f"</{tag}> closes <{self.unclosed[-1].name}>"
        self.unclosed.pop()

    def handle_data(self, data: str) -> None:
        for element in self.unclosed:
            element.text += data

    def having(self, attribute: str) -> list[Element]:
        return [element for element in self.elements if attribute in element.attributes]

    def of_class(self, name: str) -> list[Element]:
        return [one for one in self.elements if name in (one.attributes.get("class") or "").split()]

    def texts_of(self, name: str) -> list[str]:
        """Texts of what has this class."""
        return [one.text for one in self.of_class(name)]

    def named(self, tag: str, within: str = "") -> list[Element]:
        """Elements of this tag, in any that has the other one."""
        return [one for one in self.elements if one.name == tag and (not within or within in one.parents)]

    def texts(self, tag: str, within: str = "") -> list[str]:
        return [one.text for one in self.named(tag, within)]

    def values(self, attribute: str) -> list[str]:
        """The attribute of all elements that have it."""
        return [str(one.attributes[attribute]) for one in self.having(attribute)]


def parsed(html: bytes) -> Parsed:
    """The page's elements; fails where they are not closed in order."""
    made = Parsed()
    made.feed(html.decode())
    made.close()
    assert made.unclosed == []
    return made


@lru_cache(maxsize=4)
def page(path: Path, confidential: bool = False) -> Page:
    """The page of one trace."""
    analysis = analysed(path)
    return page_of(reported(path), [(analysis.trace.meta.rank, analysis)], confidential=confidential)


def page_of_job(traces: Mapping[int, Trace], **options: Any) -> tuple[Page, Analysed]:
    """The page of several ranks, and what it was made of."""
    analyses = [(rank, Analysis(trace)) for rank, trace in sorted(traces.items())]
    return page_of(report_of(analyses), analyses, **options), analyses


def rendered(path: Path, confidential: bool = False) -> bytes:
    """The file."""
    return render_html(page(path, confidential))


def documents(page: Page, analyses: Sequence[Analysis]) -> dict[str, Any]:
    """What the commands `diagnose`, `ops`, `memory` and `facts` say as JSON; those of a rank with its position."""
    made: dict[str, Any] = {"diagnose": json.loads(render_json(page.report))}
    made["accounting"] = made["diagnose"]["accounting"]
    for i, analysis in enumerate(analyses):
        source, trace = analysis.trace.meta.source, analysis.trace
        made[f"facts-{i}"] = json.loads(table_json(source, facts_fields(facts_of(analysis))))
        try:
            made[f"ops-{i}"] = json.loads(table_json(source, ops_fields(analysis.index(OpWork))))
            view = analysis.index(MemoryView)
            made[f"memory-{i}"] = json.loads(table_json(source, memory_fields(view, ops_by_memory(trace))))
        except Unavailable:
            pass
    return made


def value_at(documents: Mapping[str, Any], path: str) -> Any:
    """What stands at `document#/pointer`."""
    document, _, pointer = path.partition("#/")
    value = documents[document]
    for part in pointer.split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def wrong(quotes: Sequence[tuple[str, str, str | None, str]], documents: Mapping[str, Any]) -> list[str]:
    """Of (path, unit, exact value, text) on the page those that the documents do not say."""
    found = []
    for path, unit, value, text in quotes:
        there = value_at(documents, path)
        said = UNITS[unit](there)
        same = unit == "text" or json.loads(value or "null") == there
        if not same or " ".join(said.split()) != " ".join(text.split()):
            found.append(f"{path}: {there!r} is shown as {text!r}, with {value!r}")
    return found


def quotes(page: Parsed) -> list[tuple[str, str, str | None, str]]:
    """(path, unit, exact value, text) of all that a page quotes."""
    return [
        (str(one.attributes["data-path"]), str(one.attributes["data-unit"]), one.attributes.get("value"), one.text)
        for one in page.having("data-path")
    ]


def shown(content: object) -> Parsed:
    """A part of a page."""
    return parsed(f"<main>{content}</main>".encode())


NASTY = (
    "<script>alert(1)</script>",
    "</script><script>hacked = 1</script>",
    "<img src=x onerror=hacked=1>",
    '" onload="hacked=1" \'><svg/onload=hacked=1>',
    "{{data}} {{script}} &lt;b&gt; &#60;i&#62;",
    "]]> --> <!-- <style>*{display:none}</style>",
    "\u202egnirts \u2066x\u2069 \u200b\u2028\u2029\x00\x07\x1b[31m\x85",
    "half \ud800 of a pair",
    "x" * 100_000,
    "javascript:alert(1)",
)


def hostile_trace() -> TraceBuilder:
    """A loop whose ops, kernels, annotations, modules and lines have such names."""
    made = TraceBuilder(record_shapes=1, profile_memory=1, with_stack=1)
    nasty = [name.encode("utf-8", "replace").decode() for name in NASTY]
    for step in range(4):
        begin = step * 10_000_000
        made.step(step, begin, 10_000_000)
        for i, name in enumerate(nasty):
            at = begin + 200_000 + i * 900_000
            made.annotation(name, at, 800_000)
            made.python(f"train.py(7): {name[:2000]}", at, 800_000, python_id=step * 100 + i + 1)
            made.op(name, at + 1_000, 500_000, **{"Input Dims": [[4, 4]], "Input type": [name[:50]]})
            made.launch("cudaLaunchKernel", at + 2_000, 5_000, step * 100 + i + 1)
            made.launch("cudaStreamSynchronize", at + 10_000, 400_000, step * 100 + i + 51)
            made.kernel(at + 50_000, 300_000, step * 100 + i + 1, name=name)
            made.memory(at + 3_000, 4 << 20, address=i + 1, allocated=(4 + i) << 20, reserved=64 << 20)
    return made


def busy_loop(launches: int) -> TraceBuilder:
    """Steps of many short kernels that the CPU launches too slowly, under ten levels of ops."""
    made = TraceBuilder()
    for step in range(3):
        begin = step * 20_000_000
        made.step(step, begin, 20_000_000)
        for i in range(launches):
            at = begin + 100_000 + i * 40_000
            for depth in range(10):
                made.op(f"aten::level{depth}", at + depth * 100, 30_000 - depth * 200)
            made.launched((at + 5_000, 4_000), (at + 12_000, 3_000), 1 + step * launches + i)
    return made
