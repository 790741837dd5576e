/* A machine that others load: loaded ARTIFACT, with the module of chain.c. Prints one line a scene.
 *
 * Clocks are the program's own: while the machine is loaded, a worker that has taken a piece loses its core for a while,
 * in each run, and the caller finds no other piece of that phase. The runtime is compiled with
 * OPW_HOLD(where, worker) hold(where, worker), and without its clocks. */
#include "opweld.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 200, LOST_NS = 20000000, REST_NS = 2000000000 };

static atomic_llong clock_ns = 1, core_ns;
static atomic_bool loaded, walked, late, reported;

int64_t opw_now(void) { return atomic_fetch_add(&clock_ns, 1); }

/* Of a quiet machine: the caller has its core all the time. */
int64_t opw_core_time(void) { return loaded ? atomic_load(&core_ns) : atomic_fetch_add(&core_ns, LOST_NS); }

void hold(const char *where, int32_t worker) {
    if (worker == 0 && !strcmp(where, "open")) {
        atomic_store(&walked, true);
        while (atomic_load(&loaded) && !atomic_load(&late)) sched_yield();
    }
    if (worker == 0 && !strcmp(where, "report")) atomic_store(&reported, true);
    if (worker == 0 || strcmp(where, "piece") || !atomic_load(&loaded) || atomic_exchange(&late, true)) return;
    while (!atomic_load(&reported)) sched_yield();
    atomic_fetch_add(&clock_ns, LOST_NS);
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* Runs the model once, and compares; returns whether it was offered to workers. */
static bool run(opw_model *model) {
    char message[1024] = "";
    int64_t x[N], y[N], last[N], next[N];
    for (int64_t i = 0; i < N; i++) x[i] = last[i] = i * i % 101;
    for (int link = 0; link < 12; link++, memcpy(last, next, sizeof last))
        for (int64_t i = 0; i < N; i++) next[i] = 3 * last[i] + last[(7 * i + 1) % N];
    opw_tensor inputs[] = {{x, OPW_INT64, 1, {N}}};
    const opw_plan *plan;
    if (opw_bind(model, inputs, 2, &plan, message, sizeof message)) fail(message);
    atomic_store(&walked, false), atomic_store(&late, false), atomic_store(&reported, false);
    void *given[] = {x}, *results[] = {y};
    if (opw_run(model, plan, given, results, message, sizeof message)) fail(message);
    if (memcmp(last, y, sizeof y)) fail("another result");
    opw_plan_release(plan);
    return atomic_load(&walked);
}

/* How many of so many runs were offered to workers. */
static int together(opw_model *model, int runs) {
    int count = 0;
    while (runs--) count += run(model);
    return count;
}

static bool alone_in_time(opw_model *model) {
    for (int runs = 0; runs < 200; runs++)
        if (!run(model)) return true;
    return false;
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    char message[1024];
    opw_model *model = opw_open(arguments[1], message, sizeof message);
    if (!model) fail(message);
    printf("quiet: %d of 20 with workers\n", together(model, 20));
    atomic_store(&loaded, true);
    printf("late: alone %d, ", alone_in_time(model));
    printf("%d of 20 with workers\n", together(model, 20));
    atomic_fetch_add(&clock_ns, REST_NS);
    printf("tried again: %d with workers, ", run(model));
    printf("alone %d, ", alone_in_time(model));
    printf("%d of 20 with workers\n", together(model, 20));
    atomic_store(&loaded, false);
    atomic_fetch_add(&clock_ns, REST_NS);
    printf("quiet again: %d of 20 with workers\n", together(model, 20));
    opw_close(model);
    return 0;
}
