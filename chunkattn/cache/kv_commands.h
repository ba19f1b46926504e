/*
 * K/V commands: every move of K/V between slots that the tree or a step needs, noted for an executor.
 *
 * The tree decides which chunk holds a token's K/V but never touches the K/V. They may be in this process's memory, on a device
 * or in another tier of memory, where only the executor can reach them. On a CPU the executor is chunkattn/attn/kv_copy.c.
 *
 * Where commands come from:
 *
 *   noted by                 command                                                        carried out
 *   append at an odd length  copy: the sequence's last token, into its new leaf             (a) before the next step's rows
 *   truncate to odd length   copy: the sequence's new last token, into its new leaf         (a)
 *   fork, CATTN_PRIVATE      copy: the ready slots of each chunk                            (a)
 *   step                     transpose: a slot group that the step's rows fill              (b) before the step's rows
 *   step                     copy: a branch's first slots from its parent's last chunk      (c) after the step's rows
 *
 * (a), (b) and (c) are carried out layer by layer, in this order: (a) and (b) when the layer's K/V are written, before the
 * rows, and (c) after them, since a branch may need a slot that the same step computes. All come before the layer's attention.
 *
 * Invariants:
 *
 *   1. Order is the only dependency, so commands are never reordered. A command may read what an earlier one wrote (the copy of
 *      a copy), and overwrite what an earlier one read (a chunk that was freed and reused).
 *   2. A token whose K/V are the result of a pending command counts as ready: everything that reads it comes after the command.
 *   3. A freed chunk needs no care while its memory stays. A pending copy from it still finds its contents, because its next
 *      owners fill it by later commands or by a step's rows. A pending copy to it is useless but harmless, because its next
 *      owners overwrite it before anything reads it. Hence a sequence may leave, or its chunks may be evicted, before its
 * copies have been made.
 *   4. Before memory returns to the system (ca_chunk_pool_trim), all pending commands are carried out. Memory of a device does
 *      not return.
 *   5. A command itself says which slot groups are open (layout.h) in its chunks at its place in the order. ca_chunk.open is
 * the state after the last command noted.
 *   6. Noting neither fails nor allocates. A call makes room for its commands of kind (a) before it changes anything, and a
 *      step for (b) and (c). At most CA_KV_PENDING commands (a) are pending where an executor can carry them out; before
 *      one more is noted, it does.
 *
 * An aborted step carries out (a) and (b), which do not depend on its rows, and undoes the noting of (c): the next step that
 * computes these rows notes them again. A step that fails to begin leaves (a) pending.
 *
 * On a device (chunkattn/cuda/device_step.c) commands (a) are carried out when the next step begins, for all layers, and (c) in
 * each layer behind its rows, all in stream order. It has no open groups, hence no (b), and no executor, which would have to
 * wait for work whose streams it does not know.
 *
 * One thread at a time may use a list of commands.
 */
#ifndef CHUNKATTN_CACHE_KV_COMMANDS_H
#define CHUNKATTN_CACHE_KV_COMMANDS_H

#include "chunk_pool.h"
#include "chunkattn/base/array.h"

typedef enum ca_kv_kind {
    CA_KV_COPY,      /* slots [begin, end) of `from` to the same slots of `to`, another chunk */
    CA_KV_TRANSPOSE, /* the slot group [begin, end) of `to`, which equals `from`: open before, closed after */
} ca_kv_kind;

/* One command, for K and V of all layers and KV heads. */
typedef struct ca_kv_command {
    ca_kv_kind kind;
    ca_chunk_id from, to;
    int32_t begin, end;          /* slots */
    uint32_t from_open, to_open; /* open slot groups of each chunk before the command; a copy changes none */
} ca_kv_command;

/* Commands in the order in which they are carried out. */
typedef CA_ARRAY(ca_kv_command) ca_kv_commands;

/*
 * Carries out commands that cannot wait for a step. `run` returns when the n commands have been carried out in their order, for
 * all layers and KV heads; it must not call the tree. If `run` is NULL, all commands wait for a step.
 */
typedef struct ca_kv_executor {
    void (*run)(void *ctx, const ca_kv_command *commands, size_t n);
    void *ctx; /* borrowed until the tree is destroyed */
} ca_kv_executor;

enum { CA_KV_PENDING = 512 };

/* Commands of kind (a) that have been noted and not carried out, in order. An array as CA_ARRAY makes it. */
typedef struct ca_kv_pending {
    ca_kv_command *at;
    size_t n, capacity;
    ca_kv_executor executor;
} ca_kv_pending;

/* Make room to note n more. Returns 0, or -1 without memory. */
int ca_kv_reserve(ca_kv_pending *pending, ca_alloc *alloc, size_t n);

/*
 * Note a copy of slots [begin, end), for which there is room. The slot groups that are open now, in both chunks, are noted in
 * the command.
 */
void ca_kv_note_copy(ca_kv_pending *pending, ca_chunk_pool *pool, ca_chunk_id to, ca_chunk_id from, int32_t begin, int32_t end);

/* Whether a pending command reads or writes slots of a chunk. */
bool ca_kv_touches(const ca_kv_pending *pending, ca_chunk_id id);

/* Carry out all pending commands, if there is an executor. */
void ca_kv_carry_out(ca_kv_pending *pending);

/* Move all pending commands to the end of a step's list, which must have room for them. */
void ca_kv_take(ca_kv_pending *pending, ca_kv_commands *commands);

/*
 * Open and close slot groups for a step's rows, which will fill slots [begin, end) of a chunk. A group whose first slot is
 * among them but whose last is not is opened. Each open group that they fill is closed by a transpose, which is added to
 * `commands`; there must be room for one command for each row. The rows are then written as ca_chunk.open says:
 *
 *   c = 64, rows for slots 20 to 37:   [0 .. 15 closed][16 .. 31 open][32 .. 47 -][48 .. 63 -]
 *                                  =>  [0 .. 15 closed][16 .. 31 closed, transposed][32 .. 47 open][48 .. 63 -]
 */
void ca_kv_open_and_close(const ca_chunk_layout *layout, ca_chunk_pool *pool, ca_chunk_id id, int32_t begin, int32_t end,
                          ca_kv_commands *commands);

#endif
