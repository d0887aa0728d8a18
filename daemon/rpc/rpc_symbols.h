/* What a serialized FileDescriptorSet declares, for reflection: files by name and by the symbols in them.
 * Borrows the bytes for good (they are linked in). Const once created; any thread. */
#ifndef RPC_SYMBOLS_H
#define RPC_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

struct rpc_symbols;

struct rpc_symbols *rpc_symbols_create(const void *descriptor_set, size_t bytes);
void rpc_symbols_destroy(struct rpc_symbols *symbols); /* accepts NULL */
size_t rpc_symbols_n_files(const struct rpc_symbols *symbols);
/* A serialized FileDescriptorProto. */
const uint8_t *rpc_symbols_file(const struct rpc_symbols *symbols, int file, size_t *bytes);
int rpc_symbols_find_file(const struct rpc_symbols *symbols, const char *name); /* -1 = none */
/* The file that declares a service, method, message, field, enum or enum value by its full name; -1 = none. */
int rpc_symbols_find(const struct rpc_symbols *symbols, const char *symbol);
/* The file and everything it imports, itself first, into an array of n_files. Returns how many. */
size_t rpc_symbols_closure(const struct rpc_symbols *symbols, int file, int *needed);

#endif
