/* Runs a model with states, whose one fed input is x: float32 of the shape that is given, element i of run k is
 * k + i / 4. Prints y of each run on a line, then the lengths; at the end, what a second state says to the first run. */
#include <stdio.h>
#include <stdlib.h>
#include "opweld.h"

static char message[1024];

static int fail(const char *where) {
    fprintf(stderr, "%s: %s\n", where, message);
    return 1;
}

static int run(opw_state *state, opw_tensor *x, int number, int elements, int second) {
    float *data = x->data, y[256];
    const opw_plan *plan, *none;
    opw_tensor output;
    for (int i = 0; i < elements; i++) data[i] = (float)number + (float)i / 4;
    if (opw_state_begin(state, x, 0, &plan, message, sizeof message) != OPW_OK) return fail("begin");
    if (opw_state_begin(state, x, 0, &none, message, sizeof message) != OPW_STATE_BUSY) return fail("busy");
    opw_plan_output(plan, 0, &output);
    int64_t count = 1;
    for (int axis = 0; axis < output.rank; axis++) count *= output.shape[axis];
    if (count > 256) return fail("too many");
    void *inputs[] = {data}, *outputs[] = {y};
    if (opw_state_run(state, inputs, outputs, message, sizeof message) != OPW_OK) return fail("run");
    printf(second ? "second" : "y");
    for (int64_t i = 0; i < count; i++) printf(" %.9g", y[i]);
    printf("\n");
    return 0;
}

/* state ARTIFACT RUNS CAPACITY DIM... */
int main(int argc, char **argv) {
    int runs = atoi(argv[2]), elements = 1;
    opw_model *model = opw_open(argv[1], message, sizeof message);
    if (!model) return fail("open");
    opw_tensor x = {.dtype = OPW_FLOAT32, .rank = argc - 4};
    for (int axis = 0; axis < x.rank; axis++) elements *= (int)(x.shape[axis] = atoi(argv[4 + axis]));
    x.data = malloc((size_t)elements * sizeof(float));
    const opw_plan *plan;
    if (opw_bind(model, &x, 0, &plan, message, sizeof message) != OPW_INVALID_INPUT) return fail("bind");

    opw_tensor shapes[8] = {0};
    for (int i = 0; i < opw_state_count(model); i++) { /* those of tests: [1, 5, 2] and [1], [], [2, capacity, 3] */
        int axis = opw_state_axis(model, i), rank = shapes[i].rank = opw_state_rank(model, i);
        int64_t known[] = {rank == 3 && axis < 0 ? 1 : rank == 3 ? 2 : 1, 5, axis < 0 ? 2 : 3};
        for (int d = 0; d < rank; d++) shapes[i].shape[d] = d == axis ? atoi(argv[3]) : known[d];
    }
    opw_state *state, *second;
    if (opw_state_make(model, shapes, &state, message, sizeof message) != OPW_OK) return fail("make");
    if (opw_state_make(model, shapes, &second, message, sizeof message) != OPW_OK) return fail("make");
    opw_tensor before, after;
    opw_state_tensor(state, 0, &before);
    for (int k = 0; k < runs; k++)
        if (run(state, &x, k, elements, 0)) return 1;
    if (run(second, &x, 0, elements, 1)) return 1;
    opw_state_tensor(state, 0, &after);
    printf("%s %s plans %d length %lld\n", opw_state_name(model, 0), before.data == after.data ? "stays" : "moves",
           opw_state_plans(state), (long long)opw_state_length(state, 0));
    if (opw_state_reset(state, message, sizeof message) != OPW_OK) return fail("reset");
    if (run(state, &x, 0, elements, 1)) return 1;
    opw_state_free(state);
    opw_state_free(second);
    free(x.data);
    opw_close(model);
    return 0;
}
