/* See http_scene.h. */
#include "tests/support/http_scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"

struct http_scene http_scene;

static void play(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    struct http_scene *scene = data;
    play_fn *fn = request->number < 4 && scene->plays[request->number] ? scene->plays[request->number] : scene->others;
    if (fn)
        fn(peer, request, data);
    else
        http_script_send_range(peer, request, UINT64_MAX);
}

int http_scene_open(void **state)
{
    (void)state;
    memset(&http_scene, 0, sizeof http_scene);
    memset(http_scene.bytes, 0xEE, sizeof http_scene.bytes);
    http_scene.options = (struct http_engine_options){.backoff_ms = 2, .max_tries = 4, .hedge_percent = 101};
    return 0;
}

void http_scene_stop(void)
{
    http_reply_clear(&http_scene.reply);
    http_engine_destroy(http_scene.engine);
    if (http_scene.script)
        http_script_stop(http_scene.script);
    http_scene.script = NULL;
    http_scene.engine = NULL;
}

void http_scene_start(void)
{
    http_scene_stop();
    memset(http_scene.bytes, 0xEE, sizeof http_scene.bytes);
    for (size_t i = 0; i < OBJECT_BYTES; i++)
        http_scene.object[i] = (unsigned char)(i * 31 + i / 253);
    if (http_engine_create(&http_scene.options, &http_scene.engine, &http_scene.error)) {
        fprintf(stderr, "%s\n", http_scene.error.message);
        abort();
    }
    http_scene.script = http_script_start(&(struct http_script_options){.play = play,
                                                                        .accept = http_scene.accept,
                                                                        .data = &http_scene,
                                                                        .body_limit = http_scene.body_limit,
                                                                        .object = http_scene.object,
                                                                        .object_bytes = OBJECT_BYTES});
    http_script_url(http_scene.script, "/bucket/o?sig=SECRET", http_scene.url);
}

void http_scene_start_proxy(void)
{
    char proxy[HTTP_SCRIPT_URL_CHARS];
    http_scene.options.fence.allow_plain = true;
    http_scene_start();
    setenv("http_proxy", http_script_url(http_scene.script, "", proxy), 1);
    snprintf(http_scene.url, sizeof http_scene.url, "http://example.invalid/bucket/o");
}

void http_scene_end_proxy(void)
{
    unsetenv("http_proxy");
}

int http_scene_close(void **state)
{
    (void)state;
    http_scene_stop();
    return 0;
}

void http_scene_send_head(struct http_script_peer *peer, const struct http_script_request *request, const char *lines)
{
    char head[512];
    snprintf(head, sizeof head, "HTTP/1.1 206 Partial\r\nContent-Range: bytes %llu-%llu/%d\r\n%s\r\n",
             (unsigned long long)request->first, (unsigned long long)request->last, OBJECT_BYTES, lines);
    http_script_send(peer, head);
}

void http_scene_hang_up(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_close(peer);
}

void http_scene_reset(struct http_script_peer *peer, const struct http_script_request *request, void *data)
{
    (void)request, (void)data;
    http_script_reset(peer);
}

bool http_scene_is_cancelled(void *data)
{
    (void)data;
    return atomic_load(&http_scene.is_cancelled) != 0;
}

int http_scene_fetch(struct http_call call)
{
    http_reply_clear(&http_scene.reply);
    call.url = call.url ? call.url : http_scene.url;
    call.max_reply_bytes = call.max_reply_bytes ? call.max_reply_bytes : OBJECT_BYTES;
    return http_fetch(http_scene.engine, &call, &http_scene.reply, &http_scene.error);
}

static int read_and_sum(unsigned char bytes[BYTES], uint64_t *sum, struct error *error)
{
    struct cancel cancel = {.is_set = http_scene_is_cancelled};
    struct iovec iov[] = {{bytes, 1}, {bytes + 1, BYTES - 1}};
    struct http_range range = {.url = http_scene.url,
                               .name = "o",
                               .offset = OFFSET,
                               .iov = iov,
                               .n_iov = 2,
                               .object_bytes = OBJECT_BYTES,
                               .checksum = CHECKSUM_CRC32C,
                               .checksum_value = sum,
                               .cancel = &cancel};
    return http_read_range(http_scene.engine, &range, error);
}

int http_scene_read(unsigned char bytes[BYTES], struct error *error)
{
    uint64_t sum;
    return read_and_sum(bytes, &sum, error);
}

bool http_scene_has_read(void)
{
    const unsigned char *wanted = http_scene.object + OFFSET;
    uint64_t sum;
    const char *problem = read_and_sum(http_scene.bytes, &sum, &http_scene.error) ? http_scene.error.message
                          : memcmp(http_scene.bytes, wanted, BYTES) != 0          ? "wrong bytes"
                          : sum != crc32c_update(0, wanted, BYTES)                ? "a wrong checksum"
                                                                                  : NULL;
    if (problem)
        fprintf(stderr, "the read: %s\n", problem);
    return !problem;
}

bool http_scene_fails(enum error_code code, const char *reason)
{
    const struct error *error = &http_scene.error;
    bool failed = http_scene_read(http_scene.bytes, &http_scene.error) < 0;
    bool as_expected =
        failed && error->code == code && strcmp(error->reason, reason) == 0 && !strstr(error->message, "SECRET");
    if (!as_expected)
        fprintf(stderr, "not %s but %s %s: %s\n", reason, failed ? error_code_name(error->code) : "success",
                failed ? error->reason : "", failed ? error->message : "");
    return as_expected;
}

bool http_scene_has_seen(unsigned n_requests, unsigned n_connections)
{
    unsigned requests = http_script_requests(http_scene.script), connections = http_script_connections(http_scene.script);
    if (requests != n_requests || connections != n_connections)
        fprintf(stderr, "%u requests on %u connections\n", requests, connections);
    return requests == n_requests && connections == n_connections;
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void http_scene_sort_lines(const struct http_script_request *request, char *out)
{
    char head[HTTP_SCRIPT_HEAD_BYTES], *lines[32], *rest = head;
    size_t n = 0;
    snprintf(head, sizeof head, "%s", request->head);
    for (char *line; n < 32 && (line = strsep(&rest, "\n"));)
        if (*line && *line != '\r' && strncmp(line, "Content-Length:", 15) != 0)
            lines[n++] = line;
    qsort(lines, n, sizeof *lines, compare_lines);
    *out = '\0';
    for (size_t i = 0; i < n; i++)
        out += sprintf(out, "%.*s|", (int)strcspn(lines[i], "\r"), lines[i]);
}
