/* Runs a program segment by segment: each is bound to results of earlier ones, and determines the next one. */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

/* Reference-counted memory of values. */
typedef struct {
    int64_t references;
    size_t capacity;
    _Alignas(OPW_ALIGNMENT) char bytes[];
} opw_memory;

/* `memory` is NULL where the data is the caller's, or if there is none yet. */
typedef struct {
    opw_tensor tensor;
    opw_memory *memory;
} opw_value;

struct opw_result {
    int32_t n_outputs;
    opw_value outputs[];
};

static opw_memory *allocate_memory(size_t bytes) {
    opw_memory *memory = NULL;
    size_t room = (sizeof *memory + bytes + OPW_ALIGNMENT - 1) / OPW_ALIGNMENT * OPW_ALIGNMENT;
    if (room < bytes || posix_memalign((void **)&memory, OPW_ALIGNMENT, room)) return NULL;
    memory->references = 1;
    memory->capacity = room - sizeof *memory;
    return memory;
}

static void release(opw_value *value) {
    if (value->memory && --value->memory->references == 0) free(value->memory);
    *value = (opw_value){0};
}

static opw_value retained(const opw_value *value) {
    if (value->memory) value->memory->references++;
    return *value;
}

/* Creates a value with its own memory, uninitialised. */
static int32_t make(const opw_tensor *tensor, opw_value *value, char *message, size_t capacity) {
    int64_t bytes = opw_tensor_bytes(tensor);
    opw_memory *memory = bytes < 0 ? NULL : allocate_memory((size_t)bytes);
    if (!memory) {
        opw_message(message, capacity, "no memory for a value of %lld bytes", (long long)bytes);
        return OPW_NO_MEMORY;
    }
    *value = (opw_value){*tensor, memory};
    value->tensor.data = memory->bytes;
    return OPW_OK;
}

/* ---- endings ---- */

static int32_t empty_stacks(const opw_ending *ending, opw_value *values, char *message, size_t capacity) {
    for (int32_t i = 0; i < ending->n_stacks; i++) {
        const opw_stack *stack = &ending->stacks[i];
        opw_tensor tensor = {.dtype = stack->dtype, .rank = stack->rank};
        for (int32_t axis = 1; axis < stack->rank; axis++) tensor.shape[axis] = stack->dims[axis - 1];
        release(&values[stack->value]);
        int32_t status = make(&tensor, &values[stack->value], message, capacity);
        if (status != OPW_OK) return status;
    }
    return OPW_OK;
}

/* Appends a value to a stack, along its first axis. Its memory grows by doubling. */
static int32_t append_value(opw_value *stack, const opw_value *added, char *message, size_t capacity) {
    opw_tensor whole = stack->tensor;
    bool fits = whole.rank == added->tensor.rank + 1 && whole.dtype == added->tensor.dtype;
    for (int32_t axis = 1; fits && axis < whole.rank; axis++) {
        if (!whole.shape[0]) whole.shape[axis] = added->tensor.shape[axis - 1];
        fits = whole.shape[axis] == added->tensor.shape[axis - 1];
    }
    if (!fits) {
        opw_message(message, capacity, "iterations of a loop stack values of different shapes");
        return OPW_INVALID_INPUT;
    }
    int64_t part = opw_tensor_bytes(&added->tensor), used = opw_tensor_bytes(&whole), needed;
    whole.shape[0]++;
    if (part < 0 || used < 0 || __builtin_add_overflow(part, used, &needed)) {
        opw_message(message, capacity, "what a loop stacks is too large");
        return OPW_TOO_LARGE;
    }
    if (!stack->memory || stack->memory->references > 1 || stack->memory->capacity < (size_t)needed) {
        opw_memory *larger = allocate_memory((size_t)needed * 2);
        if (!larger) {
            opw_message(message, capacity, "no memory for the %lld bytes that a loop stacks", (long long)needed);
            return OPW_NO_MEMORY;
        }
        if (used) memcpy(larger->bytes, stack->tensor.data, (size_t)used);
        release(stack);
        stack->memory = larger;
    }
    if (part) memcpy(stack->memory->bytes + used, added->tensor.data, (size_t)part);
    whole.data = stack->memory->bytes;
    stack->tensor = whole;
    return OPW_OK;
}

