"""Regions beside the model that take much of a step: what could be done once, together, elsewhere or not at all."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Self, get_args

import numpy as np

from traceanalyzer.model import intervals
from traceanalyzer.model.arrays import Mask, Rows, distinct, pick
from traceanalyzer.model.finding import Severity
from traceanalyzer.model.short_names import block_words, marked_functions
from traceanalyzer.model.step_times import Saving
from traceanalyzer.model.text_queries import regex
from traceanalyzer.model.texts import Texts
from traceanalyzer.model.trace import ints_at
from traceanalyzer.regions.regions import KERNEL_FLOOR_NS, DropRegion, Regions
from traceanalyzer.regions.tree import AFTER_BACKWARD, LOADING, MIN_REPEATS, Tree, subtree_totals
from traceanalyzer.replay.rewrites import GraphLaunch
from traceanalyzer.replay.saving import Forecast
from traceanalyzer.tensors.chains import MIN_CHAIN, chain_length
from traceanalyzer.tensors.flow import Flow
from traceanalyzer.tensors.ops.table import Kind, is_view, op_row
from traceanalyzer.timeline.names import OPTIMIZER_MARK
from traceanalyzer.timeline.selection import Events
from traceanalyzer.timeline.user_code import package_of

_BlockRemedy = Literal["one-call", "chain", "recurrence", "lists", "groups"]
Remedy = Literal[
    _BlockRemedy, "wrapper", "loop", "function", "after-backward", "package", "weights", "host", "optimizer"
]
_OF_BLOCKS = get_args(_BlockRemedy)
ON_HOST = ("host", "optimizer")  # of code that launches next to nothing

# Ops of a model's layers, and other arithmetic that a program is for.
_LAYER_KINDS = (Kind.GEMM, Kind.CONVOLUTION, Kind.ATTENTION, Kind.RECURRENT, Kind.LINEAR_ALGEBRA, Kind.FFT)
_CELL = regex(r"_cell$")
_VECTOR = regex(r"::(mv|addmv|dot|vdot)$")  # a product with one vector is no layer
_LAYER_NODE = regex(r"^(Mm|Addmm|Bmm|Baddbmm|Linear|Convolution\w*|\w*Attention\w*|\w*Rnn\w*|ThnnFused\w*)Backward\d*$")
WEIGHTS = "ParametrizationList"  # a module that computes a weight each time that it is read: torch.nn.utils.parametrize
# Modules that only hand on what a step calls, such as Lightning's training_step.
_PASSES_ON = regex(r"^(DistributedDataParallel|FullyShardedDataParallel|DataParallel|OptimizedModule)$")
# A metric's forward() adds to its state, and then computes the batch's value: its update() does the first alone.
_METRIC_FORWARD = regex(
    r"^torchmetrics/(metric|collections|wrappers/\w+)\.py\(\d+\): (_compute_and_reduce|_?forward\w*)$"
)
_METRIC_UPDATE = regex(r"^torchmetrics/\S+: update$")
FORWARD = regex(r": (_?forward|_?call_impl|__call__)$")
_LISTS = regex(r"_foreach_|_fused_")
MIN_CALLS = 16  # times that a block or function runs in a step: what runs less often may be layers of a model
_MOST = 0.85  # share of a region's CPU time in a region inside it that is named in its place; chosen
MIN_SHARE = Severity.HIGH.least_share  # of the predicted step, of a region: that of a severe finding
_MAIN_OPS = 3
_SHORT = 36  # letters of a block's ops where its place is named, too: both fit a title
# Cheaper metrics saved 0.55 and a cheaper gradient norm 0.3 of what the replay without them saves; two programs, H200.
_KEPT_IN_PART, _KEPT = 0.5, ("loop", "function", "after-backward", "package")
_REPEATED = 0.4  # share of the launches of a step in calls of one function from which on these are named; chosen
_LOOPS = 0.5  # share of a function's launches in blocks that repeat, from which on it is a loop; chosen
_TRAINS = regex(r"AccumulateGrad$|Backward\d*$|^(torch::|torch\.)?distributed|^c10d::|reducer::|_foreach_|_fused_")
_LAYERS = 0.1  # share of code in layers from which on it is a pass of a model: metrics have a product, too; chosen
_WHOLE = 0.9  # share of the predicted step above which a region is the program itself; chosen
LAUNCH_NS = 100_000.0  # from so much CPU time per launch on it does something else: an op takes 5 to 20 us, H200 host
_LAUNCHES_NS = 50_000.0  # the same for code after backward, where ops on CPU tensors stand beside launches


@dataclass(frozen=True, slots=True)
class Responsible:
    """A region, or several of one name.

    Attributes:
        remedy: "one-call", "lists" (of tensors) or "groups" (of parameters) of a block that repeats, "chain" of one
            that needs the repeat before, "recurrence" of one with a recurrent cell, "wrapper" of a function around
            layers, "loop" of a function whose launches mostly come from such blocks, "function" of one that runs often
            or is no part of the model, "package" of calls of a package, "weights" of weights that are computed, "host"
            and "optimizer" of what computes on the CPU.
        words: a noun phrase that names it.
        share: predicted CPU time as a share of the predicted step.
        calls: times that it runs in a step.
        edit: what the remedy does to the program.
        within: text about the package's function that takes most of it.
    """

    nodes: tuple[int, ...]
    remedy: Remedy
    words: str
    share: float
    calls: float
    edit: DropRegion | GraphLaunch
    within: str = ""

    @property
    def repeats(self) -> bool:
        """Whether it is a block that repeats."""
        return self.remedy in _OF_BLOCKS


def responsible_regions(regions: Regions, packages: Collection[str | None]) -> Iterator[Responsible]:
    """Regions without layers that take much of the predicted step, longest first; `packages` are the program's."""
    tree, share = regions.tree, regions.share
    kinds = list(zip(tree.kind, tree.name, strict=True))
    optimizers = (kind == "annotation" and bool(OPTIMIZER_MARK.match(name)) for kind, name in kinds)
    layers, stepping = _holds_layers(regions), regions.below(np.flatnonzero(list(optimizers)).tolist())
    library = np.array([kind == "function" and package_of(name) not in packages for kind, name in kinds])
    apart = _apart_from_model(regions, library, layers & ~stepping, stepping)
    names: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for node, (kind, name) in enumerate(kinds):
        caller = _node_around(tree, node, ("function",)) if library[node] and apart[node] else 0
        if caller and not library[caller]:
            words = f"{package_of(name)}, called in {tree.name[caller]}"
            names["package", words].append(node)
        elif kind in ("function", "annotation", "block") or name in (WEIGHTS, AFTER_BACKWARD):
            names[kind, name].append(node)
    found = []
    for (kind, name), nodes in names.items():
        if share[nodes].sum() < MIN_SHARE:
            continue
        region = _region(regions, kind, name, nodes, stepping)
        own = regions.below(nodes)
        often = region.calls >= MIN_CALLS or (kind != "block" and _works_on_host(regions, own))
        changeable = not library[nodes].any()
        if kind == "phase" and not _only_evaluates(regions, own, layers):
            continue
        least = _LAYERS * regions.predicted_ns[own].sum() if kind == "package" else 0.0
        if kind != "phase" and regions.predicted_ns[own & layers & ~stepping].sum() > least:
            if kind == "function" and region.calls >= MIN_CALLS and changeable:
                found.append(_wrapper(regions, region))
        elif kind == "annotation" and regions.launches[own].any() and stepping[nodes].all():
            continue
        elif region.share <= _WHOLE and ((often and changeable) or kind == "phase" or apart[nodes].all()):
            within = _mostly_in(regions, own & library, region.share) if kind in ("function", "package") else ""
            if kind == "package":
                region = _without_values(regions, region)
            elif region.remedy == "function" and (block := _block_within(regions, own, stepping)):
                region, within = replace(region, remedy="loop", words=f"a loop in {name}"), f", as in {block}"
            if region.remedy in _KEPT and region.calls < MIN_CALLS and isinstance(region.edit, DropRegion):
                region = replace(region, edit=replace(region.edit, least_part=_KEPT_IN_PART))
            found.append(replace(region, within=within))
    # A function with most of the code after backward names it better.
    found = [each for each in found if each.share >= MIN_SHARE]
    found.sort(key=lambda each: (each.remedy == "after-backward", -each.share))
    yield from _innermost(regions, found)


