/* How calls that run at once share the pool: threads.c by itself, on eight processors. Prints how many threads each call
 * had, one line a scene. */
#include "threads.c"

#include <stdio.h>

int32_t opw_processors(void) { return 8; }
int opw_current_core(void) { return -1; }
void opw_use_processors(void) {}
void opw_leave_processor(int core) { (void)core; }
void opw_count_processors(void) {}
void opw_find_groups(const char *root) { (void)root; }
int64_t opw_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* A call that runs until it is told to end. */
typedef struct {
    opw_team team;
    opw_seat seats[8];
    atomic_int began; /* threads that are at work */
    atomic_bool end, left;
    pthread_t caller;
} held;

static void work(opw_team *team, int32_t worker) {
    held *self = (held *)team;
    (void)worker;
    atomic_fetch_add(&self->began, 1);
    while (!atomic_load(&self->end)) sched_yield();
}

static void left(opw_team *team) { atomic_store(&((held *)team)->left, true); }

static void *call(void *argument) {
    held *self = argument;
    opw_parallel(&self->team);
    opw_team_leave(&self->team);
    return NULL;
}

static void begin(held *self, int32_t want) {
    *self = (held){.team = {.work = work, .left = left, .seats = self->seats, .threads = want}};
    for (int32_t i = 0; i < 8; i++) self->seats[i] = (opw_seat){&self->team, i};
    pthread_create(&self->caller, NULL, call, self);
    while (!atomic_load(&self->began)) sched_yield();
    while (atomic_load(&self->began) < self->team.threads) sched_yield(); /* each of its workers really works for it */
}

static int end(held *self) {
    atomic_store(&self->end, true);
    pthread_join(self->caller, NULL);
    while (!atomic_load(&self->left)) sched_yield();
    return atomic_load(&self->began);
}

int main(void) {
    static held a, b, c;
    begin(&a, 8);
    printf("alone %d\n", end(&a));

    begin(&a, 8);
    begin(&b, 8);
    int late = b.team.threads;
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
