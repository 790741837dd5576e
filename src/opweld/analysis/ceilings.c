/* What a processor does at most: arithmetic from registers, loads and stores of a set of bytes, loads that depend on each
 * other, and threads that wait for each other. analysis/ceilings.py says what is measured, and how often.
 *
 * Threads are pinned, start together and work until the same moment; what they did together counts over the time from the
 * start to the end of the last. So two threads that took turns look as slow as they were. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__AMX_TILE__)
#include <immintrin.h>
#endif

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#define EXPORT __attribute__((visibility("default")))
#define LINE 64            /* bytes from one link of a chain to the next */
#define HUGE (2 << 20)     /* bytes of a huge page */
#define PAGE 4096          /* bytes of a small one, at least */
#define STEP (256 << 10)   /* bytes that are read or written between two looks at the clock */
#define TURNS 2048         /* of a loop of arithmetic between two looks at the clock */
#define PASSES 3           /* over a chain before it is followed */
#define LOADS 256         /* loads of a chain between two looks at the clock */
#define ROUNDS 64          /* barriers between two looks at the clock */

/* Registers decide how many sums are kept at a time: enough to hide the latency of any known processor, none spilled. */
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define REGISTER "v"
#define EACH EACH_24
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#define REGISTER "x"
#define EACH EACH_12
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define REGISTER "w"
#define EACH EACH_24
#else
#error "no target of opweld's"
#endif

/* One instruction. On Arm it adds to a sum; written as an expression, a compiler may compute the product only once. */
#if defined(__aarch64__)
#define MULTIPLY_ADD(a, x, y) (floats)vfmaq_f32((float32x4_t)(a), (float32x4_t)(x), (float32x4_t)(y))
#else
#define MULTIPLY_ADD(a, x, y) (a) * (x) + (y)
#endif

/* Named variables, for an array of vectors may live in memory. */
#define EACH_12(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11)
#define EACH_16(M) EACH_12(M) M(12) M(13) M(14) M(15)
#define EACH_24(M) EACH_16(M) M(16) M(17) M(18) M(19) M(20) M(21) M(22) M(23)
#define ONE(i) +1
#define SUMS (EACH(ONE))

typedef float floats __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t words __attribute__((vector_size(VECTOR_BYTES)));

/* What is asked, and what came out. */
typedef struct {
    int32_t what, threads, fresh; /* fresh: a chain is written first */
    const int32_t *processors;    /* one a thread */
    char *memory;
    int64_t stride; /* bytes from the part of one thread to that of the next */
    int64_t set;    /* bytes of its part that a thread uses, a multiple of 4096 */
    int64_t at;     /* where in its part each begins; then where the next request may go on */
    double seconds, warm; /* how long, and how long before that the same is done for nothing */
    double done, took;    /* operations, bytes, loads or barriers, and the seconds that they took */
    double share;         /* of the whole time, the part in which every thread had its processor: others had the rest */
} request;

typedef struct team team;

typedef struct {
    pthread_t thread;
    team *team;
    const request *job;
    int32_t index;
    char *memory;
    int64_t at;
    double done;
    double start, end, own; /* own: seconds of those from start to end in which it had its processor */
} worker;

struct team {
    request *job;
    double begin;
    atomic_int gate; /* 0: wait, 1: work, -1: go home */
    atomic_int stop;
    _Alignas(128) atomic_int arrived;
    _Alignas(128) atomic_int generation;
    worker workers[];
};

static volatile float kept; /* what was computed goes here, so that it is computed */

static double seconds_of(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double now(void) { return seconds_of(CLOCK_MONOTONIC); }

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The runtime's barrier, without sleeping: the last to arrive lets the others go. */
static void barrier(team *all) {
    int generation = atomic_load_explicit(&all->generation, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&all->arrived, 1, memory_order_acq_rel) + 1 == all->job->threads) {
        atomic_store_explicit(&all->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&all->generation, generation + 1, memory_order_release);
        return;
    }
    while (atomic_load_explicit(&all->generation, memory_order_acquire) == generation) pause_briefly();
}

