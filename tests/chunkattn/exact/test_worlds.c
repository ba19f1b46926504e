/* Exactness on the CPU: see worlds.c. */
#include <stdlib.h>

#include "worlds.h"

static void *alloc(size_t bytes, const char *name) {
    (void)name;
    return malloc(bytes);
}

int main(int argc, char **argv) {
    static const backend cpu = {.budget_bytes = (uint64_t)256 << 20,
                                .most_pending = 1,
                                .page_gap = 3,
                                .alloc = alloc,
                                .free = free,
                                .begin = cattn_step_begin,
                                .write = cattn_step_write,
                                .attend = cattn_step_attend,
                                .plan_pages = cattn_pages_plan,
                                .attend_pages = cattn_pages_attend};
    return worlds_main(argc, argv, &cpu);
}
