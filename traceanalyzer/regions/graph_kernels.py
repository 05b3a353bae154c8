"""Kernels of replayed CUDA graphs in the tree of code: below the call that replays a graph, its repeated blocks."""

from dataclasses import replace

import numpy as np

from traceanalyzer.model.arrays import Rows, grouped, numbered, pick
from traceanalyzer.model.containment import depths
from traceanalyzer.model.short_names import short_kernel
from traceanalyzer.model.texts import Texts
from traceanalyzer.regions.tree import KERNEL, MIN_REPEATS, Nodes, Tree
from traceanalyzer.timeline.device_work import DeviceWork
from traceanalyzer.timeline.loops import nested_loops
from traceanalyzer.timeline.selection import Events


def with_graph_kernels(
    tree: Tree, events: Events, work: DeviceWork, entries: Rows, launched: Rows
) -> tuple[Tree, Rows]:
    """(the tree with nodes for the kernels of graphs, the node of each entry).

    The kernels of a stream in a replay are searched for repeated blocks, such as the layers of a model. Blocks and
    kernels have no CPU time: the call that replays the graph has it.

    Args:
        entries: int64 (work,), entries of `work` in the tree's steps.
        launched: int64 (work,), the node that launched each.
    """
    order = np.lexsort((work.start_ns[entries], work.device[entries], work.call[entries]))
    order = order[work.shared[entries[order]]]
    if len(order) == 0:
        return tree, launched
    chosen = entries[order]
    group, _ = grouped([work.call[chosen], work.device[chosen]])
    texts = Texts.column(events.trace.lanes.gpu, "name", work.row[chosen])
    short = np.array([short_kernel(str(name)) for name in texts.names], object)
    name, used = numbered(np.unique(short.astype(str), return_inverse=True)[1][texts.code])
    names = np.unique(short.astype(str))[used].tolist()
    loops = nested_loops(name, group, MIN_REPEATS)
    nodes = Nodes(tree.parent.tolist(), tree.kind, tree.name)
    loop_node = np.full(len(loops.parent), -1, np.int64)
    calls = []
    for loop, (outer, starts, body) in enumerate(
        zip(loops.parent.tolist(), loops.starts, loops.body, strict=True)
    ):
        base = launched[order[starts[0]]] if outer < 0 else loop_node[outer]
        words = ", ".join(dict.fromkeys(names[kernel] for kernel in body.tolist()))
        loop_node[loop] = nodes.child(int(base), "block", words)
        calls.append(np.full(len(starts), loop_node[loop]))
    parent = np.where(loops.owner >= 0, pick(loop_node, loops.owner), launched[order])
    node = launched.copy()
    node[order] = nodes.children(parent, np.full(len(order), KERNEL), name, names)
    parents = np.array(nodes.parent, np.int64)
    added = np.bincount(np.concatenate((*calls, node[order])), minlength=len(parents))
    added[: len(tree.calls)] += tree.calls
    grown = replace(
        tree,
        parent=parents,
        depth=depths(parents),
        kind=tuple(nodes.kind),
        name=tuple(nodes.name),
        calls=added,
    )
    return grown, node
