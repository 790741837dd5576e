/* Executes the phases of a plan on the threads of a call.
 *
 * A phase is over when its pieces are done, by any thread: threads never wait for a thread, only for a piece that it
 * holds. The thread that reports the last piece continues: it computes the phases that are for one thread, then opens
 * the next one to all. A thread that comes late, into a phase or call that is over, takes nothing: a share records the
 * phase of its pieces, and the data that such a thread reads is kept until it has left. */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#define PHASE_SPIN_NS 100000 /* another thread is computing what this one waits for, or has lost its core */
#define JUDGED_NS 100000     /* the least work of a run for which two clocks of a thread are worth reading */
#define OVER UINT32_MAX      /* in place of the open phase */

/* Keeps the error of the earliest step. */
static void report_error(opw_job *job, int32_t step, int64_t error) {
    opw_lock();
    if (step < atomic_load(&job->failed_step)) {
        job->error = error;
        atomic_store(&job->failed_step, step);
    }
    opw_unlock();
}

/* Computes a part of a step's grid. After an error only earlier steps are computed: they may fail too, and take
 * precedence. */
static void compute_range(opw_job *job, const opw_bound_step *step, int32_t worker, int64_t begin, int64_t end) {
    if (step->step >= atomic_load_explicit(&job->failed_step, memory_order_relaxed)) return;
    const opw_plan *plan = job->plan;
    int64_t error = 0, from = job->timings ? opw_now() : 0;
    step->kernel(job->pointers + step->first_pointer, step->params, begin, end, job->scratch + worker * plan->scratch,
                 &error);
    if (error) report_error(job, step->step, error);
    if (!job->timings) return;
    int64_t to = opw_now();
    opw_timing *timing = &job->timings[(int64_t)worker * plan->variant->n_steps + step->step];
    if (!timing->pieces++) timing->begin_ns = from - job->began;
    timing->end_ns = to - job->began;
    timing->busy_ns += to - from;
}

static void compute_whole(opw_job *job, const opw_phase *phase, int32_t worker) {
    if (worker == 0) job->own += phase->work;
    for (int32_t i = phase->first; i < phase->end; i++)
        compute_range(job, &job->plan->steps[i], worker, 0, job->plan->steps[i].grid);
}

static void compute_piece(opw_job *job, const opw_phase *phase, int32_t worker, int64_t piece) {
    const opw_bound_step *step = &job->plan->steps[phase->first];
    for (; piece >= step->pieces; step++) piece -= step->pieces;
    if (worker == 0) job->own += (double)step->work / (double)step->pieces;
    int64_t share = step->grid / step->pieces, rest = step->grid % step->pieces;
    int64_t begin = piece * share + (piece < rest ? piece : rest);
    compute_range(job, step, worker, begin, begin + share + (piece < rest));
}

/* Passes the memory written by a phase's steps to the watcher, up to a failed step. */
static void watch_phase(opw_job *job, const opw_phase *phase) {
    for (int32_t i = phase->first; i < phase->end; i++) {
        const opw_bound_step *step = &job->plan->steps[i];
        if (step->step < atomic_load_explicit(&job->failed_step, memory_order_relaxed))
            job->watch(job->context, step->step, job->pointers + step->first_pointer);
    }
}

/* ---- the pieces of a phase ---- */

#define COUNT_BITS 20
#define COUNT_MASK (((uint64_t)1 << COUNT_BITS) - 1)
_Static_assert(OPW_MAX_PIECES <= COUNT_MASK && OPW_MAX_SHARED_PHASES < 1 << 24, "a share has room for both");

/* Takes the first or the last untaken piece of the share [begin, end); false if there is none, or the phase
 * is over. `number` is the phase's plus 1, so that 0 is before all. On success the thread holds a piece of a phase that
 * cannot end before it is reported; what the phase reads was made visible when the thread saw that it is open. */
