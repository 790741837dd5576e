/* A module written by hand, with everything the contract has: two variants, guards, a by-value input, constants,
 * scratch, arena reuse, a checked index.
 *
 *   inputs   x f32[N,4]   y f32[N,4]   index i64[K]   start i64[] (by value)
 *   outputs  total f32[N,4] = (x + y) * 3 + x
 *            picked f32[K]  = (flat total from row `start`)[index]
 *            ranges i64[N]  = the first row of the share of the thread that wrote it
 *
 * -DISA, -DABI and -DSCALE_OFFSET make modules that a runtime must refuse.
 */
#include "opweld_abi.h"

#ifndef ISA
#define ISA ""
#endif
#ifndef ABI
#define ABI OPW_ABI
#endif
#ifndef SCALE_OFFSET
#define SCALE_OFFSET 64
#endif

enum { N, COLUMNS, ELEMENTS, BYTES, K, START, REST, WORK, SERIAL, SCRATCH, N_SLOTS };

static void add(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    const float *a = buffers[0], *b = buffers[1];
    float *out = buffers[2];
    (void)p, (void)scratch, (void)error;
    for (int64_t i = begin; i < end; i++) out[i] = a[i] + b[i];
}

static void scale(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    const float *in = buffers[0], *factor = buffers[1];
    float *out = buffers[2], *line = (float *)scratch;
    (void)p;
    if ((uintptr_t)scratch % 64 || (uintptr_t)in % 64 || (uintptr_t)out % 64) *error = 77;
    for (int64_t i = begin; i < end; i++) {
        line[i % 16] = in[i]; /* two threads that shared scratch would spoil each other's line */
        out[i] = line[i % 16] * *factor;
    }
}

static void pick(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    const float *in = buffers[0];
    const int64_t *index = buffers[1];
    float *out = buffers[2];
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        if (index[i] < 0 || index[i] >= p[0]) {
            *error = OPW_BAD_INDEX;
            return;
        }
        out[i] = in[p[1] + index[i]];
    }
}

static void mark(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    int64_t *out = buffers[0];
    (void)p, (void)scratch, (void)error;
    for (int64_t i = begin; i < end; i++) out[i] = begin;
}

static void copy(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    const float *in = buffers[0];
    float *out = buffers[1];
    (void)p, (void)scratch, (void)error;
    for (int64_t i = begin; i < end; i++) out[i] = in[i];
}

static int32_t sizes(const opw_tensor *inputs, int64_t *slots) {
    slots[N] = inputs[0].shape[0];
    slots[COLUMNS] = 4;
    if (__builtin_mul_overflow(slots[N], 4, &slots[ELEMENTS])) return -1;
    if (__builtin_mul_overflow(slots[ELEMENTS], 4, &slots[BYTES])) return -1;
    slots[K] = inputs[2].shape[0];
    int64_t start = *(const int64_t *)inputs[3].data;
    if (start < 0 || start > slots[N]) return 3;
    slots[START] = start * 4;
    slots[REST] = slots[ELEMENTS] - start * 4;
    slots[WORK] = slots[ELEMENTS] * 10;
    slots[SERIAL] = 0;
    slots[SCRATCH] = 64;
    return 0;
}

static int32_t bind_even(const opw_tensor *inputs, int64_t *slots) {
    if (inputs[0].shape[0] != inputs[1].shape[0]) return 1;
    if (inputs[0].shape[0] % 2) return 2;
    if (inputs[0].shape[1] != 4 || inputs[1].shape[1] != 4) return 4;
    return sizes(inputs, slots);
}

static int32_t bind_small(const opw_tensor *inputs, int64_t *slots) {
    if (inputs[0].shape[0] != inputs[1].shape[0]) return 1;
    if (inputs[0].shape[0] > 99) return 2;
    if (inputs[0].shape[1] != 4 || inputs[1].shape[1] != 4) return 4;
    return sizes(inputs, slots);
}

static const char *const guards_even[] = {"x.shape[0] == y.shape[0]", "x.shape[0] % 2 == 0", "0 <= start <= x.shape[0]",
                                          "x.shape[1] == y.shape[1] == 4"};
