/* gRPC's own client, in plain C: what the server has to get along with. Test thread. */
#ifndef TESTS_SUPPORT_RAW_GRPC_H
#define TESTS_SUPPORT_RAW_GRPC_H

#include <grpc/grpc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

grpc_channel *raw_channel(const char *socket, const grpc_arg *extra, size_t n_extra);

struct raw_call; /* a call in progress */
struct raw_bytes {
    void *data;
    size_t count;
};
struct raw_call *raw_start(grpc_channel *channel, const char *path, const void *message, size_t count, uint64_t timeout_ms);
struct raw_call *raw_open(grpc_channel *channel, const char *path, uint64_t timeout_ms); /* bidi: nothing sent yet */
void raw_send(struct raw_call *call, const void *message, size_t count);
void raw_half_close(struct raw_call *call);
bool raw_receive(struct raw_call *call, struct raw_bytes *bytes); /* false at the end; the caller frees data */
void raw_cancel(struct raw_call *call);
/* Waits for the status; frees the call. details: grpc-status-details-bin, NULL when absent; caller frees both. */
int raw_finish(struct raw_call *call, char **message, struct raw_bytes *details);
/* start, receive at most one message (may be NULL), finish. */
int raw_unary(grpc_channel *channel, const char *path, const void *message, size_t count, struct raw_bytes *reply,
              char **text);

#endif
