/*
 * Lowers the budget of the K/V cache while the system lacks memory, and raises it again afterwards.
 *
 * The kernel's pressure stall information (PSI) says for how long tasks have waited for memory: memory.pressure of a control
 * group for its processes, /proc/pressure/memory for the whole machine. A control group may also have a limit, at which the
 * kernel ends a process. Where the PSI file's folder has memory.current, memory that is nearly used up therefore counts as
 * pressure, too.
 *
 * All files are opened once, so reading them needs no right to open files (sandbox.h).
 */
#ifndef SERVE_HTTP_PRESSURE_H
#define SERVE_HTTP_PRESSURE_H

#include "chunkllama/engine/engine.h"

typedef struct http_pressure http_pressure;

/*
 * Open a PSI file and those beside it. "auto": the file of this process's control group (version 2), or the machine's.
 * CL_ERR_FILE says which file cannot be read and why; CL_ERR_NOMEM. *p is NULL then.
 */
cl_status pressure_open(const char *path, http_pressure **p, cl_error *error);

/* NULL and pointers to NULL are ignored. */
void pressure_close(http_pressure **p);

typedef struct pressure_sample {
    double stalled; /* the part of the time since the last sample in which some task waited for memory, 0 to 1 */
    double used;    /* memory that the control group cannot drop at once, relative to its limit; 0: there is none */
} pressure_sample;

/* Read the files. now: seconds of a clock. The first sample, and a file that cannot be read any more, report no pressure. */
pressure_sample pressure_read(http_pressure *p, double now);

/* Zero but for `whole` and `bytes`, which are the configured budget. */
typedef struct pressure_budget {
    uint64_t whole, bytes; /* as configured, and now */
    double calm_since;     /* the time of the last sample that was not calm, or of the last raise */
} pressure_budget;

/*
 * Decide on the budget after a sample. A sample with pressure (stalled for more than 10 % of the time, or 95 % of the limit in
 * use) lowers it to three quarters of bytes_in_use, but not below an eighth of the whole. It rises by an eighth after each 10 s
 * without a sample that is not calm (stalled for more than 1 %, or 85 % in use).
 */
void pressure_decide(pressure_budget *b, const pressure_sample *sample, uint64_t bytes_in_use, double now);

/* Read the files and change the engine's budget accordingly. To be called about once a second, for one engine. */
void pressure_follow(http_pressure *p, cl_engine *engine);

#endif
