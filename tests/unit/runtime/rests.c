/* When runs are made by their callers alone: alone.c by itself, with runs that are told. Prints one line a scene. */
#include "alone.c"

#include <stdio.h>

enum { MS = 1000000 };
static int64_t now = 1000LL * MS;

/* Runs of one thread that take so long, until several threads are tried; returns how many. */
static int alone(int64_t lasted) {
    int runs = 0;
    for (; opw_workers_rest(now); now += lasted) runs++;
    return runs;
}

/* Up to `most` runs of two threads, until runs are made alone; returns how many. */
static int together(int most, int64_t lasted, int64_t computed, double own) {
    for (int runs = 0; runs < most; runs++) {
        if (opw_workers_rest(now)) return runs;
        now += lasted;
        opw_judge_workers(now, lasted, computed, own);
    }
    return most;
}

int main(void) {
    printf("quiet: %d of 100\n", together(100, 3 * MS, 5 * MS / 2, 0.5));
    printf("no faster than one: %d of 100\n", together(100, 5 * MS, 5 * MS / 2, 0.5));
    printf("a serial step of a worker: %d of 100\n", together(100, 5 * MS, MS / 4, 0.05));
    together(20, 3 * MS, 5 * MS / 2, 0.5);
    together(1, 13 * MS, 5 * MS / 2, 0.5);
    printf("a core is lost once, then quiet: %d of 20\n", together(20, 3 * MS, 5 * MS / 2, 0.5));
    together(1, 2000LL * MS, 100 * MS, 1);
    printf("weights are read from disk, then quiet: %d of 20\n", together(20, 3 * MS, 5 * MS / 2, 0.5));
    int late = together(100, 13 * MS, 5 * MS / 2, 0.5);
    printf("late: %d, then alone %d\n", late, alone(5 * MS)); /* 16 times 13 ms */
    late = together(100, 13 * MS, 5 * MS / 2, 0.5);
    printf("still late: %d, then alone %d\n", late, alone(5 * MS));
    printf("quiet again: %d of 100\n", together(100, 3 * MS, 5 * MS / 2, 0.5));
    late = together(100, 1000LL * MS, 250 * MS, 0.5);
    printf("long ones: %d, then alone %d\n", late, alone(500 * MS));
    printf("many threads, some of them late: %d of 100\n", together(100, 3 * MS, 2 * MS, 1.0 / 16));
    return 0;
}
