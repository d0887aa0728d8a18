/* What a process that listens on the daemon's socket sends to a client that asks, from the first byte: the first byte of the
 * input is the size of the pieces (0: all at once; 128 and more: after a daemon's greeting). Two calls are under way. When
 * the connection has ended, both have, with a status or a cause, and no message is longer than its prefix says. Reaches
 * rpc_channel.c, rpc_stream.c, rpc_trailers.c and libnghttp2. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/text.h"
#include "client/rpc_channel.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

static const uint8_t greeting[] = "\0\0\0\4\0\0\0\0\0";
enum { GREETING_BYTES = sizeof greeting - 1, N_CALLS = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth)
{
    if (!truth)
        abort();
}

static void discard(int fd)
{
    static uint8_t bytes[64 << 10];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

/* What has come until now; true when the call has ended. */
static bool take_answers(struct rpc_channel *channel, struct rpc_stream *stream)
{
    struct rpc_answer *answer;
    while (rpc_channel_wait(channel, stream, 1) && (answer = rpc_channel_take(channel, stream)) != NULL) {
        check(answer->count == answer->length && answer->length <= RPC_STREAM_MAX_MESSAGE_BYTES);
        free(answer);
    }
    return stream->end != RPC_END_NONE;
}

static void say(int fd, const uint8_t *bytes, size_t count, size_t piece, struct rpc_channel *channel,
                struct rpc_stream streams[N_CALLS])
{
    for (size_t at = 0; at < count; at += piece) {
        size_t n = count - at < piece ? count - at : piece;
        if (send(fd, bytes + at, n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n)
            return;
        rpc_channel_is_usable(channel); /* reads */
        for (size_t i = 0; i < N_CALLS; i++)
            take_answers(channel, &streams[i]);
        discard(fd);
    }
}

static void check_end(struct rpc_channel *channel, struct rpc_stream *stream)
{
    const struct rpc_trailers *trailers = &stream->trailers;
    while (!take_answers(channel, stream))
        rpc_channel_wait(channel, stream, UINT64_MAX); /* the other side is closed: it ends */
    check(stream->end == RPC_END_STATUS ? trailers->has_status && trailers->is_grpc : stream->cause[0]);
    check(text_is_utf8(trailers->told.message, strlen(trailers->told.message)) && trailers->code >= 0 &&
          trailers->code <= 16);
    rpc_channel_leave(channel, stream);
    rpc_stream_fini(stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const Tensorcast__Daemon__V1__StatusRequest request = TENSORCAST__DAEMON__V1__STATUS_REQUEST__INIT;
    char path[] = "/tensorcast.daemon.v1.StoreDaemon/Status";
    struct rpc_stream streams[N_CALLS];
    struct error error;
    int ends[2];
    if (size < 1)
        return 0;
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    struct rpc_channel *channel = rpc_channel_create(ends[0]);
    for (size_t i = 0; i < N_CALLS; i++) {
        rpc_stream_init(&streams[i]);
        check(rpc_stream_pack(&streams[i], &request.base, &error) == 0);
        rpc_channel_submit(channel, &streams[i], path, i ? 1000 : UINT64_MAX, "");
    }
    if (data[0] >= 128)
        say(ends[1], greeting, GREETING_BYTES, GREETING_BYTES, channel, streams);
    size_t piece = data[0] % 128;
    say(ends[1], data + 1, size - 1, piece ? piece : size, channel, streams);
    close(ends[1]);
    for (size_t i = 0; i < N_CALLS; i++)
        check_end(channel, &streams[i]);
    rpc_channel_unref(channel);
    return 0;
}
