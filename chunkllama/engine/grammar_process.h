/*
 * A grammar library whose grammars have processes of their own, one for each different text: see grammar.h. What a grammar does
 * to its process (time, memory, a crash) ends the requests that have this grammar, and no others. Nobody waits for it longer
 * than the limits in grammar_serve.h, or until the calling thread's deadline.
 *
 * Compiled grammars stay in their processes while there is room, and are found again by their text, by requests of the same
 * domain. Processes and memory that requests use are shared by domains: each may have as much as it leaves free.
 */
#ifndef CHUNKLLAMA_ENGINE_GRAMMAR_PROCESS_H
#define CHUNKLLAMA_ENGINE_GRAMMAR_PROCESS_H

#include "grammar_serve.h"

/*
 * Fork the starter (grammar_starter.h), which opens the library by open(path, tok, n_vocab). tok is used by the forked
 * processes alone, and limits are copied. Errors: those of `open`, and CL_ERR_NOMEM. *library is NULL then.
 *
 * compile also returns CL_ERR_BUSY, if the requests of the domain have their share of processes or memory; CL_ERR_NOMEM, if the
 * process was ended from outside; and the error of cl_deadline_check.
 */
cl_status cl_grammar_open_processes(cl_grammar_open_fn *open, const char *path, const cl_tokenizer *tok, int32_t n_vocab,
                                    const cl_process_limits *limits, cl_grammar_library **library, cl_error *error);

#endif
