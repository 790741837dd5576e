/* The processors that the process, and the calling thread, may use.
 *
 * The process's are those that its main thread and the thread that loaded this library could use at that moment: a
 * thread that an application pins to a core later, or that it had pinned before, says nothing about the others. */
#define _GNU_SOURCE
#include "runtime.h"

#include <sched.h>
#include <unistd.h>

static int32_t clamp(int64_t count) {
    if (count < 1) return 1;
    return count < OPW_MAX_THREADS ? (int32_t)count : OPW_MAX_THREADS;
}

static int32_t processors = 1;

int32_t opw_processors(void) { return processors; }

#ifdef __linux__
static cpu_set_t of_process;

void opw_count_processors(void) {
    cpu_set_t main_thread, caller;
    if (sched_getaffinity(getpid(), sizeof main_thread, &main_thread)) CPU_ZERO(&main_thread);
    if (sched_getaffinity(0, sizeof caller, &caller)) CPU_ZERO(&caller);
    CPU_OR(&of_process, &main_thread, &caller);
    int64_t count = CPU_COUNT(&of_process);
    if (!count) count = sysconf(_SC_NPROCESSORS_ONLN); /* more than a cpu_set_t tells apart */
    int64_t quota = opw_group_processors();
    processors = clamp(quota < count ? quota : count);
}

int32_t opw_processors_of_caller(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return processors;
    int32_t count = clamp(CPU_COUNT(&set));
    return count < processors ? count : processors;
}

int opw_current_core(void) { return sched_getcpu(); }

void opw_use_processors(void) {
    if (CPU_COUNT(&of_process)) sched_setaffinity(0, sizeof of_process, &of_process);
}

void opw_leave_processor(int core) {
    cpu_set_t others = of_process;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) && !sched_setaffinity(0, sizeof others, &others)) opw_use_processors();
}
#else
void opw_count_processors(void) { processors = clamp(sysconf(_SC_NPROCESSORS_ONLN)); }
int32_t opw_processors_of_caller(void) { return processors; }
int opw_current_core(void) { return -1; }
void opw_use_processors(void) {}
void opw_leave_processor(int core) { (void)core; }
#endif
