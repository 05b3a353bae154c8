"""Comparison -> text for people: verdict and reasons first, then the waterfall, then the rows that matter."""

from traceanalyzer.comparison import formatting
from traceanalyzer.comparison.result import Comparison, Word
from traceanalyzer.model.units import format_ns
from traceanalyzer.render.text.job import ranks_in_words
from traceanalyzer.render.text.page import Page
from traceanalyzer.render.words.escape import printable, shortened
from traceanalyzer.version import __version__

_COLOURS = {Word.SLOWER: "red", Word.FASTER: "green"}
_REASONS, _COUNTERS, _REGIONS, _PARTS, _ROWS, _FAULTS, _RANKS = 4, 5, 4, 6, 6, 4, 4  # 60 lines as a rule
_REASON_WIDTHS = 2  # lines that one reason may take
_BAR = 12


def render_comparison(
    found: Comparison, *, width: int = 80, colour: bool = False, ascii_only: bool = False, quiet: bool = False
) -> str:
    """The comparison as text; `quiet` keeps the verdict and its reasons."""
    page = Page(width, colour, ascii_only)
    _verdict(page, found)
    if not quiet:
        _axes(page, found)
        _regions(page, found)
        _waterfall(page, found)
        _rows(page, found)
        _faults(page, found)
        _footer(page, found)
    return page.text()


def _verdict(page: Page, found: Comparison) -> None:
    word = found.verdict.word
    page.sides(f"traceanalyzer {__version__}  compare", str(word), style=_COLOURS.get(word, "bold"))
    for name, side in (("BASE", found.base), ("NEW", found.new)):
        page.put(f"{name:4}  {shortened(printable(formatting.source_line(side)), page.width - 6)}")
    page.blank()
    page.put(found.verdict.headline, style="bold")
    room = _REASON_WIDTHS * (page.width - 4)
    for reason in found.verdict.because[:_REASONS]:
        shown = printable(reason)
        while len(shown) > room - 2 and "; " in shown:
            shown = shown.rpartition("; ")[0]
        page.put(f"- {shortened(shown, room - 2)}", indent=2, hang=2)
    if found.verdict.settle:
        page.put(f"To settle it: {found.verdict.settle}.")


def _axes(page: Page, found: Comparison) -> None:
    page.blank()
    step, device = found.axes.step, found.axes.device
    rows: list[tuple[str, int, int, str, str]] = []
    if step is not None:
        raw = step.base_raw_ns, step.new_raw_ns
        recorded = f"recorded {formatting.times(step.base_recorded_ns, step.new_recorded_ns)}"
        note = recorded if raw == (step.base_ns, step.new_ns) else f"raw {formatting.times(*raw)}"
        rows.append(("Step", step.base_ns, step.new_ns, str(step.word), note))
        if step.base_cpu_ns and step.new_cpu_ns:
            rows.append(("CPU", step.base_cpu_ns, step.new_cpu_ns, "", "unblocked, raw"))
    if device is not None:
        note = f"beyond noise {formatting.signed_ns(device.real_ns)}"
        rows.append(("GPU", device.base_ns, device.new_ns, str(device.word), note))
    for name, base_ns, new_ns, word, note in rows:
        change = formatting.signed_percent(new_ns / base_ns - 1) if base_ns else ""
        page.put(f"{name:7} {formatting.times(base_ns, new_ns):22} {change:>9}  {word:8} {note}")
    counters = formatting.changed(found)
    if not counters:
        page.put("Exact   no counter differs: launches, work, copies, waits and allocations are the same")
    for at, one in enumerate(counters[:_COUNTERS]):
        line = f"{'Exact' if at == 0 else '':7} {one.counter:20} {formatting.counter_values(one):>18}  "
        page.put(line + shortened(printable(", ".join(one.where)), page.width - len(line)))
    if len(counters) > _COUNTERS:
        page.put(f"and {len(counters) - _COUNTERS} more", indent=8)


