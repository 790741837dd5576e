/* One pool of threads for the whole process, shared by all models.
 *
 * An idle worker spins briefly, so that back-to-back runs start it in well under a microsecond, then sleeps, so that an
 * idle process burns nothing. The caller is worker 0. One call has the pool at a time; a call that finds it taken
 * runs on its own thread alone, which is slower but never waits. */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#define IDLE_SPIN_NS 50000     /* a worker between runs */
#define BARRIER_SPIN_NS 500000 /* within a run: another thread is computing what this one waits for */
#define YIELD_AFTER_NS 10000   /* then let others have the core between looks */

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void sleep_while(atomic_uint *word, uint32_t value) {
#ifdef __linux__
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
#else
    if (atomic_load(word) == value) usleep(50);
#endif
}

static void wake_all(atomic_uint *word) {
#ifdef __linux__
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#else
    (void)word;
#endif
}

/* Returns once the word differs from `value`. */
static void word_wait(opw_word *word, uint32_t value, int64_t spin_ns) {
    int64_t start = 0, waited = 0;
    while (waited < spin_ns) {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&word->value, memory_order_acquire) != value) return;
            pause_briefly();
        }
        int64_t now = opw_now();
        if (!start) start = now;
        waited = now - start;
        if (waited > YIELD_AFTER_NS) sched_yield();
    }
    /* Sequentially consistent, as is word_set: either it sees the sleeper or the sleeper sees its value. */
    atomic_fetch_add(&word->sleepers, 1);
    while (atomic_load(&word->value) == value) sleep_while(&word->value, value);
    atomic_fetch_sub(&word->sleepers, 1);
}

static void word_set(opw_word *word, uint32_t value) {
    atomic_store(&word->value, value);
    if (atomic_load(&word->sleepers)) wake_all(&word->value);
}

void opw_barrier_wait(opw_barrier *barrier, uint32_t threads) {
    uint32_t generation = atomic_load_explicit(&barrier->generation.value, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) + 1 == threads) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        word_set(&barrier->generation, generation + 1);
        return;
    }
    word_wait(&barrier->generation, generation, BARRIER_SPIN_NS);
}

static struct {
    atomic_bool taken;
    int32_t workers; /* running, besides the caller; written by the call that has the pool */
    void (*work)(void *job, int32_t worker);
    void *job;
    int caller_core; /* where the caller was when it started the run, -1 where unknown */
    atomic_int remaining;
    uint32_t run; /* counts runs: the value of a ticket */
    opw_word finished;
    opw_word tickets[OPW_MAX_THREADS]; /* one a worker, so that a small run leaves the others asleep */
} pool;

/* A scheduler wakes a thread close to its waker, at times on the same core, where the two would take turns at every
 * barrier until the next balancing, milliseconds later. So a worker that finds itself on the caller's core leaves it. */
static void leave_core_of_caller(void) {
    if (pool.caller_core >= 0 && opw_current_core() == pool.caller_core) opw_use_processors(pool.caller_core);
}

static void *worker_main(void *argument) {
    int32_t worker = (int32_t)(intptr_t)argument;
    uint32_t seen = 0;
    opw_use_processors(-1); /* it was born with those of the caller, who may be pinned */
    for (;;) {
        opw_word *ticket = &pool.tickets[worker];
        word_wait(ticket, seen, IDLE_SPIN_NS);
        seen = atomic_load(&ticket->value);
        leave_core_of_caller();
        pool.work(pool.job, worker);
        if (atomic_fetch_sub(&pool.remaining, 1) == 1) word_set(&pool.finished, seen);
    }
    return NULL;
}

/* Starts workers until there are `wish`, or no more can be had; returns how many there are. */
static int32_t ensure_workers(int32_t wish) {
    while (pool.workers < wish) {
        int32_t worker = pool.workers + 1;
        pthread_attr_t attributes;
        pthread_t thread;
        sigset_t all, before;
        if (pthread_attr_init(&attributes)) break;
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        sigfillset(&all); /* signals are the application's: a worker takes none */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        atomic_store(&pool.tickets[worker].value, 0);
        int failed = pthread_create(&thread, &attributes, worker_main, (void *)(intptr_t)worker);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
        if (failed) break;
#ifdef __linux__
        char name[32];
        snprintf(name, sizeof name, "opweld-%d", (int)worker);
        pthread_setname_np(thread, name);
#endif
        pool.workers = worker;
    }
    return pool.workers < wish ? pool.workers : wish;
}

void opw_parallel(void (*work)(void *job, int32_t worker), void *job, int32_t *threads) {
    int32_t wish = *threads < OPW_MAX_THREADS ? *threads : OPW_MAX_THREADS;
    *threads = 1;
    if (wish <= 1 || atomic_exchange(&pool.taken, true)) {
        work(job, 0);
        return;
    }
    int32_t workers = ensure_workers(wish - 1);
    *threads = workers + 1;
    if (workers) {
        if (++pool.run == 0) pool.run = 1; /* a new worker waits for a ticket that is not 0 */
        pool.work = work;
        pool.job = job;
        pool.caller_core = opw_current_core();
        atomic_store(&pool.remaining, workers);
        for (int32_t worker = 1; worker <= workers; worker++) word_set(&pool.tickets[worker], pool.run);
    }
    uint32_t run = pool.run;
    work(job, 0);
    if (workers)
        for (uint32_t finished; (finished = atomic_load(&pool.finished.value)) != run;)
            word_wait(&pool.finished, finished, BARRIER_SPIN_NS);
    atomic_store(&pool.taken, false);
}

/* ---- fork: a child has the calling thread only, so its pool is empty ---- */

static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;

void opw_lock(void) { pthread_mutex_lock(&process_lock); }
void opw_unlock(void) { pthread_mutex_unlock(&process_lock); }

static void in_child(void) {
    memset((void *)&pool, 0, sizeof pool);
    pthread_mutex_init(&process_lock, NULL);
}

/* Runs when the library is loaded. It stays loaded from then on: its threads, and the handlers of fork, live in it. */
__attribute__((constructor)) static void settle(void) {
    Dl_info here;
    if (dladdr((void *)opw_lock, &here)) dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    opw_count_processors();
    pthread_atfork(opw_lock, opw_unlock, in_child);
}
