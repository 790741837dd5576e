/* A module written by hand: a chain of phases, in each of which an element is made of two that other threads may have made
 * in the phase before; every other phase is too small to be shared.
 *
 *   inputs   x i64[N]
 *   outputs  y i64[N]     after LINKS phases of next[i] = 3 * last[i] + last[(7 * i + 1) % N]
 *
 * A thread writes its scratch while it computes: two that had the same one would be seen by a race detector, and by
 * themselves. */
#include "opweld_abi.h"

enum { LINKS = 12 };
enum { N, BYTES, MUCH, LITTLE, SCRATCH, N_SLOTS };

static void link(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    const int64_t *last = buffers[0];
    int64_t *next = buffers[1], n = p[0], *mine = (int64_t *)scratch;
    for (int64_t i = begin; i < end; i++) {
        *mine = i;
        next[i] = 3 * last[i] + last[(7 * i + 1) % n];
        if (*(volatile int64_t *)mine != i) *error = 88;
    }
}

static int32_t bind(const opw_tensor *inputs, int64_t *slots) {
    slots[N] = inputs[0].shape[0];
    slots[BYTES] = slots[N] * 8;
    slots[MUCH] = slots[N] * 1000;
    slots[LITTLE] = 1;
    slots[SCRATCH] = 64;
    return 0;
}

enum { X, EVEN, ODD, Y };
static const opw_buffer buffers[] = {
    [X] = {OPW_INPUT, 0, 0, -1, 0, 0},
    [EVEN] = {OPW_ARENA, 0, 0, BYTES, 0, LINKS - 1},
    [ODD] = {OPW_ARENA, 0, 0, BYTES, 1, LINKS - 1},
    [Y] = {OPW_OUTPUT, 0, 0, -1, 0, 0},
};
static const int32_t first[] = {X, EVEN}, odd[] = {EVEN, ODD}, even[] = {ODD, EVEN}, last[] = {EVEN, Y}, params[] = {N};

#define STEP(phase, between, work) \
    {link, phase, 2, between, 1, params, N, work, SCRATCH, -1, -1, 0, "link", "/Link"}
static const opw_step steps[LINKS] = {
    STEP(0, first, MUCH), STEP(1, odd, LITTLE), STEP(2, even, MUCH), STEP(3, odd, MUCH),
    STEP(4, even, LITTLE), STEP(5, odd, LITTLE), STEP(6, even, MUCH), STEP(7, odd, MUCH),
    STEP(8, even, MUCH), STEP(9, odd, MUCH), STEP(10, even, LITTLE), STEP(11, last, MUCH),
};

static const int32_t s_y[] = {N};
static const opw_output outputs[] = {{OPW_INT64, 1, s_y}};

#define COUNT(array) ((int32_t)(sizeof(array) / sizeof *(array)))

static const opw_variant variants[] = {
    {"main", N_SLOTS, bind, 0, 0, COUNT(buffers), buffers, COUNT(steps), steps, COUNT(outputs), outputs}};
static const opw_input inputs[] = {{"x", OPW_INT64, 1, 0}};
static const char *const output_names[] = {"y"};

static const opw_module module = {OPW_ABI, "", 0, COUNT(inputs), inputs, COUNT(output_names), output_names,
                                  COUNT(variants), variants};

__attribute__((visibility("default"))) const opw_module *opw_module_entry(void) { return &module; }