def repeated_function(
    regions: Regions, events: Events, packages: Collection[str | None]
) -> tuple[str, float, float] | None:
    """(function, its calls and its launches per step) of what launches most of the step in several calls, if any.

    On all threads: a hook may run on the thread of backward. The program's own functions come before a package's.
    """
    code, work, pieces = events.user_code, events.work, regions.tree.pieces
    if work is None or not len(code.start_ns):
        return None
    first, end = pieces.start_ns[0], pieces.end_ns[-1]
    _, entries = np.unique(work.call, return_index=True)
    entries = entries[(work.call_start_ns[entries] >= first) & (work.call_start_ns[entries] < end)]
    tid = ints_at(events.trace.lanes.cpu, "tid", work.call[entries])
    frames = code.outward(code.open_at(work.call_start_ns[entries], tid))
    pairs = [launch * len(code.names) + code.code[frame] for launch, frame in frames]
    # A function that calls itself launches once what it launches.
    each = distinct(np.concatenate([np.empty(0, np.int64), *pairs])) % len(code.names)
    launches = np.bincount(each, minlength=len(code.names)) / regions.steps
    inside = (code.start_ns >= first) & (code.end_ns <= end)
    calls = np.bincount(code.code[inside], minlength=len(code.names)) / regions.steps
    large = launches * regions.steps >= _REPEATED * max(len(entries), 1)
    found = np.flatnonzero(large & (calls >= MIN_REPEATS)).tolist()
    found.sort(key=lambda name: (package_of(str(code.names[name])) not in packages, -launches[name], calls[name]))
    return next(((str(code.names[name]), float(calls[name]), float(launches[name])) for name in found), None)


