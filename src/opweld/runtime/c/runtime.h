/* Internal declarations of the runtime. */
#ifndef OPWELD_RUNTIME_H
#define OPWELD_RUNTIME_H

#include "opweld.h"

#include <stdatomic.h>
#include <stdbool.h>

#define OPW_ALIGNMENT 64
#define OPW_MAX_THREADS 1024
#define OPW_MAX_PLANS 256

/* ---- plan.c: everything evaluated for one set of input shapes ---- */

typedef struct {
    opw_kernel kernel;
    const int64_t *params;
    int64_t grid;
    int64_t work;          /* estimated nanoseconds on one core */
    int64_t first_pointer; /* of its buffers, in the pointer table */
    int64_t pieces;        /* equal parts of the grid that threads take, 1 where nothing is shared */
    int32_t step;          /* position in the variant: empty steps are left out of a plan */
} opw_bound_step;

/* Steps that do not depend on each other. Their pieces are numbered through, step after step. */
typedef struct {
    int32_t first, end; /* its steps, in the plan's order */
    int32_t threads;    /* with a share of it; 1: one thread computes it alone */
    int32_t pieces;     /* of all its steps */
    int64_t first_share; /* where its threads' begin in `first_pieces` of the plan, one more than there are threads */
    double work;         /* of all its steps */
} opw_phase;

/* The source of a pointer of the table: `kind` is INPUT, OUTPUT, CONSTANT or ARENA. */
typedef struct {
    int32_t kind;
    int32_t index;
    int64_t offset;
} opw_source;

struct opw_plan {
    uint64_t id; /* never used twice in a process, unlike an address */
    atomic_int references;
    const opw_model *model;
    const opw_variant *variant;
    int32_t variant_index;

    int32_t n_steps, n_phases;
    opw_bound_step *steps;
    opw_phase *phases;
    int64_t *slots;
    int64_t *params;
    int32_t *step_threads;
    int32_t *first_pieces; /* of the thread's share of a phase, by phase and thread */
    int64_t n_sources;
    opw_source *sources;
    int64_t n_external; /* positions of the pointers to inputs and outputs */
    int64_t *external;

    int32_t threads;
    double work; /* of all phases, in estimated nanoseconds */
    int64_t arena, sum, live, scratch;
    int64_t *arena_offsets, *arena_sizes; /* of each buffer of the variant: its offset, and its capacity */
    uint64_t present;                     /* a hash of the plan's steps */
    int64_t *input_bytes;
    int64_t *output_bytes;
    opw_tensor *outputs;

    /* the cache key: threads, shapes, and the bytes of by-value inputs */
    uint64_t hash;
    uint64_t last_used;
    size_t key_bytes;
    char *key;
    const char **values; /* per input: its bytes within `key`, NULL where not by value */
};

/* ---- model.c ---- */

/* Memory of one call: arena, then scratch of each thread; and the pointer table of the plan it served last. */
typedef struct opw_block {
    struct opw_block *next;
    char *memory;
    size_t capacity;
    void **pointers;
    size_t pointer_capacity;
    uint64_t plan_id; /* whose pointers the table holds, 0: none */
} opw_block;

struct opw_model {
    struct opw_model *next; /* all open models */
    char *module_path;
    uint64_t device, inode; /* of module.so */
    void *library;
    const opw_module *module;
    const char *weights;
    opw_model *segments; /* each with the module of its segment; weights are shared */

    /* guarded by opw_lock */
    opw_block *blocks;
    int32_t n_plans;
    uint64_t clock;
    opw_plan *plans[OPW_MAX_PLANS];
};

/* ---- shared services ---- */

