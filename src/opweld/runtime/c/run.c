/* Runs a plan: takes a block of memory, then lets every thread walk the phases. */
#include "runtime.h"

#include <inttypes.h>
#include <string.h>

/* ---- the phases ---- */

typedef struct {
    opw_barrier barrier;
    const opw_plan *plan;
    void *const *pointers;
    char *scratch;
    opw_share *shares;   /* two sets of one a thread: shared phases take turns */
    opw_timing *timings; /* [thread][step], NULL where nobody asks */
    opw_watch watch;     /* NULL where nobody watches */
    void *context;       /* of whoever watches */
    int64_t began;
    int32_t threads;
    _Alignas(OPW_ALIGNMENT) atomic_int failed_step; /* the earliest so far, INT32_MAX: none; written under the lock */
    int64_t error;
} opw_job;

/* Keeps the error of the earliest step. */
static void report(opw_job *job, int32_t step, int64_t error) {
    opw_lock();
    if (step < atomic_load(&job->failed_step)) {
        job->error = error;
        atomic_store(&job->failed_step, step);
    }
    opw_unlock();
}

/* Computes a part of a step's grid. After an error only earlier steps are computed: they may fail too, and are told. */
static void compute(opw_job *job, const opw_bound_step *step, int32_t worker, int64_t begin, int64_t end) {
    if (step->step >= atomic_load_explicit(&job->failed_step, memory_order_relaxed)) return;
    const opw_plan *plan = job->plan;
    int64_t error = 0, from = job->timings ? opw_now() : 0;
    step->kernel(job->pointers + step->first_pointer, step->params, begin, end, job->scratch + worker * plan->scratch,
                 &error);
    if (error) report(job, step->step, error);
    if (!job->timings) return;
    int64_t to = opw_now();
    opw_timing *timing = &job->timings[(int64_t)worker * plan->variant->n_steps + step->step];
    if (!timing->pieces++) timing->begin_ns = from - job->began;
    timing->end_ns = to - job->began;
    timing->busy_ns += to - from;
}

/* A thread's share of a phase as it stands before anybody took from it. */
static void fill_share(const opw_plan *plan, const opw_phase *phase, opw_share *shares, int32_t owner) {
    uint64_t first = opw_first_piece(plan, phase, owner), end = opw_first_piece(plan, phase, owner + 1);
    atomic_store_explicit(&shares[owner].range, first | end << 32, memory_order_relaxed);
}