def _mostly_in(regions: Regions, functions: Mask, share: float) -> str:
    """Text about the function that takes most of this share of the step; empty if none does."""
    spent: defaultdict[str, float] = defaultdict(float)
    for node in np.flatnonzero(functions).tolist():
        spent[regions.tree.name[node]] += float(regions.share[node])
    name, most = max(spent.items(), key=lambda item: item[1], default=("", 0.0))
    return f", mostly in {name}" if name and most >= _MOST * share else ""


def _region(regions: Regions, kind: str, name: str, nodes: list[int], stepping: Mask) -> Responsible:
    own, calls = regions.below(nodes), _calls(regions, kind, nodes)
    share = float(regions.predicted_ns[own].sum()) / regions.steps / regions.step_ns
    remedy: Remedy = "function"
    if kind != "block":
        if stepping[nodes].all():
            remedy = "optimizer"
        elif kind == "module":
            remedy, name = "weights", _weights_words(regions.tree, nodes)
        elif calls < MIN_CALLS and _works_on_host(regions, own):
            remedy = "host"
        elif kind == "package":
            remedy = "package"
        elif kind == "phase":
            remedy, function = "after-backward", _function_with_most(regions, nodes, share)
            name = f"{function}, after backward" if function else f"{name} ({', '.join(_main_ops(regions, own))})"
        edit = regions.without(own, on_host=remedy in ON_HOST)
        return Responsible(tuple(nodes), remedy, name, share, calls, edit)
    ops = name.split(", ")
    changing = [op for op in ops if not is_view(op)] or ops
    remedy = "one-call"
    if any(map(_CELL.search, ops)):
        remedy = "recurrence"
    elif all(map(_LISTS.search, changing)):
        remedy = "groups"
    elif stepping[nodes].all() or changing[-1].endswith("_"):
        remedy = "lists"
    # Each step of a recurrence waits for the one before: one call launches as many kernels, which take as long.
    floor_ns = 0.0 if remedy == "recurrence" else KERNEL_FLOOR_NS
    edit = regions.as_one(nodes, floor_ns)
    words, place = block_words(calls, name), _place_of(regions.tree, nodes)
    if place:
        words = f"{block_words(calls, name, _SHORT)} in {marked_functions(place.rpartition('#')[2])}"
    return Responsible(tuple(nodes), remedy, words, share, calls, edit)


