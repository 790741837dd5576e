/* States: values that live between runs, in memory of their own, which runs write in place.
 *
 * A state has plans of its own, one for the shapes of the inputs that are fed. Only one run at a time uses a state, so a
 * plan is evaluated anew in its own arrays when the state has become longer: neither memory nor pointers change. Where
 * nothing but shapes counts, it is good as it is. */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#define MAX_STATE_PLANS 8

struct opw_state {
    opw_model *model;
    atomic_int busy;
    bool lost;
    bool varies;         /* whether a plan depends on more than shapes of inputs: on values, or on lengths */
    opw_tensor *tensors; /* one a value: its memory and its shape, capacity included */
    void *memory;        /* of all values, as it was allocated */
    int64_t *lengths;
    opw_tensor *inputs; /* of the module, for bind */
    void **pointers;    /* the same for run */
    int32_t made;       /* plans, for shapes that were new */
    int32_t n_plans;
    opw_plan *plans[MAX_STATE_PLANS]; /* the one used last first */
};

bool opw_has_lengths(const opw_module *module) {
    for (int32_t i = 0; i < module->n_states; i++)
        if (module->states[i].axis >= 0) return true;
    return false;
}

static const opw_input *input_of(const opw_model *model, int32_t i) {
    return i >= 0 && i < model->module->n_states ? &model->module->inputs[model->module->states[i].input] : NULL;
}

int32_t opw_state_count(const opw_model *model) { return model->module->n_states; }
const char *opw_state_name(const opw_model *model, int32_t i) {
    const opw_input *input = input_of(model, i);
    return input ? input->name : NULL;
}
int32_t opw_state_dtype(const opw_model *model, int32_t i) {
    const opw_input *input = input_of(model, i);
    return input ? input->dtype : 0;
}
int32_t opw_state_rank(const opw_model *model, int32_t i) {
    const opw_input *input = input_of(model, i);
    return input ? input->rank : 0;
}
int32_t opw_state_axis(const opw_model *model, int32_t i) {
    return input_of(model, i) ? model->module->states[i].axis : -1;
}

/* ---- memory ---- */

/* Checks and keeps the shape of a value. Returns a status, and its bytes with what aligns the next. */
static int32_t keep_shape(opw_state *state, int32_t i, const opw_tensor *shape, int64_t *bytes, char *message,
                          size_t capacity) {
    const opw_input *input = input_of(state->model, i);
    opw_tensor *tensor = &state->tensors[i];
    *tensor = (opw_tensor){.dtype = input->dtype, .rank = input->rank};
    if (shape->rank != input->rank) {
        opw_message(message, capacity, "state '%s': expected %d dimensions, got %d", input->name, (int)input->rank,
                    (int)shape->rank);
        return OPW_INVALID_INPUT;
    }
    memcpy(tensor->shape, shape->shape, sizeof tensor->shape);
    *bytes = opw_tensor_bytes(tensor);
    if (*bytes < 0 || *bytes > opw_memory_limit()) {
        opw_message(message, capacity, "state '%s': its shape is negative, or more than this process may use",
                    input->name);
        return OPW_TOO_LARGE;
    }
    *bytes = (*bytes + OPW_ALIGNMENT - 1) / OPW_ALIGNMENT * OPW_ALIGNMENT;
    return OPW_OK;
}

/* All values in one piece of memory, on large pages where it is large: what runs read at random, as blocks of keys, then
 * misses the TLB less often. Zeros that the system gives when they are first touched: of a capacity that is never used,
 * nothing is but the rest of a page. */
static int32_t make_values(opw_state *state, const opw_tensor *shapes, char *message, size_t capacity) {
    int64_t total = 0, bytes = 0;
    int32_t n = state->model->module->n_states;
    for (int32_t i = 0; i < n; i++) {
        int32_t status = keep_shape(state, i, &shapes[i], &bytes, message, capacity);
        if (status != OPW_OK) return status;
        total += bytes;
        if (total > opw_memory_limit()) {
            opw_message(message, capacity, "state '%s': with those before it more than this process may use",
                        input_of(state->model, i)->name);
            return OPW_TOO_LARGE;
        }
    }
    size_t alignment = opw_page_of((size_t)total);
    state->memory = calloc((size_t)total + alignment, 1);
    if (!state->memory) {
        opw_message(message, capacity, "no memory for %lld bytes of states", (long long)total);
        return OPW_NO_MEMORY;
    }
    char *at = (char *)(((uintptr_t)state->memory + alignment - 1) / alignment * alignment);
    opw_advise(at, (size_t)total);
    for (int32_t i = 0; i < n; i++) {
        state->tensors[i].data = at;
        at += (opw_tensor_bytes(&state->tensors[i]) + OPW_ALIGNMENT - 1) / OPW_ALIGNMENT * OPW_ALIGNMENT;
    }
    return OPW_OK;
}