/* Takes the first or the last piece of a share; false when it is empty. */
static bool take_piece(opw_share *share, bool first, int64_t *piece) {
    uint_least64_t range = atomic_load_explicit(&share->range, memory_order_relaxed);
    for (;;) {
        uint64_t begin = range & UINT32_MAX, end = range >> 32;
        if (begin >= end) return false;
        *piece = (int64_t)(first ? begin : end - 1);
        uint64_t left = first ? (begin + 1) | end << 32 : begin | (end - 1) << 32;
        if (atomic_compare_exchange_weak_explicit(&share->range, &range, left, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
}

static void compute_piece(opw_job *job, const opw_phase *phase, int32_t worker, int64_t piece) {
    const opw_bound_step *step = &job->plan->steps[phase->first];
    for (; piece >= step->pieces; step++) piece -= step->pieces;
    int64_t share = step->grid / step->pieces, rest = step->grid % step->pieces;
    int64_t begin = piece * share + (piece < rest ? piece : rest);
    compute(job, step, worker, begin, begin + share + (piece < rest));
}

/* The worker's own pieces, then what others have not begun: a thread that is late or slow holds nobody up. */
static void share_phase(opw_job *job, const opw_phase *phase, opw_share *shares, int32_t worker) {
    for (int32_t v = 0; v < phase->threads; v++) {
        opw_share *victim = &shares[(worker + v) % phase->threads];
        bool own = v == 0 && worker < phase->threads;
        for (int64_t piece; take_piece(victim, own, &piece);) compute_piece(job, phase, worker, piece);
    }
}

/* Shows what the steps of a phase have written, but for one that failed and those after it. */
static void watch_phase(opw_job *job, const opw_phase *phase) {
    for (int32_t i = phase->first; i < phase->end; i++) {
        const opw_bound_step *step = &job->plan->steps[i];
        if (step->step < atomic_load_explicit(&job->failed_step, memory_order_relaxed))
            job->watch(job->context, step->step, job->pointers + step->first_pointer);
    }
}

/* Every worker meets every barrier, also after an error. */
static void walk(void *argument, int32_t worker) {
    opw_job *job = argument;
    const opw_plan *plan = job->plan;
    uint64_t floats = opw_floats_enter(plan->model->module->zero_denormals);
    int32_t turn = 0;
    for (int32_t k = 0; k < plan->n_phases; k++) {
        const opw_phase *phase = &plan->phases[k];
        opw_share *shares = job->shares + (int64_t)(turn & 1) * plan->threads;
        bool shared = phase->threads > 1 && job->threads > 1;
        /* Nobody looks at this set before the barrier: whoever passed the one before had left the phase before that.
         * The first set was filled before the workers started, as there may be no barrier before it. */
        if (shared && turn++)
            for (int32_t owner = worker; owner < phase->threads; owner += job->threads)
                fill_share(plan, phase, shares, owner);
        if (phase->barrier && job->threads > 1) opw_barrier_wait(&job->barrier, (uint32_t)job->threads);
        if (shared)
            share_phase(job, phase, shares, worker);
        else if (worker == 0)
            for (int32_t i = phase->first; i < phase->end; i++) compute(job, &plan->steps[i], 0, 0, plan->steps[i].grid);
        if (job->watch) watch_phase(job, phase);
    }
    opw_floats_leave(floats);
}

static void fill_first_shares(const opw_plan *plan, opw_share *shares) {
    int32_t k = 0;
    while (k < plan->n_phases && plan->phases[k].threads == 1) k++;
    if (k == plan->n_phases) return;
    for (int32_t owner = 0; owner < plan->phases[k].threads; owner++)
        fill_share(plan, &plan->phases[k], shares, owner);
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

static int32_t run(opw_model *model, const opw_plan *plan, void *const *inputs, void *const *outputs,
                   opw_timing *timings, int64_t *run_ns, opw_watch watch, void *context, char *message,
                   size_t capacity) {
    int32_t status = check_call(model, plan, inputs, outputs, message, capacity);
    if (status != OPW_OK) return status;
    opw_job job = {.plan = plan, .timings = timings, .watch = watch, .context = context,
                   .began = timings ? opw_now() : 0, .threads = watch ? 1 : threads_for(plan),
                   .failed_step = INT32_MAX};
    /* One cache line beyond the last buffer, so that it shares none with the scratch of a thread. */
    size_t arena = (size_t)plan->arena + OPW_ALIGNMENT;
    size_t scratch = (size_t)plan->scratch * (size_t)plan->threads;
    size_t shares = plan->threads > 1 ? 2 * (size_t)plan->threads * sizeof(opw_share) : 0;
    opw_block *block = opw_block_take(model, plan, arena + scratch + shares);
    if (!block) {
        opw_message(message, capacity, "no memory: the plan needs %zu bytes", arena + scratch + shares);
        return OPW_NO_MEMORY;
    }
    opw_block_point(model, plan, block, inputs, outputs);
    job.pointers = block->pointers;
    job.scratch = block->memory + arena;
    job.shares = (opw_share *)(block->memory + arena + scratch);
    fill_first_shares(plan, job.shares);
    if (timings)
        memset(timings, 0, (size_t)plan->threads * (size_t)plan->variant->n_steps * sizeof *timings);
    opw_parallel(walk, &job, &job.threads);
    opw_block_give(model, block);
    if (timings) *run_ns = opw_now() - job.began;
    return atomic_load(&job.failed_step) < INT32_MAX ? tell_error(&job, message, capacity) : OPW_OK;
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
