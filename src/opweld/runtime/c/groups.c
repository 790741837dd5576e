/* The limits of this process's control groups: version 2, and version 1, whose controllers are mounted one by one.
 *
 * A group is limited by all groups that contain it. So the limits are read from the process's own group up to the top
 * of the mounted hierarchy, which in a container is the container's group. */
#define _GNU_SOURCE
#include "runtime.h"

#include <stdio.h>
#include <string.h>

enum { UNIFIED, CPU, MEMORY, N_TREES }; /* the tree of version 2; of version 1, one for each controller */

/* The folder of the process's group in a tree, empty if none; its first `top` characters are the mount point. */
static struct {
    char folder[4096];
    size_t top;
} own[N_TREES];

/* Whether a comma-separated list contains the word. */
static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ',')) return true;
    return false;
}

static bool is_of(int tree, const char *controllers) {
    if (tree == UNIFIED) return !*controllers;
    return has_word(controllers, tree == CPU ? "cpu" : "memory");
}

/* The path of the own group in a tree, from /proc/self/cgroup. */
static bool find_path(const char *root, int tree, char *path, size_t capacity) {
    char name[4096], line[4096];
    snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    FILE *file = fopen(name, "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *end = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!end) continue;
        *end = 0;
        found = is_of(tree, controllers + 1);
        if (found) snprintf(path, capacity, "%s", end + 1);
    }
    if (file) fclose(file);
    return found;
}

/* `inside`: which of the tree's groups is mounted at `point`. */
static void settle(const char *root, int tree, const char *inside, const char *point) {
    char path[4096];
    if (own[tree].folder[0] || !find_path(root, tree, path, sizeof path)) return;
    size_t above = strcmp(inside, "/") ? strlen(inside) : 0;
    bool below = !strncmp(path, inside, above) && (!path[above] || path[above] == '/') && !strstr(path, "/..");
    int top = snprintf(own[tree].folder, sizeof own[tree].folder, "%s%s", root, point);
    own[tree].top = (size_t)top;
    size_t room = sizeof own[tree].folder - own[tree].top;
    if (!below || snprintf(own[tree].folder + top, room, "%s", path + above) >= (int)room) own[tree].folder[top] = 0;
    for (size_t end = strlen(own[tree].folder); end > own[tree].top && own[tree].folder[end - 1] == '/';)
        own[tree].folder[--end] = 0;
}

void opw_find_groups(const char *root) {
    memset(own, 0, sizeof own);
    char name[4096], line[8192], inside[2048], point[1024], type[64], options[4096];
    snprintf(name, sizeof name, "%s/proc/self/mountinfo", root);
    FILE *file = fopen(name, "re");
    while (file && fgets(line, sizeof line, file)) {
        const char *rest = strstr(line, " - ");
        if (!rest || sscanf(line, "%*s %*s %*s %2047s %1023s", inside, point) != 2) continue;
        if (sscanf(rest, " - %63s %*s %4095s", type, options) != 2) continue;
        if (!strcmp(type, "cgroup2")) settle(root, UNIFIED, inside, point);
        for (int tree = CPU; tree < N_TREES; tree++)
            if (!strcmp(type, "cgroup") && is_of(tree, options)) settle(root, tree, inside, point);
    }
    if (file) fclose(file);
}

/* Reads up to two numbers from a file of a group; returns how many there were ("max" is none). */
static int read_numbers(const char *folder, const char *name, int64_t numbers[2]) {
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    long long first = 0, second = 0;
    int count = fscanf(file, "%lld %lld", &first, &second);
    fclose(file);
    numbers[0] = first;
    numbers[1] = second;
    return count < 0 ? 0 : count;
}

static int64_t processors_of(int tree, const char *folder) {
    int64_t quota[2], period[2]; /* microseconds of processor time, per period */
    bool limited = tree == UNIFIED ? read_numbers(folder, "cpu.max", quota) == 2
                                   : read_numbers(folder, "cpu.cfs_quota_us", quota) == 1 &&
                                         read_numbers(folder, "cpu.cfs_period_us", period) == 1;
    if (limited && tree != UNIFIED) quota[1] = period[0];
    return limited && quota[0] > 0 && quota[1] > 0 ? quota[0] / quota[1] + (quota[0] % quota[1] > 0) : INT64_MAX;
}

static int64_t memory_of(int tree, const char *folder) {
    int64_t bytes[2];
    bool limited = read_numbers(folder, tree == UNIFIED ? "memory.max" : "memory.limit_in_bytes", bytes) >= 1;
    return limited && bytes[0] > 0 ? bytes[0] : INT64_MAX;
}

/* The minimum over the process's group and all above it, in both trees. */
static int64_t least_limit(int64_t (*limit_of)(int tree, const char *folder), int second) {
    int64_t limit = INT64_MAX;
    for (int tree = UNIFIED; tree < N_TREES; tree++) {
        if (tree != UNIFIED && tree != second) continue;
        char folder[sizeof own[tree].folder];
        memcpy(folder, own[tree].folder, sizeof folder);
        size_t end = strlen(folder);
        while (end) {
            int64_t here = limit_of(tree, folder);
            if (here < limit) limit = here;
            if (end <= own[tree].top) break;
            while (folder[--end] != '/') continue;
            folder[end] = 0;
        }
    }
    return limit;
}

int64_t opw_group_processors(void) { return least_limit(processors_of, CPU); }
int64_t opw_group_memory(void) { return least_limit(memory_of, MEMORY); }
