/* A thread that came late to a run still looks at its plan while the state is in the next one: the plan must stay as it
 * was, and the next run has another. Looks inside of the runtime. */
#include <stdio.h>
#include "runtime.h"

static char message[1024];

static int step(opw_state *state, opw_tensor *x, const opw_plan **plan, float *y) {
    void *inputs[] = {x->data}, *outputs[] = {y};
    if (opw_state_begin(state, x, 1, plan, message, sizeof message) != OPW_OK) return 1;
    return opw_state_run(state, inputs, outputs, message, sizeof message) != OPW_OK;
}

/* late_state ARTIFACT, of the cache: x [1, 3], keys [2, capacity, 3], y [2, 1, 3] */
int main(int argc, char **argv) {
    (void)argc;
    float data[3] = {1, 2, 3}, y[6];
    opw_tensor x = {.data = data, .dtype = OPW_FLOAT32, .rank = 2, .shape = {1, 3}};
    opw_tensor shape = {.rank = 3, .shape = {2, 20, 3}};
    opw_model *model = opw_open(argv[1], message, sizeof message);
    opw_state *state;
    const opw_plan *first, *plan;
    if (!model || opw_state_make(model, &shape, &state, message, sizeof message) != OPW_OK) goto failed;
    if (step(state, &x, &first, y) || step(state, &x, &plan, y)) goto failed;
    printf("%d", plan == first);
    atomic_fetch_add(&((opw_plan *)first)->references, 1); /* as the job of a late thread has it */
    int64_t id = (int64_t)first->id, output = first->slots[first->variant->lengths[0]];
    for (int i = 0; i < 3; i++)
        if (step(state, &x, &plan, y)) goto failed;
    printf(" %d %d", plan != first, (int64_t)first->id == id && first->slots[first->variant->lengths[0]] == output);
    opw_plan_release(first);
    printf(" %d %lld\n", opw_state_plans(state), (long long)opw_state_length(state, 0));
    opw_state_free(state);
    opw_close(model);
    return 0;
failed:
    fprintf(stderr, "%s\n", message);
    return 1;
}
