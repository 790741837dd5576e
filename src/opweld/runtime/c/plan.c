/* Makes a plan: chooses the variant, evaluates its sizes, places its buffers; divide.c shares it among threads. */
#include "runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t opw_dtype_size(int32_t dtype) {
    switch (dtype) {
    case OPW_UINT8: case OPW_INT8: case OPW_BOOL:
    case OPW_FLOAT8E4M3FN: case OPW_FLOAT8E4M3FNUZ: case OPW_FLOAT8E5M2: case OPW_FLOAT8E5M2FNUZ: case OPW_FLOAT8E8M0:
    case OPW_FLOAT4E2M1: case OPW_UINT4: case OPW_INT4: case OPW_UINT2: case OPW_INT2: return 1;
    case OPW_UINT16: case OPW_INT16: case OPW_FLOAT16: case OPW_BFLOAT16: return 2;
    case OPW_FLOAT32: case OPW_INT32: case OPW_UINT32: return 4;
    case OPW_INT64: case OPW_FLOAT64: case OPW_UINT64: return 8;
    default: return 0;
    }
}

/* Bytes of a dense tensor, or -1 when a dim is negative or the product overflows. */
int64_t opw_tensor_bytes(const opw_tensor *tensor) {
    int64_t bytes = opw_dtype_size(tensor->dtype);
    bool empty = false;
    for (int32_t axis = 0; axis < tensor->rank; axis++) {
        if (tensor->shape[axis] < 0) return -1;
        if (tensor->shape[axis] == 0) empty = true;
        else if (__builtin_mul_overflow(bytes, tensor->shape[axis], &bytes)) return -1;
    }
    return empty ? 0 : bytes;
}

/* ---- variant ---- */

/* Appends to a message that may already be full. */
static void append_reason(char *message, size_t capacity, const char *before, const char *name, const char *text) {
    if (!message || !capacity) return;
    size_t used = strlen(message);
    snprintf(message + used, capacity - used, "%s'%s' needs %s", before, name, text);
}

static int32_t choose_variant(const opw_module *module, const opw_tensor *inputs, opw_plan *plan, char *message,
                              size_t capacity) {
    opw_message(message, capacity, "no compiled variant fits these inputs:");
    bool overflow = false;
    for (int32_t i = 0; i < module->n_variants; i++) {
        const opw_variant *variant = &module->variants[i];
        plan->slots = calloc((size_t)variant->n_slots + 1, sizeof *plan->slots);
        if (!plan->slots) return OPW_NO_MEMORY;
        int32_t result = variant->bind(inputs, plan->slots);
        if (result == 0) {
            plan->variant = variant;
            plan->variant_index = i;
            return OPW_OK;
        }
        free(plan->slots);
        plan->slots = NULL;
        bool guard = result > 0 && result <= variant->n_guards;
        overflow |= result < 0;
        append_reason(message, capacity, i ? "; " : " ", variant->name,
                      guard ? variant->guards[result - 1] : result < 0 ? "sizes below 2^63" : "an unnamed condition");
    }
    return overflow ? OPW_TOO_LARGE : OPW_NO_VARIANT;
}

/* ---- memory ---- */

/* A size that overflowed, or that no machine has. */
static int32_t too_large(const opw_plan *plan, const char *what, int32_t number, char *message, size_t capacity) {
    opw_message(message, capacity, "variant '%s': the size of %s %d is negative or too large for these input shapes",
                plan->variant->name, what, (int)number);
    return OPW_TOO_LARGE;
}

static int32_t evaluate_outputs(opw_plan *plan, char *message, size_t capacity) {
    const opw_variant *variant = plan->variant;
    for (int32_t i = 0; i < variant->n_outputs; i++) {
        opw_tensor *output = &plan->outputs[i];
        output->dtype = variant->outputs[i].dtype;
        output->rank = variant->outputs[i].rank;
        for (int32_t axis = 0; axis < output->rank; axis++)
            output->shape[axis] = plan->slots[variant->outputs[i].shape[axis]];
        plan->output_bytes[i] = opw_tensor_bytes(output);
        if (plan->output_bytes[i] < 0) return too_large(plan, "output", i, message, capacity);
    }
    return OPW_OK;
}

typedef struct {
    int32_t n;
    int32_t *ids, *first, *last;
    int64_t *sizes, *offsets;
} arena_request;

/* Whether every buffer of the arena fits where it lies. */
static bool arena_fits(const opw_plan *plan) {
    for (int32_t id = 0; id < plan->variant->n_buffers; id++) {
        const opw_buffer *buffer = &plan->variant->buffers[id];
        if (buffer->kind == OPW_ARENA && plan->slots[buffer->size_slot] > plan->arena_sizes[id]) return false;
    }
    return true;
}