/* A step does some ten microseconds of work and returns how much it was. */

static double step_fp32(worker *w) {
    floats x = (floats){0} + 0.75f, y = x;
    __asm__ volatile("" : "+m"(x), "+m"(y)); /* unknown to the compiler */
#define START(i) floats a##i = y + i;
#define TURN(i) a##i = MULTIPLY_ADD(a##i, x, y);
#define ADD(i) +a##i
    EACH(START)
    for (int turn = 0; turn < TURNS; turn++) { EACH(TURN) }
    floats sum = EACH(ADD);
    kept = sum[0];
    (void)w;
    return 2.0 * TURNS * SUMS * (VECTOR_BYTES / 4);
#undef START
#undef TURN
#undef ADD
}

#define START(i) words a##i = y + i;
#define ADD(i) +a##i
/* A step of dot products, with `each` multiplications an instruction. Intrinsics will not do: gcc 12 spills their sums. */
#define DOTS(each)                                                                       \
    words x = (words){0} + 0x3f413e7d3ec53f13, y = x;                                    \
    __asm__ volatile("" : "+m"(x), "+m"(y));                                             \
    EACH(START)                                                                          \
    for (int turn = 0; turn < TURNS; turn++) { EACH(TURN) }                              \
    words sum = EACH(ADD);                                                               \
    kept = (float)sum[0];                                                                \
    (void)w;                                                                             \
    return 2.0 * TURNS * SUMS * (each);

/* The same by a matrix unit: 16 rows of 16 words by 16 lanes, into four accumulators. */
#define TILES(instruction, each)                                                                      \
    static const struct {                                                                             \
        uint8_t palette, start, reserved[14];                                                         \
        uint16_t bytes[16];                                                                           \
        uint8_t rows[16];                                                                             \
    } shape = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};        \
    __asm__ volatile("" : : "r"(&shape) : "memory");                                                  \
    _tile_loadconfig(&shape);                                                                         \
    for (int turn = 0; turn < TURNS; turn++) {                                                        \
        instruction(0, 4, 6);                                                                         \
        instruction(1, 4, 7);                                                                         \
        instruction(2, 5, 6);                                                                         \
        instruction(3, 5, 7);                                                                         \
    }                                                                                                 \
    _tile_release();                                                                                  \
    (void)w;                                                                                          \
    return 2.0 * TURNS * 4 * 16 * 16 * 16 * (each);

#if defined(__AMX_TILE__) && defined(__AMX_BF16__)
static double step_bf16(worker *w) { TILES(_tile_dpbf16ps, 2) }
#elif defined(__AVX512BF16__)
#define TURN(i) __asm__("vdpbf16ps %2, %1, %0" : "+v"(a##i) : "v"(x), "v"(y));
static double step_bf16(worker *w) { DOTS(32) }
#undef TURN
#else
#define step_bf16 NULL
#endif

