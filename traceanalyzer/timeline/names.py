"""What the names of calls, annotations, kernels and overhead rows mean; matched once per distinct name."""

import re

from traceanalyzer.model.text_queries import regex

# Calls that return only when the device (or a stream, or an event on it) has come so far. HIP spells them alike; an
# Intel GPU is called through Unified Runtime (ur), before 2025 its plugin interface (pi), and Level Zero (ze) below it.
SYNCHRONISING = regex(
    r"^(cuda|hip)(DeviceSynchronize|StreamSynchronize|EventSynchronize|ThreadSynchronize)"
    r"|^cu(Ctx|Stream|Event)Synchronize|^(ur|pi)(QueueFinish|Events?Wait)"
    r"|^ze(EventHost|CommandQueue|CommandListHost|FenceHost)Synchronize"
)
DEVICE_SYNC = regex(r"^(cuda|hip)(DeviceSynchronize|ThreadSynchronize)|^cuCtxSynchronize")
COPY_CALL = regex(
    r"^(cuda|hip)Memcpy|^cuMemcpy|^(ur|pi|piext)(USM)?Enqueue(USM|MemBuffer)?(Memcpy|Read|Write|Copy)"
    r"|^zeCommandListAppendMemoryCopy|^enqueueCommand memcpy"
)
STREAM_WAIT = regex(r"^(cuda|hip)StreamWaitEvent|^cuStreamWait|^(ur|pi)EnqueueEventsWait")
# Calls that start work, unless a graph is being captured.
LAUNCH = regex(
    r"^(cuda|hip|cu)(Ext|Hcc)?(Module)?Launch(Cooperative)?Kernel|^(cuda|hip|cu)GraphLaunch|^hipExtLaunch"
    r"|^(ur|pi|piext)Enqueue(Cooperative)?KernelLaunch|^urEnqueue(CommandBuffer|Graph)"
    r"|^zeCommandListAppendLaunch(Cooperative)?Kernel|^runFunction\b"
)
# Takes as long as the graph is large, every time.
GRAPH_LAUNCH = regex(r"^(cuda|hip|cu)GraphLaunch|^urEnqueue(CommandBuffer|Graph)")
CAPTURE_BEGIN = regex(r"^(cuda|hip)StreamBeginCapture|^cuStreamBeginCapture")
CAPTURE_END = regex(r"^(cuda|hip)StreamEndCapture|^cuStreamEndCapture")
INSTANTIATION = regex(r"^(cuda|hip|cu)GraphInstantiate")
EVENT_SYNC = regex(r"^(cuda|hip|cu)EventSynchronize")
# Ops that pick the fastest of several kernels by running them (cuDNN's benchmark mode, MIOpen's search, TunableOp).
TUNING_OP = regex(r"cudnn|miopen|conv|gemm_and_bias|^aten::(_?addmm|mm|bmm|baddbmm|linear)", re.IGNORECASE)
ALLOCATING_OP = regex(r"^aten::(empty|new_empty|resize_?$|set_$|_empty)|^\[")

# cudaMalloc and cudaFree synchronise with the driver's allocator, and cudaFree with the device.
ALLOCATOR = regex(
    r"^(cuda|hip)(Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister|HostMalloc)"
    r"|^cuMem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|Address)"
    r"|^(ur|piext)USM(Device|Host|Shared)?(Alloc|Free)|^zeMem(Alloc|Free)"
)
STREAM_ORDERED = regex(r"Async")  # cudaMallocAsync and its kin take from a pool, and stop nobody
MODULE_LOADING = regex(
    r"^cu(Module|Library)(Load|Get|Unload)|^(cuda|hip)Module(Load|GetFunction)|^cudaLibraryLoad|^cuKernelGetFunction"
    r"|^(ur|pi)(Program(Create|Build|Compile|Link)|KernelCreate)|^ze(Module|Kernel)Create"
    r"|^Lazy Function Loading$|^Runtime Triggered Module Loading$"
)
# Calls that ask or prepare and start nothing: what a library does while it looks for a kernel.
QUERY = regex(
    r"^(cuda|hip|cu)((Device|Ctx|Pointer|Kernel|Library|Module|Event)?Get|Func[GS]et|PeekAtLastError|Occupancy"
    r"|Stream(IsCapturing|Get|Create)|EventCreate)|^(ur|pi)\w+Get(Info|Native)"
)
# Rows that are named after the capture of a graph; torch.compile times them as it times its compiler.
CAPTURING = regex(r"^CUDAGraph(Node|Tree)\w*\.record|^cudagraphify|^capture_\d+", re.IGNORECASE)
COMPILATION = regex(
    r"\(dynamo_timed\)|^dynamo$|_compile\b|_compile\.|entire_frame_compile|async_compile|inductor_compile"
    r"|^compile_fx|fx_codegen_and_compile|triton.*compile|CachingAutotuner\.(precompile|benchmark)|NVRTC|nvrtc"
    r"|^Driver Compiler$"
)
# Names say "compile" here too, but these run what was compiled.
COMPILED_RUN = regex(r"^Torch-Compiled Region|^## Call CompiledFxGraph|CompiledFunction|TorchDynamo Cache Lookup")
DATA_LOADING = regex(
    r"^enumerate\(DataLoader\)|DataLoaderIter|wait_for_(training_)?batch|^DataPipe#"
    r"|^(## ?)?(data[ _]?load(er|ing)?|load[ _]?(data|batch)|(get|next|fetch)[ _]?(data|batch))( ?##)?$",
    re.IGNORECASE,
)
HOST_COLLECTIVE = regex(r"^gloo:")  # carried out by threads of the CPU
_BUFFERS = "Activity Buffer Request|Buffer Flush"
PROFILER_OVERHEAD = regex(rf"^({_BUFFERS}|Instrumentation|Resource|UVM Activity Init)$")
BUFFER_OVERHEAD = regex(rf"^({_BUFFERS})$")