/* All moves are simultaneous: states of a loop may be swapped. `room` has space for all of them. */
static void move(const opw_ending *ending, opw_value *values, opw_value *room) {
    for (int32_t i = 0; i < ending->n_moves; i++) room[i] = retained(&values[ending->moves[2 * i + 1]]);
    for (int32_t i = 0; i < ending->n_moves; i++) {
        release(&values[ending->moves[2 * i]]);
        values[ending->moves[2 * i]] = room[i];
    }
}

/* ---- segments ---- */

/* The arguments of a segment: tensors for bind, then pointers for run; and its results. */
typedef struct {
    opw_tensor *inputs;
    void **in, **out;
    opw_value *made;
    opw_runner runner; /* NULL: opw_run */
    void *context;
} opw_frame;

/* Runs a segment. On success `*variant` is the one that was taken, and its outputs are in `frame->made`. */
static int32_t compute_segments(opw_model *model, int32_t segment, opw_frame *frame, int32_t threads, int32_t *variant,
                                char *message, size_t capacity) {
    const opw_plan *plan;
    int32_t status = opw_bind(model, frame->inputs, threads, &plan, message, capacity), made = 0;
    if (status != OPW_OK) return status;
    for (int32_t i = 0; i < model->module->n_inputs; i++) frame->in[i] = frame->inputs[i].data;
    for (; made < plan->variant->n_outputs && status == OPW_OK; made++) {
        status = make(&plan->outputs[made], &frame->made[made], message, capacity);
        if (status != OPW_OK) break;
        frame->out[made] = frame->made[made].tensor.data;
    }
    if (status == OPW_OK && frame->runner)
        status = frame->runner(frame->context, segment, model, plan, frame->inputs, frame->in, frame->out, message,
                               capacity);
    else if (status == OPW_OK)
        status = opw_run(model, plan, frame->in, frame->out, message, capacity);
    *variant = plan->variant_index;
    opw_plan_release(plan);
    while (status != OPW_OK && made) release(&frame->made[--made]);
    return status;
}

static int32_t walk(opw_model *model, opw_value *values, opw_value *room, opw_frame *frame, int32_t threads,
                    char *message, size_t capacity) {
    const opw_module *module = model->module;
    int32_t next = 0;
    while (next >= 0) {
        const opw_segment *segment = &module->segments[next];
        for (int32_t i = 0; i < segment->module->n_inputs; i++) frame->inputs[i] = values[segment->inputs[i]].tensor;
        int32_t variant;
        int32_t status = compute_segments(&model->segments[next], next, frame, threads, &variant, message, capacity);
        if (status != OPW_OK) return status;
        const opw_ending *ending = &segment->endings[variant];
        for (int32_t i = 0; i < segment->module->variants[variant].n_outputs; i++) {
            release(&values[ending->outputs[i]]);
            values[ending->outputs[i]] = frame->made[i];
        }
        status = empty_stacks(ending, values, message, capacity);
        for (int32_t i = 0; i < ending->n_appends && status == OPW_OK; i++)
            status = append_value(&values[ending->appends[2 * i]], &values[ending->appends[2 * i + 1]], message, capacity);
        if (status != OPW_OK) return status;
        move(ending, values, room);
        for (int32_t i = 0; i < ending->n_dead; i++) release(&values[ending->dead[i]]);
        next = ending->next;
    }
    return OPW_OK;
}

/* ---- the call ---- */

/* Every output has its own memory: not the caller's, and not that of another output. */
static int32_t hand_out(const opw_module *module, const opw_value *values, opw_result *result, char *message,
                        size_t capacity) {
    for (int32_t i = 0; i < module->n_outputs; i++) {
        const opw_value *value = &values[module->results[i]];
        bool shared = !value->memory;
        for (int32_t k = 0; k < i && !shared; k++) shared = result->outputs[k].memory == value->memory;
        if (!shared) {
            result->outputs[result->n_outputs++] = retained(value);
            continue;
        }
        int32_t status = make(&value->tensor, &result->outputs[i], message, capacity);
        if (status != OPW_OK) return status;
        int64_t bytes = opw_tensor_bytes(&value->tensor);
        if (bytes) memcpy(result->outputs[i].tensor.data, value->tensor.data, (size_t)bytes);
        result->n_outputs++;
    }
    return OPW_OK;
}