def _weights_words(tree: Tree, nodes: list[int]) -> str:
    """`parametrized weights (_SpectralNorm)`: with the modules that compute them."""
    inner = [tree.name[child] for child in np.flatnonzero(np.isin(tree.parent, nodes)) if tree.kind[child] == "module"]
    return f"parametrized weights ({', '.join(dict.fromkeys(inner))})" if inner else "parametrized weights"


def _place_of(tree: Tree, nodes: list[int]) -> str:
    """The function or annotation around all nodes, empty if there is none or if they are in several."""
    around = {_node_around(tree, node, ("function", "annotation")) for node in nodes}
    names = {tree.name[node] if node else "" for node in around}
    return names.pop() if len(names) == 1 else ""


def _block_within(regions: Regions, own: Mask, stepping: Mask) -> str:
    """The largest block in a region that launches mostly from independent blocks, in words; empty of other regions."""
    tree = regions.tree
    blocks = [node for node in np.flatnonzero(own).tolist() if tree.kind[node] == "block"]
    if regions.launches[regions.below(blocks)].sum() < _LOOPS * regions.launches[own].sum() or not blocks:
        return ""
    largest = max(blocks, key=lambda node: float(regions.share[node]))
    block = _region(regions, "block", tree.name[largest], [largest], stepping)
    fits = block.remedy == "one-call" and block.calls >= MIN_CALLS
    return block_words(block.calls, tree.name[largest], _SHORT) if fits else ""


def _as_chain(region: Responsible, regions: Regions, flow: Flow | None) -> Responsible:
    """The region, with the remedy of a loop whose repeats need the one before where tensors show that."""
    loop = region.remedy == "loop"
    nodes = np.flatnonzero(regions.below(region.nodes)) if loop else region.nodes
    places = [block for block in regions.tree.blocks if block.node in nodes]
    if flow is None or region.remedy not in ("one-call", "lists", "loop"):
        return region
    length = chain_length(flow, (np.append(place.starts_ns, place.end_ns) for place in places))
    if (length or 0) < MIN_CHAIN:
        return region
    if loop:
        return replace(region, remedy="function")
    edit = GraphLaunch([place.starts_ns[0] for place in places], [place.end_ns for place in places])
    return replace(region, remedy="chain", edit=edit)


def _only_evaluates(regions: Regions, own: Mask, layers: Mask) -> bool:
    """Whether nodes launch work, have next to no layers, and handle no gradients, communication or optimizer."""
    all_ns, of_layers_ns = (regions.predicted_ns[nodes].sum() for nodes in (own, own & layers))
    launches = all_ns <= _LAUNCHES_NS * regions.launches[own].sum()
    return bool(launches and of_layers_ns <= _LAYERS * all_ns) and not any(map(_TRAINS.search, _main_ops(regions, own)))


def _function_with_most(regions: Regions, nodes: list[int], share: float) -> str:
    """The innermost function with most of some nodes' share of the step; empty if there is none."""
    found, tree = "", regions.tree
    while inside := [
        child for child in np.flatnonzero(np.isin(tree.parent, nodes)).tolist() if regions.share[child] >= _MOST * share
    ]:
        found, nodes = tree.name[inside[0]] if tree.kind[inside[0]] == "function" else found, inside
    return found