static bool take_piece(opw_share *share, uint64_t number, int64_t begin, int64_t end, bool first, int64_t *piece) {
    uint_least64_t taken = atomic_load_explicit(&share->taken, memory_order_relaxed);
    for (;;) {
        if (taken >> 2 * COUNT_BITS > number) return false;
        bool fresh = taken >> 2 * COUNT_BITS < number;
        uint64_t front = fresh ? 0 : taken >> COUNT_BITS & COUNT_MASK, back = fresh ? 0 : taken & COUNT_MASK;
        if ((int64_t)(front + back) >= end - begin) return false;
        *piece = first ? begin + (int64_t)front : end - 1 - (int64_t)back;
        uint64_t next = number << 2 * COUNT_BITS | (front + first) << COUNT_BITS | (back + !first);
        if (atomic_compare_exchange_weak_explicit(&share->taken, &taken, next, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    }
}

static void go_on(opw_job *job, int32_t phase, int32_t worker);

/* The worker's own pieces, then those that others have not started (work stealing). */
static void take_part(opw_job *job, int32_t number, int32_t worker) {
    const opw_phase *phase = &job->plan->phases[number];
    const int32_t *first_pieces = job->plan->first_pieces + phase->first_share;
    int64_t done = 0;
    for (int32_t v = 0; v < phase->threads; v++) {
        int32_t owner = (worker + v) % phase->threads;
        bool own = v == 0 && worker < phase->threads;
        for (int64_t piece; take_piece(&job->shares[owner], (uint64_t)number + 1, first_pieces[owner],
                                       first_pieces[owner + 1], own, &piece);
             done++) {
            OPW_HOLD("piece", worker);
            compute_piece(job, phase, worker, piece);
        }
    }
    OPW_HOLD("report", worker);
    if (done && atomic_fetch_sub_explicit(&job->left, done, memory_order_acq_rel) == done) go_on(job, number + 1, worker);
}

/* From the phase `number` on: computes single-threaded phases, and opens the first parallel one. */
static void go_on(opw_job *job, int32_t number, int32_t worker) {
    const opw_plan *plan = job->plan;
    for (; number < plan->n_phases && plan->phases[number].threads == 1; number++)
        compute_whole(job, &plan->phases[number], worker);
    bool over = number == plan->n_phases;
    if (!over) atomic_store_explicit(&job->left, plan->phases[number].pieces, memory_order_relaxed);
    opw_word_set(&job->open, over ? OVER : (uint32_t)number + 1);
}

static void walk_together(opw_job *job, int32_t worker) {
    if (worker == 0) go_on(job, 0, 0);
    for (uint32_t open; (open = atomic_load_explicit(&job->open.value, memory_order_acquire)) != OVER;) {
        OPW_HOLD("open", worker);
        if (open) take_part(job, (int32_t)open - 1, worker);
        int64_t spun = opw_word_wait(&job->open, open, PHASE_SPIN_NS);
        if (worker == 0) job->spun += spun;
    }
}

static void walk_alone(opw_job *job) {
    for (int32_t k = 0; k < job->plan->n_phases; k++) {
        compute_whole(job, &job->plan->phases[k], 0);
        if (job->watch) watch_phase(job, &job->plan->phases[k]);
    }
}

static void work(opw_team *team, int32_t worker) {
    opw_job *job = (opw_job *)team;
    OPW_HOLD("join", worker);
    uint64_t floats = opw_floats_enter(job->zero_denormals);
    if (team->threads > 1)
        walk_together(job, worker);
    else
        walk_alone(job);
    opw_floats_leave(floats);
}

void opw_walk_plan(opw_job *job) {
    bool several = job->team.threads > 1, judged = several && job->plan->work >= JUDGED_NS;
    job->spun = 0;
    job->own = 0;
    int64_t used = judged ? opw_core_time() : 0;
    if (several)
        opw_parallel(&job->team);
    else
        work(&job->team, 0);
    if (!judged || job->team.threads == 1) return; /* there were no workers to be had */
    int64_t ended = opw_now(), computed = opw_core_time() - used - job->spun;
    opw_judge_workers(ended, ended - job->began, computed > 0 ? computed : 0, job->own / job->plan->work);
}

/* ---- jobs of calls with several threads: reused, never freed ---- */

static opw_job *idle_jobs; /* guarded by opw_lock */

static void put_back(opw_team *team) {
    opw_job *job = (opw_job *)team;
    opw_plan_release(job->plan);
    opw_lock();
    job->next = idle_jobs;
    idle_jobs = job;
    opw_unlock();
}

static opw_job *make_job(int32_t threads) {
    int32_t seats = threads > opw_processors() ? threads : opw_processors();
    size_t shares = (sizeof(opw_job) + OPW_ALIGNMENT - 1) / OPW_ALIGNMENT * OPW_ALIGNMENT;
    size_t bytes = shares + (size_t)seats * sizeof(opw_share);
    void *memory;
    if (posix_memalign(&memory, OPW_ALIGNMENT, bytes)) return NULL;
    memset(memory, 0, bytes);
    opw_job *job = memory;
    job->shares = (opw_share *)((char *)memory + shares);
    job->team.seats = calloc((size_t)seats, sizeof *job->team.seats);
    job->n_seats = seats;
    if (!job->team.seats) {
        free(memory);
        return NULL;
    }
    for (int32_t i = 0; i < seats; i++) job->team.seats[i] = (opw_seat){&job->team, i};
    job->team.work = work;
    job->team.left = put_back;
    return job;
}

opw_job *opw_job_take(const opw_plan *plan) {
    opw_lock();
    opw_job **at = &idle_jobs;
    while (*at && (*at)->n_seats < plan->threads) at = &(*at)->next;
    opw_job *job = *at;
    if (job) *at = job->next;
    opw_unlock();
    if (!job && !(job = make_job(plan->threads))) return NULL;
    atomic_fetch_add(&((opw_plan *)plan)->references, 1); /* late threads look at its phases */
    job->plan = plan;
    atomic_store_explicit(&job->open.value, 0, memory_order_relaxed);
    for (int32_t i = 0; i < plan->threads; i++) atomic_store_explicit(&job->shares[i].taken, 0, memory_order_relaxed);
    return job;
}