/* Places the buffers of the arena. What does not fit where it lay gets a quarter more than it needs: it grows. */
static int32_t place_arena(opw_plan *plan, char *message, size_t capacity) {
    const opw_variant *variant = plan->variant;
    size_t room = (size_t)variant->n_buffers + 1;
    arena_request request = {.ids = malloc(room * sizeof(int32_t)), .first = malloc(room * sizeof(int32_t)),
                             .last = malloc(room * sizeof(int32_t)), .sizes = malloc(room * sizeof(int64_t)),
                             .offsets = malloc(room * sizeof(int64_t))};
    int32_t status = OPW_NO_MEMORY;
    if (!request.ids || !request.first || !request.last || !request.sizes || !request.offsets) goto done;
    for (int32_t id = 0; id < variant->n_buffers; id++) {
        const opw_buffer *buffer = &variant->buffers[id];
        if (buffer->kind != OPW_ARENA) continue;
        int32_t n = request.n++;
        request.ids[n] = id;
        request.first[n] = buffer->first_phase;
        request.last[n] = buffer->last_phase;
        request.sizes[n] = plan->slots[buffer->size_slot];
        if (request.sizes[n] < 0) {
            status = too_large(plan, "buffer", id, message, capacity);
            goto done;
        }
        if (plan->arena_sizes[id] >= request.sizes[n]) request.sizes[n] = plan->arena_sizes[id];
        else if (plan->id) request.sizes[n] += request.sizes[n] / 4;
    }
    int64_t totals[3];
    status = opw_arena_plan(request.n, request.sizes, request.first, request.last, request.offsets, totals);
    if (status != OPW_OK) {
        opw_message(message, capacity, "variant '%s': the intermediate values of these input shapes do not fit any memory",
                    variant->name);
        goto done;
    }
    for (int32_t i = 0; i < request.n; i++) {
        plan->arena_offsets[request.ids[i]] = request.offsets[i];
        plan->arena_sizes[request.ids[i]] = request.sizes[i];
    }
    plan->arena = totals[0];
    plan->sum = totals[1];
    plan->live = totals[2];
done:
    free(request.ids);
    free(request.first);
    free(request.last);
    free(request.sizes);
    free(request.offsets);
    return status;
}

/* ---- steps ---- */

/* Pointers of inputs and outputs change with every call; the others stay with the arena. */
static void add_source(opw_plan *plan, int32_t id) {
    const opw_buffer *buffer = &plan->variant->buffers[id];
    if (buffer->kind == OPW_INPUT || buffer->kind == OPW_OUTPUT) plan->external[plan->n_external++] = plan->n_sources;
    int64_t offset = buffer->kind == OPW_ARENA ? plan->arena_offsets[id] : buffer->kind == OPW_CONSTANT ? buffer->offset : 0;
    plan->sources[plan->n_sources++] = (opw_source){buffer->kind, buffer->index, offset};
}

/* Parameters, pointers and sizes of the steps that have anything to do; phases come after. */
static int32_t bind_steps(opw_plan *plan, char *message, size_t capacity) {
    const opw_variant *variant = plan->variant;
    int64_t n_params = 0;
    plan->n_steps = 0;
    plan->n_sources = plan->n_external = plan->scratch = 0;
    plan->present = 0;
    for (int32_t i = 0; i < variant->n_steps; i++) {
        const opw_step *step = &variant->steps[i];
        int64_t grid = plan->slots[step->grid_slot], work = plan->slots[step->work_slot];
        int64_t scratch = step->scratch_slot < 0 ? 0 : plan->slots[step->scratch_slot];
        if (grid < 0 || scratch < 0 || scratch > INT64_MAX - OPW_ALIGNMENT)
            return too_large(plan, "step", i, message, capacity);
        if (grid == 0) continue;
        plan->present = (plan->present ^ (uint64_t)(i + 1)) * 1099511628211ULL;
        plan->steps[plan->n_steps++] = (opw_bound_step){
            .kernel = step->kernel, .params = plan->params + n_params, .grid = grid, .work = work < 0 ? 0 : work,
            .first_pointer = plan->n_sources, .step = i};
        scratch = (scratch + OPW_ALIGNMENT - 1) / OPW_ALIGNMENT * OPW_ALIGNMENT;
        if (scratch > plan->scratch) plan->scratch = scratch;
        for (int32_t j = 0; j < step->n_params; j++) plan->params[n_params++] = plan->slots[step->params[j]];
        for (int32_t j = 0; j < step->n_buffers; j++) add_source(plan, step->buffers[j]);
    }
    return OPW_OK;
}