int32_t opw_state_make(opw_model *model, const opw_tensor *shapes, opw_state **made, char *message, size_t capacity) {
    *made = NULL;
    const opw_module *module = model->module;
    size_t n = (size_t)module->n_states, inputs = (size_t)module->n_inputs + 1;
    if (!n) {
        opw_message(message, capacity, "the model has no states");
        return OPW_INVALID_INPUT;
    }
    opw_state *state = calloc(1, sizeof *state);
    if (state) {
        state->model = model;
        state->varies = opw_has_lengths(module);
        for (int32_t i = 0; i < module->n_inputs; i++) state->varies |= module->inputs[i].by_value != 0;
        state->tensors = calloc(n, sizeof *state->tensors);
        state->lengths = calloc(n, sizeof *state->lengths);
        state->inputs = calloc(inputs, sizeof *state->inputs);
        state->pointers = calloc(inputs, sizeof *state->pointers);
    }
    int32_t status = OPW_OK;
    if (!state || !state->tensors || !state->lengths || !state->inputs || !state->pointers) {
        opw_message(message, capacity, "no memory for a state");
        status = OPW_NO_MEMORY;
    }
    if (status == OPW_OK) status = make_values(state, shapes, message, capacity);
    if (status == OPW_OK) *made = state;
    else opw_state_free(state);
    return status;
}

void opw_state_free(opw_state *state) {
    if (!state) return;
    for (int32_t i = 0; i < state->n_plans; i++) opw_plan_release(state->plans[i]);
    free(state->memory);
    free(state->tensors);
    free(state->lengths);
    free(state->inputs);
    free(state->pointers);
    free(state);
}

/* ---- what a state tells, and is told ---- */

static int32_t take(opw_state *state, char *message, size_t capacity) {
    if (!atomic_exchange(&state->busy, 1)) return OPW_OK;
    opw_message(message, capacity, "the state of '%s' is in use by another run: a run needs a state of its own",
                opw_state_name(state->model, 0));
    return OPW_STATE_BUSY;
}

static void give_back(opw_state *state) { atomic_store(&state->busy, 0); }

int32_t opw_state_reset(opw_state *state, char *message, size_t capacity) {
    int32_t status = take(state, message, capacity);
    if (status != OPW_OK) return status;
    for (int32_t i = 0; i < state->model->module->n_states; i++) {
        state->lengths[i] = 0;
        const opw_tensor *tensor = &state->tensors[i];
        if (state->model->module->states[i].axis < 0) memset(tensor->data, 0, (size_t)opw_tensor_bytes(tensor));
    }
    state->lost = false;
    give_back(state);
    return OPW_OK;
}

void opw_state_tensor(const opw_state *state, int32_t i, opw_tensor *tensor) {
    *tensor = input_of(state->model, i) ? state->tensors[i] : (opw_tensor){0};
}

int64_t opw_state_length(const opw_state *state, int32_t i) {
    return opw_state_axis(state->model, i) < 0 ? -1 : state->lengths[i];
}

int32_t opw_state_set_length(opw_state *state, int32_t i, int64_t length, char *message, size_t capacity) {
    int32_t axis = opw_state_axis(state->model, i), status = take(state, message, capacity);
    if (status != OPW_OK) return status;
    if (axis < 0 || length < 0 || length > state->tensors[i].shape[axis]) {
        const char *name = opw_state_name(state->model, i);
        opw_message(message, capacity, "state '%s': its length cannot be %lld", name ? name : "?", (long long)length);
        status = OPW_INVALID_INPUT;
    } else {
        state->lengths[i] = length;
    }
    give_back(state);
    return status;
}

int32_t opw_state_plans(const opw_state *state) { return state->made; }

/* ---- runs ---- */

/* Inputs of the module: those that are fed, the state's values, their lengths. */
static void gather(opw_state *state, const opw_tensor *inputs) {
    const opw_module *module = state->model->module;
    int32_t fed = opw_input_count(state->model);
    memcpy(state->inputs, inputs, (size_t)fed * sizeof *inputs);
    for (int32_t i = 0; i < module->n_states; i++) {
        state->inputs[fed + i] = state->tensors[i];
        state->pointers[fed + i] = state->tensors[i].data;
    }
    int32_t last = fed + module->n_states;
    if (last == module->n_inputs) return;
    state->inputs[last] = (opw_tensor){
        .data = state->lengths, .dtype = OPW_INT64, .rank = 1, .shape = {module->n_states}};
    state->pointers[last] = state->lengths;
}