def _main_ops(regions: Regions, nodes: Mask) -> list[str]:
    """The ops that take most of the CPU time of some nodes, the first three."""
    spent: defaultdict[str, float] = defaultdict(float)
    for node in np.flatnonzero(nodes).tolist():
        if regions.tree.kind[node] in ("op", "backward"):
            spent[regions.tree.name[node].removeprefix("aten::")] += float(regions.predicted_ns[node])
    return sorted(spent, key=lambda name: -spent[name])[:_MAIN_OPS]


def _calls(regions: Regions, kind: str, nodes: list[int]) -> float:
    """How often a region runs in a step; a function that runs on into another phase is in both."""
    tree, calls = regions.tree, defaultdict[int, float](float)
    for node in nodes:
        phase = node
        while kind != "block" and tree.depth[phase] > 1:
            phase = int(tree.parent[phase])
        calls[phase if tree.kind[phase] == "phase" else 0] += float(tree.calls[node]) / regions.steps
    return max(calls.values())


def _wrapper(regions: Regions, region: Responsible) -> Responsible:
    """What a function around layers does itself: its own Python, and ops that launch nothing."""
    tree = regions.tree
    own = np.zeros(len(tree.parent), bool)
    own[list(region.nodes)] = True
    idle = np.array([kind == "op" for kind in tree.kind]) & (regions.launches == 0)
    own |= idle & own[tree.parent]
    share = float(regions.predicted_ns[own].sum()) / regions.steps / regions.step_ns
    return replace(region, remedy="wrapper", share=share, edit=regions.without(own))


def _without_values(regions: Regions, region: Responsible) -> Responsible:
    """The region; of metrics whose forward() is called, update() stays."""
    own, names = regions.below(region.nodes), regions.tree.name
    forward, update = (
        [node for node in np.flatnonzero(own).tolist() if called.match(names[node])]
        for called in (_METRIC_FORWARD, _METRIC_UPDATE)
    )
    kept = own & regions.below(update)
    return replace(region, edit=regions.without(own & ~kept)) if forward and update else region


def _works_on_host(regions: Regions, own: Mask) -> bool:
    """Whether the CPU does something else there than to launch work."""
    return bool(regions.predicted_ns[own].sum() > LAUNCH_NS * regions.launches[own].sum())


def _apart_from_model(regions: Regions, library: Mask, layers: Mask, stepping: Mask) -> Mask:
    """Which nodes are calls of code without layers, in no module with layers but as its hook or computed weight."""
    tree = regions.tree
    phases = [node for node, name in enumerate(tree.name) if (tree.kind[node], name) == ("phase", LOADING)]
    named_forward = np.array([bool(FORWARD.search(name)) for name in tree.name])
    steps, forward = (subtree_totals(tree.parent, mask.astype(float)) > 0 for mask in (stepping, named_forward))
    of_layers_ns, all_ns = (
        subtree_totals(tree.parent, ns) for ns in (np.where(layers, regions.predicted_ns, 0), regions.predicted_ns)
    )
    own = np.array([kind == "function" for kind in tree.kind]) & ~library
    model = of_layers_ns > np.where(own, 0, _LAYERS * all_ns)
    inside = np.zeros(len(tree.parent), bool)
    for node in range(1, len(inside)):
        kind, above = tree.kind[node], tree.parent[node]
        in_module = tree.kind[above] == "module" and not _PASSES_ON.match(tree.name[above])
        hook = kind == "function" and in_module and not forward[node]
        inside[node] = not (hook or tree.name[node] == WEIGHTS) and (inside[above] or (in_module and model[above]))
    calls = np.array([kind != "block" for kind in tree.kind]) & bool(model.any())
    return np.asarray(calls & ~(inside | model | steps | regions.below(phases)))


def _node_around(tree: Tree, node: int, kinds: Collection[str]) -> int:
    """The innermost node of these kinds around a node, 0 for none."""
    node = int(tree.parent[node])
    while node > 0 and tree.kind[node] not in kinds:
        node = int(tree.parent[node])
    return max(node, 0)