/* Refuses what the machine cannot hold, before anything is allocated. */
static int32_t check_memory(const opw_plan *plan, char *message, size_t capacity) {
    int64_t total, limit = opw_memory_limit();
    bool overflow = __builtin_mul_overflow(plan->scratch, (int64_t)plan->threads, &total) ||
                    __builtin_add_overflow(total, plan->arena, &total);
    for (int32_t i = 0; i < plan->variant->n_outputs; i++)
        overflow = overflow || __builtin_add_overflow(total, plan->output_bytes[i], &total);
    if (!overflow && total <= limit) return OPW_OK;
    opw_message(message, capacity,
                "variant '%s' needs %.3g GB for these input shapes (%.3g GB of intermediate values), but this process may "
                "use %.3g GB: feed smaller inputs",
                plan->variant->name, overflow ? 9.2e9 : (double)total / 1e9, (double)plan->arena / 1e9,
                (double)limit / 1e9);
    return OPW_TOO_LARGE;
}

/* Everything that follows from the slots, in the plan's own arrays. */
static int32_t evaluate(opw_plan *plan, int32_t threads, char *message, size_t capacity) {
    int32_t status = evaluate_outputs(plan, message, capacity);
    if (status == OPW_OK && (!plan->id || !arena_fits(plan))) status = place_arena(plan, message, capacity);
    if (status == OPW_OK) status = bind_steps(plan, message, capacity);
    free(plan->first_pieces);
    plan->first_pieces = NULL;
    plan->n_phases = 0;
    if (status == OPW_OK && !opw_divide(plan, threads)) status = OPW_NO_MEMORY;
    if (status == OPW_OK) status = check_memory(plan, message, capacity);
    return status;
}

static int32_t fill_plan(const opw_model *model, const opw_tensor *inputs, int32_t threads, opw_plan *plan,
                         char *message, size_t capacity) {
    const opw_module *module = model->module;
    plan->model = model;
    plan->input_bytes = malloc(((size_t)module->n_inputs + 1) * sizeof(int64_t));
    plan->output_bytes = malloc(((size_t)module->n_outputs + 1) * sizeof(int64_t));
    plan->outputs = calloc((size_t)module->n_outputs + 1, sizeof(opw_tensor));
    if (!plan->input_bytes || !plan->output_bytes || !plan->outputs) return OPW_NO_MEMORY;
    for (int32_t i = 0; i < module->n_inputs; i++) plan->input_bytes[i] = opw_tensor_bytes(&inputs[i]);
    int32_t status = choose_variant(module, inputs, plan, message, capacity);
    if (status != OPW_OK) return status;

    const opw_variant *variant = plan->variant;
    size_t n_params = 1, n_sources = 1, n_steps = (size_t)variant->n_steps + 1, n_buffers = (size_t)variant->n_buffers + 1;
    for (int32_t i = 0; i < variant->n_steps; i++) {
        n_params += (size_t)variant->steps[i].n_params;
        n_sources += (size_t)variant->steps[i].n_buffers;
    }
    plan->steps = calloc(n_steps, sizeof *plan->steps);
    plan->phases = calloc(n_steps, sizeof *plan->phases);
    plan->step_threads = calloc(n_steps, sizeof *plan->step_threads);
    plan->params = calloc(n_params, sizeof *plan->params);
    plan->sources = calloc(n_sources, sizeof *plan->sources);
    plan->external = calloc(n_sources, sizeof *plan->external);
    plan->arena_offsets = calloc(n_buffers, sizeof *plan->arena_offsets);
    plan->arena_sizes = calloc(n_buffers, sizeof *plan->arena_sizes);
    status = OPW_NO_MEMORY;
    if (plan->steps && plan->phases && plan->step_threads && plan->params && plan->sources && plan->external &&
        plan->arena_offsets && plan->arena_sizes)
        status = evaluate(plan, threads, message, capacity);
    return status;
}

static atomic_uint_fast64_t ids;

static uint64_t next_id(void) { return atomic_fetch_add(&ids, 1) + 1; }

