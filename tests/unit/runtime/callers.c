/* Runs the model of phases.c from several threads at once, at several sizes: callers ARTIFACT. For a race detector. */
#include "opweld.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { CALLERS = 3, RUNS = 30 };

static opw_model *model;

static void *call(void *argument) {
    char message[1024] = "";
    int64_t caller = (int64_t)argument, fail[3] = {0};
    for (int64_t run = 0; run < RUNS; run++) {
        int64_t n = 2 + (run + caller) % 5 * 7, met[2], total, run_ns;
        int64_t *marks = malloc((size_t)n * sizeof *marks);
        char *x = calloc((size_t)n, 1);
        fail[2] = run % 10 == 9 ? 5 : 0;
        opw_tensor inputs[] = {{x, OPW_UINT8, 1, {n}}, {fail, OPW_INT64, 1, {3}}};
        const opw_plan *plan;
        int32_t status = opw_bind(model, inputs, 0, &plan, message, sizeof message);
        if (!status) {
            size_t timings = (size_t)opw_plan_threads(plan) * (size_t)opw_plan_steps(plan);
            opw_timing *times = malloc(timings * sizeof *times);
            void *given[] = {x, fail}, *results[] = {met, marks, &total};
            status = opw_run_timed(model, plan, given, results, run % 2 ? times : NULL, &run_ns, message, sizeof message);
            int64_t sum = met[0] + met[1];
            for (int64_t i = 0; i < n && !status; i++) sum += marks[i];
            if (status != (fail[2] ? OPW_KERNEL_ERROR : OPW_OK) || (!status && sum != total)) {
                fprintf(stderr, "caller %d, run %d: status %d %s\n", (int)caller, (int)run, (int)status, message);
                exit(1);
            }
            free(times);
            opw_plan_release(plan);
        }
        free(marks);
        free(x);
    }
    return NULL;
}

int main(int count, char **arguments) {
    char message[1024];
    pthread_t callers[CALLERS];
    if (count != 2 || !(model = opw_open(arguments[1], message, sizeof message))) return 2;
    for (int64_t i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, call, (void *)i);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    opw_close(model);
    return 0;
}
