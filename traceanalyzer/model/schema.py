"""Every column of every frame: name, storage, unit, meaning and the raw keys that it is read from.

Nothing else in the code knows how the exporter spells a field. What an event carries beyond these columns is
kept as JSON text in `other_args`, except for the keys in `IGNORED`, each with its reason.
"""

from dataclasses import dataclass
from enum import Enum


class Storage(Enum):
    """How a column is stored: the kind of its values, and the dtype of the pandas column."""

    TIME = "time", "int64"  # nanoseconds, never missing
    ID = "ordinal", "int64"  # never missing
    INT = "integer", "Int64"  # missing is null
    FLOAT = "float", "float64"  # missing is NaN
    TEXT = "text", "category"  # strings, dictionary-encoded
    JSON = "json", "category"  # lists and objects, dictionary-encoded as their JSON text

    def __init__(self, kind: str, dtype: str) -> None:
        self.kind, self.dtype = kind, dtype

    @property
    def interned(self) -> bool:
        """Whether values are stored as codes into a table of distinct values."""
        return self in (Storage.TEXT, Storage.JSON)


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `raw` are the keys below `args` that it is read from; empty where the reader computes it."""

    name: str
    storage: Storage
    meaning: str
    unit: str = ""
    raw: tuple[str, ...] = ()

    @property
    def recurs(self) -> bool:
        """Whether a trace has few distinct values: a row then keeps one code for all such values together."""
        return self.storage.interned or self.name in _RECURRING


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: which lane's rows it holds and its columns, in order."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    @property
    def by_raw_key(self) -> dict[str, Column]:
        """Raw key below `args` -> column."""
        return {key: column for column in self.columns for key in column.raw}


_RECURRING = frozenset(
    {"device", "stream", "context", "registers", "shared_memory", "blocks_per_sm", "warps_per_sm"}
    | {"occupancy_pct", "graph_id", "wait_on_stream", "device_type", "fwd_thread"}
    | {"group_size", "in_elements", "out_elements", "priority", "original_stream"}
)

_T, _I, _N, _F, _S, _J = Storage.TIME, Storage.ID, Storage.INT, Storage.FLOAT, Storage.TEXT, Storage.JSON

_COMMON = (
    Column("event_id", _I, "ordinal in traceEvents: events[event_id] is this event"),
    Column("category", _S, "exporter's category, old spellings made modern (Operator -> cpu_op)"),
    Column("name", _S, "exporter's name; mangled names of GPU rows are made readable"),
    Column("start_ns", _T, "start, relative to meta.base_time_ns", "ns"),
    Column("dur_ns", _T, "duration; instants have 0", "ns"),
)
_LANE = (Column("pid", _N, "process of the CPU lane"), Column("tid", _N, "operating system's thread"))
_LINK = (
    Column("external_id", _N, "id of the op that this belongs to", raw=("External id", "external id")),
    Column("correlation", _N, "joins a launch with its work", raw=("correlation",)),
)
_COMMUNICATION = (
    Column("collective", _S, "collective of a communication", raw=("Collective name",)),
    Column("comm_dtype", _S, "element type of a communication", raw=("dtype",)),
    Column("in_elements", _N, "elements sent", "elements", ("In msg nelems",)),
    Column("out_elements", _N, "elements received", "elements", ("Out msg nelems",)),
    Column("group_size", _N, "ranks in the process group", "ranks", ("Group size",)),
    Column("process_group", _S, "process group's name", raw=("Process Group Name",)),
    Column("group_desc", _S, "process group's description", raw=("Process Group Description",)),
    Column("group_ranks", _S, "ranks of the process group, as text", raw=("Process Group Ranks",)),
    Column("comm_seq", _N, "sequence number within the process group", raw=("Seq",)),
    Column("comm_id", _S, "communicator's id, as text", raw=("Comms Id",)),
)
_OTHER = (
    Column("finished", _J, "false: still running at the window's end, where it was cut", raw=("finished",)),
    Column("other_args", _J, "args that have no column, as one JSON object"),
)

CPU = Frame(
    "cpu",
    "CPU lane: ops, annotations, runtime and driver calls, and the profiler's own overhead rows (pid -1)",
    (
        *_COMMON,
        *_LANE,
        *_LINK,
        Column("sequence", _N, "autograd sequence number, shared with backward", raw=("Sequence number",)),
        Column("fwd_thread", _N, "RecordFunction's thread of forward; no tid", raw=("Fwd thread id",)),
        Column("input_dims", _J, "shapes", raw=("Input Dims", "Input dims")),
        Column("input_type", _J, "element types", raw=("Input type",)),
        Column("input_strides", _J, "strides", "elements", ("Input Strides",)),
        Column("concrete_inputs", _J, "scalar arguments", raw=("Concrete Inputs",)),
        Column("call_stack", _S, "python stack, newest first", raw=("Call stack",)),
        Column("module_hierarchy", _S, "nn.Module path", raw=("Module Hierarchy",)),
        *_COMMUNICATION,
        *_OTHER,
    ),
)

GPU = Frame(
    "gpu",
    "GPU lane: kernels, copies, memsets, synchronisation records and GPU annotations",
    (
        *_COMMON,
        Column("mangled_name", _S, "exporter's name where `name` is made readable, else null"),
        Column("device", _N, "GPU ordinal; of annotations, which carry none, the pid", raw=("device",)),
        Column("stream", _N, "stream; of annotations, which carry none, the tid", raw=("stream",)),
        *_LINK,
        Column("context", _N, "CUDA context", raw=("context",)),
        Column("original_stream", _N, "stream of graph work shown on another", raw=("original_stream",)),
        Column("priority", _N, "of the stream; lower runs first", raw=("priority",)),
        Column("bytes", _N, "bytes copied or set", "bytes", ("bytes", "size")),
        Column("copy_kind", _S, "HtoD, DtoH, DtoD; null where the name says it", raw=("copy kind", "direction")),
        Column("src_kind", _S, "memory copied from: pageable, pinned, device", raw=("src kind",)),
        Column("dst_kind", _S, "memory copied to, as src_kind", raw=("dst kind",)),
        Column("bandwidth_gbps", _F, "copy rate as exported", "GB/s", ("memory bandwidth (GB/s)",)),
        Column("grid", _J, "grid dimensions", "blocks", ("grid",)),
        Column("block", _J, "block dimensions", "threads", ("block",)),
        Column("registers", _N, "per thread", "registers", ("registers per thread",)),
        Column("shared_memory", _N, "per block", "bytes", ("shared memory",)),
        Column("blocks_per_sm", _F, "grid size over SM count, not residency", "blocks", ("blocks per SM",)),
        Column("warps_per_sm", _F, "as blocks_per_sm", "warps", ("warps per SM",)),
        Column("occupancy_pct", _F, "theoretical", "%", ("est. achieved occupancy %",)),
        Column("occupancy", _J, "what limits it: blocks by registers, shared memory, warps", raw=("occupancy",)),
        Column("graph_id", _N, "CUDA graph that launched it", raw=("graph id",)),
        Column("graph_node_id", _N, "node within the graph", raw=("graph node id",)),
        Column("sync_kind", _S, "of a synchronisation record", raw=("cuda_sync_kind",)),
        Column("wait_on_stream", _N, "stream waited for", raw=("wait_on_stream",)),
        Column("wait_on_event", _N, "event waited for", raw=("wait_on_cuda_event_id",)),
        Column("wait_on_corr", _N, "its record call", raw=("wait_on_cuda_event_record_corr_id",)),
        *_COMMUNICATION,
        *_OTHER,
    ),
)

PYTHON = Frame(
    "python",
    "CPU lane: python_function rows, apart because they dominate traces with stacks and few rules need them",
    (
        *_COMMON,
        *_LANE,
        Column("python_id", _N, "id of the call", raw=("Python id",)),
        Column("python_parent_id", _N, "id of the calling call", raw=("Python parent id",)),
        Column("python_module_id", _N, "which nn.Module instance", raw=("Python module id",)),
        *_OTHER,
    ),
)

MEMORY = Frame(
    "memory",
    "CPU lane: the allocator's instants ([memory], [OutOfMemory])",
    (
        *_COMMON,
        *_LANE,
        Column("address", _N, "of the block", raw=("Addr",)),
        Column("bytes", _N, "allocated (+) or freed (-)", "bytes", ("Bytes",)),
        Column("total_allocated", _N, "by this device's allocator, after", "bytes", ("Total Allocated",)),
        Column("total_reserved", _N, "by this device's allocator, after", "bytes", ("Total Reserved",)),
        Column("device_type", _N, "c10::DeviceType: 0 CPU, 1 CUDA, 6 HIP, 12 XPU", raw=("Device Type",)),
        Column("device", _N, "device ordinal; CPU has -1 as exported", raw=("Device Id",)),
        *_OTHER,
    ),
)

COUNTERS = Frame(
    "counters",
    "samples of counters (ph C): clocks, power, temperature, SM and memory activity of newer profilers",
    (
        *(column for column in _COMMON if column.name != "dur_ns"),
        Column("device", _N, "GPU ordinal; null where the event names none"),
        Column("key", _S, "series within the counter; empty where there is but one", raw=("key",)),
        Column("value", _F, "the sample, in the unit that the name ends with", raw=("value",)),
        Column("other_args", _J, "what else the event has, as one JSON object"),
    ),
)

FRAMES = {frame.name: frame for frame in (CPU, GPU, PYTHON, MEMORY, COUNTERS)}

BUSY_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
CALL_CATEGORIES = (
    *("cuda_runtime", "cuda_driver", "xpu_runtime", "xpu_driver", "mtia_runtime"),
    *("privateuse1_runtime", "privateuse1_driver"),
)

COUNTER_RANGE = "cuda_profiler_range"  # rows with counters of a kernel, in place of its times

# Category as exported -> (frame, modern category). FORMAT: torch 1.9 to 1.11 wrote the capitalised names.
CATEGORIES: dict[str, tuple[str, str]] = {
    **{name: ("cpu", name) for name in ("cpu_op", "user_annotation", "overhead", "hpu_op", "glow_runtime")},
    **{name: ("cpu", name) for name in CALL_CATEGORIES},
    **{name: ("gpu", name) for name in BUSY_CATEGORIES},
    **{name: ("gpu", name) for name in ("gpu_user_annotation", "cuda_sync", "cuda_event", "xpu_sync")},
    **{name: ("gpu", name) for name in (COUNTER_RANGE, "collective_comm")},
    **{name: ("gpu", name) for name in ("graph_event_node", "graph_host_node")},
    "python_function": ("python", "python_function"),
    "cpu_instant_event": ("memory", "cpu_instant_event"),
    "Operator": ("cpu", "cpu_op"),
    "Runtime": ("cpu", "cuda_runtime"),
    "Kernel": ("gpu", "kernel"),
    "Memcpy": ("gpu", "gpu_memcpy"),
    "Memset": ("gpu", "gpu_memset"),
}

NO_DEVICE_TIME = "no device time"  # class in `Meta.counted` of work that the profiler wrote without a time
MTIA_WORK = "mtia_ccp_events"  # rows of MTIA's device: copies, waits and kernels, told apart by their args

# Categories that torch.profiler writes and that have no frame of their own: they show whose file it is.
OTHER_CATEGORIES = frozenset(
    {MTIA_WORK}
    | {"Trace", "mtia_insight", "mtia_counters", "xpu_scope_profiler", "external_correlation"}
    | {"hardware_counters", "privateuse1", "ac2g", "fwdbwd", "async_cpu_to_gpu", "async_gpu"}
)

_QUEUED = ("appended", "submitted", "sycl_task_begin", "sycl_enqk_begin")

# Raw keys below `args` that are dropped on purpose.
IGNORED: dict[str, str] = {
    "Ev Idx": "the exporter's own ordinal; event_id says the same for the file",
    "Profiler Event Index": "older name of Ev Idx",
    "Record function id": "0 except for execution traces",
    "cbid": "number of the call whose name is there",
    "cid": "cbid of ROCm",
    "queued": "always 0",
    "external ts": "start of the linked op, which is in its own row",
    "Trace name": "same in every event",
    "Trace iteration": "same in every event",
    "Device": "CPU rows of torch 1.9: always 0",
    # Intel GPUs:
    "kernel_id": "ordinal of the kernel's run; event_id says the same for the file",
    "memory opration id": "ordinal of the copy, spelled so",
    "sycl_node_id": "ordinal of the task",
    "sycl_invocation_id": "ordinal of the task's run",
    **dict.fromkeys(
        (f"{what}{ending}" for what in _QUEUED for ending in ("", "_rel_to_start")),
        "how the launch came to the device; the launch has its own row",
    ),
}
