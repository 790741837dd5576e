/* Prints the processors and the bytes that the control groups under a made-up root allow: groups ROOT. */
#include "groups.c"

int main(int count, char **arguments) {
    if (count != 2) return 2;
    opw_find_groups(arguments[1]);
    printf("%lld %lld\n", (long long)opw_group_processors(), (long long)opw_group_memory());
    return 0;
}
