/* One pool of threads for the whole process, shared by all models and by all calls that run at once.
 *
 * An idle worker spins briefly, so that back-to-back runs start it in well under a microsecond, then sleeps, so that an
 * idle process uses no processor time. The caller is worker 0. A call takes free workers, as many as it wants if all
 * calls that want several threads can have what they want, else its share of the processors: so consecutive calls get
 * all of them, many concurrent calls get a core each, and no call waits for another. */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#define IDLE_SPIN_NS 50000 /* a worker between runs */

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

/* Nanoseconds of spinning: what is more, the thread did not have its core. */
static int64_t at_most(int64_t spin_ns, int64_t waited) { return waited < spin_ns ? waited : spin_ns; }

/* A thread that waits does not yield its core while it spins: where another process wants that, too, it would have it for
 * a whole slice, milliseconds, and the wait mostly is over in microseconds. One that sleeps is woken when it is. */
int64_t opw_word_wait(opw_word *word, uint32_t value, int64_t spin_ns) {
    int64_t start = 0, waited = 0;
    while (waited < spin_ns) {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&word->value, memory_order_acquire) != value)
                return at_most(spin_ns, start ? opw_now() - start : 0);
            pause_briefly();
        }
        int64_t now = opw_now();
        if (!start) start = now;
        waited = now - start;
    }
    /* Sequentially consistent, as is word_set: either it sees the sleeper or the sleeper sees its value. */
    atomic_fetch_add(&word->sleepers, 1);
    while (atomic_load(&word->value) == value) sleep_while(&word->value, value);
    atomic_fetch_sub(&word->sleepers, 1);
    return at_most(spin_ns, waited);
}

void opw_word_set(opw_word *word, uint32_t value) {
    atomic_store(&word->value, value);
    if (atomic_load(&word->sleepers)) wake_all(&word->value);
}

typedef struct {
    _Alignas(OPW_ALIGNMENT) atomic_bool taken; /* by a call, which makes offers */
    atomic_uintptr_t offer;                    /* opw_seat: the worker's seat, 0: none */
    atomic_int caller_core; /* the caller's core at the time of the offer, -1 where unknown */
    opw_word offers;        /* counts them */
} opw_worker;

static struct {
    atomic_int wanted;  /* threads, by all calls that run and want several */
    atomic_int workers; /* that there are, written under the lock */
    opw_worker worker[OPW_MAX_THREADS];
} pool;

/* A scheduler wakes a thread close to its waker, sometimes on the same core, where the two would alternate until the next
 * balancing, milliseconds later. So a worker that finds itself on the caller's core migrates. */
static void leave_core_of_caller(opw_worker *self) {
    int core = atomic_load_explicit(&self->caller_core, memory_order_relaxed);
    if (core >= 0 && opw_current_core() == core) opw_leave_processor(core);
}

static void *worker_main(void *argument) {
    opw_worker *self = argument;
    opw_use_processors(); /* it inherited the affinity of the caller, which may be pinned */
    for (;;) {
        uint32_t seen = atomic_load(&self->offers.value);
        opw_seat *seat = (opw_seat *)atomic_exchange(&self->offer, 0);
        if (seat) {
            leave_core_of_caller(self);
            seat->team->work(seat->team, seat->number);
            opw_team_leave(seat->team);
        } else {
            opw_word_wait(&self->offers, seen, IDLE_SPIN_NS);
        }
    }
    return NULL;
}

/* Starts another worker, which the caller has taken; false when none can be had, or each processor has one. */
static bool start_worker(int32_t *index) {
    bool started = false;
    opw_lock();
    *index = atomic_load(&pool.workers);
    pthread_attr_t attributes;
    if (*index < opw_processors() - 1 && !pthread_attr_init(&attributes)) {
        pthread_t thread;
        sigset_t all, before;
        atomic_store(&pool.worker[*index].taken, true);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        sigfillset(&all); /* workers block all signals, which are for the application */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        started = !pthread_create(&thread, &attributes, worker_main, &pool.worker[*index]);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
#ifdef __linux__
        char name[32];
        snprintf(name, sizeof name, "opweld-%d", (int)*index + 1);
        if (started) pthread_setname_np(thread, name);
#endif
        if (started)
            atomic_store(&pool.workers, *index + 1);
        else
            atomic_store(&pool.worker[*index].taken, false);
    }
    opw_unlock();
    return started;
}

