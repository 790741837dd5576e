/* Checks a module's tables once, at open, so that binding and running need no bounds checks. */
#include "runtime.h"

static bool known_dtype(int32_t dtype) { return opw_dtype_size(dtype) > 0; }

static bool check_buffers(const opw_module *module, const opw_variant *variant, char *message, size_t capacity) {
    int32_t phases = variant->n_steps ? variant->steps[variant->n_steps - 1].phase + 1 : 0;
    for (int32_t id = 0; id < variant->n_buffers; id++) {
        const opw_buffer *buffer = &variant->buffers[id];
        bool good = false;
        switch (buffer->kind) {
        case OPW_INPUT: good = buffer->index >= 0 && buffer->index < module->n_inputs; break;
        case OPW_OUTPUT: good = buffer->index >= 0 && buffer->index < variant->n_outputs; break;
        case OPW_CONSTANT: good = buffer->offset >= 0 && buffer->offset <= module->weights_bytes; break;
        case OPW_ARENA:
            good = buffer->size_slot >= 0 && buffer->size_slot < variant->n_slots && buffer->first_phase >= 0 &&
                   buffer->first_phase <= buffer->last_phase && buffer->last_phase < phases;
            break;
        default: break;
        }
        if (good) continue;
        opw_message(message, capacity, "variant '%s': buffer %d (kind %d, index %d) is inconsistent", variant->name,
                    (int)id, (int)buffer->kind, (int)buffer->index);
        return false;
    }
    return true;
}

/* A step may touch an arena buffer only while it is live: otherwise the memory belongs to another value. */
static bool lives(const opw_buffer *buffer, int32_t phase) {
    return buffer->kind != OPW_ARENA || (buffer->first_phase <= phase && phase <= buffer->last_phase);
}

static bool check_step(const opw_variant *variant, int32_t number, char *message, size_t capacity) {
    const opw_step *step = &variant->steps[number];
    int32_t least = number ? variant->steps[number - 1].phase : 0;
    bool good = step->phase >= least && step->phase <= number && step->kernel && step->name && step->origin && step->n_buffers >= 0 && step->n_params >= 0 &&
                step->grid_slot >= 0 && step->grid_slot < variant->n_slots && step->work_slot >= 0 &&
                step->work_slot < variant->n_slots && step->scratch_slot < variant->n_slots &&
                step->bytes_slot < variant->n_slots && step->flops_slot < variant->n_slots;
    for (int32_t i = 0; good && i < step->n_params; i++)
        good = step->params[i] >= 0 && step->params[i] < variant->n_slots;
    for (int32_t i = 0; good && i < step->n_buffers; i++) {
        int32_t id = step->buffers[i];
        good = id >= 0 && id < variant->n_buffers;
        if (good && !lives(&variant->buffers[id], step->phase)) {
            opw_message(message, capacity, "variant '%s', step %d (%s): buffer %d is outside its lifetime",
                        variant->name, (int)number, step->name, (int)id);
            return false;
        }
    }
    if (!good)
        opw_message(message, capacity, "variant '%s': step %d is inconsistent", variant->name, (int)number);
    return good;
}

static bool check_variant(const opw_module *module, const opw_variant *variant, char *message, size_t capacity) {
    bool good = variant->name && variant->bind && variant->n_slots >= 0 && variant->n_outputs >= 0 && variant->n_outputs <= module->n_outputs &&
                variant->n_buffers >= 0 && variant->n_steps >= 0 && variant->n_guards >= 0;
    for (int32_t i = 0; good && i < variant->n_outputs; i++) {
        const opw_output *output = &variant->outputs[i];
        good = known_dtype(output->dtype) && output->rank >= 0 && output->rank <= OPW_MAX_RANK;
        for (int32_t axis = 0; good && axis < output->rank; axis++)
            good = output->shape[axis] >= 0 && output->shape[axis] < variant->n_slots;
    }
    for (int32_t i = 0; good && i < module->n_states; i++)
        good = variant->lengths && variant->lengths[i] < variant->n_slots &&
               (variant->lengths[i] < 0) == (module->states[i].axis < 0);
    if (!good) {
        opw_message(message, capacity, "variant '%s' is inconsistent", variant->name ? variant->name : "?");
        return false;
    }
    if (!check_buffers(module, variant, message, capacity)) return false;
    for (int32_t step = 0; step < variant->n_steps; step++)
        if (!check_step(variant, step, message, capacity)) return false;
    return true;
}

