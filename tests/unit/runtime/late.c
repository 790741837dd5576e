/* Threads that are late, wherever they can be: late ARTIFACT SCENE, with the module of chain.c.
 *
 *   join, open   a worker is held there until its call, and the model, are gone and others have run; then it goes on, to
 *                the call of that time
 *   piece        a worker is held with a piece: the call waits for it
 *   random       several callers, and threads that are late at random
 *
 * The runtime is compiled with OPW_HOLD(where, worker) hold(where, worker). */
#define _GNU_SOURCE
#include "opweld.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINKS = 12, CALLERS = 3, RUNS = 40, N = 200 };

static const char *scene;
static atomic_bool held, go, returned, back, at_random;
static _Thread_local bool was_held;
static _Thread_local unsigned dice;

void hold(const char *where, int32_t worker) {
    if (atomic_load(&at_random)) {
        if (!dice) dice = (unsigned)(uintptr_t)&dice | 1;
        unsigned throw = dice = dice * 1664525 + 1013904223;
        if (throw >> 24 < 8) usleep(throw >> 8 & 255);
        return;
    }
    if (was_held && !strcmp(where, "piece")) atomic_store(&back, true);
    if (worker == 1 && !strcmp(where, scene) && !atomic_exchange(&held, true)) {
        was_held = true;
        while (!atomic_load(&go)) sched_yield();
    }
    while (worker != 1 && !strcmp(where, "open") && !atomic_load(&held)) sched_yield(); /* the call lasts until then */
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static opw_model *open_model(const char *folder) {
    char message[1024];
    opw_model *model = opw_open(folder, message, sizeof message);
    if (!model) fail(message);
    return model;
}

/* Runs the model once and compares. */
static void run(opw_model *model, int64_t n, bool timed) {
    char message[1024] = "";
    int64_t *x = malloc((size_t)n * 8), *y = calloc((size_t)n, 8), *last = malloc((size_t)n * 8), run_ns;
    for (int64_t i = 0; i < n; i++) x[i] = last[i] = i * i % 101;
    opw_tensor inputs[] = {{x, OPW_INT64, 1, {n}}};
    const opw_plan *plan;
    if (opw_bind(model, inputs, 0, &plan, message, sizeof message)) fail(message);
    opw_timing *times = malloc((size_t)opw_plan_threads(plan) * LINKS * sizeof *times);
    void *given[] = {x}, *results[] = {y};
    int32_t status = timed ? opw_run_timed(model, plan, given, results, times, &run_ns, message, sizeof message)
                           : opw_run(model, plan, given, results, message, sizeof message);
    if (status) fail(message);
    int64_t pieces = 0, whole = timed ? LINKS : 0;
    for (int64_t i = 0; timed && i < opw_plan_threads(plan) * LINKS; i++) pieces += times[i].pieces;
    for (int link = 0; link < LINKS; link++) {
        int64_t *next = malloc((size_t)n * 8);
        for (int64_t i = 0; i < n; i++) next[i] = 3 * last[i] + last[(7 * i + 1) % n];
        free(last);
        last = next;
    }
    if (pieces < whole) fail("a step has no times");
    if (memcmp(last, y, (size_t)n * 8)) fail("another result");
    opw_plan_release(plan);
    free(times), free(x), free(y), free(last);
}

static void *call(void *argument) {
    run(argument, N, true);
    atomic_store(&returned, true);
    return NULL;
}

static void hold_a_piece(opw_model *model) {
    pthread_t caller;
    pthread_create(&caller, NULL, call, model);
    while (!atomic_load(&held)) sched_yield();
    usleep(20000); /* the call has all the time to do wrong */
    if (atomic_load(&returned)) fail("the call returned while a thread had a piece");
    atomic_store(&go, true);
    pthread_join(caller, NULL);
}

static void hold_a_worker(opw_model *model, const char *folder) {
    run(model, N, true);
    opw_close(model);
    model = open_model(folder);
    for (int i = 0; i < 3; i++) run(model, N + i, false);
    if (!atomic_load(&held) || atomic_load(&go)) fail("nobody was held");
    atomic_store(&go, true);
    while (!atomic_load(&back)) run(model, N, false);
    opw_close(model);
}

static void *call_often(void *argument) {
    for (int64_t i = 0; i < RUNS; i++) run(argument, 1 + i * 37 % N, i % 2);
    return NULL;
}

static void be_late_at_random(opw_model *model) {
    pthread_t callers[CALLERS];
    atomic_store(&at_random, true);
    for (int i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, call_often, model);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    scene = arguments[2];
    opw_model *model = open_model(arguments[1]);
    if (!strcmp(scene, "random"))
        be_late_at_random(model);
    else if (!strcmp(scene, "piece"))
        hold_a_piece(model);
    else
        hold_a_worker(model, arguments[1]);
    puts("done");
    return 0;
}