static const char *const guards_small[] = {"x.shape[0] == y.shape[0]", "x.shape[0] <= 99", "0 <= start <= x.shape[0]",
                                           "x.shape[1] == y.shape[1] == 4"};

enum { X, Y, INDEX, TOTAL, PICKED, RANGES, FACTOR, SUM, SCALED, LAST };

static const opw_buffer buffers[] = {
    [X] = {OPW_INPUT, 0, 0, -1, 0, 0},
    [Y] = {OPW_INPUT, 1, 0, -1, 0, 0},
    [INDEX] = {OPW_INPUT, 2, 0, -1, 0, 0},
    [TOTAL] = {OPW_OUTPUT, 0, 0, -1, 0, 0},
    [PICKED] = {OPW_OUTPUT, 1, 0, -1, 0, 0},
    [RANGES] = {OPW_OUTPUT, 2, 0, -1, 0, 0},
    [FACTOR] = {OPW_CONSTANT, 0, SCALE_OFFSET, -1, 0, 0},
    [SUM] = {OPW_ARENA, 0, 0, BYTES, 0, 1},
    [SCALED] = {OPW_ARENA, 0, 0, BYTES, 1, 2},
    [LAST] = {OPW_ARENA, 0, 0, BYTES, 2, 3}, /* in the place of SUM, which is dead by then */
};

static const int32_t b_sum[] = {X, Y, SUM}, b_scaled[] = {SUM, FACTOR, SCALED}, b_last[] = {SCALED, X, LAST},
                     b_picked[] = {LAST, INDEX, PICKED}, b_total[] = {LAST, TOTAL}, b_ranges[] = {RANGES};
static const int32_t p_picked[] = {REST, START};

static const opw_step steps[] = {
    {add, 0, 3, b_sum, 0, 0, ELEMENTS, WORK, -1, -1, -1, 0, "add", "/first/Add"},
    {scale, 1, 3, b_scaled, 0, 0, ELEMENTS, WORK, SCRATCH, -1, -1, 0, "scale", "/Mul"},
    {add, 2, 3, b_last, 0, 0, ELEMENTS, WORK, -1, -1, -1, 0, "add", "/second/Add"},
    {pick, 3, 3, b_picked, 2, p_picked, K, SERIAL, -1, -1, -1, 0, "pick", "/Gather"},
    {copy, 3, 2, b_total, 0, 0, ELEMENTS, WORK, -1, -1, -1, 1, "copy", "/Identity"},
    {mark, 3, 1, b_ranges, 0, 0, N, WORK, -1, -1, -1, 0, "mark", "/Mark"},
};

static const int32_t s_total[] = {N, COLUMNS}, s_picked[] = {K}, s_ranges[] = {N};
static const opw_output outputs[] = {{OPW_FLOAT32, 2, s_total}, {OPW_FLOAT32, 1, s_picked}, {OPW_INT64, 1, s_ranges}};

#define COUNT(array) ((int32_t)(sizeof(array) / sizeof *(array)))
#define PROGRAM COUNT(buffers), buffers, COUNT(steps), steps, COUNT(outputs), outputs

static const opw_variant variants[] = {
    {"even", N_SLOTS, bind_even, COUNT(guards_even), guards_even, PROGRAM, NULL},
    {"small", N_SLOTS, bind_small, COUNT(guards_small), guards_small, PROGRAM, NULL},
};
static const opw_input inputs[] = {
    {"x", OPW_FLOAT32, 2, 0}, {"y", OPW_FLOAT32, 2, 0}, {"index", OPW_INT64, 1, 0}, {"start", OPW_INT64, 0, 1}};
static const char *const output_names[] = {"total", "picked", "ranges"};

static const opw_module module = {ABI, ISA, 68, COUNT(inputs), inputs, COUNT(output_names), output_names,
                                  COUNT(variants), variants, 0, NULL, 0, NULL, 0, 0, NULL};

__attribute__((visibility("default"))) const opw_module *opw_module_entry(void) { return &module; }
