/* What the machine and its administrator let this process use. */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void opw_message(char *message, size_t capacity, const char *format, ...) {
    if (!message || !capacity) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, capacity, format, arguments);
    va_end(arguments);
}

int64_t opw_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Reads up to two numbers from a file of the cgroup interface; returns how many there were ("max" is none). */
static int read_numbers(const char *path, int64_t numbers[2]) {
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    long long first = 0, second = 0;
    int count = fscanf(file, "%lld %lld", &first, &second);
    fclose(file);
    numbers[0] = first;
    numbers[1] = second;
    return count < 0 ? 0 : count;
}

int64_t opw_processor_quota(void) {
    int64_t quota[2]; /* microseconds of processor time, per period */
    bool limited = read_numbers("/sys/fs/cgroup/cpu.max", quota) == 2 && quota[0] > 0 && quota[1] > 0;
    return limited ? quota[0] / quota[1] + (quota[0] % quota[1] > 0) : INT64_MAX;
}

int64_t opw_memory_limit(void) {
    int64_t limit = INT64_MAX, bytes;
    if (!__builtin_mul_overflow((int64_t)sysconf(_SC_PHYS_PAGES), (int64_t)sysconf(_SC_PAGESIZE), &bytes) && bytes > 0)
        limit = bytes;
    struct rlimit space;
    if (!getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY && (int64_t)space.rlim_cur > 0 &&
        (int64_t)space.rlim_cur < limit)
        limit = (int64_t)space.rlim_cur;
    int64_t group[2];
    if (read_numbers("/sys/fs/cgroup/memory.max", group) >= 1 && group[0] > 0 && group[0] < limit) limit = group[0];
    return limit;
}
