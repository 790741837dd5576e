/* Runs a plan: takes a block of memory, fills the pointer table, lets every thread walk the steps. */
#define _GNU_SOURCE
#include "runtime.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE (2 << 20)

/* ---- memory of a call ---- */

static char *allocate(size_t bytes) {
    void *memory = NULL;
    bool large = bytes >= 2 * HUGE_PAGE;
    if (posix_memalign(&memory, large ? HUGE_PAGE : OPW_ALIGNMENT, bytes)) return NULL;
#ifdef MADV_HUGEPAGE
    if (large) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

/* The free block that fits best; where none does, one that `fit` will replace; NULL when there is none. */
static opw_block *take_block(opw_model *model, size_t bytes) {
    opw_lock();
    opw_block **best = NULL;
    for (opw_block **at = &model->blocks; *at; at = &(*at)->next) {
        if (!best) {
            best = at;
            continue;
        }
        bool fits = (*at)->capacity >= bytes, best_fits = (*best)->capacity >= bytes;
        if (fits && (!best_fits || (*at)->capacity < (*best)->capacity)) best = at;
    }
    opw_block *block = best ? *best : NULL;
    if (block) *best = block->next;
    opw_unlock();
    return block;
}

static void give_block(opw_model *model, opw_block *block) {
    opw_lock();
    block->next = model->blocks;
    model->blocks = block;
    opw_unlock();
}

/* Makes the block's memory and table large enough for the plan. */
static bool fit(opw_block *block, const opw_plan *plan, size_t bytes) {
    if (block->capacity < bytes || !block->memory) {
        free(block->memory);
        block->plan_id = 0;
        block->memory = allocate(bytes);
        block->capacity = block->memory ? bytes : 0;
    }
    if (block->pointer_capacity < (size_t)plan->n_sources || !block->pointers) {
        free(block->pointers);
        block->plan_id = 0;
        block->pointers = malloc(((size_t)plan->n_sources + 1) * sizeof *block->pointers);
        block->pointer_capacity = block->pointers ? (size_t)plan->n_sources : 0;
    }
    return block->memory && block->pointers;
}

/* A block that served this plan before needs only the pointers that the caller gave. */
static void fill_pointers(const opw_model *model, const opw_plan *plan, opw_block *block, void *const *inputs,
                          void *const *outputs) {
    if (block->plan_id != plan->id) {
        for (int64_t i = 0; i < plan->n_sources; i++) {
            const opw_source *source = &plan->sources[i];
            if (source->kind == OPW_CONSTANT) block->pointers[i] = (char *)model->weights + source->offset;
            if (source->kind == OPW_ARENA) block->pointers[i] = block->memory + source->offset;
        }
        block->plan_id = plan->id;
    }
    for (int64_t k = 0; k < plan->n_external; k++) {
        int64_t i = plan->external[k];
        const opw_source *source = &plan->sources[i];
        void *const *given = source->kind == OPW_INPUT ? inputs : outputs;
        block->pointers[i] = (char *)given[source->index] + source->offset;
    }
}

/* ---- the steps ---- */

typedef struct {
    opw_barrier barrier;
    const opw_plan *plan;
    void *const *pointers;
    char *scratch;
    opw_share *shares;
    int64_t *step_ns;
    int32_t threads;
    _Alignas(OPW_ALIGNMENT) atomic_bool failed;
    int32_t failed_step; /* these two under the lock */
    int64_t error;
} opw_job;

/* Keeps the error of the earliest step. */
static void report(opw_job *job, int32_t step, int64_t error) {
    opw_lock();
    if (!atomic_load(&job->failed) || step < job->failed_step) {
        job->failed_step = step;
        job->error = error;
    }
    atomic_store(&job->failed, true);
    opw_unlock();
}

/* Charges the time since `*last` to the step before position `position`. */
static void clock_step(opw_job *job, int32_t position, int64_t *last) {
    int64_t now = opw_now();
    if (position > 0) job->step_ns[job->plan->steps[position - 1].step] = now - *last;
    *last = now;
}

static void fill_shares(const opw_plan *plan, opw_share *shares) {
    for (int32_t i = 0; i < plan->n_steps; i++) {
        const opw_bound_step *step = &plan->steps[i];
        if (step->threads == 1) continue;
        for (uint64_t owner = 0, pieces = (uint64_t)step->pieces; owner < (uint64_t)step->threads; owner++)
            atomic_init(&shares[step->first_share + (int64_t)owner].range,
                        owner * pieces | (owner + 1) * pieces << 32);
    }
}

/* Takes the first or the last piece of a share; false when it is empty. */
static bool take_piece(opw_share *share, bool first, int64_t *piece) {
    uint_least64_t range = atomic_load_explicit(&share->range, memory_order_relaxed);
    for (;;) {
        uint64_t begin = range & UINT32_MAX, end = range >> 32;
        if (begin >= end) return false;
        *piece = (int64_t)(first ? begin : end - 1);
        uint64_t left = first ? begin + 1 | end << 32 : begin | (end - 1) << 32;
        if (atomic_compare_exchange_weak_explicit(&share->range, &range, left, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
}

static void run_step(opw_job *job, const opw_bound_step *step, int32_t worker, int64_t begin, int64_t end) {
    int64_t error = 0;
    step->kernel(job->pointers + step->first_pointer, step->params, begin, end,
                 job->scratch + worker * job->plan->scratch, &error);
    if (error) report(job, step->step, error);
}

/* The worker's own pieces, then what others have not begun: a thread that is late or slow holds nobody up. */
static void share_step(opw_job *job, const opw_bound_step *step, int32_t worker) {
    int64_t pieces = (int64_t)step->threads * step->pieces;
    int64_t share = step->grid / pieces, rest = step->grid % pieces;
    for (int32_t v = 0; v < step->threads; v++) {
        opw_share *victim = &job->shares[step->first_share + (worker + v) % step->threads];
        for (int64_t piece; take_piece(victim, v == 0 && worker < step->threads, &piece);) {
            if (atomic_load_explicit(&job->failed, memory_order_relaxed)) return;
            int64_t begin = piece * share + (piece < rest ? piece : rest);
            run_step(job, step, worker, begin, begin + share + (piece < rest));
        }
    }
}

static void walk(void *argument, int32_t worker) {
    opw_job *job = argument;
    const opw_plan *plan = job->plan;
    bool timed = job->step_ns && worker == 0;
    int64_t last = 0;
    for (int32_t i = 0; i < plan->n_steps; i++) {
        const opw_bound_step *step = &plan->steps[i];
        if (step->barrier && job->threads > 1) opw_barrier_wait(&job->barrier, (uint32_t)job->threads);
        if (timed) clock_step(job, i, &last);
        /* After an error nothing is computed any more, but every barrier is still met. */
        if (atomic_load_explicit(&job->failed, memory_order_relaxed)) continue;
        if (step->threads > 1)
            share_step(job, step, worker);
        else if (worker == 0)
            run_step(job, step, worker, 0, step->grid);
    }
    if (timed) clock_step(job, plan->n_steps, &last);
}

/* ---- the call ---- */

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
    for (int32_t i = 0; i < module->n_outputs; i++) {
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
    else
        opw_message(message, capacity, "%s: error %" PRId64 " (kernel %s)", step->origin, job->error, step->name);
    return OPW_KERNEL_ERROR;
}

/* A caller that is pinned to some cores gets no more threads than those: the rest belong to other callers. */
static int32_t threads_for(const opw_plan *plan) {
    if (plan->threads == 1) return 1;
    int32_t processors = opw_processors_of_caller();
    return plan->threads < processors ? plan->threads : processors;
}

int32_t opw_run_timed(opw_model *model, const opw_plan *plan, void *const *inputs, void *const *outputs,
                      int64_t *step_ns, char *message, size_t capacity) {
    int32_t status = check_call(model, plan, inputs, outputs, message, capacity);
    if (status != OPW_OK) return status;
    /* One cache line beyond the last buffer, so that it shares none with the scratch of a thread. */
    size_t arena = (size_t)plan->arena + OPW_ALIGNMENT;
    size_t scratch = (size_t)plan->scratch * (size_t)plan->threads;
    size_t bytes = arena + scratch + (size_t)plan->n_shares * sizeof(opw_share);
    opw_block *block = take_block(model, bytes);
    if (!block) block = calloc(1, sizeof *block);
    if (!block || !fit(block, plan, bytes)) {
        if (block) give_block(model, block);
        opw_message(message, capacity, "no memory: the plan needs %zu bytes", bytes);
        return OPW_NO_MEMORY;
    }
    fill_pointers(model, plan, block, inputs, outputs);
    if (step_ns) memset(step_ns, 0, (size_t)plan->variant->n_steps * sizeof *step_ns);
    opw_share *shares = (opw_share *)(block->memory + arena + scratch);
    fill_shares(plan, shares);
    opw_job job = {.plan = plan, .pointers = block->pointers, .scratch = block->memory + arena, .shares = shares,
                   .step_ns = step_ns, .threads = threads_for(plan)};
    opw_parallel(walk, &job, &job.threads);
    give_block(model, block);
    return atomic_load(&job.failed) ? tell_error(&job, message, capacity) : OPW_OK;
}

int32_t opw_run(opw_model *model, const opw_plan *plan, void *const *inputs, void *const *outputs, char *message,
                size_t capacity) {
    return opw_run_timed(model, plan, inputs, outputs, NULL, message, capacity);
}
