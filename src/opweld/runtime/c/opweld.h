/* opweld: run a compiled model from C. Link with the runtime.so of the artifact.
 *
 *   char message[1024];
 *   opw_model *model = opw_open("m.opweld", message, sizeof message);
 *   const opw_plan *plan;
 *   opw_bind(model, inputs, 0, &plan, message, sizeof message);      shapes -> plan, cached
 *   opw_plan_output(plan, 0, &output);                               dtype, rank, shape of output 0
 *   opw_run(model, plan, input_data, output_data, message, sizeof message);
 *   opw_plan_release(plan);
 *   opw_close(model);
 *
 * A model with dynamic control flow (opw_segments(model) > 0: a size or a branch depends on data) has no plan. It is
 * called:
 *
 *   opw_result *result;
 *   opw_call(model, inputs, 0, &result, message, sizeof message);
 *   opw_result_output(result, 0, &output);                           dtype, rank, shape and data of output 0
 *   opw_result_free(result);
 *
 * A model with states (opw_state_count(model) > 0: values that live between runs) is run with one of them at a time:
 *
 *   opw_state *state;
 *   opw_state_make(model, shapes, &state, message, sizeof message);  shapes[i]: of state i, with its capacity
 *   opw_state_begin(state, inputs, 0, &plan, message, sizeof message);
 *   opw_state_run(state, input_data, output_data, message, sizeof message);
 *   opw_state_free(state);
 *
 * Every function may be called from any thread. Calls that can fail return a status (or NULL) and write one line to
 * `message` (cut to `capacity` bytes; NULL and 0 are allowed). */
#ifndef OPWELD_H
#define OPWELD_H

#include "opweld_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OPW_API __attribute__((visibility("default")))

typedef struct opw_model opw_model;
typedef struct opw_plan opw_plan;
typedef struct opw_result opw_result;
typedef struct opw_state opw_state;

typedef enum {
    OPW_OK = 0,
    OPW_INVALID_INPUT = 1, /* an input has the wrong dtype, rank, shape or values, or a pointer is missing */
    OPW_NO_VARIANT = 2,    /* the inputs violate an assumption of every compiled variant */
    OPW_TOO_LARGE = 3,     /* a size overflows, or the plan needs more memory than the machine has */
    OPW_NO_MEMORY = 4,     /* an allocation failed */
    OPW_KERNEL_ERROR = 5,  /* a kernel met a bad index or a division by zero */
    OPW_BAD_MODULE = 6,    /* the module contradicts itself: a defect of the compiler */
    OPW_STATE_BUSY = 7,    /* another run uses the state */
    OPW_STATE_LOST = 8     /* a run failed that had begun to overwrite the state */
} opw_status;

/* The version of this library, and of its interface. */
OPW_API const char *opw_version(void);

/* Opens an artifact folder: loads module.so, maps weights.bin, checks interface and processor. NULL on failure. */
OPW_API opw_model *opw_open(const char *folder, char *message, size_t capacity);
/* Frees the model, its memory and its plans. No run of it may be in progress. */
OPW_API void opw_close(opw_model *model);

OPW_API int32_t opw_input_count(const opw_model *model);
OPW_API const char *opw_input_name(const opw_model *model, int32_t i);
OPW_API int32_t opw_input_dtype(const opw_model *model, int32_t i);
OPW_API int32_t opw_input_rank(const opw_model *model, int32_t i); /* -1: any */
OPW_API int32_t opw_input_by_value(const opw_model *model, int32_t i);
OPW_API int32_t opw_output_count(const opw_model *model);
OPW_API const char *opw_output_name(const opw_model *model, int32_t i);
/* How many segments the model has, 0 if its shapes follow from those of its inputs. */
OPW_API int32_t opw_segments(const opw_model *model);
/* Bytes of one element, 0 for an unknown code. */
OPW_API int64_t opw_dtype_size(int32_t dtype);

/* Finds or makes the plan for these input shapes, and for the values of inputs that are `by_value` (only theirs are
 * read: `data` of the others may be NULL). `threads`: at most so many, and no more than the process has processors;
 * 0: one for each processor. On success *plan holds a reference, released by opw_plan_release. */
OPW_API int32_t opw_bind(opw_model *model, const opw_tensor *inputs, int32_t threads, const opw_plan **plan,
                         char *message, size_t capacity);