/* Makes a plan and puts it first; the last one goes where there are too many. The key is the plan's. */
static int32_t make_plan(opw_state *state, int32_t threads, opw_key *key, char *message, size_t capacity) {
    opw_plan *plan;
    int32_t status = opw_plan_make(state->model, state->inputs, threads, &plan, message, capacity);
    if (status != OPW_OK) return status;
    opw_key_give(key, plan);
    atomic_store(&plan->references, 1);
    if (state->n_plans == MAX_STATE_PLANS) opw_plan_release(state->plans[--state->n_plans]);
    memmove(state->plans + 1, state->plans, (size_t)state->n_plans++ * sizeof *state->plans);
    state->plans[0] = plan;
    return OPW_OK;
}

static void drop_first(opw_state *state) {
    opw_plan_release(state->plans[0]);
    memmove(state->plans, state->plans + 1, (size_t)--state->n_plans * sizeof *state->plans);
}

/* Puts the plan of this key first; false where there is none. */
static bool recall_plan(opw_state *state, const opw_key *key) {
    int32_t at = 0;
    while (at < state->n_plans && !opw_key_is(key, state->plans[at])) at++;
    if (at == state->n_plans) return false;
    opw_plan *plan = state->plans[at];
    memmove(state->plans + 1, state->plans, (size_t)at * sizeof *state->plans);
    state->plans[0] = plan;
    return true;
}

static int32_t plan_for(opw_state *state, int32_t threads, opw_key *key, char *message, size_t capacity) {
    if (!recall_plan(state, key)) {
        int32_t status = make_plan(state, threads, key, message, capacity);
        state->made += status == OPW_OK;
        return status;
    }
    if (!state->varies) return OPW_OK;
    /* A thread that came late to the run before may still look at the plan: then this one gets another. */
    if (atomic_load(&state->plans[0]->references) > 1) {
        drop_first(state);
        return make_plan(state, threads, key, message, capacity);
    }
    int32_t status = opw_plan_resize(state->plans[0], state->inputs, threads, message, capacity);
    if (status == OPW_OK) return OPW_OK;
    drop_first(state);
    if (status != OPW_NO_VARIANT) return status;
    status = make_plan(state, threads, key, message, capacity); /* the length wants another variant */
    state->made += status == OPW_OK;
    return status;
}

int32_t opw_state_begin(opw_state *state, const opw_tensor *inputs, int32_t threads, const opw_plan **plan,
                        char *message, size_t capacity) {
    *plan = NULL;
    if (!opw_count_threads(&threads, message, capacity)) return OPW_INVALID_INPUT;
    int32_t status = take(state, message, capacity);
    if (status != OPW_OK) return status;
    opw_key key = {0};
    if (state->lost) {
        opw_message(message, capacity,
                    "the state of '%s' is lost: a run failed that had begun to overwrite it; reset it",
                    opw_state_name(state->model, 0));
        status = OPW_STATE_LOST;
    } else {
        const opw_module *module = state->model->module;
        int32_t fed = opw_input_count(state->model);
        /* Plans are evaluated anew, so that they are good for any values, as a position that is fed. */
        status = opw_key_make(module, inputs, fed, false, threads, &key, message, capacity);
    }
    if (status == OPW_OK) {
        gather(state, inputs);
        status = plan_for(state, threads, &key, message, capacity);
    }
    opw_key_free(&key);
    if (status == OPW_OK) *plan = state->plans[0];
    else give_back(state);
    return status;
}

int32_t opw_state_run_timed(opw_state *state, void *const *inputs, void *const *outputs, opw_timing *timings,
                            int64_t *run_ns, char *message, size_t capacity) {
    if (!atomic_load(&state->busy) || !state->n_plans) {
        opw_message(message, capacity, "no run was begun with this state");
        return OPW_INVALID_INPUT;
    }
    const opw_plan *plan = state->plans[0];
    const opw_module *module = state->model->module;
    memcpy(state->pointers, inputs, (size_t)opw_input_count(state->model) * sizeof *inputs);
    int32_t status = opw_run_timed(state->model, plan, state->pointers, outputs, timings, run_ns, message, capacity);
    for (int32_t i = 0; i < module->n_states; i++) {
        bool grows = module->states[i].axis >= 0;
        if (status == OPW_OK && grows) state->lengths[i] = plan->slots[plan->variant->lengths[i]];
        /* Other failures come before anything is computed. */
        if (status == OPW_KERNEL_ERROR && !grows) state->lost = true;
    }
    give_back(state);
    return status;
}

int32_t opw_state_run(opw_state *state, void *const *inputs, void *const *outputs, char *message, size_t capacity) {
    return opw_state_run_timed(state, inputs, outputs, NULL, NULL, message, capacity);
}

void opw_state_cancel(opw_state *state) { give_back(state); }