COMMUNICATION = regex(
    r"^(void )?(ncclDevKernel|ncclKernel|ncclSymk|rccl|mscclpp|hcom)|msccl|nvshmem|pplx|oneccl"
    r"|barrier_on_stream|symm_mem"
    # DeepEP: but get_dispatch_layout counts, and computes
    r"|(?<![a-z])(internode|intranode|internode_ll|ep)::(\w+::)*(cached_)?(notify_?)?(dispatch|combine|notify)(_\w+)?\b"
    r"|deep_ep::(?!\w*layout)"
    r"|(all_?reduce|all_?gather|reduce_scatter)_?(one|two)_?shot|(one|two)_?shot_?(all_?reduce|all_?gather|reduce_scatter)"
    r"|allreduce_fusion|quick_all_?reduce|custom_all_?reduce|multimem_|cross_device_reduce|all_?to_?all",
    re.IGNORECASE,
)
# Ops that start communication and nothing else; what torch.distributed copies around it is an op of its own.
COMMUNICATING_OP = regex(r"^(record_param_comms$|(nccl|rccl|gloo|mpi|ucc|xccl|hccl):)")
# Ops of extensions that speak of it, and may compute beside it.
SPEAKING_OP = regex(
    r"^(?!aten::)(?!.*copy)(.*(all_?to_?all|all_?reduce|all_?gather|reduce_?scatter)|symm_mem::|c10d::|_c10d_)",
    re.IGNORECASE,
)
# Torch's own ops, and what it generates: none of them communicates.
TORCHS_OP = regex(r"^(aten|prims|inductor|torchvision|torchaudio|fbgemm|xformers|quantized)::|^triton_")

# What torch marks by record_function; an op is never called so.
ANNOTATION = regex(
    r"^(ProfilerStep#|Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)#|DistributedDataParallel\.forward)"
)
TRAINS = r"^autograd::engine::|^Optimizer\.step#"
STEP_MARK = regex(r"^ProfilerStep#(\d+)$")
# Written by c10d around collectives, also asynchronous ones.
COMMUNICATION_MARK = regex(r"^(nccl|rccl|gloo|mpi|ucc|xccl|hccl):|^c10d::")
OPTIMIZER_MARK = regex(r"^Optimizer\.step#")
SERVING_MARK = regex(r"^(execute_(context_|new_)?\d+|(step|prefill|decode)\[)")
COMPILED_REGION = regex(r"^Torch-Compiled Region")


# By how it is called, or from what memory to what. Intel: M is any memory of the host's, H what the driver pinned.
_COPIES = {
    "h2d": regex(r"h(ost)?_?to_?d|host -> device|memcpy [mh]2d\b", re.IGNORECASE),
    "d2h": regex(r"d(evice)?_?to_?h|device -> host|memcpy d2[mh]\b", re.IGNORECASE),
    "p2p": regex(r"p_?to_?p|peer", re.IGNORECASE),
    "d2d": regex(r"d(evice)?_?to_?d|device -> device|memcpy d2d\b", re.IGNORECASE),
}


def is_compilation(name: str) -> bool:
    """Compiling, not running what was compiled."""
    return bool(COMPILATION.search(name)) and not COMPILED_RUN.search(name) and not CAPTURING.search(name)


def copy_kind(name: str) -> str:
    """h2d, d2h, d2d, p2p or other, from a copy's name ("Memcpy HtoD (Pageable -> Device)", "CopyHostToDevice")."""
    return next((kind for kind, names in _COPIES.items() if names.search(name)), "other")
