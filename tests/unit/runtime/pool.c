/* How calls that run at once share the pool: threads.c by itself, on eight processors. Prints how many threads each call
 * had, one line a scene. */
#include "threads.c"

#include <stdio.h>

int32_t opw_processors(void) { return 8; }
int opw_current_core(void) { return -1; }
void opw_use_processors(int except) { (void)except; }
void opw_count_processors(void) {}
int64_t opw_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* A call that runs until it is told to end. */
typedef struct {
    atomic_int began; /* threads that are at work */
    atomic_bool end;
    int32_t threads;
    pthread_t caller;
} held;

static void work(void *job, int32_t worker) {
    held *self = job;
    (void)worker;
    atomic_fetch_add(&self->began, 1);
    while (!atomic_load(&self->end)) sched_yield();
}

static void *call(void *argument) {
    held *self = argument;
    opw_parallel(work, self, &self->threads);
    return NULL;
}

static void begin(held *self, int32_t wish) {
    *self = (held){.threads = wish};
    pthread_create(&self->caller, NULL, call, self);
    while (!atomic_load(&self->began)) sched_yield();
    while (atomic_load(&self->began) < self->threads) sched_yield(); /* each of its workers really works for it */
}

static int end(held *self) {
    atomic_store(&self->end, true);
    pthread_join(self->caller, NULL);
    return atomic_load(&self->began);
}

int main(void) {
    held a, b, c;
    begin(&a, 8);
    printf("alone %d\n", end(&a));

    begin(&a, 8);
    begin(&b, 8);
    int late = b.threads;
    end(&a);
    begin(&a, 8);
    end(&b);
    begin(&b, 8);
    printf("late %d, then %d and %d\n", late, end(&a), end(&b));

    begin(&a, 2);
    begin(&b, 6);
    begin(&c, 1);
    printf("content %d, %d and %d\n", end(&a), end(&b), end(&c));

    begin(&a, 8);
    printf("alone again %d\n", end(&a));
    return 0;
}