/* Writes one formatted line. */
void opw_message(char *message, size_t capacity, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The one lock of the process: held for a few instructions at a time, and across fork, so that a child finds it free. */
void opw_lock(void);
void opw_unlock(void);

/* limits.c */
int64_t opw_memory_limit(void); /* bytes: the least of physical memory, the groups' limits and address-space limit */
int64_t opw_now(void);          /* monotonic nanoseconds */
int64_t opw_core_time(void);    /* nanoseconds for which the calling thread had a core; a system call */

/* groups.c: what the control groups of this process allow, INT64_MAX where they do not say */
void opw_find_groups(const char *root);  /* once, before the others; `root` is "", but for tests */
int64_t opw_group_processors(void);      /* processors' worth of time */
int64_t opw_group_memory(void);          /* bytes */

/* processors.c */
void opw_count_processors(void);        /* when the library is loaded, and in the child of a fork */
int32_t opw_processors(void);           /* that this process may use: affinity and cgroup quota */
int32_t opw_processors_of_caller(void); /* that the calling thread may use of them */
int opw_current_core(void);             /* that the calling thread is on, -1 where unknown */
void opw_use_processors(void);          /* lets the calling thread have all of the process's */
void opw_leave_processor(int core);     /* moves the calling thread off it, to where it may come back */

/* floats.c: the floating-point control word of the calling thread. A run computes with one of its own, whatever the
 * application has set: rounding to nearest, and denormal numbers as its module says. */
uint64_t opw_floats_enter(bool zero_denormals); /* returns the one that there was */
void opw_floats_leave(uint64_t before);

/* cpu.c: copies the first feature of `isa` that this processor lacks to `missing` and returns false. */
bool opw_cpu_supports(const char *isa, char *missing, size_t capacity);

/* state.c: whether the last input are the lengths of states. */
bool opw_has_lengths(const opw_module *module);

/* check.c: validates the tables of a module */
bool opw_check_module(const opw_module *module, char *message, size_t capacity);

/* bind.c: the key of a cached plan: threads, and the shapes of the first `n` inputs, and their by-value data. */
typedef struct {
    size_t bytes;
    char *data;
    const char **values;
    uint64_t hash;
} opw_key;

int32_t opw_key_make(const opw_module *module, const opw_tensor *inputs, int32_t n, bool by_value, int32_t threads,
                     opw_key *key, char *message, size_t capacity);
bool opw_key_is(const opw_key *key, const opw_plan *plan);
void opw_key_give(opw_key *key, opw_plan *plan); /* the plan owns it from now on */
void opw_key_free(opw_key *key);
bool opw_count_threads(int32_t *threads, char *message, size_t capacity); /* checked; 0 becomes the available number */

/* plan.c */
int64_t opw_tensor_bytes(const opw_tensor *tensor); /* of a dense one, -1 when a dim is negative or it overflows */
int32_t opw_plan_make(const opw_model *model, const opw_tensor *inputs, int32_t threads, opw_plan **plan,
                      char *message, size_t capacity);
/* Evaluates an unshared plan again, for inputs of other sizes; memory is placed again if it does not fit.
 * OPW_NO_VARIANT if its variant does not accept them. */
int32_t opw_plan_resize(opw_plan *plan, const opw_tensor *inputs, int32_t threads, char *message, size_t capacity);
void opw_plan_free(opw_plan *plan);

/* divide.c: makes the phases of a plan's steps, for at most so many threads; false without memory for it. */
bool opw_divide(opw_plan *plan, int32_t threads);

/* block.c: what memory of so many bytes is aligned to, a large page where it has several, which are then asked for. */
size_t opw_page_of(size_t bytes);
void opw_advise(void *memory, size_t bytes);

/* Memory of the given size and the table of the plan's pointers, NULL if it cannot be allocated; returned to the
 * model when the call is over. `opw_block_point` fills the table. */
opw_block *opw_block_take(opw_model *model, const opw_plan *plan, size_t bytes);
void opw_block_give(opw_model *model, opw_block *block);
void opw_block_point(const opw_model *model, const opw_plan *plan, opw_block *block, void *const *inputs,
                     void *const *outputs);

/* ---- threads.c ---- */

/* A word that threads wait on: they spin, then sleep. Each on a cache line of its own. */
typedef struct {
    _Alignas(OPW_ALIGNMENT) atomic_uint value;
    atomic_uint sleepers;
} opw_word;

/* Returns once the word differs from `value`, which it does not take for the word's value long ago. It returns the
 * nanoseconds that it spun, 0 where these are too few to read the clock for. */
int64_t opw_word_wait(opw_word *word, uint32_t value, int64_t spin_ns);
void opw_word_set(opw_word *word, uint32_t value);

/* The shared data of the threads of one call. The call may end while a worker is late: it has the team's address, but
 * no work for it. So a team is never freed; the last thread that leaves it passes it to `left`. */
typedef struct opw_team opw_team;

typedef struct {
    opw_team *team;
    int32_t number; /* of the thread */
} opw_seat;

struct opw_team {
    void (*work)(opw_team *team, int32_t worker);
    void (*left)(opw_team *team);
    opw_seat *seats; /* one a thread */
    int32_t threads; /* that the call wants to have, then has */
    atomic_int inside;
};

/* Calls work(team, 0) here and lets workers of the process-wide pool call work(team, 1..n-1), as soon as they are free;
 * returns when the first one is done, without waiting for the others. `threads` is set, before work starts, to n: at
 * most the want, fewer where threads cannot be made or other calls run at the same time. The caller is inside until it
 * leaves. */
void opw_parallel(opw_team *team);
void opw_team_leave(opw_team *team);

/* ---- alone.c: whether runs in several threads are worth their waiting ---- */

/* Whether runs that begin now are better made by their callers alone. */
bool opw_workers_rest(int64_t now);
/* Tells of a run in several threads: how long it lasted, how long its caller had a core without waiting, and the part of
 * the work that the caller did, 0 to 1. */
void opw_judge_workers(int64_t ended, int64_t lasted, int64_t computed, double own);

/* ---- walk.c: the execution of a plan's phases ---- */

#define OPW_MAX_PIECES 1000000        /* of a phase */
#define OPW_MAX_SHARED_PHASES 16000000 /* the later ones are for one thread */

/* The pieces taken from a thread's share of a phase: the phase (counted from 1), the number taken from the front, by
 * the owner, and from the back, by other threads (work stealing): adjacent pieces share weights and cache lines. */
typedef struct {
    _Alignas(OPW_ALIGNMENT) atomic_uint_least64_t taken;
} opw_share;

typedef struct opw_job {
    opw_team team;
    struct opw_job *next; /* of unused ones */
    int32_t n_seats;
    opw_share *shares; /* one a thread */
    const opw_plan *plan;
    void *const *pointers;
    char *scratch;
    opw_timing *timings; /* [thread][step], NULL if not timed */
    opw_watch watch;     /* NULL if not watched */
    void *context;       /* of the watcher */
    int64_t began;
    int64_t spun; /* nanoseconds that the caller had its core for waiting */
    double own;   /* of the plan's work, computed by the caller */
    int32_t zero_denormals; /* from the module */
    opw_word open; /* the phase that all take pieces of, counted from 1; 0: none so far */
    _Alignas(OPW_ALIGNMENT) atomic_int left; /* pieces of it that are not reported as done */
    _Alignas(OPW_ALIGNMENT) atomic_int failed_step; /* the earliest so far, INT32_MAX: none; written under the lock */
    int64_t error;
} opw_job;

/* A job for several threads with the plan's shares, NULL when there is no memory; ended by `opw_team_leave`. */
opw_job *opw_job_take(const opw_plan *plan);

/* Computes all phases, in as many threads as the team has. */
void opw_walk_plan(opw_job *job);

/* A point at which tests delay a thread. */
#ifndef OPW_HOLD
#define OPW_HOLD(where, worker) ((void)0)
#endif

#endif
