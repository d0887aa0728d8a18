/* Which frames a connection may send how often. */
#include "tests/support/unit.h"

#include <nghttp2/nghttp2.h>

#include "rpc/rpc_floods.h"

enum { END_STREAM = NGHTTP2_FLAG_END_STREAM, ACK = NGHTTP2_FLAG_ACK };
#define SECOND UINT64_C(1000000000)

static struct rpc_floods floods;

static int begin(void **state)
{
    (void)state;
    memset(&floods, 0, sizeof floods);
    return 0;
}

static void passes(int type, int flags, size_t length)
{
    const char *complaint = rpc_floods_frame(&floods, (uint8_t)type, (uint8_t)flags, length, 1);
    if (complaint)
        fail_msg("%s", complaint);
}

static void ends(int type, int flags, size_t length, const char *why)
{
    const char *complaint = rpc_floods_frame(&floods, (uint8_t)type, (uint8_t)flags, length, 1);
    assert_non_null(complaint);
    assert_non_null(strstr(complaint, why));
}

TEST_IN(a_header_block_may_have_64_kib, begin, NULL)
{
    passes(NGHTTP2_HEADERS, 0, 30000);
    passes(NGHTTP2_CONTINUATION, 0, 30000);
    passes(NGHTTP2_CONTINUATION, 0, RPC_MAX_BLOCK_BYTES - 60000);
    passes(NGHTTP2_HEADERS, 0, RPC_MAX_BLOCK_BYTES); /* counted anew */
    ends(NGHTTP2_CONTINUATION, 0, 1, "64 KiB");
    ends(NGHTTP2_HEADERS, 0, SIZE_MAX, "64 KiB");
}

TEST_IN(a_header_block_may_have_32_frames, begin, NULL)
{
    passes(NGHTTP2_HEADERS, 0, 10);
    for (int i = 1; i < RPC_MAX_BLOCK_FRAMES; i++)
        passes(NGHTTP2_CONTINUATION, 0, 0);
    ends(NGHTTP2_CONTINUATION, 0, 0, "32 frames");
}

TEST_IN(cancelling_has_a_rate, begin, NULL)
{
    for (int i = 0; i < RPC_RESETS_BURST; i++)
        passes(NGHTTP2_RST_STREAM, 0, 4);
    ends(NGHTTP2_RST_STREAM, 0, 4, "cancelled");
    for (int i = 0; i < 200; i++) /* a second later there is room again */
        assert_null(rpc_floods_frame(&floods, NGHTTP2_RST_STREAM, 0, 4, SECOND + 1));
    assert_non_null(rpc_floods_frame(&floods, NGHTTP2_RST_STREAM, 0, 4, SECOND + 1));
}

TEST_IN(resets_that_a_client_provokes_have_a_rate, begin, NULL)
{
    for (int i = 0; i < RPC_RESETS_BURST; i++)
        assert_null(rpc_floods_answer(&floods, NGHTTP2_RST_STREAM, 1));
    assert_non_null(rpc_floods_answer(&floods, NGHTTP2_RST_STREAM, 1));
    passes(NGHTTP2_RST_STREAM, 0, 4); /* counted apart */
}

TEST_IN(pings_have_a_rate_while_there_is_no_data, begin, NULL)
{
    for (int i = 0; i < RPC_PINGS_BURST; i++)
        passes(NGHTTP2_PING, 0, 8);
    passes(NGHTTP2_PING, ACK, 8);
    assert_null(rpc_floods_answer(&floods, NGHTTP2_DATA, 1)); /* a client that gets data may measure its rate */
    for (int i = 0; i < RPC_PINGS_BURST; i++)
        passes(NGHTTP2_PING, 0, 8);
    assert_null(rpc_floods_answer(&floods, NGHTTP2_PING, 1));
    ends(NGHTTP2_PING, 0, 8, "pings");
}

TEST_IN(settings_and_empty_data_have_a_rate, begin, NULL)
{
    for (int i = 0; i < RPC_ODD_FRAMES_BURST / 2; i++) {
        passes(NGHTTP2_SETTINGS, 0, 0);
        passes(NGHTTP2_DATA, 0, 0);
    }
    passes(NGHTTP2_SETTINGS, ACK, 0); /* what acknowledges ours does not count */
    passes(NGHTTP2_DATA, END_STREAM, 0);
    passes(NGHTTP2_DATA, 0, 1);
    ends(NGHTTP2_SETTINGS, 0, 0, "flood");
    ends(200, 0, 0, "flood"); /* unknown */
}

TEST_IN(tiny_window_updates_have_a_rate, begin, NULL)
{
    for (int i = 0; i < RPC_DRIBBLES_BURST; i++) {
        passes(NGHTTP2_WINDOW_UPDATE, 0, 4);
        assert_null(rpc_floods_window(&floods, RPC_DRIBBLE_BYTES - 1, 1));
    }
    assert_null(rpc_floods_window(&floods, RPC_DRIBBLE_BYTES, 1));
    assert_non_null(rpc_floods_window(&floods, RPC_DRIBBLE_BYTES - 1, 1));
    assert_null(rpc_floods_answer(&floods, NGHTTP2_HEADERS, 1)); /* another answer may have to be paid for */
    assert_null(rpc_floods_window(&floods, 1, 1));
}