#if defined(__AMX_TILE__) && defined(__AMX_INT8__)
static double step_int8(worker *w) { TILES(_tile_dpbusd, 4) }
#elif defined(__AVX512VNNI__)
#define TURN(i) __asm__("vpdpbusd %2, %1, %0" : "+v"(a##i) : "v"(x), "v"(y));
static double step_int8(worker *w) { DOTS(64) }
#undef TURN
#elif defined(__AVXVNNI__)
#define TURN(i) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(a##i) : "x"(x), "x"(y));
static double step_int8(worker *w) { DOTS(32) }
#undef TURN
#elif defined(__AVX2__) || defined(__AVX512BW__)
/* The fastest without: of weights that cannot saturate it. */
#define TURN(i)                                                                                     \
    {                                                                                               \
        words pairs;                                                                                \
        __asm__("vpmaddubsw %3, %2, %1\n\tvpmaddwd %3, %1, %1\n\tvpaddd %1, %0, %0"                 \
                : "+" REGISTER(a##i), "=&" REGISTER(pairs)                                          \
                : REGISTER(y), REGISTER(x));                                                        \
    }
static double step_int8(worker *w) { DOTS(VECTOR_BYTES) }
#undef TURN
#else
#define step_int8 NULL
#endif
#undef START
#undef ADD

/* Additions of which each waits for the one before: one a cycle, on any processor. */
static double step_clock(worker *w) {
    uint64_t x = (uint64_t)w->index;
    for (int turn = 0; turn < TURNS; turn++) {
#define TURN(i) x += (uint64_t)turn; __asm__ volatile("" : "+r"(x));
        EACH_24(TURN)
#undef TURN
    }
    kept = (float)x;
    return TURNS * 24.0;
}

/* The next piece of the worker's set, and how often to go over it: a small set several times, a large one in pieces. */
static char *next_piece(worker *w, int64_t *bytes, int64_t *passes) {
    int64_t set = w->job->set;
    *bytes = set < STEP ? set : STEP;
    *passes = STEP / *bytes;
    if (w->at + *bytes > set) w->at = 0;
    char *piece = w->memory + w->at;
    w->at += *bytes;
    return piece;
}

/* Loads whose values nobody wants: what would add them up takes ports of its own, and the nearest cache is faster. */
static double step_read(worker *w) {
    int64_t bytes, passes;
    const char *piece = next_piece(w, &bytes, &passes);
    for (int64_t pass = 0; pass < passes; pass++) {
        for (const words *p = (const words *)piece; p < (const words *)(piece + bytes); p += 16) {
#define LOAD(i) __asm__ volatile("" : : REGISTER(p[i]));
            EACH_16(LOAD)
#undef LOAD
        }
    }
    return (double)(bytes * passes);
}

static double step_write(worker *w) {
    int64_t bytes, passes;
    char *piece = next_piece(w, &bytes, &passes);
    words value = {0};
    __asm__ volatile("" : "+m"(value));
    for (int64_t pass = 0; pass < passes; pass++) {
        for (words *p = (words *)piece; p < (words *)(piece + bytes); p += 16) {
#define STORE(i) p[i] = value;
            EACH_16(STORE)
#undef STORE
            __asm__ volatile("" ::: "memory"); /* else the loop becomes a call of memset, which may pass by the caches */
        }
    }
    return (double)(bytes * passes);
}

/* A chain through `lines` lines of memory, a power of two, that meets each once and comes back to the first. Its order is
 * that of a congruential generator of full period, so that writing it takes one pass and no prefetcher foresees it. */
static void write_chain(char *memory, int64_t lines) {
    for (int64_t i = 0; i < lines; i++) {
        int64_t next = (i * 1664525 + 1013904223) & (lines - 1);
        *(char **)(memory + i * LINE) = memory + next * LINE;
    }
}

/* Has the system give every page, each thread's by itself: on a machine of several memories, a near one. */
static double step_touch(worker *w) {
    for (int64_t at = 0; at < w->job->set; at += PAGE) w->memory[at] = 1;
    return (double)w->job->set;
}

static double step_chain(worker *w) {
    write_chain(w->memory, w->job->set / LINE);
    return (double)w->job->set;
}

/* Caches are slow to keep what was only written, or only once looked at. */
static void read_chain(worker *w) {
    for (int pass = 0; pass < PASSES; pass++) {
        for (int64_t at = 0; at < w->job->set; at += LINE) (void)*(volatile char *)(w->memory + at);
    }
}

static double step_chase(worker *w) {
    char *link = w->memory + w->at;
    for (int turn = 0; turn < LOADS; turn++) link = *(char **)link;
    w->at = link - w->memory;
    return LOADS;
}

/* Nobody can set `stop` for the next time before everybody has looked: there are barriers in between. */
static double step_barrier(worker *w) {
    team *all = w->team;
    for (int round = 0; round < ROUNDS - 1; round++) barrier(all);
    if (w->index == 0 && now() >= all->begin + all->job->seconds) all->stop = 1;
    barrier(all);
    return ROUNDS;
}

enum { FP32, BF16, INT8, CLOCK, READ, WRITE, TOUCH, CHAIN, CHASE, BARRIER, KINDS }; /* as in meter.py */

static double (*const steps[KINDS])(worker *) = {
    step_fp32, step_bf16, step_int8, step_clock, step_read, step_write, step_touch, step_chain, step_chase, step_barrier,
};

static void pin(int processor) {
#ifdef __linux__
    cpu_set_t set;
    CPU_ZERO(&set);
    if (processor >= CPU_SETSIZE) return;
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof set, &set);
#else
    (void)processor;
#endif
}

