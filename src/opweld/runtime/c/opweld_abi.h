/* The contract between a generated module (module.so) and the runtime (runtime.so).
 *
 * A module describes itself with constant tables: buffers, steps, and for each variant a `bind` that evaluates every
 * size of a call into an array of integers, the *slots*. The runtime owns memory, threads and errors. */
#ifndef OPWELD_ABI_H
#define OPWELD_ABI_H

#include <stddef.h>
#include <stdint.h>

#define OPW_ABI 5
#define OPW_MAX_RANK 8

/* Element types are the codes of ONNX TensorProto. */
enum {
    OPW_FLOAT32 = 1, OPW_UINT8 = 2, OPW_INT8 = 3, OPW_UINT16 = 4, OPW_INT16 = 5, OPW_INT32 = 6, OPW_INT64 = 7,
    OPW_BOOL = 9, OPW_FLOAT16 = 10, OPW_FLOAT64 = 11, OPW_UINT32 = 12, OPW_UINT64 = 13, OPW_BFLOAT16 = 16,
    /* one byte an element, also if they are packed in files */
    OPW_FLOAT8E4M3FN = 17, OPW_FLOAT8E4M3FNUZ = 18, OPW_FLOAT8E5M2 = 19, OPW_FLOAT8E5M2FNUZ = 20, OPW_UINT4 = 21,
    OPW_INT4 = 22, OPW_FLOAT4E2M1 = 23, OPW_FLOAT8E8M0 = 24, OPW_UINT2 = 25, OPW_INT2 = 26
};

/* A dense row-major tensor. */
typedef struct {
    void *data;
    int32_t dtype;
    int32_t rank;
    int64_t shape[OPW_MAX_RANK];
} opw_tensor;

/* Codes that a kernel may leave in its error word; 0 is success, other positive codes are reported as numbers. */
enum { OPW_BAD_INDEX = 1, OPW_DIVISION_BY_ZERO = 2, OPW_ASSERTION = 3 };

/* Computes iterations begin..end of the linearised grid. `p`: the integer parameters of the step; `scratch`: 64-byte
 * aligned memory of the calling thread; `*error`: a word of the calling thread, 0 on entry. */
typedef void (*opw_kernel)(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch,
                           int64_t *error);

enum { OPW_INPUT, OPW_OUTPUT, OPW_CONSTANT, OPW_ARENA };

typedef struct {
    int32_t kind;
    int32_t index;       /* INPUT, OUTPUT: position */
    int64_t offset;      /* CONSTANT: byte offset in weights.bin */
    int32_t size_slot;   /* ARENA: slot with the size in bytes */
    int32_t first_phase; /* ARENA: lifetime, inclusive */
    int32_t last_phase;
} opw_buffer;

/* Steps are in order of their phases. Those of one phase do not depend on each other, and may run in any order. */
typedef struct {
    opw_kernel kernel;
    int32_t phase;
    int32_t n_buffers;
    const int32_t *buffers; /* buffer ids */
    int32_t n_params;
    const int32_t *params; /* slots */
    int32_t grid_slot;     /* number of grid iterations; 0 skips the step */
    int32_t work_slot;     /* estimated nanoseconds of the step on one core */
    int32_t scratch_slot;  /* scratch bytes per thread, or -1 */
    int32_t bytes_slot;    /* bytes that the step must read and write at least, or -1 */
    int32_t flops_slot;    /* operations of the step: of floats, summed products of integers; or -1 */
    int32_t max_threads;   /* 0: any; 1: serial */
    const char *name;      /* of the kernel */
    const char *origin;    /* names of the graph nodes it came from */
} opw_step;

typedef struct {
    int32_t dtype, rank;
    const int32_t *shape; /* slots */
} opw_output;

typedef struct {
    const char *name;
    int32_t n_slots;
    /* Checks the guards and evaluates every size. `slots` starts as zeros. Returns 0, or 1 + the number of the failed
     * guard, or -1 when a size overflows. */
    int32_t (*bind)(const opw_tensor *inputs, int64_t *slots);
    int32_t n_guards;
    const char *const *guards;
    int32_t n_buffers;
    const opw_buffer *buffers;
    int32_t n_steps;
    const opw_step *steps;
    int32_t n_outputs;
    const opw_output *outputs;
    const int32_t *lengths; /* for each state, the slot with its length after a run; -1: a run replaces it */
} opw_variant;

typedef struct {
    const char *name;
    int32_t dtype;
    int32_t rank;     /* -1: any */
    int32_t by_value; /* 1: the values take part in bind (a small integer input) */
} opw_input;

/* A value that lives between runs: an input that kernels write to. */
typedef struct {
    int32_t input;
    int32_t axis; /* along which it grows: its size there is its capacity. -1: a run replaces all of it */
} opw_state_input;

/* ---- programs with dynamic control flow ----
 *
 * Their values have numbers, the inputs the first ones. A segment is a module of its own, whose inputs are values; and
 * which of its variants fits is found when it begins, and the ending of that variant says what happens afterwards. */

/* A value that starts empty: `rank` dims, the first of them 0, the others as in `dims` (0 where that is not known). */
typedef struct {
    int32_t value, dtype, rank;
    const int64_t *dims;
} opw_stack;

typedef struct {
    int32_t next;           /* the segment that follows, -1: none */
    const int32_t *outputs; /* for each output of the variant, the value that it becomes */
    int32_t n_stacks;
    const opw_stack *stacks;
    int32_t n_appends;
    const int32_t *appends; /* pairs: a stack, what is added along its first axis */
    int32_t n_moves;
    const int32_t *moves; /* pairs: a value, the value that it is bound to; simultaneous */
    int32_t n_dead;
    const int32_t *dead; /* values without later readers */
} opw_ending;

typedef struct {
    const struct opw_module *module; /* without segments */
    const int32_t *inputs;           /* for each input of the module, its value */
    const opw_ending *endings;       /* for each variant of the module */
} opw_segment;

typedef struct opw_module {
    int32_t abi;
    const char *isa; /* needed processor features, e.g. "x86-64-v4 avx512vnni"; separators: space, comma, plus */
    int64_t weights_bytes;
    int32_t n_inputs;
    const opw_input *inputs;
    int32_t n_outputs;
    const char *const *output_names;
    int32_t n_variants;
    const opw_variant *variants;
    /* A program of segments has no variants of its own. It begins with the first segment. */
    int32_t n_segments;
    const opw_segment *segments;
    int32_t n_values;
    const int32_t *results; /* for each output, its final value */
    int32_t zero_denormals; /* 1: while it runs, the processor takes denormal numbers for 0 */
    /* States are the inputs behind those that are fed; where any of them grows, the lengths of all follow them, int64. */
    int32_t n_states;
    const opw_state_input *states;
} opw_module;

/* The only symbol a module exports: const opw_module *opw_module_entry(void); */
typedef const opw_module *(*opw_entry)(void);

#endif
