/* A module of three phases, written by hand: a step that burns time; two serial steps that wait for each other, beside one
 * that is cut into pieces; the sum of it all.
 *
 *   inputs   x u8[N]        its size is the number of iterations that burn
 *            fail i64[3]    what left, right and mark leave in their error words (by value)
 *   outputs  met i64[2]     1 where left, or right, saw the other one while it ran
 *            marks i64[N]   1 everywhere
 *            total i64[]    the sum of met and marks
 */
#define _GNU_SOURCE
#include "opweld_abi.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#define BURN_NS 20000

/* How long one side waits for the other: where both run, however busy the machine is; where one thread runs them in
 * order, in vain. */
#ifndef MEET_NS
#define MEET_NS 300000000000
#endif

enum { N, ONE, TWO, BYTES, BURN_WORK, LEFT_WORK, RIGHT_WORK, MARK_WORK, FAIL, N_SLOTS = FAIL + 3 };

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static atomic_bool present[2]; /* left, right: in one run at a time */

/* At least BURN_NS nanoseconds an iteration, on whatever machine. */
static void burn(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    int64_t *burnt = buffers[0];
    (void)p, (void)scratch, (void)error;
    if (!begin) atomic_store(&present[0], false), atomic_store(&present[1], false);
    for (int64_t i = begin; i < end; i++) {
        for (int64_t until = now() + BURN_NS; now() < until;) continue;
        burnt[i] = 1;
    }
}

/* Waits for the other side, unless it is to fail. */
static void meet(int side, void *const *buffers, const int64_t *p, int64_t *error) {
    const int64_t *burnt = buffers[0];
    int64_t *met = buffers[1];
    atomic_store(&present[side], true);
    for (int64_t until = now() + MEET_NS; !*p && !atomic_load(&present[!side]) && now() < until;) continue;
    met[side] = burnt[0] && atomic_load(&present[!side]);
    *error = *p;
}

static void left(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    (void)begin, (void)end, (void)scratch;
    for (int64_t until = now() + 3000000; *p && now() < until;) continue; /* the later step fails first */
    meet(0, buffers, p, error);
}

static void right(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    (void)begin, (void)end, (void)scratch;
    meet(1, buffers, p, error);
}

static void mark(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    const int64_t *burnt = buffers[0];
    int64_t *marks = buffers[1];
    (void)scratch;
    for (int64_t i = begin; i < end; i++) marks[i] = burnt[i];
    *error = *p;
}

static void add(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error) {
    const int64_t *met = buffers[0], *marks = buffers[1];
    int64_t *total = buffers[2];
    (void)begin, (void)end, (void)scratch, (void)error;
    *total = met[0] + met[1];
    for (int64_t i = 0; i < *p; i++) *total += marks[i];
}

static int32_t bind(const opw_tensor *inputs, int64_t *slots) {
    slots[N] = inputs[0].shape[0];
    slots[ONE] = 1;
    slots[TWO] = 2;
    slots[BYTES] = slots[N] * 8;
    slots[BURN_WORK] = slots[N] * BURN_NS;
    slots[LEFT_WORK] = 50000;
    slots[RIGHT_WORK] = 60000; /* the dearer one, so that it begins first */
    slots[MARK_WORK] = 40000;
    for (int i = 0; i < 3; i++) slots[FAIL + i] = ((const int64_t *)inputs[1].data)[i];
    return 0;
}

enum { BURNT, MET, MARKS, TOTAL };

static const opw_buffer buffers[] = {
    [BURNT] = {OPW_ARENA, 0, 0, BYTES, 0, 1},
    [MET] = {OPW_OUTPUT, 0, 0, -1, 0, 0},
    [MARKS] = {OPW_OUTPUT, 1, 0, -1, 0, 0},
    [TOTAL] = {OPW_OUTPUT, 2, 0, -1, 0, 0},
};
static const int32_t b_burn[] = {BURNT}, b_meet[] = {BURNT, MET}, b_mark[] = {BURNT, MARKS}, b_add[] = {MET, MARKS, TOTAL};
static const int32_t p_left[] = {FAIL}, p_right[] = {FAIL + 1}, p_mark[] = {FAIL + 2}, p_add[] = {N};

static const opw_step steps[] = {
    {burn, 0, 1, b_burn, 0, 0, N, BURN_WORK, -1, -1, N, 0, "burn", "/Burn"},
    {left, 1, 2, b_meet, 1, p_left, ONE, LEFT_WORK, -1, -1, -1, 1, "left", "/Left"},
    {right, 1, 2, b_meet, 1, p_right, ONE, RIGHT_WORK, -1, -1, -1, 1, "right", "/Right"},
    {mark, 1, 2, b_mark, 1, p_mark, N, MARK_WORK, -1, -1, -1, 0, "mark", "/Mark"},
    {add, 2, 3, b_add, 1, p_add, ONE, ONE, -1, -1, -1, 1, "add", "/Add"},
};

static const int32_t s_met[] = {TWO}, s_marks[] = {N};
static const opw_output outputs[] = {{OPW_INT64, 1, s_met}, {OPW_INT64, 1, s_marks}, {OPW_INT64, 0, 0}};

#define COUNT(array) ((int32_t)(sizeof(array) / sizeof *(array)))

static const opw_variant variants[] = {
    {"main", N_SLOTS, bind, 0, 0, COUNT(buffers), buffers, COUNT(steps), steps, COUNT(outputs), outputs}};
static const opw_input inputs[] = {{"x", OPW_UINT8, 1, 0}, {"fail", OPW_INT64, 1, 1}};
static const char *const output_names[] = {"met", "marks", "total"};

static const opw_module module = {OPW_ABI, "", 0, COUNT(inputs), inputs, COUNT(output_names), output_names,
                                  COUNT(variants), variants};

__attribute__((visibility("default"))) const opw_module *opw_module_entry(void) { return &module; }