int32_t opw_plan_resize(opw_plan *plan, const opw_tensor *inputs, int32_t threads, char *message, size_t capacity) {
    size_t n_slots = (size_t)plan->variant->n_slots;
    int64_t *slots = calloc(n_slots + 1, sizeof *slots);
    if (!slots) {
        opw_message(message, capacity, "no memory for the plan");
        return OPW_NO_MEMORY;
    }
    int32_t unfit = plan->variant->bind(inputs, slots);
    bool same = !memcmp(slots, plan->slots, n_slots * sizeof *slots); /* from which all else follows */
    if (unfit || same) {
        free(slots);
        return unfit ? OPW_NO_VARIANT : OPW_OK;
    }
    free(plan->slots);
    plan->slots = slots;
    uint64_t present = plan->present;
    int64_t arena = plan->arena;
    bool fits = arena_fits(plan);
    int32_t status = evaluate(plan, threads, message, capacity);
    if (status == OPW_NO_MEMORY) opw_message(message, capacity, "no memory for the plan");
    /* The pointers that a block remembers are others. */
    if (!fits || plan->present != present || plan->arena != arena) plan->id = next_id();
    return status;
}

int32_t opw_plan_make(const opw_model *model, const opw_tensor *inputs, int32_t threads, opw_plan **made, char *message,
                      size_t capacity) {
    opw_plan *plan = calloc(1, sizeof *plan);
    int32_t status = plan ? fill_plan(model, inputs, threads, plan, message, capacity) : OPW_NO_MEMORY;
    if (status == OPW_NO_MEMORY) opw_message(message, capacity, "no memory for the plan");
    if (status != OPW_OK) {
        opw_plan_free(plan);
        return status;
    }
    opw_message(message, capacity, "%s", "");
    plan->id = next_id();
    *made = plan;
    return OPW_OK;
}

void opw_plan_free(opw_plan *plan) {
    if (!plan) return;
    free(plan->steps);
    free(plan->phases);
    free(plan->slots);
    free(plan->params);
    free(plan->step_threads);
    free(plan->first_pieces);
    free(plan->sources);
    free(plan->external);
    free(plan->arena_offsets);
    free(plan->arena_sizes);
    free(plan->input_bytes);
    free(plan->output_bytes);
    free(plan->outputs);
    free(plan->key);
    free(plan->values);
    free(plan);
}

/* ---- what a plan tells about itself ---- */

static bool in_range(int32_t i, int32_t n) { return i >= 0 && i < n; }

void opw_plan_output(const opw_plan *plan, int32_t i, opw_tensor *output) {
    *output = in_range(i, plan->variant->n_outputs) ? plan->outputs[i] : (opw_tensor){0};
}

int64_t opw_plan_arena(const opw_plan *plan) { return plan->arena; }
int64_t opw_plan_sum(const opw_plan *plan) { return plan->sum; }
int64_t opw_plan_live(const opw_plan *plan) { return plan->live; }
int64_t opw_plan_scratch(const opw_plan *plan) { return plan->scratch; }
int32_t opw_plan_threads(const opw_plan *plan) { return plan->threads; }
int32_t opw_plan_variant(const opw_plan *plan) { return plan->variant_index; }
const char *opw_plan_variant_name(const opw_plan *plan) { return plan->variant->name; }
int32_t opw_plan_steps(const opw_plan *plan) { return plan->variant->n_steps; }

const char *opw_plan_step_name(const opw_plan *plan, int32_t step) {
    return in_range(step, plan->variant->n_steps) ? plan->variant->steps[step].name : NULL;
}

const char *opw_plan_step_origin(const opw_plan *plan, int32_t step) {
    return in_range(step, plan->variant->n_steps) ? plan->variant->steps[step].origin : NULL;
}

static int64_t slot_of(const opw_plan *plan, int32_t slot) { return slot < 0 ? 0 : plan->slots[slot]; }

int64_t opw_plan_step_bytes(const opw_plan *plan, int32_t step) {
    return in_range(step, plan->variant->n_steps) ? slot_of(plan, plan->variant->steps[step].bytes_slot) : 0;
}

int64_t opw_plan_step_flops(const opw_plan *plan, int32_t step) {
    return in_range(step, plan->variant->n_steps) ? slot_of(plan, plan->variant->steps[step].flops_slot) : 0;
}

int64_t opw_plan_step_work(const opw_plan *plan, int32_t step) {
    return in_range(step, plan->variant->n_steps) ? slot_of(plan, plan->variant->steps[step].work_slot) : 0;
}

int32_t opw_plan_step_phase(const opw_plan *plan, int32_t step) {
    return in_range(step, plan->variant->n_steps) ? plan->variant->steps[step].phase : 0;
}

int32_t opw_plan_step_threads(const opw_plan *plan, int32_t step) {
    return in_range(step, plan->variant->n_steps) ? plan->step_threads[step] : 0;
}
