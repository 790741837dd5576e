// A GPU on the processor, behind the functions of libcuda.so.1 with the types of cuda.h: memory is the host's, work runs
// when it is given, or when the graph runs that it was captured in. Knows two kernels, "scale" of a
// binary and "nothing" of a text. Calls fail without a
// current context, as those of the driver do, and where fake_fail says so.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#pragma GCC visibility push(default)
#include "cuda.h"

#define ENTER(name)                                                                                                    \
    do {                                                                                                               \
        CUresult code_ = enter(#name);                                                                                 \
        if (code_) return code_;                                                                                       \
    } while (0)
#define NEEDS_CONTEXT                                                                                                  \
    do {                                                                                                               \
        if (depth == 0 || stack[depth - 1] != (CUcontext)&primary) return CUDA_ERROR_INVALID_CONTEXT;                  \
    } while (0)

static int primary, devices = 1, capability = 90;
static _Thread_local CUcontext stack[8];
static _Thread_local int depth;
static char failing[64];
static CUresult failure;
static _Thread_local char trace[4096];
static _Atomic long alive;

void fake_fail(const char *name, int code) { strncpy(failing, name, sizeof failing - 1), failure = (CUresult)code; }
void fake_devices(int count) { devices = count; }
const char *fake_trace(void) { return trace; }
void fake_forget(void) { trace[0] = 0; }
long fake_alive(void) { return alive; }
int fake_depth(void) { return depth; }
void fake_foreign_context(int on) { if (on) stack[depth++] = (CUcontext)&devices; else depth--; }

static CUresult enter(const char *name) {
    if (strlen(trace) + strlen(name) + 2 < sizeof trace) strcat(strcat(trace, name), " ");
    if (strcmp(name, failing)) return CUDA_SUCCESS;
    failing[0] = 0;
    return failure;
}

CUresult cuInit(unsigned int flags) { ENTER(cuInit); return flags || !devices ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { ENTER(cuDriverGetVersion); *version = 12080; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { ENTER(cuDeviceGetCount); *count = devices; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { ENTER(cuDeviceGet); *device = 40 + ordinal; return CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    ENTER(cuDeviceGetName);
    if (device != 40) return CUDA_ERROR_INVALID_DEVICE;
    strncpy(name, "Fake H100", (size_t)length);
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    ENTER(cuDeviceTotalMem);
    *bytes = (size_t)80 << 30;
    return device == 40 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    if (device != 40) return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = 50 << 20; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 228 << 10; break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: *value = 1 << 10; break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: *value = 65536; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1980000; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 2619000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 5120; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain);
    *context = (CUcontext)&primary;
    return device == 40 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) { ENTER(push); stack[depth++] = context; return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent(CUcontext *context) {
    ENTER(pop);
    if (!depth) return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) { ENTER(cuCtxSynchronize); NEEDS_CONTEXT; return CUDA_SUCCESS; }

// Memory.

CUresult cuMemGetInfo(size_t *available, size_t *total) {
    NEEDS_CONTEXT;
    *available = (size_t)79 << 30, *total = (size_t)80 << 30;
    return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    ENTER(cuMemAlloc);
    NEEDS_CONTEXT;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > (size_t)80 << 30) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = (CUdeviceptr)(uintptr_t)malloc(bytes);
    alive++;
    return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
    ENTER(cuMemFree);
    NEEDS_CONTEXT;
    free((void *)(uintptr_t)address);
    alive--;
    return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned int flags) {
    ENTER(cuMemHostAlloc);
    NEEDS_CONTEXT;
    if (!bytes || flags) return CUDA_ERROR_INVALID_VALUE;
    *address = malloc(bytes);
    alive++;
    return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *address) { ENTER(cuMemFreeHost); free(address); alive--; return CUDA_SUCCESS; }

// Streams, and the work that they are given.

struct work {
    enum { COPY, FILL, SCALE, NOTHING } kind;
    void *target;
    const void *source;
    size_t bytes;
    unsigned char byte;
    float factor;
    int64_t count;
    unsigned threads;
};
struct CUgraph_st { struct work items[512]; int count; };
static char nodes[513];  // the addresses are nodes, by the number of the item and one
static CUgraphNode last_node;
struct CUstream_st { struct CUgraph_st *capturing; };
struct CUevent_st { unsigned flags; float at; };
static _Thread_local float now = 1;

static void execute(const struct work *w) {
    now += 2;  // milliseconds
    if (w->kind == COPY) memcpy(w->target, w->source, w->bytes);
    if (w->kind == FILL) memset(w->target, w->byte, w->bytes);
    for (int64_t i = 0; w->kind == SCALE && i < w->count; i++)
        ((float *)w->target)[i] = w->factor * ((const float *)w->source)[i];
}
static CUresult give(CUstream stream, struct work w) {
    NEEDS_CONTEXT;
    if (stream && stream->capturing) stream->capturing->items[stream->capturing->count++] = w;
    else execute(&w);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void *source, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyHtoDAsync);
    return give(stream, (struct work){.kind = COPY, .target = (void *)(uintptr_t)target, .source = source, .bytes = bytes});
}
CUresult cuMemcpyDtoHAsync(void *target, CUdeviceptr source, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoHAsync);
    return give(stream, (struct work){.kind = COPY, .target = target, .source = (void *)(uintptr_t)source, .bytes = bytes});
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream) {
    ENTER(cuMemcpyDtoDAsync);
    return give(stream, (struct work){.kind = COPY, .target = (void *)(uintptr_t)target,
                                      .source = (void *)(uintptr_t)source, .bytes = bytes});
}
CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char byte, size_t bytes, CUstream stream) {
    ENTER(cuMemsetD8Async);
    return give(stream, (struct work){.kind = FILL, .target = (void *)(uintptr_t)target, .byte = byte, .bytes = bytes});
}
CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    ENTER(cuStreamCreate);
    NEEDS_CONTEXT;
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *stream = calloc(1, sizeof **stream);
    alive++;
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) { ENTER(cuStreamDestroy); free(stream); alive--; return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream stream) {
    ENTER(cuStreamSynchronize);
    NEEDS_CONTEXT;
    return stream && stream->capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    ENTER(cuStreamWaitEvent);
    NEEDS_CONTEXT;
    return stream && event && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;  // who waits for nothing goes on
}
CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    ENTER(cuEventCreate);
    NEEDS_CONTEXT;
    *event = calloc(1, sizeof **event);
    (*event)->flags = flags;
    alive++;
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) { ENTER(cuEventDestroy); free(event); alive--; return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent event, CUstream stream) {
    ENTER(cuEventRecord);
    NEEDS_CONTEXT;
    event->at = now;
    return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuEventSynchronize(CUevent event) {
    ENTER(cuEventSynchronize);
    return event->at > 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    ENTER(cuEventElapsedTime);
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
    *milliseconds = end->at - start->at;
    return CUDA_SUCCESS;
}

// Graphs.

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
    ENTER(cuStreamBeginCapture);
    NEEDS_CONTEXT;
    if (!stream || mode != CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream->capturing = calloc(1, sizeof(struct CUgraph_st));
    return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    *graph = stream->capturing, stream->capturing = NULL;
    alive++;
    ENTER(cuStreamEndCapture);
    return CUDA_SUCCESS;
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                const CUgraphNode **dependencies, size_t *count) {
    ENTER(cuStreamGetCaptureInfo);
    NEEDS_CONTEXT;
    int items = stream->capturing ? stream->capturing->count : 0;
    *status = stream->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    *id = 1, *graph = stream->capturing;
    last_node = (CUgraphNode)&nodes[items];
    *dependencies = &last_node, *count = items > 0;
    return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *ready, CUgraph graph, unsigned long long flags) {
    ENTER(cuGraphInstantiateWithFlags);
    NEEDS_CONTEXT;
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    struct CUgraph_st *copy = malloc(sizeof *copy);
    *copy = *graph;
    *ready = (CUgraphExec)copy;
    alive++;
    return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec ready, CUstream stream) {
    ENTER(cuGraphLaunch);
    NEEDS_CONTEXT;
    struct CUgraph_st *graph = (struct CUgraph_st *)ready;
    for (int i = 0; i < graph->count; i++) execute(&graph->items[i]);
    return stream ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuGraphExecDestroy(CUgraphExec ready) { ENTER(cuGraphExecDestroy); free(ready); alive--; return CUDA_SUCCESS; }
CUresult cuGraphDestroy(CUgraph graph) { ENTER(cuGraphDestroy); free(graph); alive--; return CUDA_SUCCESS; }

// Kernels.

struct CUfunc_st { int shared; };
static struct CUfunc_st scale = {48 << 10}, nothing;

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER(cuModuleLoadData);
    NEEDS_CONTEXT;
    int text = strstr(image, ".visible .entry nothing()") != NULL;
    if (!text && memcmp(image, "\x7f" "ELF\0sm_90", 10)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *module = (CUmodule)(text ? &nothing : &scale);
    alive++;
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
    ENTER(cuModuleUnload);
    alive--;
    return module == (CUmodule)&scale || module == (CUmodule)&nothing ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER(cuModuleGetFunction);
    NEEDS_CONTEXT;
    if (strcmp(name, module == (CUmodule)&scale ? "scale" : "nothing")) return CUDA_ERROR_NOT_FOUND;
    *function = (CUfunction)module;
    return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    ENTER(cuFuncGetAttribute);
    *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 40 : function->shared;
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    ENTER(cuFuncSetAttribute);
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
    function->shared = value;
    return CUDA_SUCCESS;
}
// scale(y: float *, x: const float *, bits of a half, factor: float, negative: int32, count: int64): y = factor * x.
static CUresult launch(CUfunction function, unsigned int grid_x, unsigned int block_x, unsigned int shared,
                       void **parameters, struct work *found) {
    if (shared > (unsigned)function->shared) return CUDA_ERROR_INVALID_VALUE;
    *found = (struct work){.kind = NOTHING};
    if (function == &nothing) return CUDA_SUCCESS;
    if (*(uint16_t *)parameters[2] != 0x3e00 || *(int32_t *)parameters[4] != -7) return CUDA_ERROR_INVALID_VALUE;
    int64_t threads = (int64_t)grid_x * block_x, count = *(int64_t *)parameters[5];
    *found = (struct work){.kind = SCALE, .target = *(void **)parameters[0], .source = *(void **)parameters[1],
                           .factor = *(float *)parameters[3], .count = threads < count ? threads : count};
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                        CUstream stream, void **parameters, void **extra) {
    ENTER(cuLaunchKernel);
    if (!grid_x || !grid_y || !grid_z || block_y != 1 || block_z != 1 || extra) return CUDA_ERROR_INVALID_VALUE;
    struct work w;
    CUresult code = launch(function, grid_x, block_x, shared, parameters, &w);
    return code ? code : give(stream, w);
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec ready, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p) {
    ENTER(cuGraphExecKernelNodeSetParams);
    NEEDS_CONTEXT;
    struct CUgraph_st *graph = (struct CUgraph_st *)ready;
    long number = (char *)node - nodes - 1;
    if (number < 0 || number >= graph->count || p->extra || p->kern || p->blockDimY != 1) return CUDA_ERROR_INVALID_VALUE;
    if (graph->items[number].kind != SCALE && graph->items[number].kind != NOTHING) return CUDA_ERROR_INVALID_VALUE;
    return launch(p->func, p->gridDimX, p->blockDimX, p->sharedMemBytes, p->kernelParams, &graph->items[number]);
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OTHER";
    return error == CUDA_ERROR_UNKNOWN ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "something else";
    return error == CUDA_ERROR_UNKNOWN ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
