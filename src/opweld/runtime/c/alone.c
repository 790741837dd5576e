/* Whether runs in several threads are worth it.
 *
 * Where other processes want the cores, too, the system takes a core from a thread for milliseconds, mostly while the
 * thread holds a piece, for which all others then wait. A run in one thread waits for nobody, and computes the same bits.
 *
 * A run in several threads tells by itself whether it was slower than one thread with a core of its own: its caller
 * computed the part `own` of the work in so much time of a core, the whole would have taken that much by `own`. What it
 * waited for legitimately, as for a serial step of another thread, is work that it has not done. The sum over recent runs
 * of what was lost so is the debt of the workers. Where it is above zero, runs are made by their callers alone for a
 * while. Then several threads are tried again, without debt or credit: so a trial costs a run that is late, one in
 * RESTS, and goes on where it is not late. */
#include "runtime.h"

#define MEMORY_NS 50000000         /* older runs count less: several slices of a scheduler */
#define CREDIT_NS (MEMORY_NS / 4)  /* the most: a core that is lost once is no reason */
#define COUNTED_NS (MEMORY_NS / 8) /* of a run, at most: nor is the first one, which reads weights from disk */
#define RESTS 16                   /* runs without workers after a late one, as long as it was */
#define REST_NS 2000000000         /* at most: when the load goes, it is noticed by then */

/* Of all models, for cores are lost by all; callers at the same time may lose an update. */
static _Atomic int64_t debt = -CREDIT_NS; /* nanoseconds */
static _Atomic int64_t rest_end;          /* 0: workers are in use */

bool opw_workers_rest(int64_t now) {
    int64_t end = atomic_load_explicit(&rest_end, memory_order_relaxed);
    if (now < end) return true;
    if (end) {
        atomic_store_explicit(&debt, 0, memory_order_relaxed);
        atomic_store_explicit(&rest_end, 0, memory_order_relaxed);
    }
    return false;
}

void opw_judge_workers(int64_t ended, int64_t lasted, int64_t computed, double own) {
    double before = (double)atomic_load_explicit(&debt, memory_order_relaxed);
    double counted = (double)(lasted < COUNTED_NS ? lasted : COUNTED_NS);
    double lost = own - (double)computed / (double)(lasted > 0 ? lasted : 1);
    double after = before * MEMORY_NS / (MEMORY_NS + counted) + lost * counted;
    atomic_store_explicit(&debt, (int64_t)(after < -CREDIT_NS ? -CREDIT_NS : after), memory_order_relaxed);
    if (after <= 0) return;
    int64_t rest = lasted < REST_NS / RESTS ? RESTS * lasted : REST_NS;
    atomic_store_explicit(&rest_end, ended + rest, memory_order_relaxed);
}