OPW_API void opw_plan_release(const opw_plan *plan);

/* Writes dtype, rank and shape of output i; leaves `data` NULL. */
OPW_API void opw_plan_output(const opw_plan *plan, int32_t i, opw_tensor *output);
OPW_API int64_t opw_plan_arena(const opw_plan *plan);   /* bytes of the arena: the planned peak */
OPW_API int64_t opw_plan_sum(const opw_plan *plan);     /* bytes of all arena buffers together */
OPW_API int64_t opw_plan_live(const opw_plan *plan);    /* bytes of the largest live set: the lower bound */
OPW_API int64_t opw_plan_scratch(const opw_plan *plan); /* scratch bytes per thread */
OPW_API int32_t opw_plan_threads(const opw_plan *plan); /* the most threads that a phase uses */
OPW_API int32_t opw_plan_variant(const opw_plan *plan);
OPW_API const char *opw_plan_variant_name(const opw_plan *plan);
OPW_API int32_t opw_plan_steps(const opw_plan *plan);
OPW_API const char *opw_plan_step_name(const opw_plan *plan, int32_t step);
OPW_API const char *opw_plan_step_origin(const opw_plan *plan, int32_t step);
OPW_API int32_t opw_plan_step_phase(const opw_plan *plan, int32_t step);   /* steps of one phase run concurrently */
OPW_API int32_t opw_plan_step_threads(const opw_plan *plan, int32_t step); /* justified by its work, 0: its grid is empty */
OPW_API int64_t opw_plan_step_bytes(const opw_plan *plan, int32_t step);   /* least bytes moved, 0: unknown */
OPW_API int64_t opw_plan_step_work(const opw_plan *plan, int32_t step);    /* predicted nanoseconds on one core */
OPW_API int64_t opw_plan_step_flops(const opw_plan *plan, int32_t step);   /* it computes, 0: unknown */

/* Runs the plan. `inputs` and `outputs`: one pointer each, to dense row-major data; outputs overlap nothing. A caller
 * that is pinned to fewer cores than the plan has threads gets as many threads as those. */
OPW_API int32_t opw_run(opw_model *model, const opw_plan *plan, void *const *inputs, void *const *outputs,
                        char *message, size_t capacity);

/* The work of one thread on one step. Nanoseconds on one clock, since the run began. */
typedef struct {
    int64_t begin_ns, end_ns; /* of its first piece, of its last one */
    int64_t busy_ns;          /* computing in between; the rest it computed other steps of the phase */
    int64_t pieces;           /* parts of the grid that it took; 0: it had no part in the step */
} opw_timing;

/* Like opw_run, and writes to `timings`, for each of the opw_plan_threads threads, its work on each of the
 * opw_plan_steps steps, and to `run_ns` the time of the run. */
OPW_API int32_t opw_run_timed(opw_model *model, const opw_plan *plan, void *const *inputs, void *const *outputs,
                              opw_timing *timings, int64_t *run_ns, char *message, size_t capacity);

/* Called for each step when all steps of its phase are done, with the memory of its buffers, which later phases
 * reuse. */
typedef void (*opw_watch)(void *context, int32_t step, void *const *buffers);

/* Like opw_run, on the calling thread alone, one phase after the other. */
OPW_API int32_t opw_run_watched(opw_model *model, const opw_plan *plan, void *const *inputs, void *const *outputs,
                                opw_watch watch, void *context, char *message, size_t capacity);

/* Whether the calling thread has computed with denormal numbers since it was asked last, where they do not count as 0;
 * an opw_watch may ask it of the steps of its phase. Always 0 where the processor does not tell. */
OPW_API int32_t opw_denormals_met(void);

/* Computes all outputs of any model, into memory of its own: shapes, and if needed sizes and branches, follow from the
 * inputs. All of them need `data`. On success the caller owns the result. */
OPW_API int32_t opw_call(opw_model *model, const opw_tensor *inputs, int32_t threads, opw_result **result,
                         char *message, size_t capacity);
/* Runs a segment of a call in place of opw_run, to time it or to observe its values: `segment` is its number (0 for a model
 * without segments), `model` its model, `tensors` its bound inputs. Returns the status of opw_run. */