/* A program without segments: one plan. */
static int32_t call_straight(opw_model *model, opw_frame *frame, const opw_tensor *inputs, int32_t threads,
                             opw_result *result, char *message, size_t capacity) {
    int32_t variant;
    memcpy(frame->inputs, inputs, (size_t)model->module->n_inputs * sizeof *inputs);
    int32_t status = compute_segments(model, 0, frame, threads, &variant, message, capacity);
    if (status != OPW_OK) return status;
    result->n_outputs = model->module->n_outputs;
    memcpy(result->outputs, frame->made, (size_t)result->n_outputs * sizeof *result->outputs);
    return OPW_OK;
}

static int32_t call_segments(opw_model *model, opw_frame *frame, const opw_tensor *inputs, int32_t threads,
                             opw_result *result, char *message, size_t capacity) {
    const opw_module *module = model->module;
    opw_value *values = calloc(2 * (size_t)module->n_values + 1, sizeof *values);
    if (!values) {
        opw_message(message, capacity, "no memory for %d values", (int)module->n_values);
        return OPW_NO_MEMORY;
    }
    for (int32_t i = 0; i < module->n_inputs; i++) values[i].tensor = inputs[i];
    int32_t status = walk(model, values, values + module->n_values, frame, threads, message, capacity);
    if (status == OPW_OK) status = hand_out(module, values, result, message, capacity);
    for (int32_t i = 0; i < module->n_values; i++) release(&values[i]);
    free(values);
    return status;
}

/* The most inputs and outputs that any of its modules has. */
static size_t widest(const opw_module *module) {
    size_t most = (size_t)(module->n_inputs > module->n_outputs ? module->n_inputs : module->n_outputs);
    for (int32_t i = 0; i < module->n_segments; i++) {
        size_t own = widest(module->segments[i].module);
        if (own > most) most = own;
    }
    return most;
}

int32_t opw_call_with(opw_model *model, const opw_tensor *inputs, int32_t threads, opw_runner runner, void *context,
                      opw_result **made, char *message, size_t capacity) {
    *made = NULL;
    const opw_module *module = model->module;
    size_t room = widest(module) + 1;
    opw_frame frame = {.inputs = malloc(room * sizeof *frame.inputs), .in = malloc(room * sizeof *frame.in),
                       .out = malloc(room * sizeof *frame.out), .made = calloc(room, sizeof *frame.made),
                       .runner = runner, .context = context};
    opw_result *result = calloc(1, sizeof *result + (size_t)module->n_outputs * sizeof *result->outputs);
    int32_t status = OPW_NO_MEMORY;
    if (!frame.inputs || !frame.in || !frame.out || !frame.made || !result) {
        opw_message(message, capacity, "no memory for a call");
        goto done;
    }
    status = (module->n_segments ? call_segments : call_straight)(model, &frame, inputs, threads, result, message, capacity);
done:
    free(frame.inputs);
    free(frame.in);
    free(frame.out);
    free(frame.made);
    if (status == OPW_OK) *made = result;
    else opw_result_free(result);
    return status;
}

int32_t opw_call(opw_model *model, const opw_tensor *inputs, int32_t threads, opw_result **made, char *message,
                 size_t capacity) {
    return opw_call_with(model, inputs, threads, NULL, NULL, made, message, capacity);
}

void opw_result_output(const opw_result *result, int32_t i, opw_tensor *output) {
    *output = i >= 0 && i < result->n_outputs ? result->outputs[i].tensor : (opw_tensor){0};
}

void opw_result_free(opw_result *result) {
    if (!result) return;
    for (int32_t i = 0; i < result->n_outputs; i++) release(&result->outputs[i]);
    free(result);
}
