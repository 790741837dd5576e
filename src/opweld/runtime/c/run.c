/* Runs a plan: takes a block of memory, then executes the phases on threads. */
#include "runtime.h"

#include <inttypes.h>
#include <string.h>

static int32_t check_call(const opw_model *model, const opw_plan *plan, void *const *inputs, void *const *outputs,
                          char *message, size_t capacity) {
    const opw_module *module = model->module;
    if (plan->model != model) {
        opw_message(message, capacity, "the plan belongs to another model");
        return OPW_INVALID_INPUT;
    }
    for (int32_t i = 0; i < module->n_inputs; i++) {
        if (!inputs[i] && plan->input_bytes[i]) {
            opw_message(message, capacity, "input '%s': no data", module->inputs[i].name);
            return OPW_INVALID_INPUT;
        }
        if (!plan->values[i] || !memcmp(inputs[i], plan->values[i], (size_t)plan->input_bytes[i])) continue;
        opw_message(message, capacity, "input '%s': other values than the plan was made for", module->inputs[i].name);
        return OPW_INVALID_INPUT;
    }
    for (int32_t i = 0; i < plan->variant->n_outputs; i++) {
        if (outputs[i] || !plan->output_bytes[i]) continue;
        opw_message(message, capacity, "output '%s': no memory given", module->output_names[i]);
        return OPW_INVALID_INPUT;
    }
    return OPW_OK;
}

static int32_t tell_error(const opw_job *job, char *message, size_t capacity) {
    const opw_step *step = &job->plan->variant->steps[job->failed_step];
    if (job->error == OPW_BAD_INDEX)
        opw_message(message, capacity, "%s: an index is out of range (kernel %s)", step->origin, step->name);
    else if (job->error == OPW_DIVISION_BY_ZERO)
        opw_message(message, capacity, "%s: integer division by zero (kernel %s)", step->origin, step->name);
    else if (job->error == OPW_ASSERTION)
        opw_message(message, capacity, "%s: what the model asserts of its data does not hold", step->origin);
    else
        opw_message(message, capacity, "%s: error %" PRId64 " (kernel %s)", step->origin, job->error, step->name);
    return OPW_KERNEL_ERROR;
}

/* A caller that is pinned to some cores gets no more threads than those: the rest belong to other callers. */
static int32_t threads_of_plan(const opw_plan *plan) {
    if (plan->threads == 1) return 1;
    int32_t processors = opw_processors_of_caller();
    return plan->threads < processors ? plan->threads : processors;
}

static int32_t run(opw_model *model, const opw_plan *plan, void *const *inputs, void *const *outputs,
                   opw_timing *timings, int64_t *run_ns, opw_watch watch, void *context, char *message,
                   size_t capacity) {
    int32_t status = check_call(model, plan, inputs, outputs, message, capacity);
    if (status != OPW_OK) return status;
    int32_t threads = watch ? 1 : threads_of_plan(plan);
    int64_t began = timings || threads > 1 ? opw_now() : 0;
    if (threads > 1 && opw_workers_rest(began)) threads = 1;
    /* One cache line beyond the last buffer, so that it shares none with the scratch of a thread. */
    size_t arena = (size_t)plan->arena + OPW_ALIGNMENT;
    size_t scratch = (size_t)plan->scratch * (size_t)plan->threads;
    opw_block *block = opw_block_take(model, plan, arena + scratch);
    if (!block) {
        opw_message(message, capacity, "no memory: the plan needs %zu bytes", arena + scratch);
        return OPW_NO_MEMORY;
    }
    opw_block_point(model, plan, block, inputs, outputs);
    if (timings)
        memset(timings, 0, (size_t)plan->threads * (size_t)plan->variant->n_steps * sizeof *timings);
    opw_job alone, *together = threads > 1 ? opw_job_take(plan) : NULL; /* without memory it runs alone */
    opw_job *job = together ? together : &alone;
    job->plan = plan;
    job->pointers = block->pointers;
    job->scratch = block->memory + arena;
    job->timings = timings;
    job->watch = watch;
    job->context = context;
    job->began = began;
    job->zero_denormals = model->module->zero_denormals;
    job->error = 0;
    atomic_store_explicit(&job->failed_step, INT32_MAX, memory_order_relaxed);
    job->team.threads = together ? threads : 1;
    opw_walk_plan(job);
    opw_block_give(model, block);
    if (timings) *run_ns = opw_now() - began;
    if (atomic_load(&job->failed_step) < INT32_MAX) status = tell_error(job, message, capacity);
    if (together) opw_team_leave(&job->team);
    return status;
}

int32_t opw_run(opw_model *model, const opw_plan *plan, void *const *inputs, void *const *outputs, char *message,
                size_t capacity) {
    return run(model, plan, inputs, outputs, NULL, NULL, NULL, NULL, message, capacity);
}

int32_t opw_run_timed(opw_model *model, const opw_plan *plan, void *const *inputs, void *const *outputs,
                      opw_timing *timings, int64_t *run_ns, char *message, size_t capacity) {
    return run(model, plan, inputs, outputs, timings, run_ns, NULL, NULL, message, capacity);
}

int32_t opw_run_watched(opw_model *model, const opw_plan *plan, void *const *inputs, void *const *outputs,
                        opw_watch watch, void *context, char *message, size_t capacity) {
    return run(model, plan, inputs, outputs, NULL, NULL, watch, context, message, capacity);
}