def _regions(page: Page, found: Comparison) -> None:
    if not found.regions:
        return
    page.blank()
    columns = f"{'BASE':>9}  {'NEW':>9}  {'change':>9}"
    page.sides(f"Regions ({found.regions[0].of} time of a step)", columns, style="bold")
    for one in found.regions[:_REGIONS]:
        values = "  ".join(f"{cell:>9}" for cell in formatting.region_values(one))
        page.sides(shortened(printable(formatting.region_words(one)), page.width - len(values) - 2), values)


def _waterfall(page: Page, found: Comparison) -> None:
    fall = found.waterfall
    if fall is None or (fall.base_ns == fall.new_ns and not any(part.delta_ns for part in fall.parts)):
        return
    page.blank()
    page.put("From BASE's step to NEW's", style="bold")
    parts = [part for part in fall.parts if part.delta_ns]
    largest = max((abs(part.delta_ns) for part in parts), default=1)
    page.put(f"{format_ns(fall.base_ns):>10}  BASE")
    for part in parts[:_PARTS]:
        bar = "█" * max(round(_BAR * abs(part.delta_ns) / largest), 1)
        name = f"{part.group} {part.name}" if part.group != "compute" else part.name
        left = f"{formatting.signed_ns(part.delta_ns):>10}  {bar:{_BAR}}  "
        page.lines.append((left + shortened(printable(name), page.width - len(left))).rstrip())
    rest = sum(part.delta_ns for part in parts[_PARTS:])
    if parts[_PARTS:]:
        page.put(f"{formatting.signed_ns(rest):>10}  {'':{_BAR}}  {len(parts) - _PARTS} other parts")
    page.put(f"{format_ns(fall.new_ns):>10}  NEW")


def _rows(page: Page, found: Comparison) -> None:
    rows = formatting.real(found)
    if not rows:
        return
    page.blank()
    page.put(f"Work that changed, beyond noise ({len(rows)} of {len(found.rows)})", style="bold")
    for row in rows[:_ROWS]:
        values = formatting.row_values(row)
        left = f"{row.word:7} {formatting.signed_ns(row.delta_ns):>9}  "
        room = max(page.width - len(left) - len(values) - 2, 16)
        name = shortened(printable(formatting.row_name(row)), room)
        page.put(shortened(f"{left}{name}  {values}", page.width))
        if row.note:
            page.put(shortened(printable(row.note.partition("; ")[0]), page.width - 19), indent=19)


def _faults(page: Page, found: Comparison) -> None:
    faults = [fault for fault in found.faults if fault.status != "unchanged"]
    kept = len(found.faults) - len(faults)
    if not found.faults:
        return
    page.blank()
    page.put("Faults" + f" ({kept} unchanged)" * bool(kept), style="bold")
    for fault in faults[:_FAULTS]:
        page.put(shortened(printable(formatting.fault_line(fault)), page.width - 2), indent=2)
    if len(faults) > _FAULTS:
        page.put(f"{len(faults) - _FAULTS} others", indent=2)


def _footer(page: Page, found: Comparison) -> None:
    page.blank()
    rungs = ", ".join(f"{rung} {share:.0%}" for rung, share in found.rungs.items() if share >= 0.005)
    page.put(f"GPU time matched by: {rungs}".replace("%", " %"))
    alike: dict[str, list[int]] = {}
    for one in found.ranks:
        ns = [("missing" if at is None else format_ns(at)) for at in (one.base_ns, one.new_ns)]
        change = f"{' (other work)' * one.other_work}: {ns[0]} -> {ns[1]}  {one.word}"
        alike.setdefault(change, []).append(one.rank or 0)
    for change, ranks in list(alike.items())[:_RANKS]:
        page.put(f"{ranks_in_words(ranks)}{change}")
    if len(alike) > _RANKS:
        page.put(f"and {len(alike) - _RANKS} more")
    for note in found.notes[:5]:
        page.put(f"note: {shortened(printable(note), 2 * page.width - 8)}", hang=6)
