/* Divides the steps of a plan into phases, and the work of each phase among threads.
 *
 * Indivisible steps (a recurrence has one grid iteration) are assigned first, the most expensive one foremost, each to
 * a thread of its own; the pieces of the others fill up the rest. */
#include "runtime.h"

#include <stdlib.h>

/* Nanoseconds as the compiler predicts them (tile/predict.py), without launch and barrier. */
#define NANOSECONDS_PER_THREAD 1000 /* less work does not justify a barrier */
#define NANOSECONDS_PER_PIECE 1500  /* large enough that the cost of taking one is negligible */
#define MOST_PIECES 8               /* of one step, for each thread */

static int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

/* The most parts into which the step can be divided. */
static int64_t parts_of(const opw_plan *plan, const opw_bound_step *step) {
    int32_t limit = plan->variant->steps[step->step].max_threads;
    return limit > 0 ? lesser(limit, step->grid) : step->grid;
}

/* How many threads the steps [first, end) together justify. */
static int32_t threads_of_phase(const opw_plan *plan, const opw_phase *phase, int32_t threads) {
    double work = 0, longest = 1; /* `longest`: nanoseconds of the longest indivisible step */
    int64_t parts = 0;
    for (int32_t i = phase->first; i < phase->end; i++) {
        const opw_bound_step *step = &plan->steps[i];
        int64_t own = parts_of(plan, step);
        double part = (double)step->work / (double)own;
        work += (double)step->work;
        if (part > longest) longest = part;
        parts = own > threads - parts ? threads : parts + own; /* no more matter; a sum could overflow */
    }
    if (work - longest < NANOSECONDS_PER_THREAD) return 1;
    int32_t count = (int32_t)lesser(threads, parts);
    if (work / NANOSECONDS_PER_THREAD < count) count = (int32_t)(work / NANOSECONDS_PER_THREAD);
    while (count > 2 && (count - 1) * longest >= work) count--; /* the others would wait for that part */
    return count < 1 ? 1 : count;
}

/* Divides a step among at most `threads` threads; returns how many it justifies. */
static int32_t cut(const opw_plan *plan, opw_bound_step *step, int32_t threads) {
    int64_t parts = parts_of(plan, step);
    int64_t count = lesser(lesser(step->work / NANOSECONDS_PER_THREAD, parts), threads);
    if (count < 1) count = 1;
    int64_t pieces = lesser(step->work / count / NANOSECONDS_PER_PIECE, lesser(MOST_PIECES, parts / count));
    step->pieces = pieces < 1 ? count : count * pieces;
    return (int32_t)count;
}

static double piece_of(const opw_bound_step *step) { return (double)step->work / (double)step->pieces; }

/* The most expensive pieces first; there are few steps, and mostly in order already. */
static void sort(opw_bound_step *steps, int32_t first, int32_t end) {
    for (int32_t i = first + 1; i < end; i++) {
        opw_bound_step step = steps[i];
        int32_t at = i;
        for (; at > first && piece_of(&steps[at - 1]) < piece_of(&step); at--) steps[at] = steps[at - 1];
        steps[at] = step;
    }
}

static void divide_phase(opw_plan *plan, opw_phase *phase, int32_t threads) {
    phase->threads = threads_of_phase(plan, phase, threads);
    int64_t pieces = 0;
    phase->work = 0;
    for (int32_t i = phase->first; i < phase->end; i++) {
        opw_bound_step *step = &plan->steps[i];
        step->pieces = 1;
        plan->step_threads[step->step] = phase->threads > 1 ? cut(plan, step, phase->threads) : 1;
        pieces += step->pieces;
        phase->work += (double)step->work;
    }
    if (pieces > OPW_MAX_PIECES) {
        divide_phase(plan, phase, 1);
        return;
    }
    phase->pieces = (int32_t)pieces;
    if (phase->threads > 1) sort(plan->steps, phase->first, phase->end);
}

/* A piece belongs to the thread whose share of the work contains its middle. */
static int32_t first_piece(const opw_plan *plan, const opw_phase *phase, int32_t owner) {
    if (owner >= phase->threads) return phase->pieces;
    double before = phase->work * owner / phase->threads;
    int64_t count = 0;
    for (int32_t i = phase->first; i < phase->end && before > 0; i++) {
        const opw_bound_step *step = &plan->steps[i];
        double piece = piece_of(step);
        double whole = before >= (double)step->work ? (double)step->pieces : before / piece + 0.5;
        count += lesser((int64_t)whole, step->pieces);
        before -= (double)step->work;
    }
    return (int32_t)count;
}

static bool deal_out(opw_plan *plan) {
    int64_t count = 0;
    for (int32_t k = 0; k < plan->n_phases; k++) {
        plan->phases[k].first_share = count;
        if (plan->phases[k].threads > 1) count += plan->phases[k].threads + 1;
    }
    plan->first_pieces = malloc(((size_t)count + 1) * sizeof *plan->first_pieces);
    if (!plan->first_pieces) return false;
    for (int32_t k = 0; k < plan->n_phases; k++) {
        const opw_phase *phase = &plan->phases[k];
        for (int32_t owner = 0; phase->threads > 1 && owner <= phase->threads; owner++)
            plan->first_pieces[phase->first_share + owner] = first_piece(plan, phase, owner);
    }
    return true;
}

bool opw_divide(opw_plan *plan, int32_t threads) {
    const opw_step *steps = plan->variant->steps;
    plan->threads = 1;
    plan->work = 0;
    for (int32_t first = 0, end; first < plan->n_steps; first = end) {
        for (end = first + 1; end < plan->n_steps; end++)
            if (steps[plan->steps[end].step].phase != steps[plan->steps[first].step].phase) break;
        opw_phase *phase = &plan->phases[plan->n_phases++];
        *phase = (opw_phase){.first = first, .end = end};
        divide_phase(plan, phase, plan->n_phases < OPW_MAX_SHARED_PHASES ? threads : 1);
        if (phase->threads > plan->threads) plan->threads = phase->threads;
        plan->work += phase->work;
    }
    return deal_out(plan);
}