typedef int32_t (*opw_runner)(void *context, int32_t segment, opw_model *model, const opw_plan *plan,
                              const opw_tensor *tensors, void *const *inputs, void *const *outputs, char *message,
                              size_t capacity);

/* Like opw_call, and has each segment run by `runner`, each time it is executed. */
OPW_API int32_t opw_call_with(opw_model *model, const opw_tensor *inputs, int32_t threads, opw_runner runner,
                              void *context, opw_result **result, char *message, size_t capacity);
OPW_API void opw_result_output(const opw_result *result, int32_t i, opw_tensor *output); /* until the result is freed */
OPW_API void opw_result_free(opw_result *result);

/* ---- states: values that live between runs, written in place ----
 *
 * A state holds one value for each input that was declared to become an output. One with an axis grows: its size along it
 * is its capacity, of which the first `length` elements are in use; a run appends behind them. One without is replaced by
 * every run. A model may have any number of states; runs with different ones are independent. */

OPW_API int32_t opw_state_count(const opw_model *model);
OPW_API const char *opw_state_name(const opw_model *model, int32_t i); /* of the input that it is */
OPW_API int32_t opw_state_dtype(const opw_model *model, int32_t i);
OPW_API int32_t opw_state_rank(const opw_model *model, int32_t i);
OPW_API int32_t opw_state_axis(const opw_model *model, int32_t i); /* along which it grows, -1: it is replaced */

/* Makes a state of zeros; what grows is empty. `shapes`: rank and shape of each value, the capacity along its axis. It
 * must be freed before its model is closed. */
OPW_API int32_t opw_state_make(opw_model *model, const opw_tensor *shapes, opw_state **state, char *message,
                               size_t capacity);
OPW_API void opw_state_free(opw_state *state);
/* Resets it to its initial value, also if it was lost. OPW_STATE_BUSY while a run uses it. */
OPW_API int32_t opw_state_reset(opw_state *state, char *message, size_t capacity);
/* The memory of value i, with its capacity: to be read and written while no run uses it. */
OPW_API void opw_state_tensor(const opw_state *state, int32_t i, opw_tensor *tensor);
OPW_API int64_t opw_state_length(const opw_state *state, int32_t i); /* in use along its axis, -1: it is replaced */
/* Sets the length of value i in use, as after writing to its memory. */
OPW_API int32_t opw_state_set_length(opw_state *state, int32_t i, int64_t length, char *message, size_t capacity);
/* How many plans the state needed so far: one for the shapes of the inputs that are fed, however long it grows. */
OPW_API int32_t opw_state_plans(const opw_state *state);

/* Begins a run: takes the state for it, and evaluates all sizes for these inputs and the state's lengths. On success *plan
 * has the shapes of outputs; it belongs to the state and is valid until the run is over. Then opw_state_run runs it, or
 * opw_state_cancel releases the state. OPW_STATE_BUSY where another run has it, OPW_STATE_LOST after one that failed. */
OPW_API int32_t opw_state_begin(opw_state *state, const opw_tensor *inputs, int32_t threads, const opw_plan **plan,
                                char *message, size_t capacity);
/* Runs the plan, as opw_run, and releases the state. `inputs`: those that are fed. If it fails, growing values
 * are unchanged; if the model has states that a run replaces, OPW_KERNEL_ERROR means that all are lost. */
OPW_API int32_t opw_state_run(opw_state *state, void *const *inputs, void *const *outputs, char *message,
                              size_t capacity);
/* Like opw_state_run, with the clocks of opw_run_timed. */
OPW_API int32_t opw_state_run_timed(opw_state *state, void *const *inputs, void *const *outputs, opw_timing *timings,
                                    int64_t *run_ns, char *message, size_t capacity);
OPW_API void opw_state_cancel(opw_state *state);

/* The planner alone. Places n buffers of `sizes` bytes, alive in phases first..last inclusive, at 64-byte aligned
 * `offsets`, so that buffers alive together never overlap. totals: [0] peak, [1] sum of sizes, [2] largest live set,
 * all of sizes rounded up to 64 bytes. */
OPW_API int32_t opw_arena_plan(int32_t n, const int64_t *sizes, const int32_t *first, const int32_t *last,
                               int64_t *offsets, int64_t *totals);

#ifdef __cplusplus
}
#endif

#endif