static void *work(void *argument) {
    worker *w = argument;
    team *all = w->team;
    const request *job = w->job;
    double (*step)(worker *) = steps[job->what];
    while (!all->gate) sched_yield();
    if (all->gate < 0) return NULL;
    pin(job->processors[w->index]);
    double own = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    w->start = now();
    if (job->fresh) { /* by the thread that follows it, so that no other has it in its cache */
        step_chain(w);
        read_chain(w);
    }
    if (job->what != BARRIER) { /* caches fill, and the clock gets to where it will stay */
        double until = w->start + job->warm;
        while (now() < until) step(w);
    }
    barrier(all);
    if (w->index == 0) all->begin = now();
    barrier(all);
    double until = all->begin + job->seconds;
    do {
        w->done += step(w);
        w->end = now();
    } while (job->what == BARRIER ? !all->stop : w->end < until);
    w->own = seconds_of(CLOCK_THREAD_CPUTIME_ID) - own;
    return NULL;
}

/* Does what is asked, and says how much and how long. Negative: there is no such instruction, or no thread to be had. */
EXPORT int32_t opw_ceiling(request *job) {
    if (job->what < 0 || job->what >= KINDS || !steps[job->what]) return -1;
    size_t bytes = (sizeof(team) + (size_t)job->threads * sizeof(worker) + 127) / 128 * 128;
    team *all = aligned_alloc(128, bytes);
    if (!all) return -1;
    *all = (team){.job = job};
    int32_t started = 0;
    for (; started < job->threads; started++) {
        worker *w = &all->workers[started];
        char *memory = job->memory ? job->memory + started * job->stride : NULL;
        *w = (worker){.team = all, .job = job, .index = started, .memory = memory, .at = job->at};
        if (pthread_create(&w->thread, NULL, work, w)) break;
    }
    all->gate = started == job->threads ? 1 : -1;
    double end = 0;
    job->done = 0, job->share = 1;
    for (int32_t i = 0; i < started; i++) {
        worker *w = &all->workers[i];
        pthread_join(w->thread, NULL);
        job->done += job->what == BARRIER && i ? 0 : w->done; /* a barrier is of all together */
        if (w->end > end) end = w->end;
        double share = w->own / (w->end - w->start);
        if (share < job->share) job->share = share;
    }
    int32_t status = all->gate < 0 ? -1 : 0;
    job->took = end - all->begin;
    job->at = started ? all->workers[0].at : 0;
    free(all);
    return status;
}

/* Memory in huge pages where the system gives some: with small ones, much of a load's time is that of finding its page.
 * `bytes` is a multiple of a huge page. NULL where there is none. */
EXPORT char *opw_memory(int64_t bytes) {
    char *place = mmap(NULL, (size_t)bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) return NULL;
    char *memory = (char *)(((uintptr_t)place + HUGE - 1) / HUGE * HUGE);
    if (memory > place) munmap(place, (size_t)(memory - place));
    if (memory < place + HUGE) munmap(memory + bytes, (size_t)(place + HUGE - memory));
#ifdef MADV_HUGEPAGE
    madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

EXPORT void opw_memory_free(char *memory, int64_t bytes) { munmap(memory, (size_t)bytes); }
