/*
 * The disk of a simulated file tier: one file in memory, of which part is on the medium. It is slow, fails, transfers less than
 * it was given, and lies, as the plan says (faults.h); its process may be killed, and its power may fail.
 *
 * A read or write takes time, in which the program goes on (io_thread.h).
 */
#ifndef TESTS_CHUNKATTN_SIM_SIM_DISK_H
#define TESTS_CHUNKATTN_SIM_SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkattn/tier/file.h"

/* The system calls for the tier; their clock is io_thread_seconds. */
extern const ca_tier_files sim_disk_files;

/* Begin with an empty disk, whose calls take `seconds` each, more or less, and which refuses to hold more than max_bytes. */
void sim_disk_reset(uint64_t max_bytes, double seconds);

/*
 * The process is killed: of the write in progress only a part reaches the file, and no further one. Nothing is closed properly;
 * until sim_disk_start all calls fail.
 */
void sim_disk_kill(void);

/* The power fails: of what was written since the disk began, each block may be lost or there. */
void sim_disk_lose_power(void);

/* The process begins again. */
void sim_disk_start(void);

typedef struct sim_disk_state {
    const uint8_t *bytes; /* the file, [size] */
    uint64_t size;
    int64_t n_failed;      /* calls that have returned an error since the disk began */
    int64_t n_lying_reads; /* that have returned wrong bytes and success */
    bool has_lied;         /* some bytes may not be those that were written */
    const char *wrong;     /* a call that was not allowed: what is wrong with it; NULL: none */
} sim_disk_state;

const sim_disk_state *sim_disk(void);

#endif
