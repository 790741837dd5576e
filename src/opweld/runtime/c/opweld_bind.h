/* Declarations of kernels and evaluation of sizes for generated modules: without vectors, quick to compile. */
#ifndef OPWELD_BIND_H
#define OPWELD_BIND_H

#include <stdint.h>

#define OPW_DECLARE_KERNEL(name)                                                                                       \
    void name(void *const *buffers, const int64_t *p, int64_t begin, int64_t end, char *scratch, int64_t *error)

/* A function that runs once for each shape: straight code, often of thousands of operations, each of which may fail.
 * Optimising it took most of the time of a module. */
#if defined(__clang__)
#define OPW_ONCE __attribute__((optnone, noinline))
#else
#define OPW_ONCE __attribute__((optimize("O0")))
#endif

static inline __attribute__((unused)) int64_t opw_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline __attribute__((unused)) int64_t opw_max(int64_t a, int64_t b) { return a > b ? a : b; }
/* Division rounded towards minus infinity, b > 0. */
static inline __attribute__((unused)) int64_t opw_floordiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }
/* The remainder in [0, b), b > 0. */
static inline __attribute__((unused)) int64_t opw_mod(int64_t a, int64_t b) {
    int64_t r = a % b;
    return r < 0 ? r + b : r;
}

#endif