static bool are_values(const opw_module *module, const int32_t *values, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (values[i] < 0 || values[i] >= module->n_values) return false;
    return n >= 0;
}

static bool check_ending(const opw_module *module, const opw_ending *ending, int32_t outputs) {
    bool good = ending->next >= -1 && ending->next < module->n_segments && are_values(module, ending->outputs, outputs) &&
                are_values(module, ending->appends, 2 * ending->n_appends) &&
                are_values(module, ending->moves, 2 * ending->n_moves) &&
                are_values(module, ending->dead, ending->n_dead) && ending->n_stacks >= 0;
    for (int32_t i = 0; good && i < ending->n_stacks; i++) {
        const opw_stack *stack = &ending->stacks[i];
        good = are_values(module, &stack->value, 1) && known_dtype(stack->dtype) && stack->rank >= 1 &&
               stack->rank <= OPW_MAX_RANK;
    }
    return good;
}

static bool check_segments(const opw_module *module, char *message, size_t capacity) {
    bool good = module->n_values >= module->n_inputs && are_values(module, module->results, module->n_outputs);
    for (int32_t i = 0; good && i < module->n_segments; i++) {
        const opw_segment *segment = &module->segments[i];
        good = segment->module && !segment->module->n_segments &&
               are_values(module, segment->inputs, segment->module->n_inputs);
        if (good && !opw_check_module(segment->module, message, capacity)) return false;
        for (int32_t v = 0; good && v < segment->module->n_variants; v++)
            good = check_ending(module, &segment->endings[v], segment->module->variants[v].n_outputs);
    }
    if (!good) opw_message(message, capacity, "the module's segments are inconsistent");
    return good;
}

bool opw_check_module(const opw_module *module, char *message, size_t capacity) {
    if (module->n_inputs < 0 || module->n_outputs < 0 || module->weights_bytes < 0 || module->n_segments < 0 ||
        (module->n_variants < 1) != (module->n_segments > 0)) {
        opw_message(message, capacity, "the module's counts are inconsistent");
        return false;
    }
    for (int32_t i = 0; i < module->n_inputs; i++) {
        const opw_input *input = &module->inputs[i];
        if (input->name && known_dtype(input->dtype) && input->rank >= -1 && input->rank <= OPW_MAX_RANK) continue;
        opw_message(message, capacity, "input %d of the module is inconsistent", (int)i);
        return false;
    }
    int32_t fed = module->n_inputs - module->n_states - opw_has_lengths(module);
    bool good = module->n_states >= 0 && fed >= 0 && (!module->n_states || !module->n_segments);
    for (int32_t i = 0; good && i < module->n_states; i++) {
        const opw_state_input *state = &module->states[i];
        good = state->input == fed + i && module->inputs[fed + i].rank >= 0 && state->axis >= -1 &&
               state->axis < module->inputs[fed + i].rank;
    }
    if (good && opw_has_lengths(module)) good = module->inputs[module->n_inputs - 1].dtype == OPW_INT64;
    if (!good) {
        opw_message(message, capacity, "the module's states are inconsistent");
        return false;
    }
    for (int32_t i = 0; i < module->n_variants; i++)
        if (!check_variant(module, &module->variants[i], message, capacity)) return false;
    return !module->n_segments || check_segments(module, message, capacity);
}