def _innermost(regions: Regions, found: list[Responsible]) -> Iterator[Responsible]:
    """Each region, or the one inside it that has most of its time; none that is mostly in others."""
    taken = np.zeros(len(regions.tree.parent), bool)
    for region in found:
        inside = regions.below(region.nodes)
        if 2 * regions.predicted_ns[inside & taken].sum() > regions.predicted_ns[inside].sum():
            continue
        taken |= inside
        blocks = [each for each in found if each.remedy in _OF_BLOCKS]
        most = (each for each in blocks if inside[list(each.nodes)].all() and each.share >= _MOST * region.share)
        yield next(most, region)


def _holds_layers(regions: Regions) -> Mask:
    kinds = zip(regions.tree.kind, regions.tree.name, strict=True)
    layers = [
        (kind == "op" and op_row(name).kind in _LAYER_KINDS and not _VECTOR.search(name))
        or (kind == "backward" and bool(_LAYER_NODE.search(name)))
        for kind, name in kinds
    ]
    return np.array(layers)


@dataclass(frozen=True, slots=True)
class Leading:
    """The responsible regions with what their remedies save, the one with most CPU time first.

    Attributes:
        regions: all regions of the step.
        each: (region, saving).
        spans: when each function or annotation runs in the whole trace; nothing of blocks and wrappers.
        repeated: (function, its calls and its launches per step) that launches most of the step; None for none.
    """

    regions: Regions
    each: tuple[tuple[Responsible, Saving], ...]
    spans: tuple[intervals.Set, ...]
    repeated: tuple[str, float, float] | None = None

    @classmethod
    def build(cls, forecast: Forecast, regions: Regions, events: Events, flow: Flow | None) -> Self:
        code = events.user_code
        outermost = code.names[distinct(code.code[code.caller < 0])]
        packages = {None, *map(package_of, map(str, outermost))}
        responsible = (_as_chain(region, regions, flow) for region in responsible_regions(regions, packages))
        each = tuple((region, forecast.saving([region.edit])) for region in responsible)
        spans = tuple(_spans_of(region, regions.tree, events) for region, _ in each)
        return cls(regions, each, spans, repeated_function(regions, events, packages))

    def named(self, name: str | None) -> Responsible | None:
        """The function or annotation of that name that computes on the CPU, None if it is not responsible."""
        return next((one for one, _ in self.each if one.words == name and one.remedy in ON_HOST), None)

    def around(self, instants: Rows) -> Rows:
        """Position in `each` of the region that the CPU is in, -1 for none; of blocks in replayed steps only."""
        pieces, place = self.regions.tree.pieces, np.full(len(instants), -1, np.int64)
        replayed = self.is_replayed(instants)
        node = np.where(replayed, pieces.node[pieces.at(instants)], -1)
        for number in range(len(self.each) - 1, -1, -1):
            inside = pick(self.regions.below(self.each[number][0].nodes), node, False)
            running = intervals.covered(self.spans[number], instants, instants + 1) > 0
            place[inside | (running & ~replayed)] = number
        return place

    def is_replayed(self, instants: Rows) -> Mask:
        """Whether each instant lies in a replayed step."""
        pieces = self.regions.tree.pieces
        at = pieces.at(instants)
        return (instants >= pieces.start_ns[at]) & (instants < pieces.end_ns[at])


def _spans_of(region: Responsible, tree: Tree, events: Events) -> intervals.Set:
    if region.repeats or region.remedy == "wrapper":
        return intervals.EMPTY
    code, nesting = events.user_code, events.nesting
    names = {tree.name[node] for node in region.nodes}
    frames = np.flatnonzero(Texts(code.code, code.names).one_of(*names))
    rows = np.flatnonzero(nesting.annotation)
    rows = rows[Texts.column(events.trace.lanes.cpu, "name", rows).one_of(*names)]
    starts = np.concatenate((code.start_ns[frames], nesting.start_ns[rows]))
    return intervals.union(starts, np.concatenate((code.end_ns[frames], nesting.end_ns[rows])))
