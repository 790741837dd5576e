/* The memory that the machine and its administrator allow this process. */
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

int64_t opw_core_time(void) {
    struct timespec used = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

int64_t opw_memory_limit(void) {
    int64_t limit = INT64_MAX, bytes;
    if (!__builtin_mul_overflow((int64_t)sysconf(_SC_PHYS_PAGES), (int64_t)sysconf(_SC_PAGESIZE), &bytes) && bytes > 0)
        limit = bytes;
    struct rlimit space;
    if (!getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY && (int64_t)space.rlim_cur > 0 &&
        (int64_t)space.rlim_cur < limit)
        limit = (int64_t)space.rlim_cur;
    int64_t group = opw_group_memory();
    return group < limit ? group : limit;
}