/* Takes up to `want` workers that no other call has, new ones where there are none; returns how many. */
static int32_t take_workers(int32_t want, int32_t *taken) {
    int32_t count = 0, there = atomic_load(&pool.workers);
    for (int32_t i = 0; i < there && count < want; i++)
        if (!atomic_load_explicit(&pool.worker[i].taken, memory_order_relaxed) &&
            !atomic_exchange(&pool.worker[i].taken, true))
            taken[count++] = i;
    while (count < want && start_worker(&taken[count])) count++;
    return count;
}

/* The number of threads granted to a call: as many as wanted, or its share of the processors, rounded. */
static int32_t part_of(int32_t want) {
    int64_t wanted = atomic_fetch_add(&pool.wanted, want) + want, processors = opw_processors();
    int64_t part = wanted <= processors ? want : (processors * want + (wanted - 1) / 2) / wanted;
    return part < 1 ? 1 : (int32_t)part;
}

void opw_team_leave(opw_team *team) {
    if (atomic_fetch_sub_explicit(&team->inside, 1, memory_order_acq_rel) == 1) team->left(team);
}

static void make_offers(opw_team *team, int32_t workers, const int32_t *taken) {
    int core = opw_current_core();
    for (int32_t i = 0; i < workers; i++) {
        opw_worker *worker = &pool.worker[taken[i]];
        atomic_store_explicit(&worker->caller_core, core, memory_order_relaxed);
        atomic_store(&worker->offer, (uintptr_t)&team->seats[i + 1]);
        opw_word_set(&worker->offers, atomic_load(&worker->offers.value) + 1);
    }
}

/* A worker that has not accepted the offer by now never does; others leave on their own. */
static void end_offers(opw_team *team, int32_t workers, const int32_t *taken) {
    for (int32_t i = 0; i < workers; i++) {
        opw_worker *worker = &pool.worker[taken[i]];
        if (atomic_exchange(&worker->offer, 0)) opw_team_leave(team);
        atomic_store(&worker->taken, false);
    }
}

void opw_parallel(opw_team *team) {
    int32_t want = team->threads < OPW_MAX_THREADS ? team->threads : OPW_MAX_THREADS;
    int32_t taken[OPW_MAX_THREADS];
    int32_t workers = take_workers(part_of(want) - 1, taken);
    team->threads = workers + 1; /* before any of them begins */
    atomic_store_explicit(&team->inside, team->threads, memory_order_relaxed);
    make_offers(team, workers, taken);
    team->work(team, 0);
    end_offers(team, workers, taken);
    atomic_fetch_sub(&pool.wanted, want);
}

/* ---- fork: a child has the calling thread only, so its pool is empty ---- */

static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;

void opw_lock(void) { pthread_mutex_lock(&process_lock); }
void opw_unlock(void) { pthread_mutex_unlock(&process_lock); }

static void in_child(void) {
    memset((void *)&pool, 0, sizeof pool);
    pthread_mutex_init(&process_lock, NULL);
    opw_count_processors(); /* a parent may pin itself before it forks, and so its children */
}

/* Runs when the library is loaded. It stays loaded from then on: its threads, and the handlers of fork, live in it. */
__attribute__((constructor)) static void settle_threads(void) {
    Dl_info here;
    if (dladdr((void *)opw_lock, &here)) dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    opw_find_groups("");
    opw_count_processors();
    pthread_atfork(opw_lock, opw_unlock, in_child);
}
