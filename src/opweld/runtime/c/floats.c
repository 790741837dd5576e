/* The floating-point control word of each thread: rounding mode and handling of denormals. */
#include "runtime.h"

#if defined(__x86_64__)
enum { ROUND_TO_NEAREST_ALL_MASKED = 0x1f80, INPUTS_ARE_ZERO = 1 << 6, RESULTS_ARE_ZERO = 1 << 15 };
enum { WHAT_HAPPENED = 0x3f }; /* sticky exception flags, which do not affect later operations */
enum { DENORMAL_OPERAND = 1 << 1 };

static uint64_t control(void) { return __builtin_ia32_stmxcsr(); }
static void set_control(uint64_t word) { __builtin_ia32_ldmxcsr((unsigned)word); }
static uint64_t wanted(bool zero) {
    return ROUND_TO_NEAREST_ALL_MASKED | (zero ? INPUTS_ARE_ZERO | RESULTS_ARE_ZERO : 0);
}
#elif defined(__aarch64__)
enum { FLUSH_TO_ZERO = 1 << 24 }; /* inputs and results */
enum { WHAT_HAPPENED = 0, DENORMAL_OPERAND = 0 }; /* are in another register */

static uint64_t control(void) {
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}
static void set_control(uint64_t word) { __asm__ volatile("msr fpcr, %0" : : "r"(word)); }
static uint64_t wanted(bool zero) { return zero ? FLUSH_TO_ZERO : 0; }
#else
enum { WHAT_HAPPENED = 0, DENORMAL_OPERAND = 0 };

static uint64_t control(void) { return 0; }
static void set_control(uint64_t word) { (void)word; }
static uint64_t wanted(bool zero) { return (void)zero, 0; }
#endif

uint64_t opw_floats_enter(bool zero_denormals) {
    uint64_t before = control(), ours = wanted(zero_denormals);
    if ((before ^ ours) & ~(uint64_t)WHAT_HAPPENED) set_control(ours);
    return before;
}

void opw_floats_leave(uint64_t before) {
    if ((control() ^ before) & ~(uint64_t)WHAT_HAPPENED) set_control(before);
}

int32_t opw_denormals_met(void) {
    uint64_t word = control();
    if (word & WHAT_HAPPENED) set_control(word & ~(uint64_t)WHAT_HAPPENED);
    return (word & DENORMAL_OPERAND) != 0;
}
